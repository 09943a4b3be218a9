/* Rows dealt out over ranks, and the exchange of keys that follows: against pairs of queries and
 * keys, one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/deal.h"
#include "train/deal_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 7, MOST_TOKENS = 160, MOST_ROWS = 3, CASES = 600 };

static const int32_t (*as_const(int32_t (*span)[2]))[2]
{
    return (const int32_t(*)[2])span;
}

typedef struct dice {
    uint64_t seed, num;
} dice;

static int64_t roll(dice *d, int64_t sides)
{
    return tri_random_word(d->seed, d->num++, 0, 1) % (uint32_t)sides;
}

typedef struct rows {
    tri_deal deal;
    int64_t num_rows;
    bool one_document; /* spans are not given */
    int32_t docs[MOST_ROWS][MOST_TOKENS];
    int32_t span[MOST_ROWS * MOST_TOKENS][2];
    int32_t places[MOST_ROWS * MOST_TOKENS];
} rows;

static const int32_t (*spans_of(rows *x, int64_t row))[2]
{
    return x->one_document ? NULL : as_const(x->span + row * x->deal.length);
}

static bool is_same_document(const int32_t *docs, int64_t a, int64_t b)
{
    for (int64_t t = a < b ? a : b; t < (a < b ? b : a); t++)
        if (docs[t] != docs[t + 1])
            return false;
    return docs[a] >= 0;
}

static bool sees(const rows *x, int64_t row, int64_t query, int64_t key)
{
    return !(x->deal.causal && key > query) &&
           !(x->deal.window > 0 && key < query + 1 - x->deal.window) &&
           is_same_document(x->docs[row], query, key);
}

/* Documents of one token up to the whole row, neighbours with the same id, and padding. */
static void draw_docs(dice *d, int64_t length, int32_t *docs)
{
    int64_t longest = 1 + roll(d, length);
    for (int64_t t = 0; t < length;) {
        int64_t end = t + 1 + roll(d, longest);
        int32_t id = roll(d, 5) == 0 ? -1 - (int32_t)roll(d, 2) : (int32_t)roll(d, 3);
        for (; t < end && t < length; t++)
            docs[t] = id;
    }
}

static void draw(rows *x, uint64_t seed)
{
    dice d = {seed, 0};
    int32_t num_ranks = 1 + (int32_t)roll(&d, MOST_RANKS);
    int64_t sizes[MOST_RANKS], length = num_ranks + roll(&d, MOST_TOKENS - num_ranks + 1);
    for (int32_t r = 0; r < num_ranks; r++)
        sizes[r] = length * (r + 1) / num_ranks - length * r / num_ranks;
    int32_t window = roll(&d, 2) ? 0 : 1 + (int32_t)roll(&d, 40);
    bool causal = roll(&d, 3) > 0;
    assert_int_equal(
        tri_deal_init(&x->deal, (tri_deal_kind)(seed % 3), num_ranks, sizes, causal, window, NULL),
        TR_OK);
    x->num_rows = 1 + roll(&d, MOST_ROWS);
    x->one_document = roll(&d, 6) == 0;
    for (int64_t b = 0; b < x->num_rows; b++) {
        memset(x->docs[b], 0, sizeof x->docs[b]);
        if (!x->one_document)
            draw_docs(&d, length, x->docs[b]);
        tri_deal_spans(x->one_document ? NULL : x->docs[b], length, x->span + b * length);
        tri_deal_row(&x->deal, spans_of(x, b), x->places + b * length);
    }
}

static void check_spans(const rows *x, int64_t row)
{
    for (int64_t t = 0; t < x->deal.length; t++) {
        const int32_t *span = x->span[row * x->deal.length + t];
        for (int64_t k = 0; k < x->deal.length; k++)
            assert_int_equal(is_same_document(x->docs[row], t, k), k >= span[0] && k < span[1]);
    }
}

static void check_row(rows *x, int64_t row)
{
    const tri_deal *deal = &x->deal;
    const int32_t *places = x->places + row * deal->length;
    bool seen[MOST_TOKENS] = {0};
    int64_t areas[MOST_RANKS], i = 0;
    int32_t run[MOST_TOKENS][2], first[MOST_RANKS + 1];
    tri_deal_runs needed = {run, first};
    tri_deal_areas(deal, spans_of(x, row), places, areas);
    tri_deal_needed(deal, spans_of(x, row), places, &needed);
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        int64_t area = 0, begin = i;
        bool wanted[MOST_TOKENS] = {0}, listed[MOST_TOKENS] = {0};
        for (; i < begin + deal->sizes[r]; i++) {
            assert_in_range(places[i], 0, deal->length - 1);
            assert_false(seen[places[i]]);
            seen[places[i]] = true;
            assert_true(i == begin || places[i - 1] < places[i]);
            for (int64_t key = 0; key < deal->length; key++)
                if (sees(x, row, places[i], key)) {
                    wanted[key] = true;
                    area++;
                }
        }
        assert_int_equal(areas[r], area);
        for (int32_t k = first[r]; k < first[r + 1]; k++)
            for (int32_t key = run[k][0]; key < run[k][1]; key++) {
                assert_false(listed[key]);
                listed[key] = true;
            }
        assert_memory_equal(wanted, listed, sizeof wanted);
    }
    assert_int_equal(i, deal->length);
}

