/* prompt_file.c: files of prompts by time, a line each:
 *
 *   # comment
 *   0      a red ball bounces on green grass
 *   4.5    a blue star                           seconds, or minutes:seconds, hours:minutes:seconds
 *   f120   a green square                        a frame number
 *   {"time": 9, "prompt": "a yellow ring", "blend": 3}     JSON: time or frame, prompt, blend over so many blocks
 */
#include "examples/command.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILE = 4 << 20 };
static const double max_seconds = 1e6;

typedef struct reader {
    lt_ctx *ctx;
    const char *name; /* NULL: a list, of which `line` is the number */
    int32_t line;
    lti_cues *out;
} reader;

static lt_status wrong(const reader *r, const char *what, const char *text)
{
    if (!r->name)
        return lti_fail(r->ctx, LT_ERR_ARG, "timeline, prompt %d: %s%.80s", r->line, what, text);
    return lti_fail(r->ctx, LT_ERR_ARG, "--prompt-file '%.200s', line %d: %s%.80s", r->name,
                    r->line, what, text);
}

/* A number of digits and at most one point; false for anything else. */
static bool plain_number(const char *word, size_t len, double *out)
{
    char copy[32], *end;
    if (len == 0 || len >= sizeof copy || strspn(word, "0123456789.") < len) return false;
    memcpy(copy, word, len);
    copy[len] = 0;
    *out = strtod(copy, &end);
    return end == copy + len && isfinite(*out);
}

/* "4.5", "1:30", "1:00:00.5", "f120". */
static bool parse_time(const char *word, size_t len, lt_cue *c)
{
    double part, seconds = 0;
    if (len > 1 && word[0] == 'f') {
        if (!plain_number(word + 1, len - 1, &part) || part != floor(part) || part > 1e9)
            return false;
        c->frame = (int64_t)part;
        return true;
    }
    for (int parts = 0; parts < 3; parts++) {
        const char *colon = memchr(word, ':', len);
        const size_t n = colon ? (size_t)(colon - word) : len;
        if (!plain_number(word, n, &part)) return false;
        seconds = 60 * seconds + part;
        c->seconds = seconds;
        if (!colon) return seconds <= max_seconds;
        word += n + 1;
        len -= n + 1;
    }
    return false;
}

static lt_status from_object(const reader *r, const json_t *o, lt_cue *c)
{
    json_t *v;
    const char *key;
    lt_status s = LT_OK;
    bool timed = false;
    if (!json_is_object(o)) return wrong(r, "not an object with time or frame, and prompt", "");
    json_object_foreach((json_t *)(uintptr_t)o, key, v) /* which takes no const */
    {
        const double n = json_number_value(v);
        const bool time = !strcmp(key, "time"), frame = !strcmp(key, "frame");
        if ((time || frame) && timed)
            s = wrong(r, "time and frame: one of them", "");
        else if (time && json_is_number(v) && n >= 0 && n <= max_seconds)
            c->seconds = n;
        else if (frame && json_is_integer(v) && n >= 0 && n <= 1e9)
            c->frame = (int64_t)n;
        else if (!strcmp(key, "blend") && json_is_integer(v) && n >= 0 && n <= LT_MAX_BLEND)
            c->blend_blocks = (int32_t)n;
        else if (!strcmp(key, "prompt") &&
                 json_is_string(v)) /* without zeros: jansson takes none */
            c->prompt = json_string_value(v);
        else
            s = wrong(r, "not a field, or not a value of it: ", key);
        timed = timed || time || frame;
        if (s < 0) break;
    }
    if (s == LT_OK && (!timed || !c->prompt)) s = wrong(r, "needs time or frame, and prompt", "");
    char *copy = s == LT_OK ? strdup(c->prompt) : NULL;
    if (s == LT_OK && !copy) s = lti_fail(r->ctx, LT_ERR_MEM, "no memory for a prompt");
    c->prompt = copy;
    return s;
}

static lt_status from_json(const reader *r, const char *text, size_t len, lt_cue *c)
{
    json_error_t e;
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    const lt_status s = o ? from_object(r, o, c) : wrong(r, "not JSON: ", e.text);
    json_decref(o);
    return s;
}

