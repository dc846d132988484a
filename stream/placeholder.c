/* stream: being written */
typedef int lti_stream_empty;
