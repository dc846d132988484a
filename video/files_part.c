/* files_part.c: one part of a model: its tensor file among what lies in a folder, and the config.json beside it (files_internal.h).
 * A part that is there and cannot be read is noted and left out, so that the others are found all the same.
 */
#include "video/files_internal.h"

#include "video/json.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_BYTES = 4 << 20 };

/* ---- small things ------------------------------------------------------------------------ */

bool lti_path_join(char out[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

static bool path_is(const char *path, mode_t kind)
{
    struct stat st;
    return !stat(path, &st) && (st.st_mode & S_IFMT) == kind;
}

bool lti_path_is_folder(const char *path)
{
    return path_is(path, S_IFDIR);
}

bool lti_path_has_folder(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return lti_path_join(path, dir, name) && lti_path_is_folder(path);
}

bool lti_path_has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return lti_path_join(path, dir, name) && path_is(path, S_IFREG);
}

bool lti_ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

void lti_path_folder(char out[PATH_MAX], const char *path)
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

const char *lti_whole_of(char out[PATH_MAX], const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (!is_shard(name)) return path;
    const size_t stem = strlen(path) - strlen("-00001-of-00006.safetensors");
    const int n = snprintf(out, PATH_MAX, "%.*s.safetensors.index.json", (int)stem, path);
    return n < PATH_MAX && path_is(out, S_IFREG) ? out : path;
}

lt_status lti_finder_keep(lti_finder *d, char **slot, const char *fmt, ...)
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

lti_tensors **lti_part_slot(lti_model_files *f, lti_part part)
{
    return part == LTI_PART_DIT ? &f->dit : part == LTI_PART_TEXT ? &f->text : &f->vae;
}

char **lti_part_why(lti_model_files *f, lti_part part)
{
    return part == LTI_PART_DIT ? &f->why_dit : part == LTI_PART_TEXT ? &f->why_text : &f->why_vae;
}

/* ---- configuration texts ----------------------------------------------------------------- */

/* Keeps the failure `s` of the context for later. Each file once: one config.json may be looked at for every part. */
static lt_status note_broken(lti_finder *d, lt_status s)
{
    lti_model_files *f = d->f;
    if (s == LT_ERR_MEM) return s;
    for (int32_t i = 0; i < f->broken_count; i++)
        if (!strcmp(f->broken[i].message, lt_error(d->ctx))) return LT_OK;
    if (f->broken_count == LTI_MAX_BROKEN) return LT_OK;
    lti_broken *b = &f->broken[f->broken_count];
    LT_TRY(lti_finder_keep(d, &b->message, "%s", lt_error(d->ctx)));
    b->status = s;
    f->broken_count++;
    return LT_OK;
}

/* The text must be that of a JSON object. */
static lt_status read_json_text(lti_finder *d, char **text, const char *path)
{
    struct stat st;
    size_t len;
    json_t *j;
    if (stat(path, &st)) return lti_fail(d->ctx, LT_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return lti_fail(d->ctx, LT_ERR_IO, "%s: not a regular file", path);
    LT_TRY(lti_read_file(text, &len, d->ctx, path, CONFIG_BYTES));
    if (strlen(*text) != len) return lti_fail(d->ctx, LT_ERR_FORMAT, "%s: not a text file", path);
    LT_TRY(lti_json_config(&j, d->ctx, *text, path));
    json_decref(j);
    return LT_OK;
}

/* Absent is fine; what is there under that name and cannot be read is noted, a link into nothing too. */
lt_status lti_finder_text(lti_finder *d, char **text, char **path_slot, const char *dir,
                          const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    if (*text || !lti_path_join(path, dir, name)) return LT_OK;
    if (lstat(path, &st) && (errno == ENOENT || errno == ENOTDIR)) return LT_OK;
    const lt_status s = read_json_text(d, text, path);
    if (s >= 0) return lti_finder_keep(d, path_slot, "%s", path);
    free(*text);
    *text = NULL;
    return note_broken(d, s);
}

/* A config.json that lies beside a file may be that of another part, or of another program: it must look like this part's. */
lt_status lti_finder_config(lti_finder *d, lti_part part, const char *dir)
{
    static const char *const sign[LTI_PART_COUNT][3] = {
        [LTI_PART_DIT] = {"num_heads", "num_attention_heads", "attention_head_dim"},
        [LTI_PART_TEXT] = {"d_model"},
        [LTI_PART_VAE] = {"z_dim"},
    };
    lti_model_files *f = d->f;
    char **text = part == LTI_PART_DIT    ? &f->dit_config
                  : part == LTI_PART_TEXT ? &f->text_config
                                          : &f->vae_config;
    char **path = part == LTI_PART_DIT    ? &f->dit_config_path
                  : part == LTI_PART_TEXT ? &f->text_config_path
                                          : &f->vae_config_path;
    LT_TRY(lti_finder_text(d, text, path, dir, "config.json"));
    if (!*text) return LT_OK;
    json_t *j;
    LT_TRY(lti_json_config(&j, d->ctx, *text, *path));
    bool mine = false;
    for (size_t i = 0; i < LT_COUNT(sign[part]); i++)
        mine |= sign[part][i] && json_object_get(j, sign[part][i]);
    mine &= part != LTI_PART_DIT || !json_object_get(j, "d_model");
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
    if (lti_ends_with(name, ".safetensors.index.json")) return 4;
    if (lti_ends_with(name, ".safetensors") && !is_shard(name)) return 3;
    static const char *const saved[] = {".pth", ".pt", ".bin", ".ckpt"}; /* by torch */
    for (size_t i = 0; i < LT_COUNT(saved); i++)
        if (lti_ends_with(name, saved[i])) return 2;
    return 0;
}

static bool is_unread(const char *name)
{
    return lti_ends_with(name, ".gguf");
}

static void consider(lti_finder *d, choice *c, const char *path, lti_part part)
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
static lt_status choose(lti_finder *d, choice *c, const char *dir, lti_part part)
{
    *c = (choice){.rank = 0};
    struct dirent **list;
    const int n = scandir(dir, &list, NULL, alphasort);
    if (n < 0) return lti_fail(d->ctx, LT_ERR_IO, "%s: %s", dir, strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        const char *name = list[i]->d_name;
        if ((rank_of(name) || is_unread(name)) && lti_path_join(path, dir, name))
            consider(d, c, path, part);
        free(list[i]);
    }
    free(list);
    if (c->other[0])
        return lti_fail(d->ctx, LT_ERR_ARG, "%s: %s and %s could both be meant: name one", dir,
                        strrchr(c->other, '/') + 1, strrchr(c->best, '/') + 1);
    return LT_OK;
}

lt_status lti_finder_broken(lti_finder *d, lti_part part, lt_status s)
{
    LT_TRY(note_broken(d, s));
    return lti_finder_keep(d, lti_part_why(d->f, part), "%s", lt_error(d->ctx));
}

lt_status lti_finder_open(lti_finder *d, lti_part part, const char *path)
{
    lti_tensors **slot = lti_part_slot(d->f, part);
    if (*slot) return LT_OK;
    const lt_status s = lti_tensors_open(slot, d->ctx, path, part, NULL);
    return s < 0 ? lti_finder_broken(d, part, s) : LT_OK;
}

/* Diffusers: everything in `dir` belongs to `part`. */
lt_status lti_finder_part_folder(lti_finder *d, lti_part part, const char *dir)
{
    if (!lti_path_is_folder(dir))
        return lti_finder_keep(d, lti_part_why(d->f, part), "there is no folder %s", dir);
    choice c;
    const lt_status s = choose(d, &c, dir, LTI_PART_RAW);
    if (s < 0) return lti_finder_broken(d, part, s);
    if (c.rank)
        LT_TRY(lti_finder_open(d, part, c.best));
    else if (c.unread[0])
        LT_TRY(lti_finder_open(d, part, c.unread)); /* the message that says what it is */
    else
        return lti_finder_keep(d, lti_part_why(d->f, part), "there is no tensor file in %s", dir);
    return lti_finder_config(d, part, dir);
}

/* Anywhere else: the file of `dir` that holds `part`, if there is one. */
lt_status lti_finder_mixed_folder(lti_finder *d, lti_part part, const char *dir)
{
    if (*lti_part_slot(d->f, part)) return LT_OK;
    choice c;
    const lt_status s = choose(d, &c, dir, part);
    if (s < 0) return lti_finder_broken(d, part, s);
    if (c.rank) {
        LT_TRY(lti_finder_open(d, part, c.best));
        return lti_finder_config(d, part, dir);
    }
    if (c.broken[0]) { /* again, for the message */
        uint32_t parts;
        const lt_status broken = lti_file_parts(&parts, d->ctx, c.broken);
        if (part == LTI_PART_DIT && broken < 0) return lti_finder_broken(d, part, broken);
        /* nothing says that it is this part's: it may be given from elsewhere */
        if (broken < 0) return lti_finder_keep(d, lti_part_why(d->f, part), "%s", lt_error(d->ctx));
    }
    if (c.unread[0])
        return lti_finder_keep(
            d, lti_part_why(d->f, part),
            "%s holds no file of it that is read here (%s is not: take the %s folder of the "
            "Diffusers repository, or a repack)",
            dir, strrchr(c.unread, '/') + 1, lti_part_folder(part));
    return lti_finder_keep(d, lti_part_why(d->f, part), "no tensor file in %s holds it", dir);
}
