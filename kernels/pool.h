/* pool.h: the workers of a CPU device. */
#ifndef LTI_POOL_H
#define LTI_POOL_H

#include "kernels/internal.h"

typedef struct lti_pool lti_pool;

/* The caller is worker 0; threads - 1 more are started. Errors: LT_ERR_MEM. */
LT_MUST_USE lt_status lti_pool_create(lti_pool **out, int threads);
void lti_pool_destroy(lti_pool **pool);
void lti_pool_run(lti_pool *pool, int64_t ntasks, lti_task_fn *fn, void *arg);

#endif
