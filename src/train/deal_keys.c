#include "train/deal_keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

tr_status tri_key_exchange_init(tri_key_exchange *keys, const tri_deal *deal, int32_t self,
                                int64_t num_rows, tr_error *err)
{
    int64_t most = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++)
        most = most < deal->sizes[r] ? deal->sizes[r] : most;
    *keys = (tri_key_exchange){.self = self, .num_rows = num_rows, .room = num_rows * most};
    size_t ranks = (size_t)deal->num_ranks, length = (size_t)deal->length;
    size_t rows = (size_t)num_rows, slots = ranks * (size_t)keys->room;
    keys->sent = malloc(ranks * sizeof *keys->sent);
    keys->got = malloc(ranks * sizeof *keys->got);
    keys->out = malloc(slots * sizeof *keys->out);
    keys->in = malloc(rows * length * sizeof *keys->in);
    keys->back = malloc(slots * sizeof *keys->back);
    keys->sum = malloc((rows * (size_t)deal->sizes[self] * ranks + 1) * sizeof *keys->sum);
    keys->needed.run = malloc(length * sizeof *keys->needed.run);
    keys->needed.first = malloc((ranks + 1) * sizeof *keys->needed.first);
    if (keys->sent && keys->got && keys->out && keys->in && keys->back && keys->sum &&
        keys->needed.run && keys->needed.first)
        return TR_OK;
    tri_key_exchange_fini(keys);
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to plan the exchange of keys of %d ranks",
                    deal->num_ranks);
}

void tri_key_exchange_fini(tri_key_exchange *keys)
{
    free(keys->sent);
    free(keys->got);
    free(keys->out);
    free(keys->in);
    free(keys->back);
    free(keys->sum);
    free(keys->needed.run);
    free(keys->needed.first);
    *keys = (tri_key_exchange){0};
}

/* Walks over the positions [i, end) of one rank whose keys another one needs, run after run. */
typedef struct key_walk {
    const int32_t *places;
    int64_t i, end;           /* what is left of the positions */
    const int32_t (*need)[2]; /* what is left of the runs that are needed */
    const int32_t (*last)[2]; /* behind them */
} key_walk;

static key_walk begin_walk(const tri_deal_runs *needed, int32_t to, const int32_t *places,
                           int64_t i, int64_t end)
{
    return (key_walk){.places = places,
                      .i = i,
                      .end = end,
                      .need = (const int32_t(*)[2])needed->run + needed->first[to],
                      .last = (const int32_t(*)[2])needed->run + needed->first[to + 1]};
}

/* The next positions; false: no more. Both lists ascend, so that one pass meets all. */
static bool next_run(key_walk *w, int64_t *from, int64_t *to)
{
    while (w->i < w->end && w->need < w->last) {
        int64_t run = tri_deal_run_end(w->places, w->i, w->end), place = w->places[w->i];
        int64_t behind = place + run - w->i; /* the last place of the run, and one */
        if ((*w->need)[1] <= place) {
            w->need++;
            continue;
        }
        if ((*w->need)[0] >= behind) {
            w->i = run;
            continue;
        }
        int64_t low = (*w->need)[0] > place ? (*w->need)[0] : place;
        int64_t high = (*w->need)[1] < behind ? (*w->need)[1] : behind;
        *from = w->i + low - place;
        *to = w->i + high - place;
        w->i = *to;
        return true;
    }
    return false;
}

/* What self sends to rank r of a row: its positions begin at `first`. */
static void plan_sent(tri_key_exchange *keys, const tri_deal *deal, int64_t row, int32_t r,
                      const int32_t *places, int64_t first)
{
    const int64_t size = deal->sizes[keys->self];
    int64_t from, to, slot = r * keys->room + keys->sent[r];
    key_walk w = begin_walk(&keys->needed, r, places, first, first + size);
    while (next_run(&w, &from, &to))
        for (int64_t i = from; i < to; i++, slot++) {
            int64_t key = row * size + i - first;
            keys->out[slot] = (int32_t)key;
            keys->sum[key * deal->num_ranks + r] = (int32_t)slot;
        }
    keys->sent[r] = slot - r * keys->room;
}

/* What rank r, whose positions begin at `first`, sends to self of a row. */
static void plan_got(tri_key_exchange *keys, const tri_deal *deal, int64_t row, int32_t r,
                     const int32_t *places, int64_t first)
{
    int64_t from, to, slot = r * keys->room + keys->got[r];
    key_walk w = begin_walk(&keys->needed, keys->self, places, first, first + deal->sizes[r]);
    while (next_run(&w, &from, &to))
        for (int64_t i = from; i < to; i++, slot++) {
            keys->in[row * deal->length + i] = (int32_t)slot;
            keys->back[slot] = (int32_t)(row * deal->length + i);
        }
    keys->got[r] = slot - r * keys->room;
}

void tri_key_exchange_plan(tri_key_exchange *keys, const tri_deal *deal, const int32_t (*span)[2],
                           const int32_t *places)
{
    const size_t ranks = (size_t)deal->num_ranks, rows = (size_t)keys->num_rows;
    const size_t slots = ranks * (size_t)keys->room;
    memset(keys->sent, 0, ranks * sizeof *keys->sent);
    memset(keys->got, 0, ranks * sizeof *keys->got);
    memset(keys->out, 0xff, slots * sizeof *keys->out);
    memset(keys->back, 0xff, slots * sizeof *keys->back);
    memset(keys->in, 0xff, rows * (size_t)deal->length * sizeof *keys->in);
    memset(keys->sum, 0xff, rows * (size_t)deal->sizes[keys->self] * ranks * sizeof *keys->sum);
    for (int64_t b = 0; b < keys->num_rows; b++) {
        const int32_t *row = places + b * deal->length;
        tri_deal_needed(deal, span ? span + b * deal->length : NULL, row, &keys->needed);
        int64_t mine = 0;
        for (int32_t r = 0; r < keys->self; r++)
            mine += deal->sizes[r];
        for (int32_t r = 0, first = 0; r < deal->num_ranks; first += (int32_t)deal->sizes[r], r++) {
            plan_sent(keys, deal, b, r, row, mine);
            plan_got(keys, deal, b, r, row, first);
        }
    }
}
