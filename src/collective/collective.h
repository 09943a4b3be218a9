/* Collective algorithms as data: rounds of transfers, and what they cost. No I/O here: transports
 * run the rounds, the simulator times them, the tests count them.
 *
 * Every operation works on a vector that all ranks of a group hold, cut into pieces; a transfer
 * moves a run of consecutive pieces from one rank's vector to the same place in another's, where it
 * replaces what is there or is combined with it.
 *
 *   operation        pieces                          before                    after
 *   broadcast        chosen by the algorithm         root has the vector       all have it
 *   reduce           chosen by the algorithm         each has a term           root has the result
 *   all_reduce       chosen by the algorithm         each has a term           all have the result
 *   gather           one block per rank              rank r has block r        root has all
 *   scatter          one block per rank              root has all              rank r has block r
 *   all_gather       one block per rank              rank r has block r        all have all
 *   reduce_scatter   one block per rank              each has a term           rank r has block r
 *   all_to_all       size^2: (from, to)              rank i has (i, *)         rank j has (*, j)
 *   barrier          none                            -                         nobody left before
 *                                                                              all came
 *
 * What a rank's vector holds elsewhere afterwards is not defined (reduce_scatter may leave partial
 * sums). Blocks of ranks may differ in size; pieces that an algorithm chooses are balanced: the
 * first n mod k get one element more. In all_to_all piece from*size+to lies in the sender's send
 * vector at block `to` and in the receiver's receive vector at block `from`; a rank on its way that
 * is neither keeps it aside (`relays`).
 *
 * All transfers of a round from one rank to another are one message. */
#ifndef TRI_COLLECTIVE_COLLECTIVE_H
#define TRI_COLLECTIVE_COLLECTIVE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tri_coll {
    TRI_COLL_BARRIER,
    TRI_COLL_BROADCAST,
    TRI_COLL_REDUCE,
    TRI_COLL_ALL_REDUCE,
    TRI_COLL_GATHER,
    TRI_COLL_SCATTER,
    TRI_COLL_ALL_GATHER,
    TRI_COLL_REDUCE_SCATTER,
    TRI_COLL_ALL_TO_ALL,
    TRI_NUM_COLLS
} tri_coll;

typedef enum tri_reduction {
    TRI_REDUCE_SUM,
    TRI_REDUCE_MEAN,
    TRI_REDUCE_MIN,
    TRI_REDUCE_MAX,
    TRI_REDUCE_PROD,
    TRI_NUM_REDUCTIONS
} tri_reduction;

/* Ranks are numbered within the group: 0 .. size-1. */
typedef struct tri_transfer {
    int from, to;
    uint32_t first_piece, num_pieces;
    bool combine; /* with what `to` has, by the operation's reduction; otherwise replace it */
} tri_transfer;

/* Transfers of one round do not depend on each other: all read what was there before the round. A
 * round begins, for each rank, when the transfers of the round before that touch the rank are done.
 */
typedef struct tri_rounds {
    uint32_t num_pieces;
    size_t num_rounds;
    size_t *first;           /* [num_rounds + 1]: where each round's transfers begin */
    tri_transfer *transfers; /* sorted by round, then by from, then by to, then by piece */
    bool relays; /* an all_to_all in which pieces pass through ranks that they are not for */
} tri_rounds;

/* How the ranks of a group lie: rank = c0 + dim[0] * (c1 + dim[1] * c2). The innermost dim has the
 * fastest links (ranks of one machine), the last the slowest. Without dims an algorithm that needs
 * some chooses them itself. */
enum { TRI_COLL_MAX_DIMS = 3 };
typedef struct tri_coll_shape {
    int size;
    int num_dims; /* 0: not given */
    int dim[TRI_COLL_MAX_DIMS];
} tri_coll_shape;

/* Time of one call of n bytes by the formula: alpha_count * alpha + beta_bytes * beta +
 * gamma_bytes * gamma (latency of a message, seconds per byte moved, per byte combined), along the
 * critical path. outer_*: how much of the first two lies on the links of the last dim, for
 * algorithms that have dims. */
typedef struct tri_coll_cost {
    double alpha_count, beta_bytes, gamma_bytes;
    double outer_alpha_count, outer_beta_bytes;
} tri_coll_cost;

struct tri_rounds_list;
/* Adds the transfers of an operation to a list; see rounds.h. */
typedef void (*tri_rounds_emit)(struct tri_rounds_list *list, int size, int root);

