/* snapshot.c: a session to a file and back. */
#include "video/session_internal.h"

lt_status lt_session_save(lt_session *s, const char *path)
{
    return lti_fail(s->ctx, LT_ERR_UNSUPPORTED, "'%s': saving a session is not there yet", path);
}

lt_status lt_session_restore(lt_session **out, lt_model *model, const char *path,
                             const lt_session_options *opt)
{
    (void)opt;
    *out = NULL;
    return lti_fail(model->ctx, LT_ERR_UNSUPPORTED, "'%s': restoring is not there yet", path);
}

lt_status lt_snapshot_inspect(lt_snapshot_info *out, lt_ctx *ctx, const char *path)
{
    *out = (lt_snapshot_info){0};
    return lti_fail(ctx, LT_ERR_UNSUPPORTED, "'%s': restoring is not there yet", path);
}
