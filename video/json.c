/* json.c: see json.h. */
#include "video/json.h"

#include <math.h>
#include <string.h>

/* The parser recurses; a text of a million brackets must not reach it. */
static int depth_of(const char *text, size_t len)
{
    int depth = 0, most = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > most) most = depth;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return most;
}

lt_status lti_json_parse(json_t **out, lt_ctx *ctx, const char *text, size_t len, int max_depth,
                         const char *name)
{
    *out = NULL;
    const int depth = depth_of(text, len);
    if (depth > max_depth)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: JSON nests %d deep, %d is the most here", name,
                        depth, max_depth);
    json_error_t e;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    if (!j) {
        if (json_error_code(&e) == json_error_out_of_memory)
            return lti_fail(ctx, LT_ERR_MEM, "%s: no memory for %zu bytes of JSON", name, len);
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: not JSON: %s (line %d, byte %d)", name, e.text,
                        e.line, e.position);
    }
    if (!json_is_object(j)) {
        json_decref(j);
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: JSON is not an object", name);
    }
    *out = j;
    return LT_OK;
}

lt_status lti_json_config(json_t **out, lt_ctx *ctx, const char *text, const char *name)
{
    enum { DEPTH = 16 };
    *out = NULL;
    return text ? lti_json_parse(out, ctx, text, strlen(text), DEPTH, name) : LT_OK;
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return names[json_typeof(v)];
}

static const json_t *lookup(const json_t *obj, const char *key, bool *found)
{
    const json_t *v = obj ? json_object_get(obj, key) : NULL;
    if (json_is_null(v)) v = NULL;
    if (found) *found = v != NULL;
    return v;
}

lt_status lti_json_int(lt_ctx *ctx, const json_t *obj, const char *key, const char *name,
                       int64_t min, int64_t max, int64_t *out, bool *found)
{
    const json_t *v = lookup(obj, key, found);
    if (!v) return LT_OK;
    int64_t n;
    if (json_is_integer(v))
        n = json_integer_value(v);
    else if (json_is_real(v) && json_real_value(v) == trunc(json_real_value(v)) &&
             fabs(json_real_value(v)) < 9e15)
        n = (int64_t)json_real_value(v);
    else
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %s, not an integer", name, key,
                        type_name(v));
    if (n < min || n > max)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %lld, outside %lld..%lld", name, key,
                        (long long)n, (long long)min, (long long)max);
    *out = n;
    return LT_OK;
}

lt_status lti_json_number(lt_ctx *ctx, const json_t *obj, const char *key, const char *name,
                          double min, double max, double *out, bool *found)
{
    const json_t *v = lookup(obj, key, found);
    if (!v) return LT_OK;
    if (!json_is_number(v))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %s, not a number", name, key,
                        type_name(v));
    const double x = json_number_value(v);
    if (!(x >= min && x <= max))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %g, outside %g..%g", name, key, x, min,
                        max);
    *out = x;
    return LT_OK;
}

lt_status lti_json_bool(lt_ctx *ctx, const json_t *obj, const char *key, const char *name,
                        bool *out, bool *found)
{
    const json_t *v = lookup(obj, key, found);
    if (!v) return LT_OK;
    if (!json_is_boolean(v))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %s, not true or false", name, key,
                        type_name(v));
    *out = json_is_true(v);
    return LT_OK;
}

lt_status lti_json_string(lt_ctx *ctx, const json_t *obj, const char *key, const char *name,
                          const char **out, bool *found)
{
    const json_t *v = lookup(obj, key, found);
    if (!v) return LT_OK;
    if (!json_is_string(v))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %s, not a string", name, key,
                        type_name(v));
    *out = json_string_value(v);
    return LT_OK;
}

lt_status lti_json_array(lt_ctx *ctx, const json_t *obj, const char *key, const char *name,
                         size_t min_n, size_t max_n, const json_t **out)
{
    *out = NULL;
    const json_t *v = lookup(obj, key, NULL);
    if (!v) return LT_OK;
    if (!json_is_array(v))
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" is %s, not an array", name, key,
                        type_name(v));
    const size_t n = json_array_size(v);
    if (n < min_n || n > max_n)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: \"%s\" has %zu values, not %zu..%zu", name, key, n,
                        min_n, max_n);
    *out = v;
    return LT_OK;
}
