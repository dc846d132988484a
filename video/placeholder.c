/* video: being written */
typedef int lti_video_empty;
