/* files.c: finding the files of a model (files.h, lower half).
 *
 * A Diffusers folder says itself where everything is. Everywhere else the files are told apart by what is in them, not by how they
 * are called: `wan_2.1_vae.safetensors`, `Wan2.1_VAE.safetensors` and `vae.safetensors` are the same thing.
 */
#include "video/files_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* What a part of the model is called in folders, options and messages. */
static const struct part_facts {
    const char *folder, *option;
} facts[LTI_PART_COUNT] = {
    [LTI_PART_RAW] = {"", ""},
    [LTI_PART_DIT] = {"transformer", "--model"},
    [LTI_PART_TEXT] = {"text_encoder", "--text-encoder"},
    [LTI_PART_VAE] = {"vae", "--vae"},
};

const char *lti_part_folder(lti_part part)
{
    return facts[part].folder;
}

const char *lti_layout_name(lti_layout l)
{
    static const char *const names[] = {"Diffusers folder", "original Wan folder", "single file"};
    return names[l];
}

/* What the user named for a part: a file, its folder, or a whole model's folder. */
static lt_status from_override(lti_finder *d, lti_part part, const char *path)
{
    char sub[PATH_MAX], all[PATH_MAX];
    if (!path) return LT_OK;
    if (!lti_path_is_folder(path)) {
        LT_TRY(lti_finder_open(d, part, lti_whole_of(all, path)));
        lti_path_folder(sub, path);
        return lti_finder_config(d, part, sub);
    }
    if (lti_path_has_folder(path, facts[part].folder) &&
        lti_path_join(sub, path, facts[part].folder))
        LT_TRY(lti_finder_part_folder(d, part, sub));
    else
        LT_TRY(lti_finder_mixed_folder(d, part, path));
    if (*lti_part_slot(d->f, part) || d->f->broken_count) return LT_OK;
    return lti_fail(d->ctx, LT_ERR_MISSING, "%s %s: %s", facts[part].option, path,
                    *lti_part_why(d->f, part));
}

/* ---- tokenizer --------------------------------------------------------------------------- */

static lt_status find_tokenizer(lti_finder *d, const char *dir)
{
    static const char *const places[] = {"spiece.model", "tokenizer/spiece.model",
                                         "google/umt5-xxl/spiece.model",
                                         "text_encoder/spiece.model"};
    for (size_t i = 0; !d->f->tokenizer && i < LT_COUNT(places); i++)
        if (lti_path_has_file(dir, places[i]))
            LT_TRY(lti_finder_keep(d, &d->f->tokenizer, "%s/%s", dir, places[i]));
    if (d->f->tokenizer || d->f->why_tokenizer) return LT_OK;
    return lti_finder_keep(d, &d->f->why_tokenizer,
                           "there is no spiece.model in %s or %s/tokenizer", dir, dir);
}

