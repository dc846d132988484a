/* table.c: the table of operations of an instruction set, and the public calls that go through a device's table. */
#include "kernels/internal.h"

void lti_kernels_for(lt_kernels *k, lti_isa isa)
{
    lti_ref_register(k);
    if (isa == LTI_ISA_REF) return;
    lti_pointwise_register(k, isa);
    lti_gemm_register(k, isa);
    lti_attention_register(k, isa);
    lti_fft_register(k);
}

void lti_ref_register(lt_kernels *k)
{
#define X(name) k->name = lti_##name##_ref;
    LT_OP_MAP(X)
#undef X
}

#define X(name)                                                 \
    lt_status lt_##name(lt_dev *dev, const lt_##name##_args *a) \
    {                                                           \
        lti_dev_enter(dev);                                     \
        const lt_status s = lti_dev_kernels(dev)->name(dev, a); \
        lti_dev_leave(dev);                                     \
        return s;                                               \
    }
LT_OP_MAP(X)
#undef X
