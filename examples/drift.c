/* drift.c: what the monitor said, as JSON: for --report, for the file, for the benchmark. */
#include "examples/command.h"

const char *lti_drift_mode_name(int mode)
{
    static const char *const names[] = {"off", "watch", "correct"}; /* as lt_drift_mode */
    return names[mode];
}

json_t *lti_picture_json(const lt_picture *p)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "luma",
                     p->luma, "exposure_ev", p->exposure, "contrast", p->contrast, "range",
                     p->range, "lightness", p->lightness, "a", p->a, "b", p->b, "saturation",
                     p->saturation, "sharpness", p->sharpness, "motion", p->motion, "clipped",
                     p->clipped, "crushed", p->crushed);
}

static json_t *renditions_json(const lt_drift_vector *v)
{
    const lt_renditions *r = &v->renditions;
    if (!v->renditions_known) return NULL;
    return json_pack("{s:[f,f,f], s:[f,f,f], s:f, s:f, s:f, s:f, s:f}", "gain", r->gain[0],
                     r->gain[1], r->gain[2], "offset", r->offset[0], r->offset[1], r->offset[2],
                     "exposure_ev", r->exposure, "contrast_ln", r->contrast, "saturation",
                     r->saturation, "delta_e", r->colour, "sharpness_log2", r->sharpness);
}

json_t *lti_drift_json(const lt_drift_vector *v)
{
    json_t *out = json_pack(
        "{s:I, s:I, s:i, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, s:f, s:f, s:s, s:s, s:i, s:b, s:o}",
        "block", (json_int_t)v->block, "frame", (json_int_t)v->first_frame, "frames", v->frames,
        "shot", (json_int_t)v->shot, "settled", v->settled, "exposure_ev", v->exposure, "delta_e",
        v->distance, "colour_delta_e", v->colour, "contrast_ln", v->contrast, "saturation_ln",
        v->saturation, "sharpness_log2", v->sharpness, "motion_ratio", v->motion, "coherence",
        v->coherence, "flicker", v->flicker, "rate", v->rate, "latent_shift", v->latent_shift,
        "level", v->level, "gain", v->gain, "low_field", v->low_field, "past_weight",
        v->past_weight, "sink_weight", v->sink_weight, "kind", lt_drift_kind_name(v->kind),
        "action", lt_drift_action_name(v->action), "attempts", v->attempts, "alarm", v->alarm,
        "picture", lti_picture_json(&v->picture));
    json_t *renditions = renditions_json(v);
    if (renditions) json_object_set_new(out, "renditions", renditions);
    return out;
}

json_t *lti_drift_summary(const lt_session_report *r)
{
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "vectors",
                     (json_int_t)r->drift_vectors, "shots", (json_int_t)r->drift_shots, "level_max",
                     r->drift_level_max, "shifted", (json_int_t)r->drift_shifted, "recached",
                     (json_int_t)r->drift_recached, "redraws", (json_int_t)r->drift_redraws,
                     "replayed", (json_int_t)r->drift_replayed, "weighed",
                     (json_int_t)r->drift_weighed, "alarms", (json_int_t)r->alarms, "seconds",
                     r->drift_seconds);
}

void lti_drift_collect(json_t *list, const lt_session *s)
{
    const lt_drift_vector *v = lt_session_drift(s);
    if (!v) return;
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    if (last && json_integer_value(json_object_get(last, "frame")) == (json_int_t)v->first_frame)
        return;
    json_array_append_new(list, lti_drift_json(v));
}
