/* cmd_batch.c: longtake batch FILE.jsonl --out-dir DIR. One JSON object a line, the model loaded once. What became of each item is
 * appended to DIR/manifest.jsonl, one line in one write, so that a second run knows what is done. An item is known by a hash of
 * what it says, of what the command line says, of the model and of the contents of the files it names. */
#include "attention/attention.h"
#include "examples/command.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "batch FILE.jsonl --out-dir DIR [options]\n\n"
    "Renders one video for each line, a JSON object such as\n"
    "  {\"prompt\": \"a red ball\", \"seed\": 7, \"size\": \"832x480\", \"num_frames\": 81}\n"
    "with the fields prompt, name (of the file), size or width and height, user and metadata "
    "(kept\n"
    "in the manifest), video, new_only and prompt_file as render has them, or timeline (a list of\n"
    "prompts by time, as a finished file says it), and the video options below with underscores.\n"
    "Options given here are defaults for all lines. An error in one line\n"
    "does not stop the rest; a second run skips what is done. A name belongs to the first line\n"
    "that has it; a line that says the same as an earlier one is not rendered again, and the\n"
    "manifest says whose video it has.";

enum { MAX_LINE = 1 << 20 };

typedef struct item {
    int64_t line;
    json_t *json;     /* NULL: the line is broken */
    lti_settings set; /* texts live in json */
    char hash[17];
    int64_t same;       /* place of the first item with this hash; its own when it is that */
    bool ran;           /* in this run */
    char message[1024]; /* why it cannot be rendered; "" = it can */
} item;

typedef struct batch {
    lt_ctx *ctx;
    const lti_settings *set;
    lt_model_options model;
    lti_model_path path;
    lt_model_info info;
    lti_interrupt *interrupt;
    lti_progress progress;
    lt_dev *dev;
    lt_model *loaded;
    json_t *manifest; /* hash -> last entry */
    json_t *files;    /* file name -> true: written by this batch before */
    json_t *hashes;   /* hash -> place of the first item that has it */
    json_t *names;    /* name -> the same */
    int manifest_fd;
    item *items;
    size_t count;
    int done, skipped, failed;
} batch;

/* ---- the file of items ---- */

/* Fields that are not options. */
static lt_status set_other(lt_ctx *ctx, item *it, const char *key, const json_t *value, bool *known)
{
    *known = true;
    if (!strcmp(key, "width") || !strcmp(key, "height")) {
        const json_int_t v = json_integer_value(value);
        if (!json_is_integer(value) || v < 1 || v > 16384)
            return lti_fail(ctx, LT_ERR_ARG, "%s: not a whole number from 1 to 16384", key);
        *(*key == 'w' ? &it->set.size.width : &it->set.size.height) = (int32_t)v;
        return LT_OK;
    }
    if (!strcmp(key, "first_frame"))
        return lti_fail(ctx, LT_ERR_ARG,
                        "first_frame: of the rest of a saved session, which render --resume draws");
    /* the caller's own, and what a finished file says beside its parameters: those can be a line again (check_origin) */
    static const char *const notes[] = {"user",         "metadata", "generator", "family",
                                        "dtype",        "timeline", "model",     "vae",
                                        "text_encoder", "tokenizer"};
    *known = false;
    for (size_t i = 0; i < LT_COUNT(notes) && !*known; i++)
        *known = !strcmp(key, notes[i]);
    return LT_OK;
}

static lt_status set_field(lt_ctx *ctx, item *it, const char *key, const json_t *value)
{
    const lti_table table = lti_settings_table(LTI_ITEM);
    bool known;
    LT_TRY(set_other(ctx, it, key, value, &known));
    if (known) return LT_OK;
    const char *name = strcmp(key, "input_reference") ? key : "image"; /* the videos API's word */
    const lti_option *o = lti_option_find(&table, name, strlen(name));
    if (o) return lti_option_set_json(ctx, o, &it->set, key, value);
    char known_names[300];
    lti_option_list(&table, known_names, sizeof known_names);
    const char *near = lti_option_nearest(&table, key, strlen(key));
    return lti_fail(ctx, LT_ERR_ARG,
                    "unknown field '%.80s'%s%s (known: %s, timeline, width, height, user, "
                    "metadata)",
                    key, near ? ", nearest: " : "", near ? near : "", known_names);
}

