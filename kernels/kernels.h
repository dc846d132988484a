/* kernels.h: arithmetic on tensors on one device, and the few things that every room needs:
 * status, context, log, devices, memory, packed weights and the table of operations.
 * This room knows nothing of video.
 *
 * Letters: M rows, N output columns, K input columns, H W height and width, C channels, NH heads,
 * D head size. All matrices are row-major; `ld` is the distance of two rows in elements.
 *
 * Device memory is opaque above this header: pointers from lt_dev_alloc may be offset, stored and
 * passed to operations and copies, never read or written by the host.
 */
#ifndef LT_KERNELS_H
#define LT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LT_API __attribute__((visibility("default")))
#define LT_MUST_USE __attribute__((warn_unused_result))
#define LT_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define LT_API
#define LT_MUST_USE
#define LT_PRINTF(a, b)
#endif

/* ---- status ----------------------------------------------------------------------------- */

/* < 0: failed, ask lt_error(ctx). 0: done. > 0: fine, but not now. One list makes code, name and text. */
#define LT_STATUS_MAP(X)                                 \
    X(LT_OK, 0, "ok")                                    \
    X(LT_AGAIN, 1, "nothing yet, or no room yet")        \
    X(LT_END, 2, "the stream has ended")                 \
    X(LT_ERR_ARG, -1, "invalid argument")                \
    X(LT_ERR_SHAPE, -2, "tensor shape does not match")   \
    X(LT_ERR_DTYPE, -3, "tensor type does not match")    \
    X(LT_ERR_MEM, -4, "out of memory")                   \
    X(LT_ERR_IO, -5, "file or network operation failed") \
    X(LT_ERR_FORMAT, -6, "malformed data")               \
    X(LT_ERR_MISSING, -7, "not found")                   \
    X(LT_ERR_UNSUPPORTED, -8, "not supported")           \
    X(LT_ERR_CANCELLED, -9, "cancelled")                 \
    X(LT_ERR_NUMERIC, -10, "result is not finite")       \
    X(LT_ERR_GPU, -11, "device error")                   \
    X(LT_ERR_CODEC, -12, "encoder or decoder error")

typedef enum lt_status {
#define LT_STATUS_ENUM(name, value, text) name = value,
    LT_STATUS_MAP(LT_STATUS_ENUM)
#undef LT_STATUS_ENUM
} lt_status;

LT_API const char *lt_status_name(lt_status s); /* "LT_ERR_ARG"; any thread */
LT_API const char *lt_status_text(lt_status s); /* "invalid argument"; any thread */

/* ---- context: message and log ------------------------------------------------------------ */

typedef enum lt_log_level {
    LT_LOG_ERROR,
    LT_LOG_WARN,
    LT_LOG_INFO,
    LT_LOG_DEBUG,
    LT_LOG_TRACE
} lt_log_level;

typedef struct lt_ctx lt_ctx;
typedef void lt_log_fn(void *user, lt_log_level level,
                       const char *line); /* line: key=value, no newline */

/* A context holds the last message and the log sink. One thread uses a context and all that is made from
 * it at a time; different contexts are independent. `log` may be NULL (silent). Errors: LT_ERR_MEM. */
LT_MUST_USE LT_API lt_status lt_ctx_create(lt_ctx **out, lt_log_fn *log, void *user,
                                           lt_log_level max_level);
LT_API void lt_ctx_destroy(lt_ctx **ctx); /* accepts NULL; sets *ctx to NULL */
/* The message of the last failure on this context, "" if none; valid until the next call on it. */
LT_API const char *lt_error(const lt_ctx *ctx);
/* For the rooms above: sets the message and returns `s`. What in it is not UTF-8, or was cut within a character, becomes '?'. */
LT_API lt_status lti_fail(lt_ctx *ctx, lt_status s, const char *fmt, ...) LT_PRINTF(3, 4);
/* Puts "fmt: " before the present message and returns `s`: how a caller adds what it was doing. */
LT_API lt_status lti_within(lt_ctx *ctx, lt_status s, const char *fmt, ...) LT_PRINTF(3, 4);
/* Seconds of a clock that only goes on. Any thread. */
LT_API double lti_now(void);
/* Bytes of the character that the terminated `text` begins with; 0 when it is not UTF-8, or at its end. Any thread. */
LT_API size_t lti_utf8_character(const char *text);
LT_API void lti_log(lt_ctx *ctx, lt_log_level level, const char *fmt, ...) LT_PRINTF(3, 4);

