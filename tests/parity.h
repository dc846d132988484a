/* parity.h: what the files parity_*.c share. One function a kind of golden case; parity_main.c opens the file, calls it, and prints
 * one line an output.
 */
#ifndef LT_TESTS_PARITY_H
#define LT_TESTS_PARITY_H

#include "video/dit.h"

#include <jansson.h>

typedef struct lt_parity {
    lt_ctx *ctx;
    lt_dev *dev;
    lt_dtype dtype;       /* compute type of matrix products */
    double tol;           /* relative L2 that an output may differ by */
    const char *path;     /* of the golden file, e.g. for opening its weights */
    const char *file;     /* last part of it, for lines */
    const json_t *config; /* `config` of the header */
    lti_tensors *arrays;  /* names as stored: "in.g0.x", "out.g0.v", "weight.head.head.bias" */
    int compared, failed;
    struct lt_parity_array *kept; /* freed after the case */
} lt_parity;

typedef struct lt_parity_array {
    float *data; /* f32, packed, aligned; owned by the case */
    int64_t n;
    int ndim;
    int64_t dim[8];
    struct lt_parity_array *next;
} lt_parity_array;

/* LT_OK: everything was compared (whether or not it was near enough). LT_ERR_UNSUPPORTED: a skip, the message is the reason.
 * Another error fails the file. */
typedef lt_status lt_parity_fn(lt_parity *p);
lt_parity_fn lt_parity_dit, lt_parity_t5, lt_parity_vae, lt_parity_sched, lt_parity_warp,
    lt_parity_e2e, lt_parity_causal, lt_parity_toybox, lt_parity_clips;

/* The array of that (formatted) name; NULL when the file has none. Out of memory and a file that cannot be read are NULL
 * too. */
const lt_parity_array *lt_parity_find(lt_parity *p, const char *fmt, ...) LT_PRINTF(2, 3);
/* The same, where its absence is LT_ERR_MISSING. */
LT_MUST_USE lt_status lt_parity_get(lt_parity *p, const lt_parity_array **out, const char *fmt, ...)
    LT_PRINTF(3, 4);

/* Weights under a prefix ("weight.", "weight.t5.", "weight.dit."), as a source of canonical names. lti_tensors_close when done. */
LT_MUST_USE lt_status lt_parity_weights(lt_parity *p, lti_tensors **out, lti_part part,
                                        const char *prefix);

/* The same, checked against the configuration "dit" ("t5") of the case and loaded (opened). */
LT_MUST_USE lt_status lt_parity_load_dit(lt_parity *p, lti_dit **dit, const char *prefix);
LT_MUST_USE lt_status lt_parity_open_text(lt_parity *p, lti_tensors **t, lti_text_config *c,
                                          const char *prefix);

/* The model folder that config names (`model`, relative to the file). lt_model_close when done. */
LT_MUST_USE lt_status lt_parity_open_model(lt_parity *p, lt_model **m);

/* Compares got [n] (host) with the array "out.<name>" and prints the line. An absent array is no comparison (debug outputs are in
 * some runs only). Counts a failure when rel_l2 > p->tol, when sizes differ, or when got is not finite. */
void lt_parity_compare(lt_parity *p, const float *got, int64_t n, const char *fmt, ...)
    LT_PRINTF(4, 5);
/* Values that must be equal (timesteps, indices). */
void lt_parity_exact(lt_parity *p, const float *got, int64_t n, const char *fmt, ...)
    LT_PRINTF(4, 5);
/* Device memory to a new host array (free()), compared like the above. */
LT_MUST_USE lt_status lt_parity_compare_device(lt_parity *p, const float *dev, int64_t n,
                                               const char *fmt, ...) LT_PRINTF(4, 5);

/* Integer of config (0 when absent), e.g. lt_parity_int(p->config, "steps"). */
int64_t lt_parity_int(const json_t *obj, const char *key);
double lt_parity_number(const json_t *obj, const char *key);

#endif
