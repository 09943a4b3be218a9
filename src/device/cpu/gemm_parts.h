/* What the plans of a matrix product share: sizes, and how a block of it is described. */
#ifndef TRI_DEVICE_CPU_GEMM_PARTS_H
#define TRI_DEVICE_CPU_GEMM_PARTS_H

#include "device/cpu/fast/gemm_kernel.h"
#include "device/cpu/gemm.h"

/* Values of k in a pass: a panel of b, 48 columns wide, should leave some of a first-level cache of
 * 48 KiB. Fewer would load and store c more often. A k of up to MAX_PASS is not cut. */
#define PASS     192
#define MAX_PASS 256
/* Rows times depth of the chunk of a that a task uses: 576 KiB, to stay in a cache of 1 MiB beside
 * what the task fetches and packs for the next turn. */
#define CHUNK_FLOATS (768 * PASS)
/* The same where k is one pass: b is packed again for each block of rows, so they are fewer. */
#define LARGE_CHUNK_FLOATS (1024 * PASS)
/* Columns of a task, at most. A multiple of every nr. */
#define MAX_STRIP 96
/* Strips are made narrower, if need be, until a block has this many tasks. */
#define ENOUGH_TASKS 16
/* A block of c, which every pass loads and stores: 16 MiB, to stay in the last-level cache. */
#define C_FLOATS (4 << 20)
/* Shared scratch: two large chunks of packed a, or all of packed b in the narrow plan; twice that
 * when there are several threads. */
#define SHARED_FLOATS (2048 * PASS)
/* Largest mr and nr over all instruction sets. */
#define MAX_MR 8
#define MAX_NR 48
/* Narrow plan: rows of a task when it packs a, and the number of columns from which it does if a is
 * transposed: in place, a panel uses only part of each line that it reads. */
#define NARROW_PACK_ROWS 64
#define NARROW_PACK_COLS 65
/* Of each worker, wide plan: a strip of b. Narrow plan: rows of a, or one panel for the last rows
 * when a is read in place, and one panel of b for the last columns. At
 * the end a line in which the wide plan keeps where the worker is. */
#define EDGE_FLOATS   (MAX_PASS * NARROW_PACK_ROWS)
#define POSITION_AT   (EDGE_FLOATS + MAX_PASS * MAX_NR)
#define WORKER_FLOATS (POSITION_AT + 16)
/* The narrow plan's limit on columns. */
#define NARROW_COLS 256
/* Rows of the plan for few, and columns of a task, at most: what a task reads ahead of itself ends
 * with it, so its columns are many where that leaves ENOUGH_TASKS. */
#define FEW_MOST 16
#define FEW_COLS 128
#define FEW_UNIT 16
/* Below this, waking the pool costs more than it saves. */
#define INLINE_FLOPS 1000000

static inline int64_t min_i64(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static inline int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

static inline int64_t divide_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

/* Cuts size into the fewest equal parts of at most `most`, each but the last a multiple of unit. */
static inline int64_t equal_part(int64_t size, int64_t most, int64_t unit)
{
    int64_t parts = divide_up(size, most);
    return parts > 0 ? round_up(divide_up(size, parts), unit) : unit;
}

static inline const float *a_at(const tri_gemm *g, int64_t i, int64_t p)
{
    return g->trans_a ? g->a + p * g->lda + i : g->a + i * g->lda + p;
}

static inline const float *b_at(const tri_gemm *g, int64_t p, int64_t j)
{
    return g->trans_b ? g->b + j * g->ldb + p : g->b + p * g->ldb + j;
}

/* The part of a block that is about c: rows from i, columns from j, values of k from p. */
static inline tri_gemm_block block_of_c(const tri_gemm *g, int64_t i, int64_t rows, int64_t j,
                                        int64_t cols, int64_t p, int64_t depth)
{
    bool last = p + depth == g->k;
    return (tri_gemm_block){
        .rows = rows,
        .cols = cols,
        .depth = depth,
        .c = g->c + i * g->ldc + j,
        .ldc = g->ldc,
        .alpha = g->alpha,
        .load_c = g->accumulate || p > 0,
        .epilogue = last ? g->epilogue : TRI_GEMM_PLAIN,
        .bias = g->bias != NULL ? g->bias + j : NULL,
        .aux = g->aux != NULL ? g->aux + i * g->ldaux + j : NULL,
        .ldaux = g->ldaux,
    };
}

static inline void use_packed_b(const tri_gemm_kernels *kernels, tri_gemm_block *block,
                                const float *b, int64_t panel)
{
    block->b = b;
    block->b_panel = panel;
    block->b_depth = kernels->nr;
}

/* A product on its way through the pool. */
typedef struct tri_gemm_job {
    const tri_gemm *g;
    const tri_gemm_kernels *kernels;
    int num_threads;
    float *shared, *of_workers;
    int64_t task_rows, task_cols; /* of a multiplying task, at most */
    int64_t depth;                /* values of k in a pass */
    bool pack_narrow_a;           /* narrow plan: a task packs its rows of a */
} tri_gemm_job;

static inline float *worker_scratch(const tri_gemm_job *job, int worker)
{
    return job->of_workers + (int64_t)worker * WORKER_FLOATS;
}

/* A product of a stream of the wide plan. The first three are given, the rest is planned. */
typedef struct tri_gemm_part {
    const tri_gemm *g;
    int64_t depth; /* values of k in a pass */
    bool few;      /* so few rows that b is read in place, in one turn */
    int64_t task_rows, num_p, first_turn;
} tri_gemm_part;

/* The wide plan, of one product or of several with equal n, each of which has rows and columns: see
 * gemm_wide.c. */
void tri_gemm_run_wide(tri_pool *pool, tri_gemm_job *job, tri_gemm_part *parts, int64_t num_parts);

#endif