#define LT_TRY(expr)                                   \
    do {                                               \
        lt_status lt_try_status_ = (expr);             \
        if (lt_try_status_ < 0) return lt_try_status_; \
    } while (0)
#define LT_COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* *out = a * b (a + b); false on overflow. */
LT_API bool lti_mul_size(size_t *out, size_t a, size_t b);
LT_API bool lti_add_size(size_t *out, size_t a, size_t b);

/* ---- device and memory ------------------------------------------------------------------- */

typedef enum lt_dtype { LT_F32 = 1, LT_BF16 = 2, LT_F16 = 3 } lt_dtype;
LT_API size_t lt_dtype_size(lt_dtype t);      /* bytes; 0 for an unknown type */
LT_API const char *lt_dtype_name(lt_dtype t); /* "f32", "bf16", "f16" */

/* What memory is for. Live and peak bytes are counted by tag and reported by the program itself. */
#define LT_TAG_MAP(X)                  \
    X(LT_TAG_WEIGHTS, "weights")       \
    X(LT_TAG_TEXT, "text")             \
    X(LT_TAG_LATENT, "latent")         \
    X(LT_TAG_ACTIVATION, "activation") \
    X(LT_TAG_KV, "kv")                 \
    X(LT_TAG_PLAN, "plan")             \
    X(LT_TAG_VAE_STATE, "vae_state")   \
    X(LT_TAG_VAE_WORK, "vae_work")     \
    X(LT_TAG_SCRATCH, "scratch")       \
    X(LT_TAG_TEST, "test")
typedef enum lt_tag {
#define LT_TAG_ENUM(name, text) name,
    LT_TAG_MAP(LT_TAG_ENUM)
#undef LT_TAG_ENUM
        LT_TAG_COUNT
} lt_tag;
LT_API const char *lt_tag_name(lt_tag tag);

typedef struct lt_mem_stats {
    uint64_t live_bytes[LT_TAG_COUNT], peak_bytes[LT_TAG_COUNT];
    uint64_t live_total, peak_total; /* peak_total: highest sum at one moment */
    uint64_t alloc_calls; /* lt_dev_alloc calls so far: a denoising step must not raise it */
} lt_mem_stats;

typedef struct lt_dev lt_dev;

typedef struct lt_dev_options {
    /* "auto" (default), "cpu", "guard" (CPU whose tensor memory the host cannot touch outside operations and copies: for
     * tests), "cuda" */
    const char *device;
    int threads; /* CPU worker threads; 0 = the cores this process may use */
    /* highest CPU kernel set: "auto" (default; also env LONGTAKE_ISA), "ref", "portable", "avx2", "avx512", "avx512bf16", "avx512fp16". More
     * than the processor has is LT_ERR_UNSUPPORTED */
    const char *isa;
} lt_dev_options;
LT_API lt_dev_options lt_dev_options_default(void);

/* `ctx` must outlive the device. Errors: LT_ERR_ARG, LT_ERR_UNSUPPORTED, LT_ERR_MEM. Thread: owner of ctx. */
LT_MUST_USE LT_API lt_status lt_dev_create(lt_dev **out, lt_ctx *ctx, const lt_dev_options *opt);
LT_API void lt_dev_destroy(lt_dev **dev); /* everything made from it must be gone; accepts NULL */
LT_API lt_ctx *lt_dev_ctx(const lt_dev *dev);
LT_API const char *lt_dev_name(const lt_dev *dev); /* "cpu", "guard", "cuda" */
LT_API const char *lt_dev_isa(const lt_dev *dev);  /* kernel set in use, "avx512" */
LT_API int lt_dev_threads(const lt_dev *dev);
/* The type in which matrix products read their inputs when the user asks for "auto". */
LT_API lt_dtype lt_dev_auto_dtype(const lt_dev *dev);

