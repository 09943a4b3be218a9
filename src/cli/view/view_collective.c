/* Collectives round by round: who gives which pieces to whom, how many bytes, and when. */
#include <stdlib.h>
#include <string.h>

#include "cli/view/view_parts.h"
#include "cli/word_list.h"

typedef struct collective_case {
    tri_coll coll;
    const tri_algorithm *algorithm;
    tri_coll_shape shape;
    int root;
    double bytes; /* that a rank has in the end or before: S of docs/collectives.md */
    tri_coll_prices prices;
    tri_rounds rounds;
} collective_case;

/* ---- the list ---- */

tr_status tri_view_collectives(tri_view *view, const tri_http_target *query, json_t *doc,
                               tr_error *err)
{
    (void)view, (void)query, (void)err;
    json_t *list = tri_doc_list(doc, "operations");
    for (size_t i = 0; tri_coll_name_at(i); i++)
        tri_doc_text_item(list, tri_coll_name_at(i));
    list = tri_doc_list(doc, "algorithms");
    for (size_t i = 0; tri_algorithm_at(i); i++) {
        const tri_algorithm *algorithm = tri_algorithm_at(i);
        json_t *item = tri_doc_item(list), *operations;
        tri_doc_text(item, "name", algorithm->name);
        tri_doc_text(item, "help", algorithm->help);
        operations = tri_doc_list(item, "operations");
        for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
            if (algorithm->emit[coll])
                tri_doc_text_item(operations, tri_coll_name((tri_coll)coll));
    }
    tri_doc_count(tri_doc_object(doc, "most"), "ranks", TRI_VIEW_RANKS);
    return TR_OK;
}

/* ---- one of them ---- */

static tr_status read_case(const tri_http_target *query, collective_case *c, tr_error *err)
{
    const char *operation = tri_http_target_arg(query, "operation");
    const char *algorithm = tri_http_target_arg(query, "algorithm");
    int64_t ranks = 8, root = 0;
    double latency = 5e-6, bandwidth = 50e9;
    c->coll = TRI_COLL_ALL_REDUCE;
    c->bytes = 1 << 20;
    if (operation && !tri_coll_parse(operation, &c->coll))
        return tri_view_query_unknown("operation", operation, tri_coll_name_at, err);
    TRI_TRY(tri_view_query_int(query, "ranks", 1, TRI_VIEW_RANKS, &ranks, err));
    TRI_TRY(tri_view_query_int(query, "root", 0, ranks - 1, &root, err));
    TRI_TRY(tri_view_query_number(query, "bytes", 0, 1e15, &c->bytes, err));
    TRI_TRY(tri_view_query_number(query, "latency", 0, 1e3, &latency, err));
    TRI_TRY(tri_view_query_number(query, "bandwidth", 1, 1e18, &bandwidth, err));
    c->shape = tri_shape_flat((int)ranks);
    c->root = (int)root;
    c->prices = (tri_coll_prices){.alpha = latency, .beta = 1 / bandwidth};
    TRI_TRY(tri_algorithm_parse(algorithm ? algorithm : "ring", &c->algorithm, &c->shape, err));
    if (!tri_algorithm_supports(c->algorithm, c->coll, &c->shape))
        return tri_algorithm_refuse(c->algorithm, c->coll, &c->shape, err);
    return tri_algorithm_rounds(c->algorithm, c->coll, &c->shape, c->root, &c->rounds, err);
}

static void put_run(json_t *list, uint32_t first, uint32_t num)
{
    json_array_append_new(list, json_pack("[ii]", (int)first, (int)num));
}

/* Pieces that each rank has before, or shall have after: collective.h has them in words. */
static void put_pieces(json_t *doc, const collective_case *c, bool after)
{
    json_t *list = tri_doc_list(doc, after ? "after" : "before");
    uint32_t all = c->rounds.num_pieces, n = (uint32_t)c->shape.size;
    for (uint32_t r = 0; r < n; r++) {
        json_t *runs = json_array();
        bool is_root = r == (uint32_t)c->root;
        bool whole = c->coll == TRI_COLL_ALL_REDUCE;
        whole |= c->coll == (after ? TRI_COLL_ALL_GATHER : TRI_COLL_REDUCE_SCATTER);
        whole |= c->coll == TRI_COLL_BROADCAST && (after || is_root);
        whole |= c->coll == TRI_COLL_REDUCE && (!after || is_root);
        whole |= c->coll == (after ? TRI_COLL_GATHER : TRI_COLL_SCATTER) && is_root;
        bool block = c->coll == (after ? TRI_COLL_REDUCE_SCATTER : TRI_COLL_ALL_GATHER) ||
                     c->coll == (after ? TRI_COLL_SCATTER : TRI_COLL_GATHER);
        if (whole && all > 0)
            put_run(runs, 0, all);
        else if (block)
            put_run(runs, r, 1);
        else if (c->coll == TRI_COLL_ALL_TO_ALL && !after)
            put_run(runs, r * n, n);
        for (uint32_t i = 0; i < n && c->coll == TRI_COLL_ALL_TO_ALL && after; i++)
            put_run(runs, i * n + r, 1);
        json_array_append_new(list, runs);
    }
}

