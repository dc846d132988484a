/* files.c: finding the files of a model (files.h, lower half).
 *
 * A Diffusers folder says itself where everything is. Everywhere else the files are told apart by what is in them, not by how they
 * are called: `wan_2.1_vae.safetensors`, `Wan2.1_VAE.safetensors` and `vae.safetensors` are the same thing.
 */
#include "video/files.h"

#include "video/json.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_BYTES = 4 << 20, CONFIG_DEPTH = 16 };

typedef struct finder {
    lt_ctx *ctx;
    const lt_model_options *opt;
    lti_model_files *f;
} finder;

/* What a part of the model is called in folders, options and messages. */
static const struct part_facts {
    const char *folder, *option;
} facts[LTI_PART_COUNT] = {
    [LTI_PART_RAW] = {"", ""},
    [LTI_PART_DIT] = {"transformer", "--model"},
    [LTI_PART_TEXT] = {"text_encoder", "--text-encoder"},
    [LTI_PART_VAE] = {"vae", "--vae"},
};

/* ---- small things ------------------------------------------------------------------------ */

const char *lti_layout_name(lti_layout l)
{
    static const char *const names[] = {"Diffusers folder", "original Wan folder", "single file"};
    return names[l];
}

static bool join(char out[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

static bool is_kind(const char *path, mode_t kind)
{
    struct stat st;
    return !stat(path, &st) && (st.st_mode & S_IFMT) == kind;
}

static bool is_folder(const char *path)
{
    return is_kind(path, S_IFDIR);
}

static bool has_folder(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return join(path, dir, name) && is_folder(path);
}

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return join(path, dir, name) && is_kind(path, S_IFREG);
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* "x-00001-of-00006.safetensors": a part of what the index names. */
static bool is_shard(const char *name)
{
    static const char form[] = "-00000-of-00000.safetensors";
    const size_t n = strlen(name), m = sizeof form - 1;
    for (size_t i = 0; n > m && i < m; i++) {
        const char c = name[n - m + i];
        if (form[i] == '0' ? c < '0' || c > '9' : c != form[i]) return false;
    }
    return n > m;
}

static lt_status keep(finder *d, char **slot, const char *fmt, ...) LT_PRINTF(3, 4);
static lt_status keep(finder *d, char **slot, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text;
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) return lti_fail(d->ctx, LT_ERR_MEM, "no memory for a file name");
    free(*slot);
    *slot = text;
    return LT_OK;
}

static lti_tensors **slot_of(lti_model_files *f, lti_part part)
{
    return part == LTI_PART_DIT ? &f->dit : part == LTI_PART_TEXT ? &f->text : &f->vae;
}

static char **why_of(lti_model_files *f, lti_part part)
{
    return part == LTI_PART_DIT ? &f->why_dit : part == LTI_PART_TEXT ? &f->why_text : &f->why_vae;
}

/* ---- configuration texts ----------------------------------------------------------------- */

/* Keeps the failure `s` of the context for later. Each file once: one config.json may be looked at for every part. */
static lt_status note_broken(finder *d, lt_status s)
{
    lti_model_files *f = d->f;
    if (s == LT_ERR_MEM) return s;
    for (int32_t i = 0; i < f->broken_count; i++)
        if (!strcmp(f->broken[i].message, lt_error(d->ctx))) return LT_OK;
    if (f->broken_count == LTI_MAX_BROKEN) return LT_OK;
    lti_broken *b = &f->broken[f->broken_count];
    LT_TRY(keep(d, &b->message, "%s", lt_error(d->ctx)));
    b->status = s;
    f->broken_count++;
    return LT_OK;
}

/* The text must be that of a JSON object. */
static lt_status read_json_text(finder *d, char **text, const char *path)
{
    struct stat st;
    size_t len;
    json_t *j;
    if (stat(path, &st)) return lti_fail(d->ctx, LT_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return lti_fail(d->ctx, LT_ERR_IO, "%s: not a regular file", path);
    LT_TRY(lti_read_file(text, &len, d->ctx, path, CONFIG_BYTES));
    if (strlen(*text) != len) return lti_fail(d->ctx, LT_ERR_FORMAT, "%s: not a text file", path);
    LT_TRY(lti_json_parse(&j, d->ctx, *text, len, CONFIG_DEPTH, path));
    json_decref(j);
    return LT_OK;
}

/* Absent is fine; what is there under that name and cannot be read is noted, a link into nothing too. */
static lt_status take_text(finder *d, char **text, char **path_slot, const char *dir,
                           const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    if (*text || !join(path, dir, name)) return LT_OK;
    if (lstat(path, &st) && (errno == ENOENT || errno == ENOTDIR)) return LT_OK;
    const lt_status s = read_json_text(d, text, path);
    if (s >= 0) return keep(d, path_slot, "%s", path);
    free(*text);
    *text = NULL;
    return note_broken(d, s);
}

/* A config.json that lies beside a file may be that of another part, or of another program: it must look like this part's. */
static lt_status take_config(finder *d, lti_part part, const char *dir)
{
    static const char *const sign[LTI_PART_COUNT][2] = {
        [LTI_PART_DIT] = {"num_heads", "num_attention_heads"},
        [LTI_PART_TEXT] = {"d_model", "d_model"},
        [LTI_PART_VAE] = {"z_dim", "z_dim"},
    };
    lti_model_files *f = d->f;
    char **text = part == LTI_PART_DIT    ? &f->dit_config
                  : part == LTI_PART_TEXT ? &f->text_config
                                          : &f->vae_config;
    char **path = part == LTI_PART_DIT    ? &f->dit_config_path
                  : part == LTI_PART_TEXT ? &f->text_config_path
                                          : &f->vae_config_path;
    LT_TRY(take_text(d, text, path, dir, "config.json"));
    if (!*text) return LT_OK;
    json_t *j;
    LT_TRY(lti_json_parse(&j, d->ctx, *text, strlen(*text), CONFIG_DEPTH, *path));
    const bool mine = (json_object_get(j, sign[part][0]) || json_object_get(j, sign[part][1])) &&
                      (part != LTI_PART_DIT || !json_object_get(j, "d_model"));
    json_decref(j);
    if (mine) return LT_OK;
    free(*text);
    free(*path);
    *text = *path = NULL;
    return LT_OK;
}

/* ---- one folder of one part -------------------------------------------------------------- */

typedef struct choice {
    char best[PATH_MAX];   /* the file to take */
    char other[PATH_MAX];  /* another one that could be meant */
    char unread[PATH_MAX]; /* a file of a format that is not read here */
    char broken[PATH_MAX]; /* a file that cannot be read; matters when there is no other */
    int rank;
} choice;

/* 0: not a tensor file. Higher is preferred; equal ranks are a question to the user. */
static int rank_of(const char *name)
{
    if (!strcmp(name, "diffusion_pytorch_model.safetensors.index.json")) return 6;
    if (!strcmp(name, "model.safetensors.index.json")) return 6;
    if (!strcmp(name, "diffusion_pytorch_model.safetensors")) return 5;
    if (!strcmp(name, "model.safetensors")) return 5;
    if (ends_with(name, ".safetensors.index.json")) return 4;
    if (ends_with(name, ".safetensors") && !is_shard(name)) return 3;
    static const char *const saved[] = {".pth", ".pt", ".bin", ".ckpt"}; /* by torch */
    for (size_t i = 0; i < LT_COUNT(saved); i++)
        if (ends_with(name, saved[i])) return 2;
    return 0;
}

static bool is_unread(const char *name)
{
    return ends_with(name, ".gguf");
}

static void consider(finder *d, choice *c, const char *path, lti_part part)
{
    const int rank = rank_of(strrchr(path, '/') + 1);
    uint32_t parts = ~0u;
    if (!rank) {
        memcpy(c->unread, path, strlen(path) + 1);
        return;
    }
    if (part != LTI_PART_RAW && lti_file_parts(&parts, d->ctx, path) < 0) {
        memcpy(c->broken, path, strlen(path) + 1);
        return;
    }
    if (!(parts >> part & 1) || rank < c->rank) return;
    c->other[0] = 0;
    if (rank == c->rank) memcpy(c->other, c->best, sizeof c->other);
    memcpy(c->best, path, strlen(path) + 1);
    c->rank = rank;
}

/* The tensor file of `dir` that holds `part` (LTI_PART_RAW: whatever is in it). */
static lt_status choose(finder *d, choice *c, const char *dir, lti_part part)
{
    *c = (choice){.rank = 0};
    struct dirent **list;
    const int n = scandir(dir, &list, NULL, alphasort);
    if (n < 0) return lti_fail(d->ctx, LT_ERR_IO, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        const char *name = list[i]->d_name;
        if ((rank_of(name) || is_unread(name)) && join(path, dir, name)) consider(d, c, path, part);
        free(list[i]);
    }
    free(list);
    if (c->other[0])
        return lti_fail(d->ctx, LT_ERR_ARG, "%s: %s and %s could both be meant: name one", dir,
                        strrchr(c->other, '/') + 1, strrchr(c->best, '/') + 1);
    return LT_OK;
}

static lt_status open_part(finder *d, lti_part part, const char *path)
{
    lti_tensors **slot = slot_of(d->f, part);
    if (*slot) return LT_OK;
    return lti_tensors_open(slot, d->ctx, path, part, NULL);
}

/* Diffusers: everything in `dir` belongs to `part`. */
static lt_status from_part_folder(finder *d, lti_part part, const char *dir)
{
    if (!is_folder(dir)) return keep(d, why_of(d->f, part), "there is no folder %s", dir);
    choice c;
    LT_TRY(choose(d, &c, dir, LTI_PART_RAW));
    if (c.rank)
        LT_TRY(open_part(d, part, c.best));
    else if (c.unread[0])
        LT_TRY(open_part(d, part, c.unread)); /* the message that says what it is */
    else
        return keep(d, why_of(d->f, part), "there is no tensor file in %s", dir);
    return take_config(d, part, dir);
}

/* Anywhere else: the file of `dir` that holds `part`, if there is one. */
static lt_status from_mixed_folder(finder *d, lti_part part, const char *dir)
{
    if (*slot_of(d->f, part)) return LT_OK;
    choice c;
    LT_TRY(choose(d, &c, dir, part));
    if (c.rank) {
        LT_TRY(open_part(d, part, c.best));
        return take_config(d, part, dir);
    }
    if (c.broken[0]) {
        uint32_t parts;
        const lt_status broken = lti_file_parts(&parts, d->ctx, c.broken);
        if (part == LTI_PART_DIT && broken < 0) return broken;
        return keep(d, why_of(d->f, part), "%s", lt_error(d->ctx));
    }
    if (c.unread[0])
        return keep(
            d, why_of(d->f, part),
            "%s holds no file of it that is read here (%s is not: take the %s folder of the "
            "Diffusers repository, or a repack)",
            dir, strrchr(c.unread, '/') + 1, facts[part].folder);
    return keep(d, why_of(d->f, part), "no tensor file in %s holds it", dir);
}

static void folder_of(char out[PATH_MAX], const char *path)
{
    snprintf(out, PATH_MAX, "%s", path);
    char *slash = strrchr(out, '/');
    if (!slash)
        snprintf(out, PATH_MAX, ".");
    else if (slash == out)
        out[1] = 0;
    else
        *slash = 0;
}

/* One shard stands for all of them when their index lies beside it. */
static const char *whole_of(char out[PATH_MAX], const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (!is_shard(name)) return path;
    const size_t stem = strlen(path) - strlen("-00001-of-00006.safetensors");
    const int n = snprintf(out, PATH_MAX, "%.*s.safetensors.index.json", (int)stem, path);
    return n < PATH_MAX && is_kind(out, S_IFREG) ? out : path;
}

/* What the user named for a part: a file, its folder, or a whole model's folder. */
static lt_status from_override(finder *d, lti_part part, const char *path)
{
    char sub[PATH_MAX], all[PATH_MAX];
    if (!path) return LT_OK;
    if (!is_folder(path)) {
        LT_TRY(open_part(d, part, whole_of(all, path)));
        folder_of(sub, path);
        return take_config(d, part, sub);
    }
    if (has_folder(path, facts[part].folder) && join(sub, path, facts[part].folder))
        LT_TRY(from_part_folder(d, part, sub));
    else
        LT_TRY(from_mixed_folder(d, part, path));
    if (*slot_of(d->f, part)) return LT_OK;
    return lti_fail(d->ctx, LT_ERR_MISSING, "%s %s: %s", facts[part].option, path,
                    *why_of(d->f, part));
}

/* ---- tokenizer --------------------------------------------------------------------------- */

static lt_status find_tokenizer(finder *d, const char *dir)
{
    static const char *const places[] = {"spiece.model", "tokenizer/spiece.model",
                                         "google/umt5-xxl/spiece.model",
                                         "text_encoder/spiece.model"};
    for (size_t i = 0; !d->f->tokenizer && i < LT_COUNT(places); i++)
        if (has_file(dir, places[i])) LT_TRY(keep(d, &d->f->tokenizer, "%s/%s", dir, places[i]));
    if (d->f->tokenizer || d->f->why_tokenizer) return LT_OK;
    return keep(d, &d->f->why_tokenizer, "there is no spiece.model in %s or %s/tokenizer", dir,
                dir);
}

static lt_status tokenizer_override(finder *d, const char *path)
{
    if (!path) return LT_OK;
    if (is_folder(path)) {
        LT_TRY(find_tokenizer(d, path));
        if (!d->f->tokenizer)
            return lti_fail(d->ctx, LT_ERR_MISSING, "--tokenizer %s: %s", path,
                            d->f->why_tokenizer);
        return LT_OK;
    }
    if (!is_kind(path, S_IFREG))
        return lti_fail(d->ctx, LT_ERR_IO, "--tokenizer %s: %s", path,
                        errno ? strerror(errno) : "not a regular file");
    return keep(d, &d->f->tokenizer, "%s", path);
}

/* ---- layouts ----------------------------------------------------------------------------- */

static lt_status find_diffusers(finder *d, const char *dir)
{
    lti_model_files *f = d->f;
    char sub[PATH_MAX];
    f->layout = LTI_LAYOUT_DIFFUSERS;
    for (int p = LTI_PART_DIT; p < LTI_PART_COUNT; p++)
        if (!*slot_of(f, (lti_part)p) && join(sub, dir, facts[p].folder))
            LT_TRY(from_part_folder(d, (lti_part)p, sub));
    LT_TRY(take_text(d, &f->model_index, &f->model_index_path, dir, "model_index.json"));
    LT_TRY(take_text(d, &f->scheduler_config, &f->scheduler_config_path, dir,
                     "scheduler/scheduler_config.json"));
    if (has_folder(dir, "transformer_2")) LT_TRY(keep(d, &f->second_dit, "%s/transformer_2", dir));
    return find_tokenizer(d, dir);
}

static lt_status find_wan(finder *d, const char *dir)
{
    d->f->layout = LTI_LAYOUT_WAN;
    if (has_folder(dir, "high_noise_model") && has_folder(dir, "low_noise_model"))
        return lti_fail(d->ctx, LT_ERR_UNSUPPORTED,
                        "%s: Wan2.2 A14B (two experts) is not supported yet", dir);
    for (int p = LTI_PART_DIT; p < LTI_PART_COUNT; p++)
        LT_TRY(from_mixed_folder(d, (lti_part)p, dir));
    return find_tokenizer(d, dir);
}

static lt_status find_single(finder *d, const char *path)
{
    char dir[PATH_MAX], all[PATH_MAX];
    uint32_t parts;
    d->f->layout = LTI_LAYOUT_FILE;
    folder_of(dir, path);
    path = whole_of(all, path);
    LT_TRY(lti_file_parts(&parts, d->ctx, path));
    for (int p = LTI_PART_DIT; p < LTI_PART_COUNT; p++)
        if (parts >> p & 1) LT_TRY(open_part(d, (lti_part)p, path));
    if (!d->f->dit)
        LT_TRY(keep(d, &d->f->why_dit, "%s holds no patch_embedding.weight, which every DiT has",
                    path));
    if (d->f->dit) LT_TRY(take_config(d, LTI_PART_DIT, dir));
    LT_TRY(from_mixed_folder(d, LTI_PART_TEXT, dir));
    LT_TRY(from_mixed_folder(d, LTI_PART_VAE, dir));
    return find_tokenizer(d, dir);
}

static lt_status find_all(finder *d)
{
    const lt_model_options *o = d->opt;
    char dir[PATH_MAX];
    struct stat st;
    if (!o->path || !*o->path) return lti_fail(d->ctx, LT_ERR_ARG, "no model path");
    if (strlen(o->path) >= PATH_MAX) return lti_fail(d->ctx, LT_ERR_ARG, "model path too long");
    if (stat(o->path, &st)) return lti_fail(d->ctx, LT_ERR_IO, "%s: %s", o->path, strerror(errno));
    LT_TRY(keep(d, &d->f->path, "%s", o->path));
    /* what is named comes first: the places of the layout are then not searched for it */
    LT_TRY(from_override(d, LTI_PART_TEXT, o->text_encoder));
    LT_TRY(from_override(d, LTI_PART_VAE, o->vae));
    LT_TRY(tokenizer_override(d, o->tokenizer));
    if (o->text_encoder && !d->f->tokenizer) {
        folder_of(dir, o->text_encoder);
        LT_TRY(find_tokenizer(d, is_folder(o->text_encoder) ? o->text_encoder : dir));
    }
    /* a folder may be named by the file that describes it */
    const bool described =
        ends_with(o->path, "/model_index.json") || ends_with(o->path, "/config.json");
    if (S_ISDIR(st.st_mode))
        snprintf(dir, sizeof dir, "%s", o->path);
    else
        folder_of(dir, o->path);
    if (!S_ISDIR(st.st_mode) && !described) {
        LT_TRY(find_single(d, o->path));
    } else {
        if (has_file(dir, "model_index.json") || has_folder(dir, "transformer"))
            LT_TRY(find_diffusers(d, dir));
        else
            LT_TRY(find_wan(d, dir));
    }
    return take_text(d, &d->f->longtake_config, &d->f->longtake_config_path, dir, "longtake.json");
}

lt_status lti_model_files_find(lti_model_files **out, lt_ctx *ctx, const lt_model_options *opt)
{
    *out = NULL;
    lti_model_files *f = calloc(1, sizeof *f);
    if (!f) return lti_fail(ctx, LT_ERR_MEM, "no memory for %zu bytes", sizeof *f);
    finder d = {.ctx = ctx, .opt = opt, .f = f};
    const lt_status s = find_all(&d);
    if (s < 0)
        lti_model_files_close(&f);
    else
        *out = f;
    return s;
}

void lti_model_files_close(lti_model_files **pf)
{
    lti_model_files *f = *pf;
    if (!f) return;
    lti_tensors_close(&f->dit);
    lti_tensors_close(&f->text);
    lti_tensors_close(&f->vae);
    char *const texts[] = {
        f->path,
        f->tokenizer,
        f->why_dit,
        f->why_text,
        f->why_vae,
        f->why_tokenizer,
        f->second_dit,
        f->dit_config,
        f->text_config,
        f->vae_config,
        f->scheduler_config,
        f->model_index,
        f->longtake_config,
        f->dit_config_path,
        f->text_config_path,
        f->vae_config_path,
        f->scheduler_config_path,
        f->model_index_path,
        f->longtake_config_path,
    };
    for (size_t i = 0; i < LT_COUNT(texts); i++)
        free(texts[i]);
    for (int32_t i = 0; i < f->broken_count; i++)
        free(f->broken[i].message);
    free(f);
    *pf = NULL;
}

const lti_entry *lti_model_files_inner_tokenizer(const lti_model_files *f)
{
    for (int64_t i = 0; f->text && i < lti_tensors_count(f->text); i++) {
        const lti_entry *e = lti_tensors_at(f->text, i);
        if (!strcmp(e->name, "spiece_model") && !strcmp(e->type, "U8")) return e;
    }
    return NULL;
}

lt_status lti_model_files_require(lt_ctx *ctx, const lti_model_files *f)
{
    if (!f->dit) return lti_fail(ctx, LT_ERR_MISSING, "%s: no DiT found: %s", f->path, f->why_dit);
    if (!f->vae)
        return lti_fail(ctx, LT_ERR_MISSING, "%s: no VAE found: %s (give it with --vae)", f->path,
                        f->why_vae);
    if (!f->text)
        return lti_fail(ctx, LT_ERR_MISSING,
                        "%s: no text encoder found: %s (give it with --text-encoder)", f->path,
                        f->why_text);
    if (!f->tokenizer && !lti_model_files_inner_tokenizer(f))
        return lti_fail(ctx, LT_ERR_MISSING,
                        "%s: no tokenizer found: %s (give it with --tokenizer)", f->path,
                        f->why_tokenizer);
    return LT_OK;
}
