/* Three checkers that look at the rounds of any algorithm: their form (no transfer to oneself,
 * nothing that depends on timing), their result (an interpreter runs them on integers), and their
 * time against the cost formula. At most 16 ranks. */
#ifndef TRI_TESTS_COLLECTIVE_CHECK_H
#define TRI_TESTS_COLLECTIVE_CHECK_H

#include "collective/collective.h"

/* One set of rounds and what it is for. */
typedef struct coll_call {
    const tri_algorithm *algorithm;
    tri_coll coll;
    int size, root;
    tri_coll_shape shape;
    tri_rounds rounds;
} coll_call;

typedef char coll_fault[200]; /* "" when nothing was found */

void coll_check_form(const coll_call *c, coll_fault why);
void coll_check_result(const coll_call *c, coll_fault why);
void coll_check_time(const coll_call *c, coll_fault why);

/* The interpreter's state, the vectors of all ranks: data[rank * count + element]. Piece p covers
 * the elements begin[p] to begin[p+1]. */
typedef struct coll_world {
    size_t count;
    size_t *begin;
    int64_t *data;
} coll_world;

void coll_make_world(coll_world *w, const coll_call *c, uint32_t shift);
void coll_free_world(coll_world *w);
void coll_fill_world(coll_world *w, const coll_call *c); /* as before the operation */
void coll_run_rounds(coll_world *w, const coll_call *c, size_t num_rounds);
int64_t coll_expected_value(const coll_call *c, uint32_t piece, size_t element);
/* 0 to 5 elements: pieces need not be of one size, nor have any. The pattern repeats after seven
 * and begins at `shift`; from 2 there are four in a row that are not empty. */
size_t coll_piece_length(uint32_t piece, uint32_t shift);

#endif