static double whole_bytes(const collective_case *c)
{
    return c->bytes * (c->coll == TRI_COLL_ALL_TO_ALL ? c->shape.size : 1);
}

static void put_rounds(json_t *doc, const collective_case *c, const tri_round_time *times)
{
    const tri_rounds *rounds = &c->rounds;
    json_t *list = tri_doc_list(doc, "rounds");
    for (size_t round = 0; round < rounds->num_rounds; round++) {
        json_t *item = tri_doc_item(list);
        tri_doc_number(item, "begin_seconds", times[round].begin);
        tri_doc_number(item, "end_seconds", times[round].end);
        json_t *transfers = tri_doc_list(item, "transfers");
        for (size_t i = rounds->first[round]; i < rounds->first[round + 1]; i++) {
            const tri_transfer *t = &rounds->transfers[i];
            json_array_append_new(transfers,
                                  json_pack("[iiiib]", t->from, t->to, (int)t->first_piece,
                                            (int)t->num_pieces, t->combine));
        }
    }
}

static void put_case(json_t *doc, const collective_case *c, const tri_round_time *times,
                     double seconds)
{
    uint32_t pieces = c->rounds.num_pieces;
    bool sums = c->coll == TRI_COLL_REDUCE || c->coll == TRI_COLL_ALL_REDUCE ||
                c->coll == TRI_COLL_REDUCE_SCATTER;
    tri_coll_cost cost = c->algorithm->cost(c->coll, &c->shape, whole_bytes(c));
    tri_doc_text(doc, "operation", tri_coll_name(c->coll));
    tri_doc_text(doc, "algorithm", c->algorithm->name);
    tri_doc_text(doc, "help", c->algorithm->help);
    tri_doc_count(doc, "num_ranks", c->shape.size);
    tri_doc_count(doc, "root", c->root);
    tri_doc_count(doc, "pieces", pieces);
    tri_doc_number(doc, "bytes", c->bytes);
    tri_doc_number(doc, "piece_bytes", pieces > 0 ? whole_bytes(c) / pieces : 0);
    tri_doc_number(doc, "alpha_seconds", c->prices.alpha);
    tri_doc_number(doc, "bytes_per_second", 1 / c->prices.beta);
    tri_doc_number(doc, "seconds", seconds);
    tri_doc_number(doc, "formula_messages", cost.alpha_count);
    tri_doc_number(doc, "formula_bytes", cost.beta_bytes);
    tri_doc_number(doc, "formula_seconds",
                   cost.alpha_count * c->prices.alpha + cost.beta_bytes * c->prices.beta);
    tri_doc_flag(doc, "sums", sums);
    tri_doc_flag(doc, "reads", c->algorithm->needs_shared_memory);
    put_pieces(doc, c, false);
    put_pieces(doc, c, true);
    put_rounds(doc, c, times);
}

tr_status tri_view_collective(tri_view *view, const tri_http_target *query, json_t *doc,
                              tr_error *err)
{
    (void)view;
    collective_case c = {0};
    TRI_TRY(read_case(query, &c, err));
    tri_round_time *times = calloc(c.rounds.num_rounds + 1, sizeof *times);
    double seconds =
        times ? tri_rounds_walk(&c.rounds, c.shape.size, whole_bytes(&c),
                                c.algorithm->needs_shared_memory, &c.prices, NULL, 0, times)
              : -1;
    if (seconds >= 0)
        put_case(doc, &c, times, seconds);
    free(times);
    tri_rounds_free(&c.rounds);
    return seconds >= 0 ? TR_OK
                        : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the rounds' times");
}
