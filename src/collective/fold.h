/* What doubling.c and rabenseifner.c share: a number of ranks that is no power of two is folded to
 * one that is. The first `pairs` pairs of neighbours are one rank each, played by the even one. */
#ifndef TRI_COLLECTIVE_FOLD_H
#define TRI_COLLECTIVE_FOLD_H

#include "collective/rounds.h"

typedef struct tri_fold {
    int size, num, levels, pairs; /* num = 2^levels ranks remain of size = num + pairs */
} tri_fold;

static inline tri_fold tri_fold_of(int size)
{
    int levels = tri_log2_floor(size);
    return (tri_fold){size, 1 << levels, levels, size - (1 << levels)};
}

/* Who plays rank i of those that remain, and the first of the blocks that belong to it; i may be
 * num, which is the end. */
static inline int tri_fold_rank(const tri_fold *f, int i)
{
    return i < f->pairs ? 2 * i : i + f->pairs;
}

/* Blocks of the ranks begin .. begin + num - 1 of those that remain. */
static inline uint32_t tri_fold_blocks(const tri_fold *f, int begin, int num)
{
    return (uint32_t)(tri_fold_rank(f, begin + num) - tri_fold_rank(f, begin));
}

/* The odd ones give their whole vector, which is combined. */
void tri_fold_in(tri_rounds_list *list, const tri_fold *f, size_t round, uint32_t num_pieces);
/* Recursive doubling of blocks among those that remain: first the neighbour, then two away, ... Or
 * one piece each, when pieces are not blocks. */
void tri_fold_gather(tri_rounds_list *list, const tri_fold *f, size_t first_round, bool blocks);
/* Recursive halving, the same backwards: first the rank half of all away. */
void tri_fold_scatter(tri_rounds_list *list, const tri_fold *f, size_t first_round, bool blocks);

/* Bytes along the critical path, which is that of rank 0: it has the most blocks. Of an all_gather
 * with its folding; and of one pass of halving or doubling. */
double tri_fold_gather_bytes(const tri_fold *f, double bytes);
double tri_fold_pass_bytes(const tri_fold *f, double bytes);

#endif
