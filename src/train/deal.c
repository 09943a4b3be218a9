#include "train/deal.h"

#include <stdlib.h>

#include "base/error.h"
#include "train/deal/balance.h"

tr_status tri_deal_init(tri_deal *deal, tri_deal_kind kind, int32_t num_ranks, const int64_t *sizes,
                        bool causal, int32_t window, tr_error *err)
{
    *deal = (tri_deal){.kind = kind, .num_ranks = num_ranks, .causal = causal, .window = window};
    deal->sizes = calloc((size_t)num_ranks, sizeof *deal->sizes);
    if (deal->sizes)
        for (int32_t r = 0; r < num_ranks; r++)
            deal->length += deal->sizes[r] = sizes[r];
    if (deal->sizes && kind == TRI_DEAL_BALANCED)
        deal->table = tri_deal_table_create(num_ranks, sizes, deal->length);
    if (deal->sizes && (deal->table || kind != TRI_DEAL_BALANCED))
        return TR_OK;
    tri_deal_fini(deal);
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to deal out rows over %d ranks", num_ranks);
}

void tri_deal_fini(tri_deal *deal)
{
    tri_deal_table_destroy(deal->table);
    free(deal->sizes);
    *deal = (tri_deal){0};
}

void tri_deal_spans(const int32_t *docs, int64_t length, int32_t (*span)[2])
{
    for (int64_t begin = 0, end; begin < length; begin = end) {
        for (end = begin + 1; end < length && (!docs || docs[end] == docs[begin]);)
            end++;
        bool padding = docs && docs[begin] < 0;
        for (int64_t t = begin; t < end; t++) {
            span[t][0] = (int32_t)(padding ? t : begin);
            span[t][1] = (int32_t)(padding ? t : end);
        }
    }
}

/* A document of a row, or one place of padding. */
typedef struct document {
    int64_t first, end;
    bool padding;
} document;

static document document_at(const tri_deal *deal, const int32_t (*span)[2], int64_t place)
{
    if (!span)
        return (document){0, deal->length, false};
    if (span[place][0] == span[place][1])
        return (document){place, place + 1, true};
    return (document){span[place][0], span[place][1], false};
}

/* Area of the first `count` queries of a causal document. */
static int64_t causal_area(int64_t count, int64_t window)
{
    if (window == 0 || count <= window)
        return count * (count + 1) / 2;
    return window * (window + 1) / 2 + (count - window) * window;
}

/* Pairs that a window takes from the first `count` queries of a document that is not causal. */
static int64_t behind_window(int64_t count, int64_t window)
{
    int64_t past = window == 0 || count <= window ? 0 : count - window;
    return past * (past + 1) / 2;
}

int64_t tri_deal_area(const tri_deal *deal, const int32_t (*span)[2], int64_t begin, int64_t end)
{
    int64_t area = 0;
    for (int64_t t = begin, next; t < end; t = next) {
        document d = document_at(deal, span, t);
        next = d.end < end ? d.end : end;
        if (d.padding)
            continue;
        int64_t from = t - d.first, to = next - d.first;
        if (deal->causal)
            area += causal_area(to, deal->window) - causal_area(from, deal->window);
        else
            area += (to - from) * (d.end - d.first) - behind_window(to, deal->window) +
                    behind_window(from, deal->window);
    }
    return area;
}

/* Places ascend strictly: those between two that are as far apart as their positions are
 * consecutive. So the end of a run is found by doubling and halving. */
int64_t tri_deal_run_end(const int32_t *places, int64_t i, int64_t end)
{
    int64_t last = i, step = 1; /* last: surely of the run */
    while (last + step < end && places[last + step] - places[last] == step) {
        last += step;
        step *= 2;
    }
    for (; step > 0; step /= 2)
        if (last + step < end && places[last + step] - places[last] == step)
            last += step;
    return last + 1;
}

void tri_deal_areas(const tri_deal *deal, const int32_t (*span)[2], const int32_t *places,
                    int64_t *areas)
{
    int64_t i = 0, end = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        areas[r] = 0;
        for (end += deal->sizes[r]; i < end;) {
            int64_t next = tri_deal_run_end(places, i, end);
            areas[r] += tri_deal_area(deal, span, places[i], places[i] + next - i);
            i = next;
        }
    }
}

/* Adds to the runs, of which rank r has those from first[r] on, the keys that consecutive queries
 * see. Queries see themselves, so those of a part of a document see a run of keys. */
static int32_t add_needed(const tri_deal *deal, const int32_t (*span)[2], int64_t begin,
                          int64_t end, tri_deal_runs *needed, int32_t first, int32_t num)
{
    for (int64_t t = begin, next; t < end; t = next) {
        document d = document_at(deal, span, t);
        next = d.end < end ? d.end : end;
        if (d.padding)
            continue;
        int64_t low = deal->window > 0 ? t + 1 - deal->window : 0;
        low = low < d.first ? d.first : low;
        int64_t high = deal->causal ? next : d.end;
        if (num > first && low <= needed->run[num - 1][1]) {
            needed->run[num - 1][1] = (int32_t)high;
            continue;
        }
        needed->run[num][0] = (int32_t)low;
        needed->run[num][1] = (int32_t)high;
        num++;
    }
    return num;
}

void tri_deal_needed(const tri_deal *deal, const int32_t (*span)[2], const int32_t *places,
                     tri_deal_runs *needed)
{
    int64_t i = 0, end = 0;
    int32_t num = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        needed->first[r] = num;
        for (end += deal->sizes[r]; i < end;) {
            int64_t next = tri_deal_run_end(places, i, end);
            num = add_needed(deal, span, places[i], places[i] + next - i, needed, needed->first[r],
                             num);
            i = next;
        }
    }
    needed->first[deal->num_ranks] = num;
}

static void deal_plain(const tri_deal *deal, int32_t *places)
{
    for (int64_t t = 0; t < deal->length; t++)
        places[t] = (int32_t)t;
}

static void deal_zigzag(const tri_deal *deal, int32_t *places)
{
    int64_t front = 0, back = deal->length, i = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        int64_t ahead = deal->sizes[r] - deal->sizes[r] / 2, behind = deal->sizes[r] / 2;
        back -= behind;
        for (int64_t k = 0; k < ahead; k++)
            places[i++] = (int32_t)(front + k);
        for (int64_t k = 0; k < behind; k++)
            places[i++] = (int32_t)(back + k);
        front += ahead;
    }
}

/* Zigzag balances one document as well as can be, in the fewest runs. */
static bool suits_zigzag(const tri_deal *deal, const int32_t (*span)[2])
{
    return deal->causal && deal->window == 0 && (!span || span[0][1] - span[0][0] == deal->length);
}

void tri_deal_row(tri_deal *deal, const int32_t (*span)[2], int32_t *places)
{
    if (deal->kind == TRI_DEAL_PLAIN || deal->num_ranks == 1)
        deal_plain(deal, places);
    else if (deal->kind == TRI_DEAL_ZIGZAG || suits_zigzag(deal, span))
        deal_zigzag(deal, places);
    else
        tri_deal_balance(deal, span, places);
}
