/* Rotary positions in a config.json, read and written.
 *
 * Version 5 has everything in rope_parameters; version 4 rope_theta beside rope_scaling, whose type
 * was first called "type". Where both stand, transformers takes rope_scaling; so it is here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf_reader.h"

/* Their name, ours, and the kind. */
static const struct {
    const char *type, *setting;
    tri_rope_kind kind;
} types[] = {
    {"llama3", "llama3", TRI_ROPE_AS_LLAMA3},
    {"linear", "linear", TRI_ROPE_AS_LINEAR},
    {"dynamic", "dynamic", TRI_ROPE_AS_DYNAMIC},
    {"yarn", "yarn", TRI_ROPE_AS_YARN},
    {"longrope", "longrope", TRI_ROPE_AS_LONGROPE},
    {"su", "longrope", TRI_ROPE_AS_LONGROPE}, /* as the first files of Phi 3 call it */
};
enum { NUM_TYPES = sizeof types / sizeof *types };

/* ---- in ---- */

/* The length that the model was first trained on: beside the type, or at the top, or all; dynamic
 * looks at the maximum only. */
static tr_status read_original(const tri_hf_reader *r, const json_t *rope, tri_rope_kind kind,
                               int64_t positions, int64_t *original)
{
    const char *key = kind == TRI_ROPE_AS_DYNAMIC ? "max_position_embeddings"
                                                  : "original_max_position_embeddings";
    *original = positions;
    if (kind == TRI_ROPE_AS_DYNAMIC) {
        tri_hf_add_int(r, false, "model.rope_original", key, positions);
        return TR_OK;
    }
    TRI_TRY(tri_hf_read_int(r, r->root, key, positions, original));
    TRI_TRY(tri_hf_read_int(r, rope, key, *original, original));
    tri_hf_add_int(r, false, "model.rope_original", key, *original);
    return TR_OK;
}

static tr_status read_llama3(const tri_hf_reader *r, const json_t *rope, double factor)
{
    double low, high;
    TRI_TRY(tri_hf_read_real(r, rope, "low_freq_factor", 0, &low));
    TRI_TRY(tri_hf_read_real(r, rope, "high_freq_factor", 0, &high));
    if (!(low > 0) || !(high > low))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: rope type llama3 needs \"factor\" >= 1 and \"high_freq_factor\" > "
                        "\"low_freq_factor\" > 0, but has %g, %g and %g",
                        r->path, factor, high, low);
    tri_hf_add_real(r, "model.rope_low", "low_freq_factor", low);
    tri_hf_add_real(r, "model.rope_high", "high_freq_factor", high);
    return TR_OK;
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* DeepSeek's two scales say the magnitude as a quotient. 0 stands for one that is not there. */
static tr_status read_yarn(const tri_hf_reader *r, const json_t *rope, double factor)
{
    double fast, slow, magnitude, scale, scale_all;
    const json_t *truncate = tri_hf_value(rope, "truncate");
    TRI_TRY(tri_hf_read_real(r, rope, "beta_fast", 0, &fast));
    TRI_TRY(tri_hf_read_real(r, rope, "beta_slow", 0, &slow));
    TRI_TRY(tri_hf_read_real(r, rope, "attention_factor", 0, &magnitude));
    TRI_TRY(tri_hf_read_real(r, rope, "mscale", 0, &scale));
    TRI_TRY(tri_hf_read_real(r, rope, "mscale_all_dim", 0, &scale_all));
    if (truncate && !json_is_boolean(truncate))
        return tri_fail(r->err, TR_ERROR_INPUT, "%s: \"truncate\" is not true or false", r->path);
    if (magnitude == 0 && scale > 0 && scale_all > 0)
        magnitude = yarn_scale(factor, scale) / yarn_scale(factor, scale_all);
    tri_hf_add_real(r, "model.rope_fast", "beta_fast", fast > 0 ? fast : 32);
    tri_hf_add_real(r, "model.rope_slow", "beta_slow", slow > 0 ? slow : 1);
    tri_hf_add_real(r, "model.rope_magnitude", "attention_factor", magnitude);
    tri_hf_add(r, false, "model.rope_truncate", "truncate", "%s",
               json_is_false(truncate) ? "false" : "true");
    return TR_OK;
}

static tr_status read_longrope(const tri_hf_reader *r, const json_t *rope)
{
    double magnitude;
    TRI_TRY(tri_hf_read_real(r, rope, "attention_factor", 0, &magnitude));
    tri_hf_add_real(r, "model.rope_magnitude", "attention_factor", magnitude);
    TRI_TRY(tri_hf_add_list(r, 0, "model.rope_short", "short_factor",
                            tri_hf_value(rope, "short_factor")));
    return tri_hf_add_list(r, 1, "model.rope_long", "long_factor",
                           tri_hf_value(rope, "long_factor"));
}

static tr_status read_scaling(const tri_hf_reader *r, const json_t *rope, tri_rope_kind kind,
                              int64_t *positions)
{
    int64_t original;
    double factor;
    TRI_TRY(read_original(r, rope, kind, *positions, &original));
    bool by_length = kind == TRI_ROPE_AS_YARN || kind == TRI_ROPE_AS_LONGROPE;
    TRI_TRY(tri_hf_read_real(r, rope, "factor",
                             by_length ? (double)*positions / (double)original : 0, &factor));
    if (!(factor >= 1))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: the rotary positions need a \"factor\" >= 1, but have %g", r->path,
                        factor);
    tri_hf_add_real(r, "model.rope_factor", "factor", factor);
    switch (kind) {
    case TRI_ROPE_AS_LLAMA3:
        return read_llama3(r, rope, factor);
    case TRI_ROPE_AS_YARN:
        return read_yarn(r, rope, factor);
    case TRI_ROPE_AS_LONGROPE:
        return read_longrope(r, rope);
    case TRI_ROPE_AS_DYNAMIC:
        *positions = (int64_t)((double)*positions * factor);
        break;
    case TRI_ROPE_AS_LINEAR:
        break;
    }
    return TR_OK;
}