static lt_status from_words(const reader *r, const char *text, size_t len, lt_cue *c)
{
    size_t word = 0;
    while (word < len && text[word] != ' ' && text[word] != '\t')
        word++;
    size_t at = word;
    while (at < len && (text[at] == ' ' || text[at] == '\t'))
        at++;
    if (!parse_time(text, word, c)) {
        char shown[32];
        snprintf(shown, sizeof shown, "%.*s", (int)(word < 30 ? word : 30), text);
        return wrong(r, "not a time (4.5, 1:30, f120): ", shown);
    }
    if (at == len) return wrong(r, "the prompt is missing", "");
    char *copy = strndup(text + at, len - at);
    c->prompt = copy;
    return copy ? LT_OK : lti_fail(r->ctx, LT_ERR_MEM, "no memory for a prompt");
}

static lt_status check_cue(const reader *r, const lt_cue *c)
{
    const lti_cues *all = r->out;
    if (!c->prompt[strspn(c->prompt, " \t")]) return wrong(r, "the prompt is empty", "");
    if (strlen(c->prompt) > LT_MAX_PROMPT_BYTES)
        return wrong(r, "the prompt is longer than 65536 bytes", "");
    if (!lti_utf8_valid(c->prompt)) return wrong(r, "the prompt is not UTF-8", "");
    if (!all->count) return LT_OK;
    const lt_cue *last = &all->cue[all->count - 1];
    const bool frames = c->frame > 0 && last->frame > 0, seconds = !c->frame && !last->frame;
    char both[80] = "";
    if (frames && c->frame < last->frame)
        snprintf(both, sizeof both, "frame %" PRId64 ", that one %" PRId64, c->frame, last->frame);
    else if (seconds && c->seconds < last->seconds)
        snprintf(both, sizeof both, "%g s, that one %g s", c->seconds, last->seconds);
    return *both ? wrong(r, "earlier than the one before it: ", both) : LT_OK;
}

/* Takes the text, or frees it. */
static lt_status add_cue(const reader *r, lt_cue c)
{
    lti_cues *all = r->out;
    lt_status s = check_cue(r, &c);
    if (s == LT_OK && all->count == LT_MAX_CUES) s = wrong(r, "more than 4096 prompts", "");
    lt_cue *more = s == LT_OK ? realloc(all->cue, ((size_t)all->count + 1) * sizeof c) : NULL;
    if (!more) {
        free((void *)(uintptr_t)c.prompt);
        return s == LT_OK ? lti_fail(r->ctx, LT_ERR_MEM, "no memory for the prompts") : s;
    }
    all->cue = more;
    all->cue[all->count++] = c;
    return LT_OK;
}

static lt_status add_line(const reader *r, const char *text, size_t len)
{
    while (len && (text[len - 1] == '\r' || text[len - 1] == ' ' || text[len - 1] == '\t'))
        len--;
    while (len && (*text == ' ' || *text == '\t')) {
        text++;
        len--;
    }
    if (len == 0 || *text == '#') return LT_OK;
    if (memchr(text, 0, len)) return wrong(r, "holds a zero byte", "");
    if (memchr(text, '\r', len)) return wrong(r, "holds a carriage return: lines end with \\n", "");
    lt_cue c = {0};
    LT_TRY(*text == '{' ? from_json(r, text, len, &c) : from_words(r, text, len, &c));
    return add_cue(r, c);
}

lt_status lti_cues_parse(lti_cues *out, lt_ctx *ctx, const char *name, const char *text, size_t len)
{
    reader r = {.ctx = ctx, .name = name, .out = out};
    lt_status s = LT_OK;
    *out = (lti_cues){0};
    if (len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
        text += 3;
        len -= 3;
    }
    while (len && s == LT_OK) {
        const char *end = memchr(text, '\n', len);
        const size_t n = end ? (size_t)(end - text) : len;
        r.line++;
        s = add_line(&r, text, n);
        text += n + (end != NULL);
        len -= n + (end != NULL);
    }
    if (s == LT_OK && !out->count)
        s = lti_fail(ctx, LT_ERR_ARG, "--prompt-file '%.200s': no prompt in it", name);
    if (s < 0) lti_cues_free(out);
    return s;
}

