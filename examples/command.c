/* command.c: how every subcommand begins and ends. */
#include "examples/command.h"
#include "attention/attention.h"

#include <string.h>

int lti_exit(lt_ctx *ctx, lt_status s)
{
    if (s >= 0) return LTI_EXIT_OK;
    const char *message = lt_error(ctx);
    fprintf(stderr, "longtake: %s\n", *message ? message : lt_status_text(s));
    return s == LT_ERR_ARG ? LTI_EXIT_USAGE : LTI_EXIT_FAILED;
}

/* Behind the options, for commands that have the one for it: attention's own table. */
static void help_attention(const lti_table *table)
{
    if (!lti_option_find(table, "attention", 9)) return;
    puts("\nWays of --attention, and their keys:");
    for (int32_t i = 0; lt_sparse_name(i); i++)
        for (const char *line = lt_sparse_help(i); *line;) {
            const int n = (int)strcspn(line, "\n");
            printf("%s%.*s\n", line == lt_sparse_help(i) ? "  " : "    ", n, line);
            line += n + (line[n] == '\n');
        }
}

lt_status lti_begin(lt_ctx *ctx, uint32_t command, const char *usage, lti_settings *set,
                    lti_positional *pos, bool *done, int argc, char **argv)
{
    const lti_table table = lti_settings_table(command);
    *set = lti_settings_default();
    *done = false;
    LT_TRY(lti_options_parse(ctx, &table, set, pos, argc, argv));
    if (set->help) {
        printf("usage: longtake %s\n\n", usage);
        lti_options_help(&table, stdout);
        help_attention(&table);
        puts("\nOf an option that is given twice the last one counts.");
        *done = true;
        return LT_OK;
    }
    return lti_settings_check(ctx, set);
}
