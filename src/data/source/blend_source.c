/* Rows of several sources, in given proportions. Each source goes through epochs of its own. */
#include "data/source/blend.h"
#include "data/source/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct blended {
    tri_blend_list list;
    tri_data_source source[TRI_BLEND_MAX_SOURCES];
    int num;
    tri_blend blend[2];                      /* by split; num 0: the split is empty */
    uint8_t which[2][TRI_BLEND_MAX_SOURCES]; /* the sources that take part in it */
} blended;

static void blend_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const blended *b = state;
    uint64_t within;
    int i = b->which[split][tri_blend_at(&b->blend[split], sample, &within)];
    b->source[i].row(b->source[i].state, split, within, row);
}

static int64_t blend_num_windows(const void *state, tri_split split)
{
    const blended *b = state;
    int64_t sum = 0;
    for (int i = 0; i < b->num; i++) {
        int64_t num = b->source[i].num_windows(b->source[i].state, split);
        sum = num > TRI_DATA_ENDLESS - sum ? TRI_DATA_ENDLESS : sum + num;
    }
    return sum;
}

static tr_status blend_problem(const void *state, tr_error *err)
{
    const blended *b = state;
    for (int i = 0; i < b->num; i++)
        if (b->source[i].problem)
            TRI_TRY(b->source[i].problem(b->source[i].state, err));
    return TR_OK;
}

static void blend_describe(const void *state, char *out, size_t out_size)
{
    const blended *b = state;
    size_t length = 0;
    if (out_size > 0)
        out[0] = 0;
    for (int i = 0; i < b->num && length + 1 < out_size; i++) {
        char one[200];
        b->source[i].describe(b->source[i].state, one, sizeof one);
        snprintf(out + length, out_size - length, "%s%.4g%% %s: %s", i ? "; " : "",
                 100.0 * (double)b->blend[0].weight[i] / (double)b->blend[0].period,
                 b->list.part[i].path, one);
        length += strlen(out + length);
    }
}

static void blend_destroy(void *state)
{
    blended *b = state;
    if (!b)
        return;
    for (int i = 0; i < b->num; i++)
        b->source[i].destroy(b->source[i].state);
    for (int s = 0; s < 2; s++)
        tri_blend_fini(&b->blend[s]);
    tri_blend_list_fini(&b->list);
    free(b);
}

static tr_status open_part(blended *b, const tri_data_config *config, tr_error *err)
{
    tri_data_config one = *config;
    tri_data_source *source = &b->source[b->num];
    one.source = b->list.part[b->num].path;
    TRI_TRY(tri_single_source_create(&one, source, err));
    b->num++;
    const tri_data_source *first = &b->source[0];
    if (source->fingerprint != first->fingerprint && source->fingerprint && first->fingerprint)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.source: %s and %s were prepared with different tokenizers; prepare "
                        "one of them again",
                        b->list.part[0].path, one.source);
    return TR_OK;
}

static tr_status make_blend(blended *b, const uint64_t *weight, tri_split split, tr_error *err)
{
    uint64_t chosen[TRI_BLEND_MAX_SOURCES];
    int num = 0;
    for (int i = 0; i < b->num; i++)
        if (b->source[i].num_windows(b->source[i].state, split) > 0) {
            b->which[split][num] = (uint8_t)i;
            chosen[num++] = weight[i];
        }
    return num > 0 ? tri_blend_init(&b->blend[split], chosen, num, err) : TR_OK;
}

tr_status tri_blend_source_create(const tri_data_config *config, tri_data_source *source,
                                  tr_error *err)
{
    blended *b = calloc(1, sizeof *b);
    uint64_t weight[TRI_BLEND_MAX_SOURCES];
    if (!b)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    tr_status status = tri_blend_parse(config->source, &b->list, err);
    while (status == TR_OK && b->num < b->list.num)
        status = open_part(b, config, err);
    if (status == TR_OK) {
        tri_blend_weights(&b->list, weight);
        status = make_blend(b, weight, TRI_SPLIT_TRAIN, err);
    }
    if (status == TR_OK)
        status = make_blend(b, weight, TRI_SPLIT_EVAL, err);
    if (status != TR_OK) {
        blend_destroy(b);
        return status;
    }
    *source = (tri_data_source){.state = b,
                                .row = blend_row,
                                .mixed = true,
                                .num_windows = blend_num_windows,
                                .problem = blend_problem,
                                .describe = blend_describe,
                                .destroy = blend_destroy};
    for (int i = 0; i < b->num; i++) {
        if (b->source[i].vocab_needed > source->vocab_needed)
            source->vocab_needed = b->source[i].vocab_needed;
        if (b->source[i].fingerprint)
            source->fingerprint = b->source[i].fingerprint;
    }
    return TR_OK;
}
