/* vae: being written */
typedef int lti_vae_empty;
