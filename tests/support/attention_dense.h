/* Attention by its definition: a dense mask, all scores and all probabilities, in double. What the
 * kernels of any device are compared with, on calls made at random.
 *
 * A call is an op_run of TRI_OP_ATTENTION_GRAD: it has the operands of the forward too. */
#ifndef TRI_TESTS_ATTENTION_DENSE_H
#define TRI_TESTS_ATTENTION_DENSE_H

#include "op_cases.h"

/* All that attention and its gradient make, laid out as they do; NULL without a sink. */
typedef struct dense_results {
    double *o, *lse;
    double *d[4]; /* of each output of the gradient */
} dense_results;

/* Sizes, masks and attributes number `number`: apart, places in any order or dealt out, intervals
 * of any kind (also none at all), sinks, soft caps, dropout, documents. */
op_case dense_random_case(uint32_t number);
/* Fills spans and places as the number says, and o and lse with the right results. */
void dense_prepare(op_run *run, uint32_t number, dense_results *right);
void dense_results_fini(dense_results *right);

/* The operands of the forward among those of a call; its outputs are `o` and `lse`. */
tri_kernel_args dense_forward_args(const op_run *run, float *o, float *lse);

#endif
