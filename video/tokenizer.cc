// tokenizer.cc: see tokenizer.h. C++ because sentencepiece is; nothing of C++ leaves this file, exceptions included.
#include "video/tokenizer.h"

#include "video/clean.h"
#include "video/files.h"

#include <sentencepiece_processor.h>

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

struct lti_tokenizer {
    sentencepiece::SentencePieceProcessor model;
    int32_t eos = -1;
};

namespace
{

constexpr size_t kMaxModelBytes = 64u << 20; // the largest published is 4.5 MB

lt_status load(lti_tokenizer *t, lt_ctx *ctx, const void *data, size_t len, const char *name)
{
    const auto status =
        t->model.LoadFromSerializedProto(absl::string_view(static_cast<const char *>(data), len));
    if (!status.ok())
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: not a sentencepiece model: %s", name,
                        status.ToString().c_str());
    t->eos = t->model.eos_id();
    if (t->eos < 0)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: the sentencepiece model has no end-of-text piece",
                        name);
    return LT_OK;
}

lt_status encode(const lti_tokenizer *t, lt_ctx *ctx, const char *clean, int32_t max_tokens,
                 int32_t vocab, std::vector<int> *ids, int32_t *cut)
{
    const auto status = t->model.Encode(clean, ids);
    if (!status.ok())
        return lti_fail(ctx, LT_ERR_FORMAT, "tokenizer: %s", status.ToString().c_str());
    const size_t most = static_cast<size_t>(max_tokens) - 1;
    if (cut) *cut = ids->size() > most ? static_cast<int32_t>(ids->size() - most) : 0;
    if (ids->size() > most) ids->resize(most);
    ids->push_back(t->eos);
    for (const int id : *ids)
        if (id < 0 || id >= vocab)
            return lti_fail(ctx, LT_ERR_SHAPE,
                            "the tokenizer gives token %d, the text encoder knows 0..%d: they do "
                            "not belong together",
                            id, vocab - 1);
    return LT_OK;
}

} // namespace

extern "C" lt_status lti_tokenizer_load(lti_tokenizer **out, lt_ctx *ctx, const void *data,
                                        size_t len, const char *name)
{
    *out = nullptr;
    lti_tokenizer *t = nullptr;
    lt_status s;
    try {
        t = new lti_tokenizer;
        s = load(t, ctx, data, len, name);
    } catch (const std::exception &e) {
        s = lti_fail(ctx, LT_ERR_MEM, "%s: sentencepiece: %s", name, e.what());
    }
    if (s < 0)
        delete t;
    else
        *out = t;
    return s;
}

extern "C" lt_status lti_tokenizer_open(lti_tokenizer **out, lt_ctx *ctx, const char *path)
{
    *out = nullptr;
    char *data;
    size_t len;
    LT_TRY(lti_read_file(&data, &len, ctx, path, kMaxModelBytes));
    const lt_status s = lti_tokenizer_load(out, ctx, data, len, path);
    std::free(data);
    return s;
}

extern "C" lt_status lti_tokenizer_of(lti_tokenizer **out, lt_ctx *ctx,
                                      const lti_model_files *files)
{
    *out = nullptr;
    if (files->tokenizer) return lti_tokenizer_open(out, ctx, files->tokenizer);
    const lti_entry *inner = lti_model_files_inner_tokenizer(files);
    if (!inner)
        return lti_fail(ctx, LT_ERR_MISSING, "%s: no tokenizer: %s", files->path,
                        files->why_tokenizer ? files->why_tokenizer : "not looked for");
    if (inner->bytes > kMaxModelBytes)
        return lti_fail(ctx, LT_ERR_FORMAT, "%s: spiece_model has %zu bytes, %zu is the most",
                        lti_tensors_path(files->text), inner->bytes, kMaxModelBytes);
    void *data = std::malloc(inner->bytes + 1);
    if (!data)
        return lti_fail(ctx, LT_ERR_MEM, "no memory for a tokenizer of %zu bytes", inner->bytes);
    lt_status s = lti_tensors_read(files->text, inner, data, 0, inner->bytes);
    if (s >= 0) s = lti_tokenizer_load(out, ctx, data, inner->bytes, "spiece_model");
    std::free(data);
    return s;
}

extern "C" void lti_tokenizer_close(lti_tokenizer **t)
{
    delete *t;
    *t = nullptr;
}

extern "C" int32_t lti_tokenizer_size(const lti_tokenizer *t)
{
    return t->model.GetPieceSize();
}

extern "C" lt_status lti_tokenizer_encode(const lti_tokenizer *t, lt_ctx *ctx, const char *text,
                                          int32_t max_tokens, int32_t vocab, int32_t **ids,
                                          int32_t *n, int32_t *cut)
{
    *ids = nullptr;
    *n = 0;
    if (max_tokens < 1) return lti_fail(ctx, LT_ERR_ARG, "at most %d tokens", max_tokens);
    char *clean;
    LT_TRY(lti_clean(&clean, ctx, text, std::char_traits<char>::length(text)));
    lt_status s;
    try {
        std::vector<int> v;
        s = encode(t, ctx, clean, max_tokens, vocab, &v, cut);
        if (s >= 0) {
            *ids = static_cast<int32_t *>(std::malloc(v.size() * sizeof **ids));
            *n = static_cast<int32_t>(v.size());
            for (size_t i = 0; *ids && i < v.size(); i++)
                (*ids)[i] = v[i];
            if (!*ids) s = lti_fail(ctx, LT_ERR_MEM, "no memory for %zu tokens", v.size());
        }
    } catch (const std::exception &e) {
        s = lti_fail(ctx, LT_ERR_MEM, "tokenizer: %s", e.what());
    }
    std::free(clean);
    return s;
}
