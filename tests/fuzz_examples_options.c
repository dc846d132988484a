/* fuzz_examples_options.c: any words as a command line, and any bytes as a line of a batch file. Zero bytes part the words. */
#include "examples/settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void command_line(lt_ctx *ctx, char *text, size_t size, uint32_t command)
{
    char *argv[32];
    int argc = 0;
    for (size_t i = 0; i < size && argc < 32; i += strlen(text + i) + 1)
        argv[argc++] = text + i;
    const lti_table t = lti_settings_table(command);
    lti_settings s = lti_settings_default();
    lti_positional pos;
    const lt_status r = lti_options_parse(ctx, &t, &s, &pos, argc, argv);
    if (r < 0 && (r != LT_ERR_ARG || !*lt_error(ctx))) abort();
    if (r == LT_OK && (s.size.width < 0 || s.size.width > 16384 || s.num_frames < 0 ||
                       s.codec < 0 || s.codec > 1 || s.device < 0 || s.device > 2 ||
                       !(s.seconds >= 0) || pos.count > LTI_MAX_POSITIONAL))
        abort();
    if (r == LT_OK) (void)!lti_settings_check(ctx, &s);
}

static void batch_line(lt_ctx *ctx, const char *text, size_t size)
{
    const lti_table t = lti_settings_table(LTI_ITEM);
    json_t *item = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    lti_settings s = lti_settings_default();
    const char *key;
    json_t *value;
    json_object_foreach(item, key, value)
    {
        const lti_option *o = lti_option_find(&t, key, strlen(key));
        if (!o)
            (void)lti_option_nearest(&t, key, strlen(key));
        else if (lti_option_set_json(ctx, o, &s, key, value) == LT_OK && s.prompt &&
                 !lti_utf8_valid(s.prompt))
            abort();
    }
    json_decref(item);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_ctx *ctx;
    char *text = malloc(size + 1);
    if (!text || lt_ctx_create(&ctx, NULL, NULL, LT_LOG_ERROR) < 0) abort();
    memcpy(text, data, size);
    text[size] = 0;
    static const uint32_t commands[] = {LTI_RENDER, LTI_BATCH, LTI_INSPECT, LTI_BENCH};
    if (size && text[0] == '{')
        batch_line(ctx, text, size);
    else if (size)
        command_line(ctx, text + 1, size - 1, commands[data[0] & 3]);
    free(text);
    lt_ctx_destroy(&ctx);
    return 0;
}