static void rows_are_dealt_out_whole(void **state)
{
    (void)state;
    static rows x;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        draw(&x, seed);
        for (int64_t b = 0; b < x.num_rows; b++) {
            check_spans(&x, b);
            check_row(&x, b);
        }
        tri_deal_fini(&x.deal);
    }
}

/* What rank s sends to rank r is what r expects, slot for slot, and whatever r sees comes. */
static void check_pair(rows *x, const tri_key_exchange *from, const tri_key_exchange *to,
                       int64_t first)
{
    const tri_deal *deal = &x->deal;
    int32_t s = from->self, r = to->self;
    assert_int_equal(from->sent[r], to->got[s]);
    for (int64_t i = 0; i < from->room; i++) {
        int32_t key = from->out[r * from->room + i], at = to->back[s * to->room + i];
        if (i >= from->sent[r]) {
            assert_int_equal(key, -1);
            assert_int_equal(at, -1);
            continue;
        }
        assert_true(i == 0 || from->out[r * from->room + i - 1] < key);
        assert_int_equal(at, key / deal->sizes[s] * deal->length + first + key % deal->sizes[s]);
        assert_int_equal(to->in[at], s * to->room + i);
        assert_int_equal(from->sum[(int64_t)key * deal->num_ranks + r], r * from->room + i);
    }
    int64_t num_sums = 0;
    for (int64_t key = 0; key < x->num_rows * deal->sizes[s]; key++)
        num_sums += from->sum[key * deal->num_ranks + r] >= 0;
    assert_int_equal(num_sums, from->sent[r]);
}

static void check_in(rows *x, const tri_key_exchange *keys)
{
    const tri_deal *deal = &x->deal;
    int64_t first = 0;
    for (int32_t r = 0; r < keys->self; r++)
        first += deal->sizes[r];
    for (int64_t b = 0; b < x->num_rows; b++) {
        const int32_t *places = x->places + b * deal->length;
        for (int64_t i = 0; i < deal->length; i++) {
            bool needed = false;
            for (int64_t q = first; q < first + deal->sizes[keys->self]; q++)
                needed = needed || sees(x, b, places[q], places[i]);
            assert_int_equal(keys->in[b * deal->length + i] >= 0, needed);
        }
    }
}

static void plans_of_all_ranks_fit(void **state)
{
    (void)state;
    static rows x;
    tri_key_exchange keys[MOST_RANKS];
    for (uint64_t seed = 0; seed < CASES / 2; seed++) {
        draw(&x, seed);
        for (int32_t r = 0; r < x.deal.num_ranks; r++) {
            assert_int_equal(tri_key_exchange_init(&keys[r], &x.deal, r, x.num_rows, NULL), TR_OK);
            for (int twice = 0; twice < 2; twice++)
                tri_key_exchange_plan(&keys[r], &x.deal, spans_of(&x, 0), x.places);
            check_in(&x, &keys[r]);
        }
        for (int32_t s = 0, first = 0; s < x.deal.num_ranks; first += (int32_t)x.deal.sizes[s], s++)
            for (int32_t r = 0; r < x.deal.num_ranks; r++)
                check_pair(&x, &keys[s], &keys[r], first);
        for (int32_t r = 0; r < x.deal.num_ranks; r++)
            tri_key_exchange_fini(&keys[r]);
        tri_deal_fini(&x.deal);
    }
}

