/* fuzz_video_snapshot.c: any bytes as a saved session: of its head alone, and of a session that a tiny model takes up. The first seed that
 * comes is a session of that model with some bytes replaced by the input, so that what lies deeper is reached too. */
#include "tests/tiny_model.h"
#include "video/session_internal.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A fuzzer's entry points share nothing but file-level variables. */
static lt_ctx *ctx;
static lt_dev *dev;
static lt_model *model;
static uint8_t *whole; /* a saved session */
static size_t whole_bytes;

static void save_one(const char *path)
{
    lt_session *s;
    lt_frames f;
    lt_session_options o = lt_session_options_default();
    o.prompt = "a red ball";
    o.mode = LT_MODE_AR;
    o.cache = "infinity-rope:window=3,block=1";
    o.drift = LT_DRIFT_CORRECT;
    o.guidance_scale = 1;
    o.num_inference_steps = 1;
    o.width = 16;
    o.height = 16;
    if (lt_session_create(&s, model, &o) < 0) abort();
    for (int i = 0; i < 3; i++)
        if (lt_session_next(s, &f) != LT_OK) abort();
    if (lt_session_save(s, path) < 0) abort();
    lt_session_destroy(&s);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    char folder[] = "/tmp/longtake-fuzz-XXXXXX", path[64];
    lt_dev_options d = lt_dev_options_default();
    d.device = "cpu";
    d.threads = 1;
    if (lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0 || lt_dev_create(&dev, ctx, &d) < 0 ||
        !mkdtemp(folder) || !tiny_model_write(folder, 1) ||
        lt_model_open(&model, dev, &(lt_model_options){.path = folder, .dtype = LT_F32}) < 0)
        abort();
    snprintf(path, sizeof path, "%s/session", folder);
    save_one(path);
    if (lti_read_file((char **)&whole, &whole_bytes, ctx, path, (size_t)1 << 26) < 0) abort();
    unlink(path);
    tiny_model_remove(folder);
    return 0;
}

static void take_up(uint8_t *data, size_t size)
{
    lt_snapshot_info info;
    lt_session *s;
    if (!size) return;
    FILE *f = fmemopen(data, size, "rb");
    if (!f) abort();
    if (lti_snapshot_read_head(&info, ctx, f, size) < 0 && !*lt_error(ctx)) abort();
    rewind(f);
    if (lti_snapshot_read(&s, model, f, size, NULL) < 0 && (s || !*lt_error(ctx))) abort();
    lt_session_destroy(&s);
    fclose(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > whole_bytes ? size : whole_bytes);
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    take_up(copy, size);
    if (size > 4) { /* where the bytes go: the first three of them say */
        const size_t at = (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % whole_bytes;
        const size_t n = size - 3 < whole_bytes - at ? size - 3 : whole_bytes - at;
        memcpy(copy, whole, whole_bytes);
        memcpy(copy + at, data + 3, n);
        take_up(copy, whole_bytes);
    }
    free(copy);
    return 0;
}