/* The heads of these families turn whole, whatever the key says. */
static tr_status check_part(const tri_hf_reader *r, const json_t *rope)
{
    double part;
    TRI_TRY(tri_hf_read_real(r, r->root, "partial_rotary_factor", 1, &part));
    TRI_TRY(tri_hf_read_real(r, rope, "partial_rotary_factor", part, &part));
    if (part == 1)
        return TR_OK;
    return tri_fail(r->err, TR_ERROR_INPUT,
                    "%s: \"partial_rotary_factor\" is %g; for %s only 1 is supported", r->path,
                    part, r->family->model_type);
}

tr_status tri_hf_read_rope(const tri_hf_reader *r, int64_t *positions)
{
    const json_t *rope = tri_hf_value(r->root, "rope_scaling");
    if (!rope || (json_is_object(rope) && json_object_size(rope) == 0))
        rope = tri_hf_value(r->root, "rope_parameters");
    if (rope && !json_is_object(rope))
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: the parameters of the rotary positions are not a JSON object",
                        r->path);
    const char *type;
    double theta;
    TRI_TRY(tri_hf_read_text(r, rope, "type", "default", &type));
    TRI_TRY(tri_hf_read_text(r, rope, "rope_type", type, &type));
    TRI_TRY(tri_hf_read_real(r, r->root, "rope_theta",
                             r->family->rope_theta > 0 ? r->family->rope_theta : 10000, &theta));
    TRI_TRY(tri_hf_read_real(r, rope, "rope_theta", theta, &theta));
    TRI_TRY(check_part(r, rope));
    tri_hf_add_real(r, "model.rope_theta", "rope_theta", theta);
    for (int i = 0; i < NUM_TYPES; i++)
        if (strcmp(type, types[i].type) == 0) {
            tri_hf_add(r, false, "model.rope_scaling", "rope_type", "%s", types[i].setting);
            return read_scaling(r, rope, types[i].kind, positions);
        }
    if (strcmp(type, "default") != 0)
        return tri_fail(r->err, TR_ERROR_INPUT,
                        "%s: rotary positions of type \"%.60s\" are not supported; known types: "
                        "default, dynamic, linear, llama3, longrope, yarn",
                        r->path, type);
    tri_hf_add_real(r, "model.rope_factor", "rope_type", 0);
    return TR_OK;
}

/* ---- out ---- */

json_t *tri_hf_number(float value)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return json_real(strtod(text, NULL));
}

static int set_number(json_t *object, const char *key, double value)
{
    return json_object_set_new(object, key, tri_hf_number((float)value));
}

/* The text has been read before: it holds numbers. */
static int set_list(json_t *object, const char *key, const char *text)
{
    json_t *list = json_array();
    int failed = !list;
    while (*(text += strspn(text, ", \t\n[]"))) {
        char *end;
        failed |= json_array_append_new(list, tri_hf_number(strtof(text, &end)));
        text = end == text ? text + strlen(text) : end;
    }
    return failed | json_object_set_new(object, key, list);
}

static json_t *scaling_of(const tri_rope_setting *rope)
{
    int row = 0, failed = 0;
    while (types[row].kind != rope->kind)
        row++;
    json_t *to = json_pack("{s:s, s:o}", "rope_type", types[row].type, "factor",
                           tri_hf_number((float)rope->factor));
    if (rope->kind == TRI_ROPE_AS_LLAMA3) {
        failed |= set_number(to, "low_freq_factor", rope->low);
        failed |= set_number(to, "high_freq_factor", rope->high);
    } else if (rope->kind == TRI_ROPE_AS_YARN) {
        failed |= set_number(to, "beta_fast", rope->fast);
        failed |= set_number(to, "beta_slow", rope->slow);
        failed |= json_object_set_new(to, "truncate", json_boolean(rope->truncate));
    } else if (rope->kind == TRI_ROPE_AS_LONGROPE) {
        failed |= set_list(to, "short_factor", rope->short_list);
        failed |= set_list(to, "long_factor", rope->long_list);
    }
    bool has_magnitude = rope->kind == TRI_ROPE_AS_YARN || rope->kind == TRI_ROPE_AS_LONGROPE;
    if (has_magnitude && rope->magnitude > 0)
        failed |= set_number(to, "attention_factor", rope->magnitude);
    if (rope->kind != TRI_ROPE_AS_LINEAR && rope->kind != TRI_ROPE_AS_DYNAMIC)
        failed |= json_object_set_new(to, "original_max_position_embeddings",
                                      json_integer(rope->original));
    if (failed)
        json_decref(to);
    return failed ? NULL : to;
}

/* Where they disagree about the other's keys, both still read the same values. */
int tri_hf_add_rope(json_t *root, const tri_model_config *m)
{
    const tri_rope_setting *rope = &m->rope;
    bool scaled = rope->factor > 0;
    json_t *scaling = scaled ? scaling_of(rope) : json_null();
    json_t *parameters = scaled ? json_copy(scaling) : json_pack("{s:s}", "rope_type", "default");
    int failed = set_number(parameters, "rope_theta", rope->theta);
    failed |= json_object_set_new(root, "rope_parameters", parameters);
    failed |= set_number(root, "rope_theta", rope->theta);
    if (scaled && rope->kind == TRI_ROPE_AS_DYNAMIC) /* it has no other name for the first length */
        failed |=
            json_object_set_new(root, "max_position_embeddings", json_integer(rope->original));
    return failed | json_object_set_new(root, "rope_scaling", scaling);
}
