/* Lists of transfers become rounds here; and what can be said of any rounds: the elements of a
 * piece, the traffic of a rank. The names of operations and reductions stand here as well. */
#include "collective/rounds.h"

#include <stdlib.h>
#include <string.h>

static const char *const coll_names[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = "barrier",       [TRI_COLL_BROADCAST] = "broadcast",
    [TRI_COLL_REDUCE] = "reduce",         [TRI_COLL_ALL_REDUCE] = "all_reduce",
    [TRI_COLL_GATHER] = "gather",         [TRI_COLL_SCATTER] = "scatter",
    [TRI_COLL_ALL_GATHER] = "all_gather", [TRI_COLL_REDUCE_SCATTER] = "reduce_scatter",
    [TRI_COLL_ALL_TO_ALL] = "all_to_all",
};

static const char *const reduction_names[TRI_NUM_REDUCTIONS] = {
    [TRI_REDUCE_SUM] = "sum", [TRI_REDUCE_MEAN] = "mean", [TRI_REDUCE_MIN] = "min",
    [TRI_REDUCE_MAX] = "max", [TRI_REDUCE_PROD] = "prod",
};

const char *tri_coll_name(tri_coll coll)
{
    return (unsigned)coll < TRI_NUM_COLLS ? coll_names[coll] : "unknown";
}

const char *tri_reduction_name(tri_reduction reduction)
{
    return (unsigned)reduction < TRI_NUM_REDUCTIONS ? reduction_names[reduction] : "unknown";
}

