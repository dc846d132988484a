/* scheduler: being written */
typedef int lti_scheduler_empty;
