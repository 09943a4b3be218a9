/* Calls through the slots, chunk by chunk: every member copies its part of the chunk into its slot,
 * all meet at a tick, and every member takes what it needs straight from the others' slots. Small
 * calls are a single chunk. One extra copy per member, one tick per chunk.
 *
 * In an all_reduce of several members everybody would combine everything, so larger chunks are done
 * in two steps: each member combines its share and publishes that at a second tick. Each tick has
 * its own slot (tick % 2), so the rule of comm_internal.h holds for both steps. */
#include "comm/layout.h"
#include "comm/reduce.h"

#include <string.h>

#define HOT_BYTES   8192
#define SHARE_BYTES 16384 /* from here on, sharing the work out is worth a second tick */

/* Elements of each piece that go into one chunk. */
static uint64_t chunk_elements(const tr_group *group, const tr_collective *call)
{
    uint64_t fan = (uint64_t)tri_coll_layout_fan(group, call->operation);
    uint64_t n = TRI_SLOT_BYTES / fan / tri_dtype_bytes((tri_dtype)call->dtype);
    return n > 64 ? n / 64 * 64 : n;
}

static uint64_t longest_piece(const tri_coll_layout *layout)
{
    uint64_t longest = 0;
    int num = tri_coll_layout_pieces(layout);
    if (layout->call->operation == TR_ALL_TO_ALL && layout->call->send_counts == NULL)
        return layout->call->count;
    for (int i = 0; i < num; i++) {
        tri_coll_piece piece = tri_coll_layout_piece(layout, i);
        longest = piece.count > longest ? piece.count : longest;
    }
    return longest;
}

uint64_t tri_staged_bytes(const tr_group *group, const tr_collective *call)
{
    tri_coll_layout layout = {group, call, false};
    return longest_piece(&layout) * (uint64_t)tri_coll_layout_fan(group, call->operation) *
           tri_dtype_bytes((tri_dtype)call->dtype);
}

/* The part of a piece that chunk k holds; false when there is none. */
static bool part(const tri_coll_piece *piece, uint64_t k, uint64_t elements, uint64_t *first,
                 uint64_t *n)
{
    *first = k * elements;
    if (*first >= piece->count)
        return false;
    *n = piece->count - *first < elements ? piece->count - *first : elements;
    return true;
}

void tri_staged_fill(tr_group *group, const tr_collective *call, uint64_t chunk, uint64_t tick)
{
    tri_coll_layout layout = {group, call, false};
    uint64_t element = tri_dtype_bytes((tri_dtype)call->dtype);
    uint64_t elements = chunk_elements(group, call), first, n;
    char *slot = tri_cell_slot(group, group->rank, tick % 2);
    tri_coll_piece_list own = tri_coll_layout_own(&layout, true);
    for (int i = own.first; i < own.end; i += own.step) {
        tri_coll_piece piece = tri_coll_layout_piece(&layout, i);
        bool mine = piece.source < 0 || piece.source == group->rank;
        bool stays = piece.source == group->rank && piece.target == group->rank;
        if (mine && !stays && part(&piece, chunk, elements, &first, &n))
            memcpy(slot + (uint64_t)piece.index * elements * element,
                   (const char *)call->send + (piece.send_at + first) * element, n * element);
    }
}

/* Combines n elements at byte `offset` of all slots, in rank order. to may be in no slot. */
static void combine_slots(tr_group *group, const tr_collective *call, unsigned parity,
                          uint64_t offset, uint64_t n, char *to)
{
    tri_dtype dtype = (tri_dtype)call->dtype;
    uint64_t element = tri_dtype_bytes(dtype), step = HOT_BYTES / element;
    for (uint64_t at = 0; at < n; at += step) {
        uint64_t some = n - at < step ? n - at : step;
        char *into = to + at * element;
        uint64_t from = offset + at * element;
        memcpy(into, tri_cell_slot(group, 0, parity) + from, some * element);
        for (int i = 1; i < group->size; i++)
            tri_combine(dtype, (tri_reduction)call->reduction, into,
                        tri_cell_slot(group, i, parity) + from, some);
        if (call->reduction == TR_MEAN)
            tri_divide(dtype, into, some, group->size);
    }
}

void tri_staged_drain(tr_group *group, const tr_collective *call, uint64_t chunk, uint64_t tick,
                      unsigned which)
{
    tri_coll_layout layout = {group, call, false};
    uint64_t element = tri_dtype_bytes((tri_dtype)call->dtype);
    uint64_t elements = chunk_elements(group, call), first, n;
    tri_coll_piece_list own = tri_coll_layout_own(&layout, false);
    for (int i = own.first; i < own.end; i += own.step) {
        tri_coll_piece piece = tri_coll_layout_piece(&layout, i);
        bool mine = piece.target < 0 || piece.target == group->rank;
        bool own = piece.source == group->rank;
        if (!mine || !(which & (own ? TRI_OWN_PIECES : TRI_OTHER_PIECES)) ||
            !part(&piece, chunk, elements, &first, &n))
            continue;
        char *to = (char *)call->recv + (piece.recv_at + first) * element;
        uint64_t offset = (uint64_t)piece.index * elements * element;
        if (piece.source < 0)
            combine_slots(group, call, tick % 2, offset, n, to);
        else if (own)
            memmove(to, (const char *)call->send + (piece.send_at + first) * element, n * element);
        else
            memcpy(to, tri_cell_slot(group, piece.source, tick % 2) + offset, n * element);
    }
}

/* The second half of a shared chunk: own share into the other slot, a tick, all shares out. */
static tr_status share(tr_group *group, const tr_collective *call, uint64_t chunk, tr_error *err)
{
    uint64_t element = tri_dtype_bytes((tri_dtype)call->dtype);
    uint64_t elements = chunk_elements(group, call), first = 0, n = 0, from, some;
    tri_coll_piece whole = {.count = call->count};
    part(&whole, chunk, elements, &first, &n);
    tri_piece_range(n, (uint32_t)group->size, (uint32_t)group->rank, &from, &some);
    unsigned in = group->tick % 2, out = in ^ 1;
    combine_slots(group, call, in, from * element, some,
                  tri_cell_slot(group, group->rank, out) + from * element);
    TRI_TRY(tri_tick(group, call, err));
    char *to = (char *)call->recv + first * element;
    for (int i = 0; i < group->size; i++) {
        tri_piece_range(n, (uint32_t)group->size, (uint32_t)i, &from, &some);
        memcpy(to + from * element, tri_cell_slot(group, i, out) + from * element, some * element);
    }
    return TR_OK;
}

tr_status tri_direct_staged(tr_group *group, const tr_collective *call, tr_error *err)
{
    tri_coll_layout layout = {group, call, false};
    uint64_t elements = chunk_elements(group, call);
    uint64_t longest = longest_piece(&layout);
    bool shared = call->operation == TR_ALL_REDUCE && group->size > 2 &&
                  call->count * tri_dtype_bytes((tri_dtype)call->dtype) >= SHARE_BYTES;
    for (uint64_t k = 0; k * elements < longest; k++) {
        tri_staged_fill(group, call, k, group->tick + 1);
        TRI_TRY(tri_tick(group, call, err));
        if (shared)
            TRI_TRY(share(group, call, k, err));
        else
            tri_staged_drain(group, call, k, group->tick, TRI_OWN_PIECES | TRI_OTHER_PIECES);
    }
    return TR_OK;
}
