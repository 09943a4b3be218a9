/* Which bytes of a collective go where: the same answer for every path through shared memory. */
#ifndef TRI_COMM_LAYOUT_H
#define TRI_COMM_LAYOUT_H

#include "comm/comm_internal.h"

/* A run of elements that moves as one: from one member (or combined from all) to one (or all). */
typedef struct tri_coll_piece {
    int source, target;               /* members; -1: all of them */
    int index;                        /* among the pieces that the source provides */
    uint64_t send_at, recv_at, count; /* elements */
} tri_coll_piece;

typedef struct tri_coll_layout {
    const tr_group *group;
    const tr_collective *call;
    bool cut; /* vectors are cut into a piece per member, to share the work */
} tri_coll_layout;

bool tri_coll_reduces(tr_operation operation);
bool tri_coll_rooted(tr_operation operation);
/* Elements of this member's send and recv; 0 where it has none. */
uint64_t tri_send_elements(const tr_group *group, const tr_collective *call);
uint64_t tri_recv_elements(const tr_group *group, const tr_collective *call);
/* The list of block sizes that all members pass, or NULL when blocks are equal. */
const uint64_t *tri_block_counts(const tr_collective *call);
uint64_t tri_block_first(const uint64_t *counts, uint64_t count, int block);
/* Where a block of an all_to_all begins, in rooms or one after the other; block `size` is the end
 * of all. */
uint64_t tri_exchange_first(const tr_collective *call, const uint64_t *counts, int block);
/* Elements from the beginning of this member's send, or recv, to its end, gaps included. */
uint64_t tri_send_span(const tr_group *group, const tr_collective *call);
uint64_t tri_recv_span(const tr_group *group, const tr_collective *call);

int tri_coll_layout_pieces(const tri_coll_layout *layout);
tri_coll_piece tri_coll_layout_piece(const tri_coll_layout *layout, int i);
/* How many pieces one source provides at most: slots are divided by it. */
int tri_coll_layout_fan(const tr_group *group, tr_operation operation);
/* The pieces that a member may send, or receive, are first, first + step ... before end. Without
 * this an all_to_all would look at all size^2 to find its own. */
typedef struct tri_coll_piece_list {
    int first, end, step;
} tri_coll_piece_list;
tri_coll_piece_list tri_coll_layout_own(const tri_coll_layout *layout, bool sends);
/* Who works on a piece first. */
int tri_coll_layout_home(const tri_coll_layout *layout, int i);

#endif
