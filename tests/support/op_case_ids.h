/* Whole numbers that operators read: documents, intervals, places. Included by op_cases.c alone. */
#ifndef TRI_TESTS_OP_CASE_IDS_H
#define TRI_TESTS_OP_CASE_IDS_H

#include "base/rng.h"
#include "device/kernel.h"

enum { SEED = 20240611 };

/* Documents of uneven lengths, one of them in two pieces; every second row ends in padding. */
static void fill_docs(tri_tensor *t)
{
    int32_t *docs = t->data, num = (int32_t)t->size[1];
    for (int32_t b = 0; b < (int32_t)t->size[0]; b++) {
        int32_t id = 5 * b, left = 0;
        for (int32_t i = 0; i < num; i++, left--) {
            if (left == 0) {
                left = 1 + (int32_t)(tri_random_word(SEED, (uint64_t)i, 2, 78) % (uint32_t)num) / 2;
                id++;
            }
            docs[b * num + i] = i == num - num / 6 - 1 ? 5 * b + 1 : id;
            if (b % 2 == 0 && i >= num - num / 6)
                docs[b * num + i] = -1;
        }
    }
}

/* Spans of any length from anywhere, some of them empty; places in another order than tokens, some
 * of which are not there. j: which input of attention. */
static void fill_intervals(tri_tensor *t, int j)
{
    int32_t *to = t->data, num = (int32_t)t->size[1];
    for (int32_t i = 0; i < (int32_t)t->count; i++) {
        uint32_t word = tri_random_word(SEED, (uint64_t)i, 3, (uint32_t)(90 + j));
        if (j != TRI_ATTENTION_SPAN)
            to[i] = word % 11 == 0 ? -1 : (int32_t)((int64_t)(i % num) * 37 % num);
        else if (i % 2 == 0)
            to[i] = (int32_t)(word % (uint32_t)(num + 1)) - 2;
        else
            to[i] = to[i - 1] + (int32_t)(word % 5 == 0 ? 0 : word % (uint32_t)num);
    }
}

/* Places in any order, each once in its row; of a shard, some of those of more tokens. */
static void fill_dealt(tri_tensor *t, bool shard)
{
    int32_t *to = t->data, num = (int32_t)t->size[1], range = shard ? num + num / 3 + 3 : num;
    int32_t step = range % 37 ? 37 : 41; /* a prime that does not divide it: none comes twice */
    for (int32_t i = 0; i < (int32_t)t->count; i++)
        to[i] = (int32_t)((int64_t)(i % num + 5 * (i / num)) * step % range);
}

/* Rows to be added up, some of them nowhere; the second sum has no term at all. */
static void fill_rows(tri_tensor *t, int64_t num_rows)
{
    int32_t *to = t->data;
    int64_t terms = t->size[t->rank - 1];
    for (int64_t i = 0; i < t->count; i++) {
        uint32_t word = tri_random_word(SEED, (uint64_t)i, 4, 91);
        to[i] = i / terms == 1 || word % 4 == 0 ? -1 : (int32_t)(word / 4 % (uint32_t)num_rows);
    }
}

#endif
