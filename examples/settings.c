/* settings.c: the table of options. */
#include "examples/settings.h"

#include "attention/attention.h"

#include <stddef.h>
#include <string.h>

static const char devices[] = "auto|cpu|cuda",
                  isas[] = "auto|ref|portable|avx2|avx512|avx512bf16|avx512fp16";

#define AT(field) offsetof(lti_settings, field)
#define VIDEO (LTI_RENDER | LTI_BATCH | LTI_ITEM)
#define MACHINE (LTI_RENDER | LTI_BATCH | LTI_BENCH | LTI_SERVE)
#define METHODS (LTI_BENCH_ATTENTION | LTI_BENCH_QUALITY | LTI_BENCH_DRIFT)
#define MODEL (MACHINE | LTI_INSPECT)

static const lti_option rows[] = {
    {"transformer", LTI_TEXT, LTI_BENCH_SPEED, AT(transformer), "PATH", 0, 0,
     "this network alone: a file or an index of shards"},
    {"output", LTI_TEXT, LTI_RENDER, AT(output), "FILE.mp4", 0, 0, "the video (-o for short)"},
    {"out-dir", LTI_TEXT, LTI_BATCH, AT(out_dir), "DIR", 0, 0,
     "where the videos and manifest.jsonl go"},
    {"out-dir", LTI_TEXT, LTI_BENCH_QUALITY | LTI_BENCH_DRIFT, AT(out_dir), "DIR", 0, 0,
     "for the page and its pictures"},
    {"prompt", LTI_TEXT, LTI_ITEM, AT(prompt), "TEXT", 0, 0, "what to show"},
    {"name", LTI_TEXT, LTI_ITEM, AT(name), "NAME", 0, 0, "of the file, without .mp4"},
    {"model", LTI_TEXT, MACHINE, AT(model), "PATH", 0, 0,
     "folder in Diffusers or original layout, or the transformer's\nfile (default: the embedded "
     "model)"},
    {"text-encoder", LTI_TEXT, MODEL, AT(text_encoder), "PATH", 0, 0,
     "when it is not beside the model"},
    {"vae", LTI_TEXT, MODEL, AT(vae), "PATH", 0, 0, "when it is not beside the model"},
    {"tokenizer", LTI_TEXT, MODEL, AT(tokenizer), "PATH", 0, 0, "spiece.model or its folder"},
    {"negative-prompt", LTI_TEXT, VIDEO, AT(negative_prompt), "TEXT", 0, 1,
     "what to avoid (default: the model's)"},
    {"size", LTI_SIZE, VIDEO | LTI_BENCH, AT(size), "WxH", 0, 0,
     "picture size (default: the model's)"},
    {"num-frames", LTI_INT, VIDEO | (LTI_BENCH & ~LTI_BENCH_DRIFT), AT(num_frames), "N", 1, 1000000,
     "4k+1 frames (default: the model's)"},
    {"seconds", LTI_REAL, VIDEO, AT(seconds), "S", 0.01, 3600,
     "length instead of --num-frames: the nearest 4k+1 frames,\nwhich are stated"},
    {"seconds", LTI_REAL, LTI_BENCH_DRIFT | LTI_BENCH_SPEED, AT(seconds), "S", 0.01, 3600,
     "drift: length of each video (default 120); speed: in place of\nall that one such video of "
     "blocks by the model's defaults, not\nencoded: how evenly they come, beside a fixed piece of "
     "work"},
    {"fps", LTI_INT, VIDEO, AT(fps), "N", 1, 240, "frames a second (default: the model's)"},
    {"num-inference-steps", LTI_INT, VIDEO | LTI_BENCH, AT(num_inference_steps), "N", 1, 1000,
     "denoising steps (default: the model's)"},
    {"guidance-scale", LTI_REAL, VIDEO | LTI_BENCH_DRIFT, AT(guidance_scale), "G", 0, 100,
     "how strictly the prompt is followed; 1 or less: no guidance,\nhalf the work"},
    {"flow-shift", LTI_REAL, VIDEO, AT(flow_shift), "S", 0.01, 100, "shift of the noise schedule"},
    {"sampler", LTI_CHOICE, VIDEO, AT(sampler), "euler|unipc|dpm++|renoise", 0, 0,
     "solver (default: the model's); renoise: its list of four\nsteps, whatever "
     "--num-inference-steps says, mode ar"},
    {"seed", LTI_SEED, VIDEO, AT(seed), "N", 0, 0,
     "same seed, same video (default: drawn and stated; in a batch\nmade from the item, the same "
     "in every run)"},
    {"image", LTI_TEXT, VIDEO, AT(image), "FILE", 0, 0,
     "first frame, in every mode; a model that was not\ntrained with one (Wan2.1 T2V) has "
     "it replaced in at each step,\nwhich joins less well"},
    {"video", LTI_TEXT, LTI_RENDER | LTI_ITEM, AT(video), "FILE", 0, 0,
     "go on with this video, in mode ar or extend: scaled to cover\nthe size, cropped, taken at "
     "the "
     "rate of --fps; --num-frames\nand --seconds count the new frames, of which there are 4k"},
    {"new-only", LTI_FLAG, LTI_RENDER | LTI_ITEM, AT(new_only), NULL, 0, 0,
     "with --video: leave its own frames out of the file"},
    {"mode", LTI_WORD, LTI_BENCH_SPEED | LTI_BENCH_QUALITY, AT(mode), "clip|ar", 0, 0,
     "clip: all at once; ar: block after block (default: speed, the\nmodel's; quality, clip, which "
     "is most work for attention)"},
    {"mode", LTI_WORD, VIDEO, AT(mode), "clip|ar|extend", 0, 0,
     "clip: all at once; ar: block after block, any length;\nextend[:naive,key=value,...]: clips "
     "that go on from each\nother, any length, keys segment (frames), overlap (latent\nframes), "
     "head (encode|first|latent) (default: the model's)"},
    {"cache", LTI_TEXT, VIDEO | LTI_BENCH_SPEED | LTI_BENCH_DRIFT, AT(cache), "PRESET", 0, 0,
     "mode ar: what is kept, self-forcing|causvid|longlive|\nlonglive-infinity|infinity-rope|"
     "infinite-forcing\n[:key=value,...], keys block, window, sink, positions,\nsink-positions, "
     "bias, context-time, first (frames of the first\nblock), first-of (drawn together with it and "
     "thrown away),\nswitch (recache|flush|keep|cut, at a new prompt)\n(default: the model's)"},
    {"attention", LTI_TEXT, VIDEO, AT(attention), "NAME", 0, 0,
     "what is read: NAME[:key=value,...], listed below, such as\n"
     "topk:keep=0.2,warmup=0.25 (default dense)"},
    {"drift", LTI_CHOICE, VIDEO, AT(drift), "off|watch|correct", 0, 0,
     "measure light, colour and sharpness against the beginning of\neach shot (watch: nothing is "
     "changed), and, in modes ar and\nextend, bring them back a little with each block (correct)\n"
     "(default off)"},
    {"inject", LTI_TEXT, VIDEO | LTI_BENCH_DRIFT, AT(inject), "FAULT", 0, 0,
     "to test that: KIND[=AMOUNT][,at=S][,for=S][,into=context|frames],\njoined by +: exposure (EV "
     "in 10 s), colour (Delta E in 10 s),\ngain, blur, sharpen, freeze, black, nan, slot"},
    {"prompt-file", LTI_TEXT, LTI_RENDER | LTI_ITEM, AT(prompt_file), "FILE", 0, 0,
     "mode ar: prompts by time, one a line, from a file or a pipe:\nseconds (or M:S, or fFRAME) "
     "and a text, or JSON with time or\nframe, prompt, blend (over so many blocks)"},
    {"save-session", LTI_TEXT, LTI_RENDER, AT(save_session), "FILE", 0, 0,
     "mode ar: from where the video can be gone on with, written\nat its end and when it is "
     "interrupted; without --overwrite\nonly the file of --resume is replaced"},
    {"resume", LTI_TEXT, LTI_RENDER, AT(resume), "FILE", 0, 0,
     "go on with a saved session: the rest of its video, up to\n--num-frames or --seconds of the "
     "whole; a PROMPT takes\neffect at once, other options of the video are the file's"},
    {"codec", LTI_CHOICE, VIDEO, AT(codec), "h264|av1", 0, 0, "of the video (default h264)"},
    {"crf", LTI_INT, VIDEO, AT(crf), "N", 1, 63,
     "quality of the file, less is better (default h264 18, av1 30)"},
    {"frames-dir", LTI_TEXT, LTI_RENDER, AT(frames_dir), "DIR", 0, 0, "every frame as a PNG too"},
    {"report", LTI_TEXT, LTI_RENDER, AT(report), "FILE.json", 0, 0,
     "timings, memory and arithmetic of the run"},
    {"overwrite", LTI_FLAG, LTI_RENDER, AT(overwrite), NULL, 0, 0,
     "replace an existing video, report and saved session"},
    {"dtype", LTI_CHOICE, MACHINE, AT(dtype), "auto|f32|bf16", 0, 0,
     "of matrix products (default auto: bf16)"},
    {"device", LTI_CHOICE, MACHINE, AT(device), devices, 0, 0, "this build: cpu"},
    {"threads", LTI_INT, MACHINE, AT(threads), "N", 1, 1024,
     "(default: the cores of this process)"},
    {"isa", LTI_CHOICE, MACHINE, AT(isa), isas, 0, 0, "highest instruction set to use"},
    {"json", LTI_FLAG, LTI_INSPECT | LTI_MEASURE, AT(json), NULL, 0, 0, "machine-readable"},
    {"csv", LTI_FLAG, LTI_MEASURE, AT(print_csv), NULL, 0, 0, "a line a second, for tables"},
    {"json", LTI_TEXT, LTI_BENCH, AT(json_file), "FILE", 0, 0, "write the figures there too"},
    {"csv", LTI_TEXT, METHODS, AT(csv), "FILE", 0, 0, "the table there too"},
    {"methods", LTI_TEXT, METHODS, AT(methods), "LIST", 0, 0,
     "attention, quality: texts of render's --attention, drift: ar,\nextend[:KEYS], with spaces "
     "between"},
    {"search", LTI_TEXT, LTI_BENCH_ATTENTION, AT(search), "FILE", 0, 0,
     "look for a window of sta for every head of --model and write\nthem there; at most as many "
     "boxes as --methods (default\nsta:window=5x3x3) reads"},
    {"heads", LTI_INT, LTI_BENCH_ATTENTION, AT(heads), "N", 1, 128,
     "of size 128 (default 1); not with --search"},
    {"scenes", LTI_TEXT, LTI_BENCH_DRIFT, AT(scenes), "LIST", 0, 0,
     "still, moving, darkens, brightens, switch, with spaces between\n(default all)"},
    {"seeds", LTI_INT, METHODS, AT(seeds), "N", 1, 64,
     "quality, drift, --search: of each prompt (default 2)"},
    {"repeat", LTI_INT, LTI_BENCH_SPEED | LTI_BENCH_ATTENTION, AT(repeat), "N", 1, 100,
     "measure N times, state the median (default 3)"},
    {"host", LTI_TEXT, LTI_SERVE, AT(host), "ADDRESS", 0, 0,
     "interface to listen on (default 127.0.0.1: this machine only)"},
    {"port", LTI_INT, LTI_SERVE, AT(port), "N", 0, 65535, "(default 8080; 0: one that is free)"},
    {"token-file", LTI_TEXT, LTI_SERVE, AT(token_file), "FILE", 0, 0,
     "one token a line, 16 to 256 characters; to start a video send one"},
    {"open", LTI_FLAG, LTI_SERVE, AT(open), NULL, 0, 0,
     "no tokens although other machines can reach the port"},
    {"origins", LTI_TEXT, LTI_SERVE, AT(origins), "URL,URL", 0, 0,
     "pages of other servers that may connect"},
    {"tls-cert", LTI_TEXT, LTI_SERVE, AT(tls_cert), "FILE", 0, 0, "PEM; with --tls-key: HTTPS"},
    {"tls-key", LTI_TEXT, LTI_SERVE, AT(tls_key), "FILE", 0, 0, "PEM"},
    {"max-sessions", LTI_INT, LTI_SERVE, AT(max_sessions), "N", 1, 256,
     "live videos drawn at once (default 8)"},
    {"max-queue", LTI_INT, LTI_SERVE, AT(max_queue), "N", 1, 10000,
     "that may wait for a place (default 64)"},
    {"max-connections", LTI_INT, LTI_SERVE, AT(max_connections), "N", 8, 65536, "(default 1024)"},
    {"max-seconds", LTI_REAL, LTI_SERVE, AT(max_seconds), "S", 0.1, 1e6,
     "longest video (default 3600)"},
    {"resume-seconds", LTI_REAL, LTI_SERVE, AT(resume_seconds), "S", 1, 86400,
     "a video goes on without its viewer for (default 30)"},
    {"keep-seconds", LTI_REAL, LTI_SERVE, AT(keep_seconds), "S", 1, 1e6,
     "an ended video can be watched for (default 600)"},
    {"drain-seconds", LTI_REAL, LTI_SERVE, AT(drain_seconds), "S", 0.1, 86400,
     "that SIGTERM leaves to running videos (default 20)"},
    {"stall-seconds", LTI_REAL, LTI_SERVE, AT(stall_seconds), "S", 1, 3600,
     "a viewer that takes nothing is cut off after (default 10)"},
    {"history", LTI_INT, LTI_SERVE, AT(history), "MIB", 1, 65536,
     "of encoded video that each stream keeps (default 64)"},
    {"memory", LTI_INT, LTI_SERVE, AT(memory), "MIB", 16, 100000000,
     "for videos together (default: what is free)"},
    {"data-dir", LTI_TEXT, LTI_SERVE, AT(data_dir), "DIR", 0, 0,
     "of the videos of /v1/videos and their journal (default\n~/.local/state/longtake/PORT; with "
     "--port 0 one that goes with\nthe server)"},
    {"disk", LTI_INT, LTI_SERVE, AT(disk), "MIB", 1, 100000000,
     "for them together; complete ones leave for new ones, the\noldest first (default 16384)"},
    {"retain-seconds", LTI_REAL, LTI_SERVE, AT(retain_seconds), "S", 1, 1e9,
     "each is kept for (default 86400)"},
    {"save-seconds", LTI_REAL, LTI_SERVE, AT(save_seconds), "S", 0.001, 86400,
     "between savings that a restart goes on from (default 30)"},
    {"log-requests", LTI_FLAG, LTI_SERVE, AT(log_requests), NULL, 0, 0,
     "a line of JSON for every request and session on standard error,\nnot only for what went "
     "wrong"},
    {"quiet", LTI_FLAG, LTI_RENDER | LTI_BATCH | LTI_SERVE, AT(quiet), NULL, 0, 0,
     "only errors and the result"},
    {"help", LTI_FLAG, MODEL | LTI_MEASURE, AT(help), NULL, 0, 0, "this text (-h for short)"},
};

