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

bool tri_reduction_parse(const char *name, tri_reduction *reduction)
{
    int i = find_name(reduction_names, TRI_NUM_REDUCTIONS, name);
    if (i >= 0)
        *reduction = (tri_reduction)i;
    return i >= 0;
}

void tri_rounds_add(tri_rounds_list *list, size_t round, int from, int to, uint32_t first_piece,
                    uint32_t num_pieces, bool combine)
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
    list->items[list->num_items++] = (tri_rounds_item){
        .round = round,
        .transfer = {.from = from,
                     .to = to,
                     .first_piece = first_piece,
                     .num_pieces = num_pieces,
                     .combine = combine},
    };
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

static tr_status fill_rounds(tri_rounds_list *list, tri_rounds *rounds, tr_error *err)
{
    size_t num = list->num_items;
    if (num > 0)
        qsort(list->items, num, sizeof *list->items, compare_items);
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

tr_status tri_rounds_build(const char *algorithm, const tri_rounds_emit emit[TRI_NUM_COLLS],
                           tri_coll coll, int size, int root, tri_rounds *rounds, tr_error *err)
{
    *rounds = (tri_rounds){0};
    /* Pieces of an all_to_all are counted by 32 bits: 65535 ranks. */
    if (size < 1 || size > 65535 || root < 0 || root >= size)
        return tri_fail(err, TR_ERROR_INPUT, "%s over %d ranks with root %d is not possible",
                        tri_coll_name(coll), size, root);
    if ((unsigned)coll >= TRI_NUM_COLLS || !emit[coll])
        return tri_fail(err, TR_ERROR_INPUT, "the algorithm %s has no %s; choose another",
                        algorithm, tri_coll_name(coll));
    tri_rounds_list list = {0};
    emit[coll](&list, size, root);
    tr_status status = fill_rounds(&list, rounds, err);
    free(list.items);
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
            if (transfer->from == rank) {
                traffic.messages_sent++;
                traffic.bytes_sent += transfer_bytes(rounds, transfer, bytes);
            }
            if (transfer->to == rank) {
                traffic.messages_received++;
                traffic.bytes_received += transfer_bytes(rounds, transfer, bytes);
            }
            busy |= transfer->from == rank || transfer->to == rank;
        }
        traffic.rounds += busy;
    }
    return traffic;
}