/* A line may say what its video was made with; another would make another. */
static lt_status check_origin(lt_ctx *ctx, const item *it, const char *field, const char *ours)
{
    const json_t *v = json_object_get(it->json, field);
    const char *text = json_string_value(v);
    if (!v || (text && ours && (!strcmp(text, ours) || !strcmp(text, lti_base_name(ours)))))
        return LT_OK;
    return lti_fail(ctx, LT_ERR_ARG, "%s: this batch renders with %s%s%s only", field,
                    ours ? "'" : "the model's own", ours ? lti_base_name(ours) : "",
                    ours ? "'" : "");
}

static lt_status check_origins(lt_ctx *ctx, const batch *b, const item *it)
{
    LT_TRY(check_origin(ctx, it, "model", b->model.path));
    LT_TRY(check_origin(ctx, it, "vae", b->model.vae));
    LT_TRY(check_origin(ctx, it, "text_encoder", b->model.text_encoder));
    LT_TRY(check_origin(ctx, it, "tokenizer", b->model.tokenizer));
    return check_origin(ctx, it, "dtype", lti_dtype_word(&b->model, b->dev));
}

/* Which item was the first with `key`: the one that is being read, unless one is known. */
static json_int_t first_place(const batch *b, json_t *places, const char *key)
{
    const json_t *known = json_object_get(places, key);
    if (known) return json_integer_value(known);
    json_object_set_new(places, key, json_integer((json_int_t)b->count));
    return (json_int_t)b->count;
}

static lt_status check_name(lt_ctx *ctx, const batch *b, const item *it)
{
    const char *name = it->set.name, *end = name ? strrchr(name, '.') : NULL;
    if (!name) return LT_OK;
    bool plain = name[0] != '.' && strlen(name) <= 200;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        plain = plain && *c != '/' && *c >= 0x20 && *c != 0x7f; /* it is printed, one a line */
    if (!plain) return lti_fail(ctx, LT_ERR_ARG, "name '%.80s': a plain file name is wanted", name);
    if (end && !strcasecmp(end, ".mp4"))
        return lti_fail(ctx, LT_ERR_ARG, "name '%.200s': without .mp4, which is added", name);
    const json_int_t other = first_place(b, b->names, name);
    if (other == it->same) return LT_OK; /* it is the first that has it, or the same item */
    return lti_fail(ctx, LT_ERR_ARG, "name '%.80s': line %" PRId64 ", another item, has it", name,
                    b->items[other].line);
}

static lt_status check_item(lt_ctx *ctx, const batch *b, const item *it)
{
    const json_t *w = json_object_get(it->json, "width"), *h = json_object_get(it->json, "height");
    if (!it->set.prompt && !it->set.prompt_file && !json_object_get(it->json, "timeline"))
        return lti_fail(ctx, LT_ERR_ARG, "prompt: missing");
    if (it->set.prompt_file) { /* its contents are a part of the hash: no pipe */
        FILE *f = lti_regular_open(ctx, it->set.prompt_file);
        if (!f) return LT_ERR_IO;
        fclose(f);
    }
    if (json_object_get(it->json, "size") && (w || h))
        return lti_fail(ctx, LT_ERR_ARG, "size: width or height is given too");
    if (!w != !h) return lti_fail(ctx, LT_ERR_ARG, "width and height: one of them is missing");
    LT_TRY(check_origins(ctx, b, it));
    LT_TRY(check_name(ctx, b, it));
    return lti_settings_check(ctx, &it->set);
}

static void hash_file(lt_ctx *ctx, lti_hash *h, const char *path)
{
    unsigned char buf[4096];
    FILE *f = path ? lti_regular_open(ctx, path) : NULL; /* the render says why not */
    for (size_t n; f && (n = fread(buf, 1, sizeof buf, f)) > 0;)
        lti_hash_add(h, buf, n);
    if (f) fclose(f);
}

/* Windows of sta that are in a file. */
static void hash_windows(lt_ctx *ctx, lti_hash *h, const char *attention)
{
    lt_sparse_spec spec; /* what is wrong with the text, the check of the item says */
    if (lt_sparse_parse(&spec, ctx, attention) == LT_OK && spec.file[0])
        hash_file(ctx, h, spec.file);
}