lt_status lti_cues_take(lti_cues *out, lt_ctx *ctx, const json_t *list)
{
    reader r = {.ctx = ctx, .out = out};
    lt_status s = LT_OK;
    *out = (lti_cues){0};
    if (!json_is_array(list) || !json_array_size(list))
        return lti_fail(ctx, LT_ERR_ARG, "timeline: not a list of prompts by time");
    for (size_t i = 0; i < json_array_size(list) && s == LT_OK; i++) {
        lt_cue c = {0};
        r.line++;
        s = from_object(&r, json_array_get(list, i), &c);
        if (s == LT_OK) s = add_cue(&r, c);
    }
    if (s < 0) lti_cues_free(out);
    return s;
}

void lti_cues_free(lti_cues *c)
{
    for (int32_t i = 0; i < c->count; i++)
        free((void *)(uintptr_t)c->cue[i].prompt);
    free(c->cue);
    *c = (lti_cues){0};
}

/* What another program says is as good, since it is read once. */
static FILE *open_text(lt_ctx *ctx, const char *path)
{
    struct stat st;
    if (stat(path, &st) || !S_ISFIFO(st.st_mode)) return lti_regular_open(ctx, path);
    FILE *f = fopen(path, "re");
    if (!f) (void)lti_fail(ctx, LT_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    return f;
}

lt_status lti_cues_read(lti_cues *out, lt_ctx *ctx, const char *path)
{
    *out = (lti_cues){0};
    FILE *f = open_text(ctx, path);
    if (!f) return LT_ERR_IO;
    char *text = malloc(MAX_FILE + 1);
    const size_t n = text ? fread(text, 1, MAX_FILE + 1, f) : 0;
    lt_status s;
    if (!text)
        s = lti_fail(ctx, LT_ERR_MEM, "no memory for '%s'", path);
    else if (ferror(f))
        s = lti_fail(ctx, LT_ERR_IO, "'%s' cannot be read", path);
    else if (n > MAX_FILE)
        s = lti_fail(ctx, LT_ERR_ARG, "--prompt-file '%.200s' is longer than 4 MiB", path);
    else
        s = lti_cues_parse(out, ctx, path, text, n);
    fclose(f);
    free(text);
    return s;
}

json_t *lti_cues_json(const lt_cue *cue, int32_t count)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < count; i++) {
        json_t *c = cue[i].frame ? json_pack("{s:I}", "frame", (json_int_t)cue[i].frame)
                                 : json_pack("{s:f}", "time", cue[i].seconds);
        json_object_set_new(c, "prompt", json_string(cue[i].prompt));
        if (cue[i].blend_blocks) json_object_set_new(c, "blend", json_integer(cue[i].blend_blocks));
        json_array_append_new(list, c);
    }
    return list;
}

json_t *lti_marks_json(const lt_session *session, int32_t fps)
{
    int32_t n;
    const lt_prompt_mark *m = lt_session_prompts(session, &n);
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:I, s:f, s:I, s:i, s:s}", "frame", (json_int_t)m[i].frame, "time",
                            (double)m[i].frame / fps, "block", (json_int_t)m[i].block, "blend",
                            m[i].blend_blocks, "prompt", m[i].prompt));
    return list;
}

/* A number of frames that need not be whole: the first one that is not before it. */
static double cue_place(const lt_cue *c, int32_t fps)
{
    return c->frame > 0 ? (double)c->frame : c->seconds * fps - 1e-6;
}

bool lti_cue_drawn(const lt_cue *cue, int32_t count, int32_t i, const json_t *marks, int32_t fps)
{
    for (size_t k = 0; k < json_array_size(marks); k++) {
        const json_t *m = json_array_get(marks, k);
        const double frame = json_number_value(json_object_get(m, "frame"));
        const char *text = json_string_value(json_object_get(m, "prompt"));
        if (frame >= cue_place(&cue[i], fps) &&
            (i + 1 == count || frame < cue_place(&cue[i + 1], fps)) && !strcmp(text, cue[i].prompt))
            return true;
    }
    return false;
}
