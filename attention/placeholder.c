/* attention: being written */
typedef int lti_attention_empty;