/* 64-byte aligned, not zeroed. bytes 0 gives NULL and LT_OK. Errors: LT_ERR_MEM (message names bytes and tag). */
LT_MUST_USE LT_API lt_status lt_dev_alloc(lt_dev *dev, void **out, size_t bytes, lt_tag tag);
LT_API void lt_dev_free(lt_dev *dev, void *ptr); /* accepts NULL */
LT_MUST_USE LT_API lt_status lt_dev_upload(lt_dev *dev, void *dst, const void *host, size_t bytes);
LT_MUST_USE LT_API lt_status lt_dev_download(lt_dev *dev, void *host, const void *src,
                                             size_t bytes);
LT_MUST_USE LT_API lt_status lt_dev_copy(lt_dev *dev, void *dst, const void *src,
                                         size_t bytes); /* no overlap */
LT_MUST_USE LT_API lt_status lt_dev_zero(lt_dev *dev, void *dst, size_t bytes);
LT_API void lt_dev_mem_stats(const lt_dev *dev, lt_mem_stats *out);
/* Waits for queued work (a no-op on CPU). */
LT_MUST_USE LT_API lt_status lt_dev_sync(lt_dev *dev);

/* What the machine sustains on the threads of the device: arithmetic in registers alone, the mean over `ms` milliseconds each. A
 * shared machine reaches its burst (the best single millisecond) only at moments, so shares are of the mean. For benchmarks. */
typedef struct lt_peak {
    double fma_flops, dot_flops,
        half_flops; /* f32 FMA; bf16 dot product, f16 FMA (0: none), a second */
    double fma_burst, dot_burst, half_burst; /* the best millisecond of each */
    double copy_bytes; /* a second, read and written bytes counted: the best run */
} lt_peak;
LT_API lt_peak lt_peak_measure(lt_dev *dev, int ms);
/* What bounds work of a type: the f32 FMA; in bf16 the f16 FMA where the kernel set multiplies in f16 (it does not in convolutions,
 * `conv`), else the larger of the bf16 dot product and the f32 FMA. */
LT_API double lt_peak_of(const lt_peak *p, lt_dtype dtype, bool conv);
/* That alone, measured over ms milliseconds. */
LT_API double lt_peak_flops(lt_dev *dev, lt_dtype dtype, bool conv, int ms);
/* How long `runs` runs of its loop of f32 FMA take (each about a millisecond), after each of which threads meet as they do after an
 * operation: the same work each time, so what differs is the machine's doing. 0: the processor has no FMA. */
LT_API double lt_peak_seconds(lt_dev *dev, int64_t runs);