typedef struct tri_algorithm {
    const char *name;
    const char *help; /* when it wins */
    /* Every rank can read every other's memory; no rounds of messages: the transport does it. */
    bool needs_shared_memory;
    bool
        relays; /* in an all_to_all, blocks pass through ranks they are not for: of one size only */
    const tri_rounds_emit *emit;               /* [TRI_NUM_COLLS]; NULL: it has no such operation */
    bool (*fits)(const tri_coll_shape *shape); /* NULL: any number of ranks */
    /* bytes: of the whole vector (all blocks). */
    tri_coll_cost (*cost)(tri_coll coll, const tri_coll_shape *shape, double bytes);
} tri_algorithm;

extern const tri_algorithm tri_algorithm_direct, tri_algorithm_ring, tri_algorithm_tree,
    tri_algorithm_doubling, tri_algorithm_rabenseifner, tri_algorithm_double_tree,
    tri_algorithm_bruck, tri_algorithm_pairwise, tri_algorithm_hierarchical, tri_algorithm_torus2d,
    tri_algorithm_torus3d, tri_algorithm_mesh2d, tri_algorithm_sharded_ps;

const tri_algorithm *tri_algorithm_find(const char *name); /* or NULL */
const tri_algorithm *tri_algorithm_at(size_t i);           /* or NULL past the end */
int tri_algorithm_number(const tri_algorithm *algorithm);  /* its i above; 255: not in the table */
/* "torus2d", "torus2d:8x4", "hierarchical:8x4": a name and perhaps dims, whose product must be
 * shape->size; without them the shape stays as it is. */
tr_status tri_algorithm_parse(const char *text, const tri_algorithm **algorithm,
                              tri_coll_shape *shape, tr_error *err);

bool tri_algorithm_supports(const tri_algorithm *algorithm, tri_coll coll,
                            const tri_coll_shape *shape);
/* A call that is not supported is refused with the nearest number of ranks that is. */
tr_status tri_algorithm_refuse(const tri_algorithm *algorithm, tri_coll coll,
                               const tri_coll_shape *shape, tr_error *err);
tr_status tri_algorithm_rounds(const tri_algorithm *algorithm, tri_coll coll,
                               const tri_coll_shape *shape, int root, tri_rounds *rounds,
                               tr_error *err);

static inline tri_coll_shape tri_shape_flat(int size)
{
    return (tri_coll_shape){.size = size};
}

void tri_rounds_free(tri_rounds *rounds);
/* Which elements a balanced piece covers. */
void tri_piece_range(uint64_t count, uint32_t num_pieces, uint32_t piece, uint64_t *first,
                     uint64_t *num);

/* What one rank sends and receives when the vector has so many bytes in balanced pieces. */
typedef struct tri_coll_traffic {
    uint64_t messages_sent, bytes_sent, messages_received, bytes_received, rounds;
} tri_coll_traffic;
tri_coll_traffic tri_rounds_traffic(const tri_rounds *rounds, int rank, uint64_t bytes);

/* What a message costs: seconds, seconds per byte moved, seconds per byte combined. */
typedef struct tri_coll_prices {
    double alpha, beta, gamma;
} tri_coll_prices;

/* Walks through the rounds: when the last rank is done. In a round a rank pays one alpha for each
 * message (those it sends and those it receives overlap), the larger of the bytes it sends and
 * receives, and what it combines; it begins when it and those
 * it meets in the round are ready. shared: transfers are reads, paid by the reader alone. far:
 * prices of messages between machines, each of which has per_machine consecutive ranks that share
 * its link; NULL: all links are alike. Negative when there is no memory for it. */
double tri_rounds_time(const tri_rounds *rounds, int size, double bytes, bool shared,
                       const tri_coll_prices *near, const tri_coll_prices *far, int per_machine);

/* Seconds: when the first rank begins a round, and the last one ends it. Rounds of ranks that do
 * not wait for each other may overlap. */
typedef struct tri_round_time {
    double begin, end;
} tri_round_time;
/* The same, and of every round when it was: [num_rounds], or NULL. */
double tri_rounds_walk(const tri_rounds *rounds, int size, double bytes, bool shared,
                       const tri_coll_prices *near, const tri_coll_prices *far, int per_machine,
                       tri_round_time *times);

const char *tri_coll_name(tri_coll coll);                /* "all_reduce" */
const char *tri_reduction_name(tri_reduction reduction); /* "sum" */
bool tri_coll_parse(const char *name, tri_coll *coll);

#endif
