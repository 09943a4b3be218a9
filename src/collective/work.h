/* What a call costs on one machine, where ranks share cores, caches and memory.
 *
 * The formulas of the algorithms (tri_algorithm.cost) count messages and bytes along the critical
 * path, as if every rank had a processor and links of its own. Here the same rounds are counted as
 * work: who copies, moves and combines how many bytes in each round. A round takes as long as its
 * busiest rank, and no less than all of its work shared out over the cores.
 *
 * What a byte costs depends on where it lies, so prices are curves over the footprint: the bytes of
 * all vectors that the call touches. */
#ifndef TRI_COLLECTIVE_WORK_H
#define TRI_COLLECTIVE_WORK_H

#include "collective/collective.h"

typedef enum tri_work_kind {
    TRI_WORK_COPY,    /* within a rank: its own part into the vector, the result */
    TRI_WORK_PACK,    /* the same in pieces: messages packed and unpacked */
    TRI_WORK_MOVE,    /* a message received in place of what was there */
    TRI_WORK_PULL,    /* the same straight out of an operand, which the call has not written:
                         all_to_all */
    TRI_WORK_COMBINE, /* a message combined with what was there */
    TRI_WORK_READ,    /* direct: out of somebody's vector */
    TRI_WORK_TERM,    /* direct: the same, and combined */
    TRI_WORK_WRITE,   /* direct: into somebody's vector */
    TRI_NUM_WORK
} tri_work_kind;

enum { TRI_WORK_POINTS = 5 };

typedef struct tri_work_prices {
    int num_points; /* 0: not measured */
    int num_cores;  /* that the ranks have together */
    double call;    /* seconds: the ranks of a call find each other */
    double message; /* each further message of a rank in a round */
    /* A message that does not fit into one packet costs its receiver so much more. 0: it has none.
     */
    double packet_bytes, cut;
    /* The part of a move that the sender does. 0: memory is shared, receivers pull. */
    double sender;
    double footprint[TRI_WORK_POINTS];           /* bytes, ascending */
    double round[TRI_WORK_POINTS];               /* seconds: a round, apart from its work */
    double all[TRI_NUM_WORK][TRI_WORK_POINTS];   /* seconds a byte, every core at work */
    double alone[TRI_NUM_WORK][TRI_WORK_POINTS]; /* the same with one at work; not of direct */
} tri_work_prices;

/* Seconds a byte of a kind; share: of the cores that are at work. */
double tri_work_price(const tri_work_prices *prices, tri_work_kind kind, double footprint,
                      double share);

/* Seconds of a round, apart from its work. */
double tri_work_round(const tri_work_prices *prices, double footprint);

/* Bytes of all vectors that a call touches, what messages are packed in included; bytes as in
 * tri_algorithm.cost, out of place. */
double tri_work_footprint(const tri_algorithm *algorithm, tri_coll coll,
                          const tri_coll_shape *shape, double bytes);

/* Seconds of a call, from rank 0 where it has a root; negative when it cannot be told. */
double tri_work_time(const tri_work_prices *prices, const tri_algorithm *algorithm, tri_coll coll,
                     const tri_coll_shape *shape, double bytes);

#endif