/* Arena: one allocation, handed out from the front, given back by mark. For per-step scratch. */
typedef struct lt_arena {
    lt_dev *dev;
    uint8_t *base;
    size_t size, used, high; /* bytes; high: most ever used */
} lt_arena;
LT_MUST_USE LT_API lt_status lt_arena_create(lt_arena *out, lt_dev *dev, size_t bytes, lt_tag tag);
LT_API void lt_arena_destroy(lt_arena *a);
/* 64-byte aligned. Errors: LT_ERR_MEM when the arena is too small (a mistake of ours: message has the sizes). */
LT_MUST_USE LT_API lt_status lt_arena_alloc(lt_arena *a, void **out, size_t bytes);
static inline size_t lt_arena_mark(const lt_arena *a)
{
    return a->used;
}
static inline void lt_arena_reset(lt_arena *a, size_t mark)
{
    a->used = mark;
}
/* Bytes that lt_arena_alloc takes for a request: for sizing arenas. */
static inline size_t lt_arena_need(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* ---- tensors that come from files (host memory) ------------------------------------------ */

#define LT_MAX_DIMS 5
typedef struct lt_tensor {
    const char *name; /* canonical name, owned by the source */
    const void *data; /* host memory, row-major, any alignment; valid until `done` */
    lt_dtype dtype;
    int ndim;
    int64_t dim[LT_MAX_DIMS];
} lt_tensor;

/* Element i of an array of a file's type (f32, bf16, f16) in host memory, any alignment. For small tensors. Any thread. */
LT_API float lti_load(const void *data, lt_dtype t, int64_t i);

/* How a room below asks for weights without knowing files. get: LT_ERR_MISSING with a message that names the
 * tensor when it is not there. rows (may be NULL: take them from the whole): n rows of the first dimension, from `first` on, of a
 * tensor that is too large to be read for a few. done (may be NULL): `t` will not be read again; NULL: nor will anything else that was
 * got, which is how every user ends, on failure too. */
typedef struct lt_tensor_source {
    void *user;
    lt_status (*get)(void *user, const char *name, lt_tensor *out);
    lt_status (*rows)(void *user, const char *name, int64_t first, int64_t n, lt_tensor *out);
    void (*done)(void *user, const lt_tensor *t);
} lt_tensor_source;

/* ---- packed weights ---------------------------------------------------------------------- */

/* A matrix [N, K] (or a convolution [N, K, taps]) packed once for this device, with its bias. */
typedef struct lt_weight lt_weight;

typedef struct lt_weight_part {
    /* host; element (n, k, tap) at ((n * in + k) * taps + tap), as files store it */
    const void *data;
    lt_dtype dtype;   /* of data: f32, f16, bf16 */
    int64_t out;      /* rows of this part */
    const void *bias; /* host, [out], type bias_dtype; NULL = zeros */
    lt_dtype bias_dtype;
} lt_weight_part;

typedef struct lt_weight_options {
    const lt_weight_part *parts; /* stacked along N (q, k, v as one matrix) */
    int nparts;
    int64_t in; /* K */
    int taps;   /* 1 for a linear layer; 0 = 1 */
    /* LT_F32: products and inputs in f32. LT_BF16: weights held in bf16 (round to nearest even), inputs are bf16, sums in f32 */
    lt_dtype compute;
    lt_tag tag; /* LT_TAG_WEIGHTS, or LT_TAG_TEXT for a layer that is streamed */
} lt_weight_options;

/* Errors: LT_ERR_ARG, LT_ERR_MEM. Thread: owner of ctx. Nothing of opt is kept. */
LT_MUST_USE LT_API lt_status lt_weight_create(lt_weight **out, lt_dev *dev,
                                              const lt_weight_options *opt);
LT_API void lt_weight_destroy(lt_dev *dev, lt_weight **w); /* accepts NULL */
LT_API int64_t lt_weight_out(const lt_weight *w);          /* N */
LT_API int64_t lt_weight_in(const lt_weight *w);           /* K */
LT_API lt_dtype lt_weight_compute(const lt_weight *w);
LT_API size_t lt_weight_bytes(const lt_weight *w); /* device bytes held */

/* ---- operations -------------------------------------------------------------------------- */
/* Every operation takes one struct; unused fields are zero. All pointers in it are device memory unless said.
 * Outputs may not overlap inputs unless said. On CPU results do not depend on the number of threads, nor a row's
 * result on how many other rows are in the call (so a batch of two equals two calls bit by bit).
 * Errors: LT_ERR_ARG, LT_ERR_SHAPE, LT_ERR_DTYPE; LT_ERR_MEM for scratch. */

typedef struct lt_mat {
    void *data;
    lt_dtype dtype; /* LT_F32 or LT_BF16 */
    int64_t ld;     /* elements from row to row; 0 = packed (the operation's column count) */
} lt_mat;

typedef enum lt_act { LT_ACT_NONE, LT_ACT_SILU, LT_ACT_GELU_TANH, LT_ACT_GELU_ERF } lt_act;

/* out[r,c] = x[r,c] in out's type (f32 <-> bf16, or same). bf16 rounds to nearest even. */
typedef struct lt_convert_args {
    lt_mat out, x;
    int64_t rows, cols;
} lt_convert_args;

/* y[m,n] = act(sum_k x[m,k] W[n,k] + bias[n])
 * out[m,n] = y                                          (gate NULL, accumulate false)
 * out[m,n] += y                                         (accumulate: out f32)
 * out[m,n] += gate[g(m), n] * y                         (gate: out f32), g(m) = row_group ? row_group[m] : 0
 * x type must be the weight's compute type. Sums in f32, in an order that depends on K only. */
typedef struct lt_linear_args {
    lt_mat out, x;
    const lt_weight *w;
    int64_t rows;
    lt_act act;
    bool accumulate;
    const float *gate; /* [groups, gate_ld] f32 */
    int64_t gate_ld;
    const int32_t *row_group; /* [rows] */
} lt_linear_args;

/* LAYER: y = (x - mean) / sqrt(var + eps); RMS: y = x / sqrt(mean(x^2) + eps); over the columns, statistics f32 or
 * wider. Then y = y * weight + bias (each NULL = none), then out = y * (1 + scale[g]) + shift[g] (NULL = none). x f32. */
typedef enum lt_norm_kind { LT_NORM_LAYER, LT_NORM_RMS } lt_norm_kind;
typedef struct lt_norm_args {
    lt_mat out, x;
    int64_t rows, cols;
    lt_norm_kind kind;
    float eps;
    const float *weight, *bias; /* [cols] */
    const float *scale, *shift; /* [groups, mod_ld] */
    int64_t mod_ld;             /* 0 = cols */
    const int32_t *row_group;   /* [rows]; NULL: all 0 */
} lt_norm_args;

/* Rotary positions: head dims are pairs (2j, 2j+1); the first pairs[0] pairs turn by the token's position on axis 0,
 * the next pairs[1] by axis 1, then axis 2. table[a][(pos * pairs[a] + j) * 2] = cos, + 1 = sin. */
typedef struct lt_rope {
    const float *table[3]; /* [npos[a], pairs[a], 2] f32 */
    int32_t pairs[3];      /* sum = head_dim / 2 */
    const int32_t *pos;    /* [rows, 3], each in 0..npos[a]-1 */
} lt_rope;

/* q/k of a DiT: u = x / sqrt(mean over all cols of x^2 + eps) * weight, then rotation per head if rope != NULL.
 * cols = heads * head_dim, head_dim <= 1024. x bf16 or f32, out bf16 or f32; out may be x (same type and ld). eps < 0: no norm. */
typedef struct lt_qknorm_args {
    lt_mat out, x;
    int64_t rows;
    int heads, head_dim;
    const float *weight; /* [heads * head_dim] */
    float eps;
    const lt_rope *rope; /* host struct */
} lt_qknorm_args;

/* Half-open run of keys. */
typedef enum lt_run_flags { LT_RUN_BIAS = 1 } lt_run_flags;
typedef struct lt_run {
    int32_t begin, end;
    uint32_t flags;
    float bias; /* added to the (scaled, natural-log) logits of the run when LT_RUN_BIAS */
} lt_run;

/* Who reads whom: query tile t = rows [q_off[t], q_off[t+1]); the runs of group g, tile t are
 * runs[row[g*nq + t]] .. runs[row[g*nq + t + 1]], sorted and disjoint. The arrays are device memory. */
typedef struct lt_attn_plan {
    int32_t nq, ngroups;
    const int32_t *q_off; /* [nq + 1] */
    const int32_t *row;   /* [ngroups*nq + 1] */
    const lt_run *runs;
    const int32_t *group_of_head; /* [heads]; NULL = all 0 */
} lt_attn_plan;

/* out[i, h, :] = sum_j softmax_j(scale q[i,h].k[j,h] + bias) v[j,h,:] over the keys that the plan lists for i.
 * q [lq, heads*head_dim], k v [lk, ...], head h in columns [h*head_dim, (h+1)*head_dim). A row that sees no key is 0 and
 * its lse -inf. Types of q, k, v equal (f32 or bf16); out f32 or bf16. Online softmax in f32; no lq x lk storage.
 * k_rope: row j of k is turned by k_rope->pos[j] first, so that cached keys can be kept raw; pos [lk, 3] is in range for every row,
 * listed or not.
 * lq >= 1, lk >= 0, 1 <= head_dim <= 512.
 * rel_bias: logits += rel_bias[h*(2*rel_max+1) + clamp(j-i, -rel_max, rel_max) + rel_max] (UMT5). */
typedef struct lt_attention_args {
    lt_mat out, q, k, v;
    int64_t lq, lk;
    int heads, head_dim;
    float scale;
    const lt_attn_plan *plan; /* host struct of device arrays */
    const float *rel_bias;    /* or NULL */
    int32_t rel_max;
    float *lse;            /* [heads, lq] natural log, or NULL */
    const lt_rope *k_rope; /* host struct, or NULL */
} lt_attention_args;

/* Picture with a border: pixel (y, x) at ((y + border) * (w + 2 border) + x + border) * c elements, channels last. */
typedef struct lt_image {
    void *data;
    lt_dtype dtype;
    int32_t h, w, c;
    /* pixels on each side; zeroed once by whoever allocates, never written by operations */
    int32_t border;
} lt_image;
/* Of all pixels, border included; SIZE_MAX when it is more than a size can say, which no allocation gives. Any thread. */
LT_API size_t lt_image_bytes(const lt_image *im);

#define LT_MAX_TAPS 27
typedef struct lt_tap {
    int8_t frame; /* index into lt_conv_args.frame */
    int8_t dy, dx;
} lt_tap;

/* out[out_step*y + out_y, out_step*x + out_x, n] = bias[n] + sum over taps i, channels k of
 *     frame[tap[i].frame][in_step*y + tap[i].dy, in_step*x + tap[i].dx, k] * W[n, k, i]   (+ residual, same place)
 * for y < rows, x < cols. A NULL frame counts as zeros. Reads must stay inside the border of `in`. Covers causal 3D,
 * strided and (as four phases with out_step 2) nearest-2x + 3x3 convolutions without any unfolded buffer. in type = weight's
 * compute type; out f32 or bf16, out.c >= N (only the first N channels are written); residual f32, may be out. */
typedef struct lt_conv_args {
    lt_image out;
    lt_image in; /* shape, type and border of every input frame; data ignored */
    const void *frame[3];
    const lt_weight *w;
    int ntaps;
    lt_tap tap[LT_MAX_TAPS];
    int32_t rows, cols;
    int32_t in_step; /* 0 = 1 */
    int32_t out_step, out_y, out_x;
    lt_image residual; /* data NULL = none */
} lt_conv_args;

/* out = act(x / max(|x|_2, 1e-12) * sqrt(C) * gamma), norm over the channels of a pixel, f32 inside; act NONE or SILU.
 * gamma NULL: no norm, only act and conversion. Same h, w, c; borders and types may differ. */
typedef struct lt_channorm_args {
    lt_image out, x;
    const float *gamma; /* [c] */
    lt_act act;
} lt_channorm_args;

/* out[i] = sum_j coef[j] * x[j][i], i < n, in order of j, f32. out may be one of x. 1 <= terms <= 6. */
typedef struct lt_lincomb_args {
    float *out;
    const float *x[6];
    float coef[6];
    int terms;
    int64_t n;
} lt_lincomb_args;

/* out = act(x) * y: y NULL = act(x) alone. Elementwise [rows, cols]; y_rows 1: y is one row for all. Types f32/bf16. */
typedef struct lt_map_args {
    lt_mat out, x, y;
    int64_t rows, cols, y_rows; /* y_rows 0 = rows */
    lt_act act;
    bool add; /* out = act(x) + y instead */
} lt_map_args;

/* Tokens of a latent. Patch 1 x p x p; token n = (f*(H/p) + i)*(W/p) + j, stored at row order ? order[n] : n.
 * to tokens:   out[row(n), c*p*p + a*p + b] = x[c, f, p*i+a, p*j+b]      (channel major)
 * to latent:   out[c, f, p*i+a, p*j+b] = x[row(n), (a*p + b)*C + c]      (channel minor)  */
typedef struct lt_patch_args {
    lt_mat tokens;
    float *latent; /* [c, frames, h, w] f32 */
    int32_t c, frames, h, w, p;
    int64_t frame_stride, channel_stride; /* elements; 0 = packed [c, frames, h, w] */
    const int32_t *order;                 /* [tokens] or NULL */
    bool to_latent;
} lt_patch_args;

/* Standard normal numbers: element i of out is a pure function of (seed, stream, first + i). Philox4x32-10 and Box-Muller,
 * the same on every device to 1e-6. */
typedef struct lt_noise_args {
    float *out;
    int64_t n;
    uint64_t seed, stream, first;
} lt_noise_args;

/* Latent frame <-> picture: img[y, x, c] = z[c*channel_stride + y*w + x] * mul[c] + add[c], or back with to_latent:
 * z = img * mul + add. mul, add: [c] f32. The picture may have more channels than c (the rest is left alone). */
typedef struct lt_latent_image_args {
    lt_image img;
    float *z;
    int64_t channel_stride;
    int32_t c;
    const float *mul, *add;
    bool to_latent;
} lt_latent_image_args;

/* u8[y, x, 0..2] = trunc((clamp(img, -1, 1) + 1) / 2 * 255), NaN -> 0 ; or back with to_image: img = u8 / 127.5 - 1. */
typedef struct lt_rgb8_args {
    uint8_t *rgb; /* [h, w, 3] packed */
    lt_image img;
    bool to_image;
} lt_rgb8_args;

/* Looks at n f32 numbers; result is host memory, filled on return. */
typedef struct lt_stats_result {
    int64_t nonfinite;
    float min, max; /* of the finite ones, as the rest; 0 when there are none */
    double mean, rms;
} lt_stats_result;
typedef struct lt_stats_args {
    const float *x;
    int64_t n;
    lt_stats_result *result; /* host */
} lt_stats_args;

/* Mean of every tile of neighbouring rows: out[t, c] = mean over rows off[t] <= r < off[t+1] of x[r, c], x turned by its row's
 * position first when rope != NULL (pairs per head, as in qknorm). Empty tiles give 0. cols = heads * head_dim. Sums in f32. */
typedef struct lt_tilemean_args {
    lt_mat out, x;
    const int32_t *off; /* [tiles + 1], rows of x, not falling */
    int64_t tiles;
    int heads, head_dim;
    const lt_rope *rope; /* host struct, pos by row of x; or NULL */
} lt_tilemean_args;

/* out[(h*lq + i)*lk + j] = scale * q[i, head h] . k[j, head h]; q, k f32 [.., heads * head_dim]. For few rows: means of tiles. */
typedef struct lt_tilescore_args {
    float *out;
    lt_mat q, k;
    int64_t lq, lk;
    int heads, head_dim;
    float scale;
} lt_tilescore_args;

/* Two attentions of the same queries over keys that have none in common become one: weights exp(lse), by row and head.
 * out = (w out + w' x) / (w + w'), lse = log(w + w'). Where both are -inf: 0 and -inf. lse, x_lse [heads, rows]. */
typedef struct lt_merge_args {
    lt_mat out, x;
    float *lse;
    const float *x_lse;
    int64_t rows;
    int heads, head_dim;
} lt_merge_args;

/* Discrete Fourier transform of `planes` pictures [h, w] f32, packed: out [planes, h, w, 2] f32, real and imaginary part of
 *     sum over y, x of in[p, y, x] exp(-2 pi i (u y / h + v x / w))   at (u, v), all h w of them, nothing divided.
 * Error: 2e-6 of the root of the sum of squares of the picture, times log2(h w), against f64. For pictures to be measured, not for
 * speed: sides with prime factors above 5 are slow. */
typedef struct lt_fft2_args {
    float *out;
    const float *x;
    int64_t planes;
    int32_t h, w; /* 1 .. 16384 */
} lt_fft2_args;

/* name. For each there is lt_<name>_args and lt_<name>(dev, &args). */
#define LT_OP_MAP(X) \
    X(convert)       \
    X(linear)        \
    X(norm)          \
    X(qknorm)        \
    X(attention)     \
    X(conv)          \
    X(channorm)      \
    X(lincomb)       \
    X(map)           \
    X(patch)         \
    X(noise)         \
    X(latent_image)  \
    X(rgb8)          \
    X(stats)         \
    X(tilemean)      \
    X(tilescore)     \
    X(merge)         \
    X(fft2)

/* lt_status lt_linear(lt_dev *dev, const lt_linear_args *a); and so on. */
#define LT_OP_DECLARE(name) \
    LT_MUST_USE LT_API lt_status lt_##name(lt_dev *dev, const lt_##name##_args *a);
LT_OP_MAP(LT_OP_DECLARE)
#undef LT_OP_DECLARE

/* The table itself, for the kernel checker and for devices. */
#define LT_OP_FN(name) typedef lt_status lt_##name##_fn(lt_dev *dev, const lt_##name##_args *a);
LT_OP_MAP(LT_OP_FN)
#undef LT_OP_FN
typedef struct lt_kernels {
#define LT_OP_SLOT(name) lt_##name##_fn *name;
    LT_OP_MAP(LT_OP_SLOT)
#undef LT_OP_SLOT
} lt_kernels;

#ifdef __cplusplus
}
#endif
#endif
