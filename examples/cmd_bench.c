/* cmd_bench.c: longtake bench WHAT: the benchmarks by name. */
#include "examples/bench.h"

#include <string.h>

static const char usage[] =
    "bench speed|attention|quality|drift [options]\n\n"
    "speed: seconds, GFLOP/s and share of this machine's peak (measured in the same run) of "
    "reading\n"
    "a prompt, one pass of the transformer, and decoding; and the memory they took. With\n"
    "--transformer or --vae and no --model, of these networks alone.\n"
    "attention: one call at --size and --num-frames (default 832x480, 81 frames), every method\n"
    "beside dense: density, seconds, planning, how many times faster, recall, error. With "
    "--search\n"
    "FILE: which window of sta suits which head of --model, for --attention sta:file=FILE.\n"
    "quality: whole clips with every method beside dense: PSNR, SSIM, structure, flicker, "
    "adherence\n"
    "to the prompt (embedded model), speed, memory; a page with plots and frames in --out-dir.\n"
    "drift: long videos (--seconds, default 120) with the monitor off, watching and correcting, "
    "by\n"
    "--methods (default \"ar extend extend:naive\"): how light, colour, sharpness, motion and\n"
    "adherence change, what was done, what it cost; a page with curves and contact sheets.";

static lt_status bench(lt_ctx *ctx, const lti_settings *set, const lti_positional *pos,
                       lti_interrupt *interrupt)
{
    if (pos->count != 1)
        return lti_fail(ctx, LT_ERR_ARG,
                        "bench: what is missing: speed, attention, quality or drift");
    if (!strcmp(pos->text[0], "speed")) return lti_bench_speed(ctx, set, interrupt);
    if (set->search && strcmp(pos->text[0], "attention"))
        return lti_fail(ctx, LT_ERR_ARG, "--search: of bench attention only");
    if (!strcmp(pos->text[0], "attention"))
        return set->search ? lti_bench_search(ctx, set, interrupt) : lti_bench_attention(ctx, set);
    if (!strcmp(pos->text[0], "quality")) return lti_bench_quality(ctx, set, interrupt);
    if (!strcmp(pos->text[0], "drift")) return lti_bench_drift(ctx, set, interrupt);
    return lti_fail(ctx, LT_ERR_ARG,
                    "bench: '%.80s' is not one of speed, attention, quality, drift", pos->text[0]);
}

int lti_cmd_bench(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lti_interrupt *interrupt = NULL;
    lt_status s = lti_begin(ctx, LTI_SPEED, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done) s = lti_interrupt_start(&interrupt, ctx);
    if (s == LT_OK && !done) s = bench(ctx, &set, &pos, interrupt);
    lti_interrupt_stop(&interrupt);
    return lti_exit(ctx, s);
}