lti_settings lti_settings_default(void)
{
    return (lti_settings){.guidance_scale = -1,
                          .sampler = -1,
                          .mode = {.word = -1},
                          .crf = -1,
                          .drift = -1,
                          .port = 8080,
                          .repeat = 3,
                          .heads = 1,
                          .seeds = 2};
}

lti_table lti_settings_table(uint32_t command)
{
    return (lti_table){rows, LT_COUNT(rows), command};
}

/* Word number i of "a|b|c", from a list of the same words as texts of their own. */
const char *lti_device_name(const lti_settings *s)
{
    static const char *const names[] = {"auto", "cpu", "cuda"};
    return names[s->device];
}

const char *lti_isa_word(const lti_settings *s)
{
    static const char *const names[] = {"auto",   "ref",        "portable",  "avx2",
                                        "avx512", "avx512bf16", "avx512fp16"};
    return names[s->isa];
}

static lt_status check_attention(lt_ctx *ctx, const char *text, const char *option)
{
    lt_sparse_spec spec;
    lt_status s = lt_sparse_parse(&spec, ctx, text);
    if (s >= 0 && spec.file[0]) { /* known before a model is read */
        lt_windows w;
        s = lt_windows_read(&w, ctx, spec.file);
        lt_windows_destroy(&w);
    }
    return s < 0 ? lti_within(ctx, s, "%s", option) : LT_OK;
}