static void hash_text(lti_hash *h, const char *text)
{
    lti_hash_add(h, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Equal items have equal hashes whatever the order of their fields; the caller's own notes do not count. What only changes
 * the bytes (number type, instruction set, where the parts are) comes after the seed: the same items get the same seeds everywhere. */
static void hash_item(const batch *b, item *it)
{
    lti_hash h;
    char text[256];
    lti_hash_begin(&h);
    json_t *content = json_copy(it->json);
    json_object_del(content, "user");
    json_object_del(content, "metadata");
    char *json = json_dumps(content, JSON_COMPACT | JSON_SORT_KEYS);
    if (json) lti_hash_add(&h, json, strlen(json));
    free(json);
    json_decref(content);
    const lti_settings *s = b->set;
    const int n = snprintf(text, sizeof text, "%dx%d %a %d %d %d %a %a %d %d %d %d %" PRIu64 " %d ",
                           s->size.width, s->size.height, s->seconds, s->num_frames, s->fps,
                           s->num_inference_steps, s->guidance_scale, s->flow_shift, s->sampler,
                           s->mode.word, s->codec, s->crf, s->seed.value, s->seed.set);
    lti_hash_add(&h, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    const char *attention = s->attention ? s->attention : "dense"; /* given or not, it is that */
    lti_hash_add(&h, attention, strlen(attention));
    if (s->drift > LT_DRIFT_OFF) lti_hash_add(&h, &s->drift, sizeof s->drift);
    if (s->inject) hash_text(&h, s->inject);
    if (s->negative_prompt) lti_hash_add(&h, s->negative_prompt, strlen(s->negative_prompt));
    if (s->cache) lti_hash_add(&h, s->cache, strlen(s->cache));
    if (s->mode.keys) lti_hash_add(&h, s->mode.keys, strlen(s->mode.keys));
    lti_hash_add(&h, b->model.path, strlen(b->model.path));
    hash_file(b->ctx, &h, it->set.image);
    if (it->set.video) hash_file(b->ctx, &h, it->set.video);
    if (it->set.prompt_file) hash_file(b->ctx, &h, it->set.prompt_file);
    hash_windows(b->ctx, &h, it->set.attention);
    if (!it->set.seed.set)
        it->set.seed =
            (lti_seed){h.value & 0xffffffffu, true}; /* so that a rerun makes the same video */
    hash_text(&h, b->model.vae);
    hash_text(&h, b->model.text_encoder);
    hash_text(&h, b->model.tokenizer);
    hash_text(&h, lti_dtype_word(&b->model, b->dev));
    hash_text(&h, lt_dev_isa(b->dev));
    memcpy(it->hash, lti_hash_text(&h), sizeof it->hash);
}

/* Why jansson took no value from a line. Its integers end below half of the seeds. */
static lt_status bad_json(lt_ctx *ctx, const json_error_t *e)
{
    return lti_fail(ctx, LT_ERR_FORMAT, "not JSON that can be read: %s%s", e->text,
                    json_error_code(e) == json_error_numeric_overflow
                        ? " (a seed over 9223372036854775807 is written as a text)"
                        : "");
}

static void read_item(batch *b, item *it, const char *text, size_t len)
{
    json_error_t e;
    it->set = *b->set;
    it->json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
    lt_status s = LT_OK;
    if (!it->json || !json_is_object(it->json)) {
        s = it->json ? lti_fail(b->ctx, LT_ERR_FORMAT, "not a JSON object") : bad_json(b->ctx, &e);
        lti_hash h;
        lti_hash_begin(&h);
        lti_hash_add(&h, text, len);
        memcpy(it->hash, lti_hash_text(&h), sizeof it->hash);
    } else {
        const char *key;
        json_t *value;
        /* one length: a line's, in frames or in seconds, or the command line's */
        it->set.num_frames = 0;
        it->set.seconds = 0;
        json_object_foreach(it->json, key, value) if (s == LT_OK) s =
            set_field(b->ctx, it, key, value);
        if (!it->set.num_frames && it->set.seconds == 0) {
            it->set.num_frames = b->set->num_frames;
            it->set.seconds = b->set->seconds;
        }
        if (s < 0) snprintf(it->message, sizeof it->message, "%s", lt_error(b->ctx));
        hash_item(b, it); /* may leave another message: a picture that is not there */
        it->same = first_place(b, b->hashes, it->hash);
        if (s == LT_OK) s = check_item(b->ctx, b, it);
    }
    if (s < 0 && !it->message[0]) snprintf(it->message, sizeof it->message, "%s", lt_error(b->ctx));
}

static lt_status read_items(batch *b, const char *path)
{
    FILE *f = lti_regular_open(b->ctx, path);
    if (!f) return LT_ERR_IO;
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    int64_t line = 0;
    lt_status s = LT_OK;
    while (s == LT_OK && (n = getline(&text, &room, f)) >= 0) {
        line++;
        while (n && strchr(" \t\r\n", text[n - 1]))
            n--;
        const char *begin = text;
        if (line == 1 && n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) { /* a byte order mark */
            begin += 3;
            n -= 3;
        }
        if (!n) continue;
        item *items = realloc(b->items, (b->count + 1) * sizeof *items);
        if (!items) {
            s = lti_fail(b->ctx, LT_ERR_MEM, "no memory for line %" PRId64 " of '%s'", line, path);
            break;
        }
        b->items = items;
        items[b->count] = (item){.line = line, .same = (int64_t)b->count};
        if (n > MAX_LINE)
            snprintf(items[b->count].message, sizeof items->message, "longer than %d bytes",
                     MAX_LINE);
        else
            read_item(b, &items[b->count], begin, (size_t)n);
        b->count++;
    }
    if (s == LT_OK && ferror(f))
        s = lti_fail(b->ctx, LT_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    if (s == LT_OK && !b->count) s = lti_fail(b->ctx, LT_ERR_FORMAT, "'%s': no items in it", path);
    free(text);
    fclose(f);
    return s;
}

/* ---- the manifest ---- */

static lt_status open_manifest(batch *b)
{
    char path[4200];
    LT_TRY(lti_folder_make(b->ctx, b->set->out_dir));
    snprintf(path, sizeof path, "%s/manifest.jsonl", b->set->out_dir);
    /* locked until the end: a second batch in this folder would make the same items */
    LT_TRY(lti_file_own(&b->manifest_fd, b->ctx, path, O_APPEND));
    const int reader = dup(b->manifest_fd);
    FILE *f = reader < 0 ? NULL : fdopen(reader, "r");
    if (!f) return lti_fail(b->ctx, LT_ERR_IO, "cannot read '%s': %s", path, strerror(errno));
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    bool torn = false; /* the last line of a run that was killed may be half there */
    while ((n = getline(&text, &room, f)) >= 0) {
        torn = text[n - 1] != '\n';
        json_t *entry = json_loadb(text, (size_t)n, 0, NULL);
        const char *hash = json_string_value(json_object_get(entry, "hash"));
        const char *file = json_string_value(json_object_get(entry, "file"));
        if (hash) json_object_set(b->manifest, hash, entry);
        if (file) json_object_set_new(b->files, file, json_true());
        json_decref(entry);
    }
    free(text);
    fclose(f);
    if (torn && write(b->manifest_fd, "\n", 1) != 1)
        return lti_fail(b->ctx, LT_ERR_IO, "cannot write '%s': %s", path, strerror(errno));
    return LT_OK;
}

/* `path` is the finished file, or NULL. */
static lt_status append(batch *b, const item *it, const char *path, double seconds)
{
    char seed[24];
    struct stat st;
    json_t *entry =
        json_pack("{s:I, s:s, s:s, s:s, s:f, s:s}", "line", (json_int_t)it->line, "hash", it->hash,
                  "status", path ? "done" : "failed", "file", path ? lti_base_name(path) : "",
                  "seconds", seconds, "message", it->message);
    json_t *metadata = json_object_get(it->json, "metadata"),
           *user = json_object_get(it->json, "user");
    snprintf(seed, sizeof seed, "%" PRIu64, it->set.seed.value);
    if (it->set.seed.set && json_is_object(it->json))
        json_object_set_new(entry, "seed", json_string(seed));
    if (path && !lstat(path, &st)) json_object_set_new(entry, "bytes", json_integer(st.st_size));
    if (metadata) json_object_set(entry, "metadata", metadata);
    if (user) json_object_set(entry, "user", user);
    char *text = entry ? json_dumps(entry, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    lt_status s = text ? LT_OK : lti_fail(b->ctx, LT_ERR_MEM, "no memory for the manifest");
    if (text) {
        const size_t n = strlen(text);
        text[n] = '\n'; /* in place of the terminator: one write, one line */
        if (write(b->manifest_fd, text, n + 1) != (ssize_t)(n + 1) || fsync(b->manifest_fd))
            s = lti_fail(b->ctx, LT_ERR_IO, "cannot write the manifest in '%s': %s",
                         b->set->out_dir, strerror(errno));
        json_object_set(b->manifest, it->hash, entry);
    }
    free(text);
    json_decref(entry);
    return s;
}

static void video_path(const batch *b, const item *it, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.mp4", b->set->out_dir, it->set.name ? it->set.name : it->hash);
}

/* The manifest says so, and the file is there as it was left. */
static bool is_done(const batch *b, const item *it)
{
    char path[4600];
    struct stat st;
    const json_t *entry = json_object_get(b->manifest, it->hash);
    const char *status = json_string_value(json_object_get(entry, "status"));
    video_path(b, it, path, sizeof path);
    return status && !strcmp(status, "done") && !lstat(path, &st) && S_ISREG(st.st_mode) &&
           st.st_size == json_integer_value(json_object_get(entry, "bytes"));
}

/* ---- the run ---- */

static lt_status load_model(batch *b)
{
    if (b->loaded) return LT_OK;
    if (!b->set->quiet) fprintf(stderr, "loading %s\n", lti_base_name(b->model.path));
    return lt_model_open(&b->loaded, b->dev, &b->model);
}

/* A batch that was killed may have finished a video that the manifest lacks. That one says all that made it, unless a file did. */
static bool is_unrecorded(const lti_job *j)
{
    lt_media_info info;
    const lti_settings *set = j->set;
    struct stat st;
    if (set->image || set->video || set->prompt_file || lstat(j->output, &st) ||
        !S_ISREG(st.st_mode) || lt_media_inspect(&info, j->ctx, j->output) < 0)
        return false;
    bool same = false;
    for (int i = 0; !info.cut && i < info.nmetadata; i++) {
        if (strcmp(info.metadata[i].key, "comment")) continue;
        json_t *said = json_loads(info.metadata[i].value, 0, NULL);
        char *theirs = lti_params_text(said), *ours = lti_params_text(j->params);
        same = theirs && ours && !strcmp(theirs, ours);
        free(theirs);
        free(ours);
        json_decref(said);
    }
    lt_media_info_free(&info);
    return same;
}

/* One item: LT_OK, or why not. LT_ERR_CANCELLED ends the batch. */
static lt_status render_item(batch *b, item *it, const char *path, double *seconds)
{
    lti_job j = {.ctx = b->ctx,
                 .set = &it->set,
                 .model = &b->model,
                 .info = &b->info,
                 .prompt = it->set.prompt,
                 .timeline = json_object_get(it->json, "timeline"),
                 .output = path,
                 .interrupt = b->interrupt,
                 .progress = &b->progress,
                 .dev = b->dev};
    lt_status s = lti_job_prepare(&j);
    /* named by what is in it, or written by an earlier run of this batch: not somebody else's file */
    const bool ours = !it->set.name || json_object_get(b->files, lti_base_name(path)) ||
                      (s == LT_OK && is_unrecorded(&j));
    if (s == LT_OK) s = lti_job_create_file(&j, ours);
    if (s == LT_OK) s = load_model(b);
    if (s == LT_OK) s = lti_job_run(&j, b->loaded);
    *seconds = j.report.total_seconds;
    if (s == LT_ERR_CANCELLED && j.made) unlink(j.made); /* the next run makes it whole */
    lti_job_close(&j);
    return s;
}

/* An item that an earlier line is too: one video for both, whatever became of it, and an entry of its own for the caller's notes. */
static lt_status run_again(batch *b, item *it, const item *first)
{
    char path[4600];
    const bool done = is_done(b, first);
    video_path(b, it, path, sizeof path);
    snprintf(it->message, sizeof it->message, "the same as line %" PRId64 ", %s", first->line,
             done ? "which has the video" : "which failed");
    *(done ? &b->skipped : &b->failed) += 1;
    fprintf(stderr, "longtake: line %" PRId64 ": %s\n", it->line, it->message);
    return append(b, it, done ? path : NULL, 0);
}

static lt_status run_item(batch *b, item *it)
{
    char path[4600];
    double seconds = 0;
    it->ran = true;
    video_path(b, it, path, sizeof path);
    lt_status s = LT_ERR_ARG;
    if (!it->message[0]) {
        s = render_item(b, it, path, &seconds);
        if (s == LT_ERR_CANCELLED) return s;
        if (s < 0) snprintf(it->message, sizeof it->message, "%s", lt_error(b->ctx));
    }
    *(s == LT_OK ? &b->done : &b->failed) += 1;
    const lt_status kept = append(b, it, s == LT_OK ? path : NULL, seconds);
    if (s == LT_OK) /* behind what is recorded: nobody may listen any more (SIGPIPE) */
        printf("%s  line %" PRId64 ", %.1f s\n", path, it->line, seconds);
    else
        fprintf(stderr, "longtake: line %" PRId64 ": %s\n", it->line, it->message);
    return kept;
}

static lt_status run_all(batch *b, const char *path)
{
    LT_TRY(lti_model_find(&b->model, &b->path, b->ctx, b->set));
    LT_TRY(lti_device_open(&b->dev, b->ctx, b->set));
    LT_TRY(lt_model_probe(&b->info, b->ctx, &b->model));
    LT_TRY(read_items(b, path));
    LT_TRY(open_manifest(b));
    lt_status s = LT_OK;
    for (size_t i = 0; i < b->count && s == LT_OK; i++) {
        item *it = &b->items[i];
        const item *first = &b->items[it->same];
        if (lti_interrupted(b->interrupt))
            s = LT_ERR_CANCELLED;
        else if (first != it && first->ran && !it->message[0])
            s = run_again(b, it, first);
        else if (is_done(b, it))
            b->skipped++;
        else
            s = run_item(b, it);
    }
    printf("%d done, %d skipped, %d failed of %zu\n", b->done, b->skipped, b->failed, b->count);
    if (s == LT_ERR_CANCELLED)
        return lti_fail(b->ctx, s, "stopped; the same command goes on with what is left");
    if (s == LT_OK && b->failed)
        return lti_fail(b->ctx, LT_ERR_FORMAT, "%d of %zu items failed: see %s/manifest.jsonl",
                        b->failed, b->count, b->set->out_dir);
    return s;
}

static lt_status run_batch(lt_ctx *ctx, const lti_settings *set, const lti_positional *pos,
                           lti_interrupt *interrupt)
{
    if (pos->count != 1)
        return lti_fail(ctx, LT_ERR_ARG, "batch: one file of items is wanted, %d given",
                        pos->count);
    if (!set->out_dir) return lti_fail(ctx, LT_ERR_ARG, "batch: --out-dir DIR is missing");
    batch b = {.ctx = ctx,
               .set = set,
               .interrupt = interrupt,
               .manifest_fd = -1,
               .manifest = json_object(),
               .files = json_object(),
               .hashes = json_object(),
               .names = json_object()};
    lti_progress_begin(&b.progress, set->quiet);
    const lt_status s = run_all(&b, pos->text[0]);
    for (size_t i = 0; i < b.count; i++)
        json_decref(b.items[i].json);
    free(b.items);
    json_decref(b.manifest);
    json_decref(b.files);
    json_decref(b.hashes);
    json_decref(b.names);
    if (b.manifest_fd >= 0) close(b.manifest_fd);
    lt_model_close(&b.loaded);
    lt_dev_destroy(&b.dev);
    return s;
}

int lti_cmd_batch(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lti_interrupt *interrupt = NULL;
    lt_status s = lti_begin(ctx, LTI_BATCH, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done) s = lti_interrupt_start(&interrupt, ctx, true);
    if (s == LT_OK && !done) s = run_batch(ctx, &set, &pos, interrupt);
    lti_interrupt_stop(&interrupt);
    return lti_exit(ctx, s);
}
