#include "comm/layout.h"

bool tri_coll_reduces(tr_operation operation)
{
    return operation == TR_REDUCE || operation == TR_ALL_REDUCE || operation == TR_REDUCE_SCATTER;
}

bool tri_coll_rooted(tr_operation operation)
{
    return operation == TR_BROADCAST || operation == TR_REDUCE || operation == TR_GATHER ||
           operation == TR_SCATTER;
}

const uint64_t *tri_block_counts(const tr_collective *call)
{
    switch (call->operation) {
    case TR_GATHER:
    case TR_ALL_GATHER:
        return call->recv_counts;
    case TR_SCATTER:
    case TR_REDUCE_SCATTER:
        return call->send_counts;
    default:
        return NULL;
    }
}

uint64_t tri_block_first(const uint64_t *counts, uint64_t count, int block)
{
    if (counts == NULL)
        return count * (uint64_t)block;
    uint64_t first = 0;
    for (int i = 0; i < block; i++)
        first += counts[i];
    return first;
}

uint64_t tri_exchange_first(const tr_collective *call, const uint64_t *counts, int block)
{
    return call->room ? call->room * (uint64_t)block : tri_block_first(counts, call->count, block);
}

uint64_t tri_send_span(const tr_group *group, const tr_collective *call)
{
    return call->room ? call->room * (uint64_t)group->size : tri_send_elements(group, call);
}

uint64_t tri_recv_span(const tr_group *group, const tr_collective *call)
{
    return call->room ? call->room * (uint64_t)group->size : tri_recv_elements(group, call);
}

static uint64_t own_block(const tr_group *group, const tr_collective *call)
{
    const uint64_t *counts = tri_block_counts(call);
    return counts ? counts[group->rank] : call->count;
}

uint64_t tri_send_elements(const tr_group *group, const tr_collective *call)
{
    bool root = group->rank == call->root;
    switch (call->operation) {
    case TR_BROADCAST:
        return root ? call->count : 0;
    case TR_REDUCE:
    case TR_ALL_REDUCE:
        return call->count;
    case TR_GATHER:
    case TR_ALL_GATHER:
        return own_block(group, call);
    case TR_SCATTER:
        return root ? tri_block_first(call->send_counts, call->count, group->size) : 0;
    case TR_REDUCE_SCATTER:
    case TR_ALL_TO_ALL:
        return tri_block_first(call->send_counts, call->count, group->size);
    default:
        return 0;
    }
}

uint64_t tri_recv_elements(const tr_group *group, const tr_collective *call)
{
    bool root = group->rank == call->root;
    switch (call->operation) {
    case TR_BROADCAST:
    case TR_ALL_REDUCE:
        return call->count;
    case TR_REDUCE:
        return root ? call->count : 0;
    case TR_SCATTER:
    case TR_REDUCE_SCATTER:
        return own_block(group, call);
    case TR_GATHER:
        return root ? tri_block_first(call->recv_counts, call->count, group->size) : 0;
    case TR_ALL_GATHER:
    case TR_ALL_TO_ALL:
        return tri_block_first(call->recv_counts, call->count, group->size);
    default:
        return 0;
    }
}

static bool whole_vector(tr_operation operation)
{
    return operation == TR_BROADCAST || operation == TR_REDUCE || operation == TR_ALL_REDUCE;
}

int tri_coll_layout_pieces(const tri_coll_layout *layout)
{
    tr_operation operation = layout->call->operation;
    int size = layout->group->size;
    if (operation == TR_BARRIER)
        return 0;
    if (operation == TR_ALL_TO_ALL)
        return size * size;
    return whole_vector(operation) && !layout->cut ? 1 : size;
}

tri_coll_piece_list tri_coll_layout_own(const tri_coll_layout *layout, bool sends)
{
    int size = layout->group->size, rank = layout->group->rank;
    if (layout->call->operation != TR_ALL_TO_ALL)
        return (tri_coll_piece_list){0, tri_coll_layout_pieces(layout), 1};
    if (sends)
        return (tri_coll_piece_list){rank * size, (rank + 1) * size, 1};
    return (tri_coll_piece_list){rank, size * size, size};
}

int tri_coll_layout_fan(const tr_group *group, tr_operation operation)
{
    bool one_each =
        operation == TR_SCATTER || operation == TR_REDUCE_SCATTER || operation == TR_ALL_TO_ALL;
    return one_each ? group->size : 1;
}

int tri_coll_layout_home(const tri_coll_layout *layout, int i)
{
    return i % layout->group->size;
}

/* Piece from * size + to: where it begins follows from what both members have published. */
static tri_coll_piece exchange_piece(const tri_coll_layout *layout, int i)
{
    const tr_group *group = layout->group;
    const tr_collective *call = layout->call;
    int from = i / group->size, to = i % group->size;
    const uint64_t *send = NULL, *recv = NULL;
    if (call->send_counts != NULL) {
        send = tri_cell_counts(group, from, false);
        recv = tri_cell_counts(group, to, true);
    }
    return (tri_coll_piece){
        .source = from,
        .target = to,
        .index = to,
        .send_at = tri_exchange_first(call, send, to),
        .recv_at = tri_exchange_first(call, recv, from),
        .count = send ? send[to] : call->count,
    };
}

tri_coll_piece tri_coll_layout_piece(const tri_coll_layout *layout, int i)
{
    const tr_group *group = layout->group;
    const tr_collective *call = layout->call;
    if (call->operation == TR_ALL_TO_ALL)
        return exchange_piece(layout, i);
    tri_coll_piece piece = {.source = -1, .target = -1};
    if (whole_vector(call->operation)) {
        piece.count = call->count;
        if (layout->cut)
            tri_piece_range(call->count, (uint32_t)group->size, (uint32_t)i, &piece.send_at,
                            &piece.count);
        piece.recv_at = piece.send_at;
        if (call->operation == TR_BROADCAST)
            piece.source = call->root;
        if (call->operation == TR_REDUCE)
            piece.target = call->root;
        return piece;
    }
    const uint64_t *counts = tri_block_counts(call);
    uint64_t first = tri_block_first(counts, call->count, i);
    piece.count = counts ? counts[i] : call->count;
    if (call->operation == TR_GATHER || call->operation == TR_ALL_GATHER) {
        piece.source = i;
        piece.recv_at = first;
        piece.target = call->operation == TR_GATHER ? call->root : -1;
    } else { /* scatter, reduce_scatter */
        piece.target = i;
        piece.index = i;
        piece.send_at = first;
        piece.source = call->operation == TR_SCATTER ? call->root : -1;
    }
    return piece;
}