static int find_name(const char *const *names, int num_names, const char *name)
{
    for (int i = 0; i < num_names; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

bool tri_coll_parse(const char *name, tri_coll *coll)
{
    int i = find_name(coll_names, TRI_NUM_COLLS, name);
    if (i >= 0)
        *coll = (tri_coll)i;
    return i >= 0;
}

static void add_item(tri_rounds_list *list, tri_rounds_item item)
{
    if (list->num_items == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 64;
        tri_rounds_item *items = realloc(list->items, capacity * sizeof *items);
        if (!items) {
            list->no_memory = true;
            return;
        }
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->num_items++] = item;
}

void tri_rounds_add(tri_rounds_list *list, size_t round, int from, int to, uint32_t first_piece,
                    uint32_t num_pieces, bool combine)
{
    const tri_rounds_view *v = &list->view;
    tri_rounds_item item = {
        .round = v->first_round + round,
        .transfer = {.from = v->first_rank + from * v->rank_step,
                     .to = v->first_rank + to * v->rank_step,
                     .first_piece = num_pieces ? v->first_piece + first_piece * v->piece_step : 0,
                     .num_pieces = num_pieces * v->piece_scale,
                     .combine = combine},
    };
    if (item.round >= list->next_round)
        list->next_round = item.round + 1;
    if (num_pieces == 0 || v->piece_step == v->piece_scale) {
        add_item(list, item);
        return;
    }
    item.transfer.num_pieces = v->piece_scale; /* not neighbours any more */
    for (uint32_t i = 0; i < num_pieces; i++) {
        add_item(list, item);
        item.transfer.first_piece += v->piece_step;
    }
}

void tri_rounds_embed(tri_rounds_list *list, const tri_rounds_view *view, tri_rounds_emit emit,
                      int size, int root)
{
    tri_rounds_view outer = list->view;
    uint32_t num_pieces = list->num_pieces;
    list->view = *view;
    emit(list, size, root);
    list->view = outer;
    list->num_pieces = num_pieces;
}

/* By round, then as the header promises; the piece last, so that the order is one only. */
static int compare_items(const void *a, const void *b)
{
    const tri_rounds_item *x = a, *y = b;
    if (x->round != y->round)
        return x->round < y->round ? -1 : 1;
    if (x->transfer.from != y->transfer.from)
        return x->transfer.from < y->transfer.from ? -1 : 1;
    if (x->transfer.to != y->transfer.to)
        return x->transfer.to < y->transfer.to ? -1 : 1;
    return (x->transfer.first_piece > y->transfer.first_piece) -
           (x->transfer.first_piece < y->transfer.first_piece);
}

/* Runs of pieces of one message that touch become one. */
static void join_runs(tri_rounds_list *list)
{
    size_t num = 0;
    for (size_t i = 0; i < list->num_items; i++) {
        const tri_rounds_item *item = &list->items[i];
        tri_rounds_item *last = num ? &list->items[num - 1] : NULL;
        if (last && last->round == item->round && last->transfer.from == item->transfer.from &&
            last->transfer.to == item->transfer.to &&
            last->transfer.combine == item->transfer.combine && item->transfer.num_pieces > 0 &&
            last->transfer.first_piece + last->transfer.num_pieces == item->transfer.first_piece)
            last->transfer.num_pieces += item->transfer.num_pieces;
        else
            list->items[num++] = *item;
    }
    list->num_items = num;
}

static tr_status fill_rounds(tri_rounds_list *list, tri_rounds *rounds, tr_error *err)
{
    if (list->num_items > 0)
        qsort(list->items, list->num_items, sizeof *list->items, compare_items);
    join_runs(list);
    size_t num = list->num_items;
    rounds->num_pieces = list->num_pieces;
    for (size_t i = 0; i < num; i++)
        rounds->num_rounds += i == 0 || list->items[i].round != list->items[i - 1].round;
    rounds->first = malloc((rounds->num_rounds + 1) * sizeof *rounds->first);
    rounds->transfers = malloc((num + 1) * sizeof *rounds->transfers); /* + 1: never malloc(0) */
    if (list->no_memory || !rounds->first || !rounds->transfers) {
        tri_rounds_free(rounds);
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "no memory for the %zu transfers of a collective operation", num);
    }
    size_t round = 0;
    for (size_t i = 0; i < num; i++) {
        if (i == 0 || list->items[i].round != list->items[i - 1].round)
            rounds->first[round++] = i;
        rounds->transfers[i] = list->items[i].transfer;
    }
    rounds->first[round] = num;
    return TR_OK;
}

static bool has_relays(const tri_rounds *rounds, uint32_t size)
{
    for (size_t i = 0; i < rounds->first[rounds->num_rounds]; i++) {
        const tri_transfer *t = &rounds->transfers[i];
        if (t->num_pieces != 1 || t->first_piece != (uint32_t)t->from * size + (uint32_t)t->to)
            return true;
    }
    return false;
}

bool tri_algorithm_supports(const tri_algorithm *algorithm, tri_coll coll,
                            const tri_coll_shape *shape)
{
    return (unsigned)coll < TRI_NUM_COLLS && shape->size >= 1 && algorithm->emit[coll] &&
           (!algorithm->fits || algorithm->fits(shape));
}

tr_status tri_algorithm_refuse(const tri_algorithm *algorithm, tri_coll coll,
                               const tri_coll_shape *shape, tr_error *err)
{
    if ((unsigned)coll >= TRI_NUM_COLLS || !algorithm->emit[coll])
        return tri_fail(err, TR_ERROR_INPUT, "the algorithm %s has no %s; choose another",
                        algorithm->name, tri_coll_name(coll));
    for (int away = 1; away < 64; away++)
        for (int side = -1; side <= 1; side += 2) {
            tri_coll_shape other = tri_shape_flat(shape->size + side * away);
            if (other.size > 1 && tri_algorithm_supports(algorithm, coll, &other))
                return tri_fail(err, TR_ERROR_INPUT,
                                "the algorithm %s has no %s for %d ranks; the nearest number it "
                                "works for is %d",
                                algorithm->name, tri_coll_name(coll), shape->size, other.size);
        }
    return tri_fail(err, TR_ERROR_INPUT, "the algorithm %s has no %s for %d ranks", algorithm->name,
                    tri_coll_name(coll), shape->size);
}

tr_status tri_algorithm_rounds(const tri_algorithm *algorithm, tri_coll coll,
                               const tri_coll_shape *shape, int root, tri_rounds *rounds,
                               tr_error *err)
{
    int size = shape->size;
    *rounds = (tri_rounds){0};
    /* Pieces of an all_to_all are counted by 32 bits: 65535 ranks. */
    if (size < 1 || size > 65535 || root < 0 || root >= size)
        return tri_fail(err, TR_ERROR_INPUT, "%s over %d ranks with root %d is not possible",
                        tri_coll_name(coll), size, root);
    if (!tri_algorithm_supports(algorithm, coll, shape))
        return tri_algorithm_refuse(algorithm, coll, shape, err);
    tri_rounds_list list = {.shape = shape,
                            .view = {.rank_step = 1, .piece_step = 1, .piece_scale = 1}};
    algorithm->emit[coll](&list, size, root);
    tr_status status = fill_rounds(&list, rounds, err);
    free(list.items);
    if (status == TR_OK && coll == TRI_COLL_ALL_TO_ALL)
        rounds->relays = has_relays(rounds, (uint32_t)size);
    return status;
}

void tri_rounds_free(tri_rounds *rounds)
{
    free(rounds->first);
    free(rounds->transfers);
    *rounds = (tri_rounds){0};
}

void tri_piece_range(uint64_t count, uint32_t num_pieces, uint32_t piece, uint64_t *first,
                     uint64_t *num)
{
    uint64_t least = count / num_pieces, longer = count % num_pieces;
    *first = piece * least + (piece < longer ? piece : longer);
    *num = least + (piece < longer);
}

static uint64_t transfer_bytes(const tri_rounds *rounds, const tri_transfer *transfer,
                               uint64_t bytes)
{
    if (transfer->num_pieces == 0)
        return 0;
    uint64_t begin, last, num;
    tri_piece_range(bytes, rounds->num_pieces, transfer->first_piece, &begin, &num);
    tri_piece_range(bytes, rounds->num_pieces, transfer->first_piece + transfer->num_pieces - 1,
                    &last, &num);
    return last + num - begin;
}

tri_coll_traffic tri_rounds_traffic(const tri_rounds *rounds, int rank, uint64_t bytes)
{
    tri_coll_traffic traffic = {0};
    for (size_t round = 0; round < rounds->num_rounds; round++) {
        bool busy = false;
        for (size_t i = rounds->first[round]; i < rounds->first[round + 1]; i++) {
            const tri_transfer *transfer = &rounds->transfers[i];
            /* Several runs of pieces between two ranks are one message. */
            bool same = i > rounds->first[round] && transfer[-1].from == transfer->from &&
                        transfer[-1].to == transfer->to;
            if (transfer->from == rank) {
                traffic.messages_sent += !same;
                traffic.bytes_sent += transfer_bytes(rounds, transfer, bytes);
            }
            if (transfer->to == rank) {
                traffic.messages_received += !same;
                traffic.bytes_received += transfer_bytes(rounds, transfer, bytes);
            }
            busy |= transfer->from == rank || transfer->to == rank;
        }
        traffic.rounds += busy;
    }
    return traffic;
}
