/* attention.h: what the files of the attention operation share. */
#ifndef LTI_KERNELS_ATTENTION_H
#define LTI_KERNELS_ATTENTION_H

#include "kernels/internal.h"

enum { LTI_ATTN_MAX_HEAD_DIM = 512 };

/* Shapes, types, and that the plan stays inside lq and lk: one pass over its runs, so that a plan made for other sizes
 * is a message and not a read past the keys. */
LT_MUST_USE lt_status lti_attention_check(lt_dev *dev, const lt_attention_args *a);

#endif
