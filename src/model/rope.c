/* The scalings of rotary positions, as transformers has them (modeling_rope_utils): what depends on
 * the length of the text, and what can be said with a few numbers, is worked out here, so that a
 * kernel knows ramps and lists only.
 *
 * Where transformers changes frequencies as a text grows past the original length, all texts of a
 * program have those of its longest: a cache holds keys that have been turned already. */
#include "model/rope.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/intern.h"

enum { MOST_PAIRS = 1024 };

/* Numbers divided by commas or blanks; exactly `count` of them, all above 0. */
static tr_status read_list(const char *name, const char *text, int64_t count, float *list,
                           tr_error *err)
{
    int64_t num = 0;
    const char *at = text;
    while (*(at += strspn(at, ", \t\n[]"))) {
        char *end;
        errno = 0;
        double value = strtod(at, &end);
        if (end == at || errno == ERANGE || !(value > 0) || !isfinite(value))
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: number %lld, \"%.20s\", is not a number above 0", name,
                            (long long)num + 1, at);
        if (num < count)
            list[num] = (float)value;
        num++;
        at = end;
    }
    if (num != count)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has %lld numbers, but %lld pairs of a head turn; give one for each",
                        name, (long long)num, (long long)count);
    return TR_OK;
}

/* YaRN: the pair, not a whole one, that turns so many times within the original length. */
static double pair_of_turns(const tri_rope_setting *rope, double turned, double turns)
{
    const double turn = 6.283185307179586476925;
    return turned * log((double)rope->original / (turns * turn)) / (2 * log(rope->theta));
}

static double yarn_magnitude(double factor)
{
    return factor <= 1 ? 1 : 0.1 * log(factor) + 1;
}

static void resolve_yarn(const tri_rope_setting *rope, double turned, tri_rope_config *config)
{
    double low = pair_of_turns(rope, turned, rope->fast);
    double high = pair_of_turns(rope, turned, rope->slow);
    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, turned - 1);
    config->scaling = TRI_ROPE_RAMP;
    config->low_freq_factor = (float)low;
    config->high_freq_factor = (float)(high > low ? high : low + 0.001);
    config->magnitude =
        (float)(rope->magnitude > 0 ? rope->magnitude : yarn_magnitude(rope->factor));
}

static tr_status resolve_longrope(const tri_rope_setting *rope, int64_t pairs, int64_t length,
                                  tri_rope_config *config, tr_error *err)
{
    float lists[2][MOST_PAIRS];
    if (pairs > MOST_PAIRS)
        return tri_fail(err, TR_ERROR_INPUT, "heads with more than %d pairs have no longrope",
                        (int)MOST_PAIRS);
    TRI_TRY(read_list("model.rope_short", rope->short_list, pairs, lists[0], err));
    TRI_TRY(read_list("model.rope_long", rope->long_list, pairs, lists[1], err));
    config->scaling = TRI_ROPE_LISTED;
    config->stretch = tri_intern(lists[length > rope->original], (size_t)pairs * sizeof **lists);
    if (!config->stretch)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the factors of rotary positions");
    double by_length = sqrt(1 + log(rope->factor) / log((double)rope->original));
    config->magnitude = (float)(rope->magnitude > 0 ? rope->magnitude
                                : rope->factor > 1  ? by_length
                                                    : 1);
    return TR_OK;
}

/* theta such that the lowest frequency is divided by the growth of the length. */
static void resolve_dynamic(const tri_rope_setting *rope, double turned, int64_t length,
                            tri_rope_config *config)
{
    double growth =
        rope->factor * fmax((double)length, (double)rope->original) / (double)rope->original -
        (rope->factor - 1);
    config->theta = (float)(rope->theta * pow(growth, turned / (turned - 2)));
    config->factor = 0;
}

static tr_status check(const tri_rope_setting *rope, int64_t turned, int64_t head_dim,
                       tr_error *err)
{
    if (turned < 2 || turned % 2 != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.rope_part %g of a head of %lld elements are %lld; rotary positions "
                        "turn pairs, so it must be even and not 0",
                        rope->part, (long long)head_dim, (long long)turned);
    if (rope->factor == 0 && rope->kind != TRI_ROPE_AS_LLAMA3)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "model.rope_scaling is set, but model.rope_factor is 0; say by how much, such "
            "as model.rope_factor=4");
    if (rope->factor > 0 && rope->factor < 1)
        return tri_fail(
            err, TR_ERROR_INPUT,
            "model.rope_factor is %g; it stretches, so it must be at least 1, or 0 for none",
            rope->factor);
    if (rope->factor > 0 && rope->kind == TRI_ROPE_AS_LLAMA3 &&
        !(rope->high > rope->low && rope->low > 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.rope_high %g must be above model.rope_low %g, and that above 0",
                        rope->high, rope->low);
    if (rope->kind == TRI_ROPE_AS_YARN && !(rope->fast >= rope->slow && rope->slow > 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.rope_fast %g must not be below model.rope_slow %g, and that above 0",
                        rope->fast, rope->slow);
    if (rope->kind == TRI_ROPE_AS_DYNAMIC && turned < 4)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.rope_scaling=dynamic needs heads of at least 4 elements that turn");
    return TR_OK;
}

tr_status tri_rope_resolve(const tri_rope_setting *rope, int64_t head_dim, int64_t length,
                           tri_rope_config *config, tr_error *err)
{
    int64_t turned = (int64_t)((double)head_dim * rope->part);
    TRI_TRY(check(rope, turned, head_dim, err));
    *config = (tri_rope_config){.theta = (float)rope->theta,
                                .factor = (float)rope->factor,
                                .low_freq_factor = (float)rope->low,
                                .high_freq_factor = (float)rope->high,
                                .original_max_position = (float)rope->original,
                                .turned = turned == head_dim ? 0 : (int32_t)turned};
    switch (rope->kind) {
    case TRI_ROPE_AS_LLAMA3:
        break;
    case TRI_ROPE_AS_LINEAR:
        config->scaling = TRI_ROPE_LINEAR;
        break;
    case TRI_ROPE_AS_DYNAMIC:
        resolve_dynamic(rope, (double)turned, length, config);
        break;
    case TRI_ROPE_AS_YARN:
        resolve_yarn(rope, (double)turned, config);
        break;
    case TRI_ROPE_AS_LONGROPE:
        return resolve_longrope(rope, turned / 2, length, config, err);
    }
    return TR_OK;
}