static void kinds_are_what_they_are_called(void **state)
{
    (void)state;
    static const int64_t sizes[] = {4, 3, 3};
    static const int32_t plain[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const int32_t zigzag[] = {0, 1, 8, 9, 2, 3, 7, 4, 5, 6};
    int32_t places[10];
    tri_deal deal;
    assert_int_equal(tri_deal_init(&deal, TRI_DEAL_PLAIN, 3, sizes, true, 0, NULL), TR_OK);
    tri_deal_row(&deal, NULL, places);
    assert_memory_equal(places, plain, sizeof plain);
    tri_deal_fini(&deal);
    assert_int_equal(tri_deal_init(&deal, TRI_DEAL_ZIGZAG, 3, sizes, true, 0, NULL), TR_OK);
    tri_deal_row(&deal, NULL, places);
    assert_memory_equal(places, zigzag, sizeof zigzag);
    tri_deal_fini(&deal);
}

/* A row of documents with a heavy tail, none longer than a quarter of it. */
static void draw_packed(uint64_t seed, int64_t length, int32_t *docs)
{
    int32_t id = 0;
    for (int64_t t = 0; t < length; id++) {
        uint32_t word[4];
        tri_philox(seed, (uint64_t)id, 0, 0, word);
        double u = (word[0] + 0.5) / 4294967296.0, v = (word[1] + 0.5) / 4294967296.0;
        double size = seed % 2 ? 600 * exp(1.5 * sqrt(-2 * log(u)) * cos(6.283185307179586 * v))
                               : 200 * pow(u, -1 / (0.7 + 0.1 * (double)(seed % 5)));
        size = fmin(fmax(size, 1), (double)(length / 4));
        for (int64_t end = t + (int64_t)size; t < end && t < length; t++)
            docs[t] = id;
    }
}

typedef struct outcome {
    double balance;   /* the largest area over the mean */
    int64_t shortest; /* run of consecutive places of a rank */
} outcome;

static outcome outcome_of(tri_deal_kind kind, int32_t num_ranks, int64_t length, int32_t window,
                          const int32_t (*span)[2])
{
    int64_t sizes[64] = {0}, areas[64], most = 0, total = 0, shortest = length;
    int32_t *places = malloc((size_t)length * sizeof *places);
    bool *seen = calloc((size_t)length, sizeof *seen);
    tri_deal deal;
    assert_true(places && seen);
    for (int32_t r = 0; r < num_ranks; r++)
        sizes[r] = length * (r + 1) / num_ranks - length * r / num_ranks;
    assert_int_equal(tri_deal_init(&deal, kind, num_ranks, sizes, true, window, NULL), TR_OK);
    tri_deal_row(&deal, span, places);
    tri_deal_areas(&deal, span, places, areas);
    tri_deal_fini(&deal);
    for (int64_t r = 0, i = 0, end = 0; r < num_ranks; r++) {
        most = most < areas[r] ? areas[r] : most;
        total += areas[r];
        for (end += sizes[r]; i < end;) {
            int64_t next = tri_deal_run_end(places, i, end);
            shortest = next - i < shortest ? next - i : shortest;
            for (; i < next; i++) {
                assert_false(seen[places[i]]);
                seen[places[i]] = true;
            }
        }
    }
    free(places);
    free(seen);
    return (outcome){(double)most * num_ranks / (double)total, shortest};
}

static void check_packed(int32_t num_ranks, int64_t length, uint64_t seed, double limit)
{
    const size_t num = (size_t)length;
    const int32_t window = seed % 4 == 3 ? 4096 : 0;
    int32_t *docs = malloc(num * sizeof *docs);
    int32_t(*span)[2] = malloc(num * sizeof *span);
    assert_true(docs && span);
    draw_packed(seed, length, docs);
    tri_deal_spans(docs, length, span);
    outcome mine = outcome_of(TRI_DEAL_BALANCED, num_ranks, length, window, as_const(span));
    outcome theirs = outcome_of(TRI_DEAL_ZIGZAG, num_ranks, length, window, as_const(span));
    outcome alone = outcome_of(TRI_DEAL_BALANCED, num_ranks, length, window, NULL);
    if (mine.balance > limit || mine.balance > theirs.balance || alone.balance > limit)
        fail_msg("%d ranks, %d tokens, seed %d: balance %f, of zigzag %f, of one document %f",
                 num_ranks, (int)length, (int)seed, mine.balance, theirs.balance, alone.balance);
    if (mine.shortest < 128 || alone.shortest < 128)
        fail_msg("%d ranks, %d tokens, seed %d: a run of %d tokens, of one document %d", num_ranks,
                 (int)length, (int)seed, (int)mine.shortest, (int)alone.shortest);
    free(docs);
    free(span);
}

/* Equal areas, in runs that fill the tiles of kernels. */
static void areas_are_equal(void **state)
{
    (void)state;
    for (int32_t num_ranks = 8; num_ranks <= 64; num_ranks *= 2)
        for (uint64_t seed = 0; seed < 20; seed++)
            check_packed(num_ranks, num_ranks * 8192 - (int64_t)(seed % 3), seed, 1.02);
}

/* Sizes that are no multiples of a block. Few blocks for each rank balance less well. */
static void runs_fill_blocks_of_any_size(void **state)
{
    (void)state;
    for (int64_t size = 1024; size < 4096; size += 301)
        for (uint64_t seed = 0; seed < 6; seed++)
            check_packed(8, 8 * size + (int64_t)seed, seed, 1.2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_dealt_out_whole),       cmocka_unit_test(plans_of_all_ranks_fit),
        cmocka_unit_test(kinds_are_what_they_are_called), cmocka_unit_test(areas_are_equal),
        cmocka_unit_test(runs_fill_blocks_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
