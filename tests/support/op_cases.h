/* The table of operator cases, which drives every check of a kernel: against the reference, against
 * finite differences, over numbers of threads, in place, and past the end of its outputs.
 *
 * A case is an operator, a few sizes and its attributes. op_run_init makes operands from it: the
 * same values every time, and consistent (the statistics given to a gradient are those of its
 * input), so that a gradient kernel can be checked against differences of the forward one. */
#ifndef TRI_TESTS_OP_CASES_H
#define TRI_TESTS_OP_CASES_H

#include "device/cpu/cpu.h"

enum {
    CASE_ACCUMULATE = 1, /* outputs hold something already, and args.overwrite is false */
    CASE_WITHOUT = 2,    /* the optional input (and the output that goes with it) is missing */
    CASE_SHARD = 4,      /* the operands are a part of a larger tensor */
    CASE_NOT_OK = 8,     /* result[OK] is 0 */
    CASE_LARGE = 16,     /* slow with the reference: not for finite differences */
    CASE_DOCS = 64,      /* attention within documents, and padding */
    CASE_SCALE = 256,    /* with a loss scaler, the last input */
    CASE_OVERFLOW = 512, /* finish: the sum of squares is infinite */
    CASE_NO_BIAS = 1024, /* norm_grads: without the sum of dx */
    CASE_COPY = 2048,    /* adam: with the copy of the parameter */
    CASE_FLOAT8 = 4096,  /* matmul: 8-bit operands where a device has them, with their scales */
    CASE_AMAX = 8192,    /* activations, gradients: with the largest of each result */
    CASE_SUMS = 16384,   /* quantise: with the sums of columns */
    CASE_SPAN = 32768,   /* attention: with an interval of places for each query */
    CASE_PLACES = 65536, /* attention, dropout, select_row: tokens have places, in any order */
    CASE_SINK = 131072,  /* attention: with a sink for each head */
    CASE_I32 = 262144,   /* pieces: of whole numbers */
    CASE_REPEAT = 32,    /* inputs repeat a short sequence of numbers: quick to make (bench) */
};

/* Rows of the step: the learning rate, one of another rule, those of adam. */
enum { OP_OWN_ROWS = 2, OP_STEP_ROWS = OP_OWN_ROWS + TRI_NUM_ADAM8_ROWS };

typedef struct op_case {
    const char *name;
    tri_op op;
    int64_t size[7]; /* what they are stands beside the builder of the operator */
    tri_attr attr;
    unsigned flags;
    float tolerance; /* of an output, relative to its largest element; 0: 2e-6 */
} op_case;

const op_case *op_cases(int *num_cases);

/* A pair (output, input) that may (or, for state, must) be the same memory. */
typedef struct op_alias {
    int out, in;
} op_alias;
enum { OP_MAX_ALIAS = 6 };

/* Fills pairs and returns how many. */
int op_may_alias(const op_case *c, op_alias pairs[OP_MAX_ALIAS]);
int op_must_alias(const op_case *c, op_alias pairs[OP_MAX_ALIAS]);

/* Operands in memory of their own, between canaries. */
typedef struct op_run {
    tri_kernel_args args;
    tri_attr attr;
    void *blocks[TRI_MAX_IN + TRI_MAX_OUT];
    size_t block_bytes[TRI_MAX_IN + TRI_MAX_OUT];
    int num_blocks;
} op_run;

/* alias may be NULL. args.device is left NULL. */
void op_run_init(op_run *run, const op_case *c, const op_alias *alias);
void op_run_fini(op_run *run);
bool op_run_canaries_intact(const op_run *run);

/* Runs a kernel on one device; scratch is exactly what the kernel asks for. */
void op_run_kernel(op_run *run, const tri_kernel *kernel, tri_pool *pool, tri_isa isa);

#endif