static lt_status tokenizer_override(lti_finder *d, const char *path)
{
    if (!path) return LT_OK;
    if (lti_path_is_folder(path)) {
        LT_TRY(find_tokenizer(d, path));
        if (!d->f->tokenizer)
            return lti_fail(d->ctx, LT_ERR_MISSING, "--tokenizer %s: %s", path,
                            d->f->why_tokenizer);
        return LT_OK;
    }
    struct stat st;
    if (stat(path, &st))
        return lti_fail(d->ctx, LT_ERR_IO, "--tokenizer %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return lti_fail(d->ctx, LT_ERR_IO, "--tokenizer %s: not a regular file", path);
    return lti_finder_keep(d, &d->f->tokenizer, "%s", path);
}

/* ---- layouts ----------------------------------------------------------------------------- */

static lt_status find_diffusers(lti_finder *d, const char *dir)
{
    lti_model_files *f = d->f;
    char sub[PATH_MAX];
    f->layout = LTI_LAYOUT_DIFFUSERS;
    for (int p = LTI_PART_DIT; p < LTI_PART_COUNT; p++)
        if (!*lti_part_slot(f, (lti_part)p) && lti_path_join(sub, dir, facts[p].folder))
            LT_TRY(lti_finder_part_folder(d, (lti_part)p, sub));
    LT_TRY(lti_finder_text(d, &f->model_index, &f->model_index_path, dir, "model_index.json"));
    LT_TRY(lti_finder_text(d, &f->scheduler_config, &f->scheduler_config_path, dir,
                           "scheduler/scheduler_config.json"));
    if (lti_path_has_folder(dir, "transformer_2"))
        LT_TRY(lti_finder_keep(d, &f->second_dit, "%s/transformer_2", dir));
    return find_tokenizer(d, dir);
}

static lt_status find_wan(lti_finder *d, const char *dir)
{
    d->f->layout = LTI_LAYOUT_WAN;
    if (lti_path_has_folder(dir, "high_noise_model") && lti_path_has_folder(dir, "low_noise_model"))
        return lti_fail(d->ctx, LT_ERR_UNSUPPORTED,
                        "%s: Wan2.2 A14B (two experts) is not supported yet", dir);
    for (int p = LTI_PART_DIT; p < LTI_PART_COUNT; p++)
        LT_TRY(lti_finder_mixed_folder(d, (lti_part)p, dir));
    return find_tokenizer(d, dir);
}

static lt_status find_single(lti_finder *d, const char *path)
{
    char dir[PATH_MAX], all[PATH_MAX];
    uint32_t parts;
    d->f->layout = LTI_LAYOUT_FILE;
    lti_path_folder(dir, path);
    path = lti_whole_of(all, path);
    const lt_status s = lti_file_parts(&parts, d->ctx, path);
    if (s < 0) LT_TRY(lti_finder_broken(d, LTI_PART_DIT, s));
    for (int p = LTI_PART_DIT; p < LTI_PART_COUNT; p++)
        if (parts >> p & 1) LT_TRY(lti_finder_open(d, (lti_part)p, path));
    if (s >= 0 && !d->f->dit)
        LT_TRY(lti_finder_keep(d, &d->f->why_dit,
                               "%s holds no patch_embedding.weight, which every DiT has", path));
    if (d->f->dit) LT_TRY(lti_finder_config(d, LTI_PART_DIT, dir));
    LT_TRY(lti_finder_mixed_folder(d, LTI_PART_TEXT, dir));
    LT_TRY(lti_finder_mixed_folder(d, LTI_PART_VAE, dir));
    return find_tokenizer(d, dir);
}

static lt_status find_all(lti_finder *d)
{
    const lt_model_options *o = d->opt;
    char dir[PATH_MAX];
    struct stat st;
    if (!o->path || !*o->path) return lti_fail(d->ctx, LT_ERR_ARG, "no model path");
    if (strlen(o->path) >= PATH_MAX) return lti_fail(d->ctx, LT_ERR_ARG, "model path too long");
    if (stat(o->path, &st)) return lti_fail(d->ctx, LT_ERR_IO, "%s: %s", o->path, strerror(errno));
    LT_TRY(lti_finder_keep(d, &d->f->path, "%s", o->path));
    /* what is named comes first: the places of the layout are then not searched for it */
    LT_TRY(from_override(d, LTI_PART_TEXT, o->text_encoder));
    LT_TRY(from_override(d, LTI_PART_VAE, o->vae));
    LT_TRY(tokenizer_override(d, o->tokenizer));
    if (o->text_encoder && !d->f->tokenizer) {
        lti_path_folder(dir, o->text_encoder);
        LT_TRY(find_tokenizer(d, lti_path_is_folder(o->text_encoder) ? o->text_encoder : dir));
    }
    /* a folder may be named by the file that describes it */
    const bool described =
        lti_ends_with(o->path, "/model_index.json") || lti_ends_with(o->path, "/config.json");
    if (S_ISDIR(st.st_mode))
        snprintf(dir, sizeof dir, "%s", o->path);
    else
        lti_path_folder(dir, o->path);
    if (!S_ISDIR(st.st_mode) && !described) {
        LT_TRY(find_single(d, o->path));
    } else {
        if (lti_path_has_file(dir, "model_index.json") || lti_path_has_folder(dir, "transformer"))
            LT_TRY(find_diffusers(d, dir));
        else
            LT_TRY(find_wan(d, dir));
    }
    return lti_finder_text(d, &d->f->longtake_config, &d->f->longtake_config_path, dir,
                           "longtake.json");
}

lt_status lti_model_files_find(lti_model_files **out, lt_ctx *ctx, const lt_model_options *opt)
{
    *out = NULL;
    lti_model_files *f = calloc(1, sizeof *f);
    if (!f) return lti_fail(ctx, LT_ERR_MEM, "no memory for %zu bytes", sizeof *f);
    lti_finder d = {.ctx = ctx, .opt = opt, .f = f};
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
    if (f->broken_count) return lti_fail(ctx, f->broken[0].status, "%s", f->broken[0].message);
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
