/* bench.h: the benchmarks behind `longtake bench`, one file each. */
#ifndef LTI_EXAMPLES_BENCH_H
#define LTI_EXAMPLES_BENCH_H

#include "examples/command.h"

LT_MUST_USE lt_status lti_bench_speed(lt_ctx *ctx, const lti_settings *set,
                                      lti_interrupt *interrupt); /* bench_speed.c */
/* bench_pace.c: bench speed --seconds S */
LT_MUST_USE lt_status lti_bench_pace(lt_ctx *ctx, lt_dev *dev, const lti_settings *set,
                                     const lt_model_options *options, lti_interrupt *interrupt);
/* bench_attention.c */
LT_MUST_USE lt_status lti_bench_attention(lt_ctx *ctx, const lti_settings *set);
/* bench_search.c: bench attention --search FILE */
LT_MUST_USE lt_status lti_bench_search(lt_ctx *ctx, const lti_settings *set,
                                       lti_interrupt *interrupt);

/* bench_quality.c, bench_html.c */
LT_MUST_USE lt_status lti_bench_quality(lt_ctx *ctx, const lti_settings *set,
                                        lti_interrupt *interrupt);
/* `all`: what the JSON file holds; `dir` has strip00.png (dense), strip01.png and so on by method. */
LT_MUST_USE lt_status lti_quality_page(lt_ctx *ctx, const char *path, const json_t *all,
                                       const char *dir);

/* bench_drift.c, bench_drift_report.c */
LT_MUST_USE lt_status lti_bench_drift(lt_ctx *ctx, const lti_settings *set,
                                      lti_interrupt *interrupt);

/* bench_metrics.c: PSNR of the mean squared error of all numbers; SSIM (11 x 11 Gaussian, each channel) meaned over frames and channels,
 * false when a side is under 11; flicker: mean distance of a number from the mean of the frames before and after, in levels of 255. */
enum { LTI_PSNR_SAME = 100 };
double lti_psnr(const uint8_t *a, const uint8_t *b, size_t n);
bool lti_ssim(double *out, const uint8_t *a, const uint8_t *b, int frames, int h, int w);
/* How differently two videos look: over luma at full, half, quarter and eighth size, 1 - the similarity of edges (gradient magnitudes by
 * Prewitt's operator, (2 g h + c) / (g^2 + h^2 + c), c = 170 for levels of 255, meaned over pixels), plus half the mean distance of the
 * two colour differences over 255, meaned over sizes and frames. 0: the same; unlike PSNR it asks where edges and colours are, not
 * how bright each pixel is. Our own: comparable with nothing but itself. false: no memory, or a side under 24. */
bool lti_structure(double *out, const uint8_t *a, const uint8_t *b, int frames, int h, int w);
double lti_flicker(const uint8_t *v, int frames, size_t frame_bytes);

#endif
