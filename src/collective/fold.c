#include "collective/fold.h"

void tri_fold_in(tri_rounds_list *list, const tri_fold *f, size_t round, uint32_t num_pieces)
{
    for (int i = 0; i < f->pairs; i++)
        tri_rounds_add(list, round, 2 * i + 1, 2 * i, 0, num_pieces, true);
}

/* The pieces of 2^level neighbours among which rank i is. */
static void run_of(const tri_fold *f, int i, int level, bool blocks, uint32_t *first, uint32_t *num)
{
    int begin = i >> level << level;
    *first = blocks ? (uint32_t)tri_fold_rank(f, begin) : (uint32_t)begin;
    *num = blocks ? tri_fold_blocks(f, begin, 1 << level) : 1u << level;
}

void tri_fold_gather(tri_rounds_list *list, const tri_fold *f, size_t first_round, bool blocks)
{
    uint32_t first, num;
    for (int k = 0; k < f->levels; k++)
        for (int i = 0; i < f->num; i++) {
            run_of(f, i, k, blocks, &first, &num);
            tri_rounds_add(list, first_round + (size_t)k, tri_fold_rank(f, i),
                           tri_fold_rank(f, i ^ (1 << k)), first, num, false);
        }
}

void tri_fold_scatter(tri_rounds_list *list, const tri_fold *f, size_t first_round, bool blocks)
{
    uint32_t first, num;
    for (int k = f->levels - 1; k >= 0; k--)
        for (int i = 0; i < f->num; i++) {
            int other = i ^ (1 << k);
            run_of(f, other, k, blocks, &first, &num);
            tri_rounds_add(list, first_round + (size_t)(f->levels - 1 - k), tri_fold_rank(f, i),
                           tri_fold_rank(f, other), first, num, true);
        }
}

double tri_fold_pass_bytes(const tri_fold *f, double bytes)
{
    double blocks = 0;
    for (int k = 0; k < f->levels; k++)
        blocks += tri_fold_blocks(f, 0, 1 << k);
    return blocks * bytes / f->size;
}

double tri_fold_gather_bytes(const tri_fold *f, double bytes)
{
    double folded = f->pairs > 0 ? bytes / f->size + bytes * (f->size - 1) / f->size : 0;
    return tri_fold_pass_bytes(f, bytes) + folded;
}
