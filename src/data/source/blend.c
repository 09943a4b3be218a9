#include "data/source/blend.h"
#include "base/fs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void reduce(tri_blend *b)
{
    uint64_t divisor = 0;
    for (int i = 0; i < b->num; i++)
        divisor = common_divisor(divisor, b->weight[i]);
    b->period = 0;
    for (int i = 0; i < b->num; i++) {
        b->weight[i] /= divisor;
        b->period += b->weight[i];
    }
}

/* Of the sources that are owed at least 1 / (2 num - 2) of a sample, the one whose next is due
 * first: the smallest (1 - 1 / (2 num - 2) - owed) / share. All as whole numbers: times
 * (2 num - 2) * period. */
static int choose(const tri_blend *b, uint64_t n, const uint64_t *taken)
{
    int best = -1;
    int64_t k = b->num > 1 ? 2 * b->num - 2 : 1, period = (int64_t)b->period;
    double best_due = 0;
    for (int i = 0; i < b->num; i++) {
        int64_t owed = (int64_t)(n + 1) * (int64_t)b->weight[i] - (int64_t)taken[i] * period;
        if (b->num > 1 && owed * k < period)
            continue;
        double due = (double)((k - 1) * period - owed * k) / (double)b->weight[i];
        if (best < 0 || due < best_due) {
            best = i;
            best_due = due;
        }
    }
    return best;
}

tr_status tri_blend_init(tri_blend *b, const uint64_t *weight, int num, tr_error *err)
{
    *b = (tri_blend){.num = num};
    double sum = 0;
    for (int i = 0; i < num; i++)
        sum += (double)weight[i];
    for (int i = 0; i < num; i++) {
        b->weight[i] = weight[i];
        if (sum > TRI_BLEND_MAX_PERIOD / 2) { /* a rare source keeps at least one */
            double share = (double)weight[i] / sum * (TRI_BLEND_MAX_PERIOD / 2);
            b->weight[i] = share < 1 ? 1 : (uint64_t)llround(share);
        }
    }
    reduce(b);
    b->source = malloc(b->period * sizeof *b->source);
    b->index = malloc(b->period * sizeof *b->index);
    if (!b->source || !b->index) {
        tri_blend_fini(b);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to blend %d sources", num);
    }
    uint64_t taken[TRI_BLEND_MAX_SOURCES] = {0};
    for (uint64_t n = 0; n < b->period; n++) {
        int i = choose(b, n, taken);
        b->source[n] = (uint8_t)i;
        b->index[n] = (uint32_t)taken[i]++;
    }
    return TR_OK;
}

void tri_blend_fini(tri_blend *b)
{
    free(b->source);
    free(b->index);
    *b = (tri_blend){0};
}

int tri_blend_at(const tri_blend *b, uint64_t sample, uint64_t *within)
{
    uint64_t round = sample / b->period, n = sample % b->period;
    *within = round * b->weight[b->source[n]] + b->index[n];
    return b->source[n];
}

/* ---- the text ---- */

void tri_blend_list_fini(tri_blend_list *list)
{
    for (int i = 0; i < list->num; i++)
        free(list->part[i].path);
    *list = (tri_blend_list){0};
}

static tr_status add_part(tri_blend_list *list, const char *text, size_t length, tr_error *err)
{
    while (length > 0 && *text == ' ') {
        text++;
        length--;
    }
    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.source: a part of the list is empty; write \"a:0.7,b:0.3\"");
    if (list->num == TRI_BLEND_MAX_SOURCES)
        return tri_fail(err, TR_ERROR_INPUT, "data.source: more than %d sources",
                        TRI_BLEND_MAX_SOURCES);
    tri_blend_part *part = &list->part[list->num];
    *part = (tri_blend_part){strndup(text, length), 1};
    if (!part->path)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the list of sources");
    list->num++;
    char *colon = strrchr(part->path, ':'), *end;
    if (!colon || tri_path_exists(part->path))
        return TR_OK;
    part->weight = strtod(colon + 1, &end);
    if (end == colon + 1 || *end) { /* no number: part of the name */
        part->weight = 1;
        return TR_OK;
    }
    if (!(part->weight >= 1e-6 && part->weight <= 1e9))
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.source: the weight in \"%s\" must be between 0.000001 and 1e9; leave "
                        "out what is not wanted",
                        part->path);
    *colon = 0;
    return TR_OK;
}

tr_status tri_blend_parse(const char *text, tri_blend_list *list, tr_error *err)
{
    *list = (tri_blend_list){0};
    tr_status status = TR_OK;
    if (!text[strspn(text, " ")])
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.source is empty; it must name a text file, a directory of them, or "
                        "be synthetic");
    if (tri_path_exists(text))
        return add_part(list, text, strlen(text), err);
    for (const char *p = text; status == TR_OK;) {
        size_t length = strcspn(p, ",;");
        status = add_part(list, p, length, err);
        if (!p[length])
            break;
        p += length + 1;
    }
    if (status != TR_OK)
        tri_blend_list_fini(list);
    return status;
}

void tri_blend_weights(const tri_blend_list *list, uint64_t *weight)
{
    double scale = 1;
    for (int digits = 0; digits < 9; digits++, scale *= 10) {
        bool whole = true;
        for (int i = 0; i < list->num; i++) {
            double scaled = list->part[i].weight * scale;
            whole = whole && fabs(scaled - round(scaled)) < 1e-9 * scaled && round(scaled) >= 1;
        }
        if (whole)
            break;
    }
    for (int i = 0; i < list->num; i++) {
        double scaled = round(list->part[i].weight * scale);
        weight[i] = scaled < 1 ? 1 : (uint64_t)scaled;
    }
}
