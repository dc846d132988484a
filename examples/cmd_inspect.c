/* cmd_inspect.c: longtake inspect PATH: what a model or a video file is. */
#include "examples/command.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "inspect PATH [options]\n\n"
    "A model: family, configuration, parameters, types, bytes, what is missing or unknown.\n"
    "A video: format, frames, the parameters it was made with and the marks it carries.\n"
    "A saved session: what it is of and where it goes on.\n"
    "Exit status 1 when a model is not complete.";

/* A text of a foreign file, without what moves the cursor of a terminal or begins another line. */
static void put_text(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0) /* U+0080..U+009F: controls too */
            printf("\\x%02x", *++p);
        else if (*p == '\n')
            fputs("\\n", stdout);
        else if (*p < 0x20 || *p == 0x7f)
            printf("\\x%02x", *p);
        else
            putchar(*p);
}

static void put_key(const char *key, int indent)
{
    printf("%*s", indent, "");
    put_text(key);
    putchar(':');
}

/* Numbers on one line, texts below each other, long lists cut. */
static void print_list(const char *key, json_t *list, int indent)
{
    const size_t shown = 20, n = json_array_size(list);
    const bool texts = json_is_string(json_array_get(list, 0));
    put_key(key, indent);
    if (!n) fputs(" none", stdout);
    for (size_t i = 0; i < n && i < shown; i++) {
        json_t *v = json_array_get(list, i);
        char *text = json_is_string(v)
                         ? NULL
                         : json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        printf("%s%*s", texts ? "\n" : "", texts ? indent + 2 : 1, "");
        put_text(text ? text : json_string_value(v));
        free(text);
    }
    if (n > shown) printf("%s... and %zu more (--json lists all)", texts ? "\n" : " ", n - shown);
    putchar('\n');
}

/* Values of an object, one a line. */
static void print_value(const char *key, json_t *value, int indent)
{
    if (json_is_array(value)) {
        print_list(key, value, indent);
        return;
    }
    const json_t *count =
        json_object_get(value, "count"); /* "missing": {"count": 0, "names": []} */
    if (json_is_integer(count) && !json_integer_value(count)) {
        put_key(key, indent);
        puts(" none");
        return;
    }
    if (json_is_object(value)) {
        const char *k;
        json_t *v;
        put_key(key, indent);
        putchar('\n');
        json_object_foreach(value, k, v) print_value(k, v, indent + 2);
        return;
    }
    char *text =
        json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    put_key(key, indent);
    putchar(' ');
    put_text(text ? text : json_string_value(value));
    putchar('\n');
    free(text);
}

static lt_status print_json(lt_ctx *ctx, json_t *value, bool as_json)
{
    if (!value) return lti_fail(ctx, LT_ERR_MEM, "no memory for the description");
    if (!as_json) {
        const char *key;
        json_t *v;
        json_object_foreach(value, key, v) print_value(key, v, 0);
        return LT_OK;
    }
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (!text) return lti_fail(ctx, LT_ERR_FORMAT, "the description is not valid UTF-8");
    puts(text);
    free(text);
    return LT_OK;
}

static lt_status inspect_model(lt_ctx *ctx, const lti_settings *set, const char *path)
{
    const lt_model_options options = {.path = path,
                                      .text_encoder = set->text_encoder,
                                      .vae = set->vae,
                                      .tokenizer = set->tokenizer};
    char *text;
    bool complete;
    LT_TRY(lt_model_inspect(&text, &complete, ctx, &options));
    json_t *value = json_loads(text, 0, NULL);
    free(text);
    const lt_status s = print_json(ctx, value, set->json);
    json_decref(value);
    if (s == LT_OK && !complete) return lti_fail(ctx, LT_ERR_MISSING, "'%s' is not complete", path);
    return s;
}

/* A text from a foreign file: JSON when it is an object, so that parameters can be read; what is not UTF-8 is replaced. */
static json_t *entry_value(const char *text)
{
    json_t *v = *text == '{' ? json_loads(text, 0, NULL) : NULL;
    if (!v) v = json_string(text);
    return v ? v : json_string("(not valid UTF-8)");
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcasecmp(text + n - m, end);
}

static lt_status inspect_media(lt_ctx *ctx, const lti_settings *set, const char *path)
{
    lt_media_info m;
    LT_TRY(lt_media_inspect(&m, ctx, path));
    if (m.cut && !ends_with(path, ".part")) { /* of a part nothing else is expected */
        const int64_t there = m.frames;
        lt_media_info_free(&m);
        return lti_fail(ctx, LT_ERR_FORMAT, "'%s' is cut off: it ends at frame %" PRId64, path,
                        there);
    }
    json_t *meta = json_object();
    for (int i = 0; i < m.nmetadata; i++)
        json_object_set_new(meta, m.metadata[i].key, entry_value(m.metadata[i].value));
    json_t *value =
        json_pack("{s:s, s:i, s:i, s:I, s:f, s:f, s:s, s:s, s:o}", "codec", m.codec, "width",
                  m.width, "height", m.height, "frames", (json_int_t)m.frames, "fps", m.fps,
                  "seconds", m.seconds, "pixels", m.pix_fmt, "color", m.color, "metadata", meta);
    const lt_status s = print_json(ctx, value, set->json);
    json_decref(value);
    lt_media_info_free(&m);
    return s;
}

static bool is_session(const char *path)
{
    char begin[8] = "";
    FILE *f = fopen(path, "rbe");
    const bool good = f && fread(begin, 1, 8, f) == 8 && !memcmp(begin, "session\n", 8);
    if (f) fclose(f);
    return good;
}

static lt_status inspect_session(lt_ctx *ctx, const lti_settings *set, const char *path)
{
    lt_snapshot_info i;
    char seed[24];
    LT_TRY(lt_snapshot_inspect(&i, ctx, path));
    snprintf(seed, sizeof seed, "%" PRIu64, i.seed);
    json_t *value =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:s, s:s, s:s, s:I}", "family", i.family,
                  "width", i.width, "height", i.height, "fps", i.fps, "num_frames", i.num_frames,
                  "next_frame", (json_int_t)i.next_frame, "block", (json_int_t)i.block, "cache",
                  i.cache, "prompt", i.prompt, "seed", seed, "bytes", (json_int_t)i.bytes);
    const lt_status s = print_json(ctx, value, set->json);
    json_decref(value);
    return s;
}

static lt_status inspect(lt_ctx *ctx, const lti_settings *set, const lti_positional *pos)
{
    if (pos->count != 1)
        return lti_fail(ctx, LT_ERR_ARG, "inspect: one path is wanted, %d given", pos->count);
    static const char *const videos[] = {".mp4", ".m4v", ".mov", ".mkv",  ".webm", ".avi",
                                         ".gif", ".png", ".jpg", ".jpeg", ".webp", ".part"};
    for (size_t i = 0; i < LT_COUNT(videos); i++)
        if (ends_with(pos->text[0], videos[i])) return inspect_media(ctx, set, pos->text[0]);
    struct stat st;
    if (!stat(pos->text[0], &st) && S_ISREG(st.st_mode) && is_session(pos->text[0]))
        return inspect_session(ctx, set, pos->text[0]);
    return inspect_model(ctx, set, pos->text[0]);
}

int lti_cmd_inspect(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lt_status s = lti_begin(ctx, LTI_INSPECT, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done) s = inspect(ctx, &set, &pos);
    return lti_exit(ctx, s);
}