lt_status lti_settings_methods(lt_ctx *ctx, const char *list)
{
    char text[2048];
    if (strlen(list) >= sizeof text)
        return lti_fail(ctx, LT_ERR_ARG, "--methods: more than %zu bytes", sizeof text - 1);
    strcpy(text, list);
    for (char *save, *at = strtok_r(text, " ", &save); at; at = strtok_r(NULL, " ", &save))
        LT_TRY(check_attention(ctx, at, "--methods"));
    return LT_OK;
}

lt_status lti_settings_check(lt_ctx *ctx, const lti_settings *s)
{
    if (s->mode.keys && s->mode.word != LTI_MODE_EXTEND)
        return lti_fail(ctx, LT_ERR_ARG, "--mode: ':%.80s': only extend takes keys", s->mode.keys);
    if (s->new_only && !s->video)
        return lti_fail(ctx, LT_ERR_ARG, "--new-only: there is no --video to leave out");
    if (s->video && s->mode.word == LTI_MODE_CLIP)
        return lti_fail(ctx, LT_ERR_ARG, "--video: a clip continues nothing: --mode ar or extend");
    if (s->video && s->image)
        return lti_fail(ctx, LT_ERR_ARG, "--video and --image: one of the two begins the video");
    if (s->num_frames && s->seconds > 0)
        return lti_fail(ctx, LT_ERR_ARG, "--seconds %g and --num-frames %d: give one of the two",
                        s->seconds, s->num_frames);
    return s->attention ? check_attention(ctx, s->attention, "--attention") : LT_OK;
}
