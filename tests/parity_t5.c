/* parity_t5.c: the text encoder against the original's rows. Padding is left out, as in the product; `full` holds padded rows too, so
 * only its real ones are compared.
 */
#include "tests/parity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lt_status run_one(lt_parity *p, const lti_text_config *c, const lt_tensor_source *source,
                         const char *name)
{
    const lt_parity_array *ids, *mask;
    LT_TRY(lt_parity_get(p, &ids, "in.%s.ids", name));
    LT_TRY(lt_parity_get(p, &mask, "in.%s.mask", name));
    int32_t n = 0;
    while (n < mask->n && n < ids->n && mask->data[n] > 0.5f)
        n++;
    int32_t *id = malloc((size_t)(n + 1) * sizeof *id);
    float *rows = malloc((size_t)(n + 1) * (size_t)c->dim * sizeof *rows);
    lt_status s = LT_OK;
    if (!id || !rows) s = lti_fail(p->ctx, LT_ERR_MEM, "no memory for %d rows", n);
    for (int32_t i = 0; s >= 0 && i < n; i++)
        id[i] = (int32_t)ids->data[i];
    const int32_t *texts[] = {id};
    if (s >= 0)
        s = lti_text_encode(p->dev, rows,
                            &(lti_text_job){.config = c,
                                            .source = source,
                                            .compute = p->dtype,
                                            .texts = 1,
                                            .ids = texts,
                                            .len = &n});
    if (s >= 0) lt_parity_compare(p, rows, (int64_t)n * c->dim, "%s.context", name);
    free(id);
    free(rows);
    return s;
}

static lt_status run_all(lt_parity *p, lti_tensors *t, const lti_text_config *c)
{
    const lt_tensor_source source = lti_tensors_source(t);
    const json_t *runs = json_object_get(p->config, "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(runs, i), "name"));
        if (!name) return lti_fail(p->ctx, LT_ERR_FORMAT, "run %zu has no name", i);
        LT_TRY(run_one(p, c, &source, name));
    }
    return LT_OK;
}

lt_status lt_parity_open_text(lt_parity *p, lti_tensors **t, lti_text_config *c, const char *prefix)
{
    lti_config all = {0};
    LT_TRY(lt_parity_weights(p, t, LTI_PART_TEXT, prefix));
    char *json = json_dumps(json_object_get(p->config, "t5"), 0);
    lt_status s = json ? lti_text_config_read(&all.text, p->ctx, *t, json, p->file) : LT_ERR_MEM;
    free(json);
    if (s >= 0) s = lti_config_check_part(p->ctx, &all, *t);
    if (s < 0) lti_tensors_close(t);
    *c = all.text;
    return s;
}

lt_status lt_parity_t5(lt_parity *p)
{
    lti_tensors *t;
    lti_text_config c;
    LT_TRY(lt_parity_open_text(p, &t, &c, "weight."));
    const lt_status s = run_all(p, t, &c);
    lti_tensors_close(&t);
    return s;
}
