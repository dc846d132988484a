/* cmd_bench.c: longtake bench WHAT: the benchmarks by name. */
#include "examples/bench.h"

#include <string.h>

static const char usage[] =
    "bench speed|attention|quality|drift [options]\n\n"
    "Each has options of its own: longtake bench speed --help.\n"
    "speed: seconds, GFLOP/s and share of this machine's peak (measured in the same run) of "
    "reading\n"
    "a prompt, one pass of the transformer, and decoding (operations as the network defines them,\n"
    "of which Winograd's convolutions do fewer: above 100 %); and the memory they took. With\n"
    "--transformer or --vae and no --model, of these networks alone (in mode ar a clip and a "
    "block,\n"
    "side by side). With --seconds S, one long video of blocks: how evenly they come.\n"
    "attention: one call at --size and --num-frames (default 832x480, 81 frames), every method\n"
    "beside dense: density, seconds, planning, how many times faster, recall, error. With "
    "--search\n"
    "FILE: which window of sta suits which head of --model, for --attention sta:file=FILE.\n"
    "quality: videos with every method beside dense: PSNR, SSIM, structure, flicker, adherence\n"
    "to the prompt (embedded model), speed, memory; a page with plots and frames in --out-dir.\n"
    "drift: long videos (--seconds, default 120) with the monitor off, watching and correcting, "
    "by\n"
    "--methods (default \"ar extend extend:naive\"): how light, colour, sharpness, motion and\n"
    "adherence change, what was done, what it cost; a page with curves and contact sheets.";

static const struct {
    const char *name;
    uint32_t command; /* whose options it knows */
} benches[] = {{"speed", LTI_BENCH_SPEED},
               {"attention", LTI_BENCH_ATTENTION},
               {"quality", LTI_BENCH_QUALITY},
               {"drift", LTI_BENCH_DRIFT}};

static uint32_t command_of(const char *word)
{
    for (size_t i = 0; i < LT_COUNT(benches); i++)
        if (!strcmp(word, benches[i].name)) return benches[i].command;
    return 0;
}

static lt_status bench(lt_ctx *ctx, const lti_settings *set, uint32_t command,
                       lti_interrupt *interrupt)
{
    if (command == LTI_BENCH_SPEED) return lti_bench_speed(ctx, set, interrupt);
    if (command == LTI_BENCH_QUALITY) return lti_bench_quality(ctx, set, interrupt);
    if (command == LTI_BENCH_DRIFT) return lti_bench_drift(ctx, set, interrupt);
    return set->search ? lti_bench_search(ctx, set, interrupt) : lti_bench_attention(ctx, set);
}

/* One call after the other, nothing kept before the end: Ctrl-C simply ends it. */
static bool only_calls(const lti_settings *set, uint32_t command)
{
    return command == LTI_BENCH_ATTENTION && !set->search;
}

/* What is known to be wrong before minutes of renders. */
static lt_status check_early(lt_ctx *ctx, const lti_settings *set, uint32_t command)
{
    if (set->json_file) LT_TRY(lti_json_check(ctx, set->json_file, true));
    if (set->csv) LT_TRY(lti_json_check(ctx, set->csv, true));
    if (set->methods && (only_calls(set, command) || command == LTI_BENCH_QUALITY))
        return lti_settings_methods(ctx, set->methods);
    return LT_OK;
}

static lt_status check_words(lt_ctx *ctx, const lti_positional *pos)
{
    if (pos->count != 1)
        return lti_fail(ctx, LT_ERR_ARG,
                        "bench: what is missing: speed, attention, quality or drift");
    if (command_of(pos->text[0])) return LT_OK;
    return lti_fail(ctx, LT_ERR_ARG,
                    "bench: '%.80s' is not one of speed, attention, quality, drift", pos->text[0]);
}

int lti_cmd_bench(lt_ctx *ctx, int argc, char **argv)
{
    lti_settings set;
    lti_positional pos;
    bool done;
    lti_interrupt *interrupt = NULL;
    /* one that is named first is asked for its own options; otherwise its name has to be found among those of all */
    uint32_t command = argc ? command_of(argv[0]) : 0;
    lt_status s =
        lti_begin(ctx, command ? command : LTI_BENCH, usage, &set, &pos, &done, argc, argv);
    if (s == LT_OK && !done) s = check_words(ctx, &pos);
    if (s == LT_OK && !done && !command) {
        command = command_of(pos.text[0]);
        s = lti_begin(ctx, command, usage, &set, &pos, &done, argc, argv);
    }
    if (s == LT_OK && !done) s = check_early(ctx, &set, command);
    if (s == LT_OK && !done && !only_calls(&set, command))
        s = lti_interrupt_start(&interrupt, ctx, command == LTI_BENCH_DRIFT);
    if (s == LT_OK && !done) s = bench(ctx, &set, command, interrupt);
    lti_interrupt_stop(&interrupt);
    return lti_exit(ctx, s);
}
