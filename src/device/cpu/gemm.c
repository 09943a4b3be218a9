/* Cutting a matrix product into blocks and tasks.
 *
 * Three plans, chosen by shape:
 *
 *   Wide. c is cut into blocks, and k into passes. For each pass over a block, the rows of a are
 *   packed into shared scratch by all workers, then a task multiplies a chunk of them by a strip of
 *   columns: it packs the strip of b for itself, so that a panel of it is in the first-level cache
 *   when it is used, while the chunk of a stays in the second. Packing is mostly waiting for
 *   memory, so a task fetches ahead what it is likely to pack next (tri_gemm_block.ahead).
 *
 *   Narrow. With few columns, packing a would cost too much beside so little arithmetic, and
 *   packing b too unless it is transposed: tasks take rows and read in place what they can.
 *
 *   Few. With few rows the product waits for b alone, which is read once, in order, and packed
 *   nowhere: tasks take columns.
 *
 * All sizes follow from constants and the shape, never from the number of threads: see gemm.h. The
 * cuts along k alone decide the bits of the result; those of rows and columns do not. */
#include "device/cpu/gemm.h"
#include "device/cpu/fast/gemm_kernel.h"

#include <assert.h>

/* Values of k in a pass: a panel of b, 48 columns wide, should leave some of a first-level cache of
 * 48 KiB. Fewer would load and store c more often. A k of up to MAX_PASS is not cut. */
#define PASS     192
#define MAX_PASS 256
/* Rows times depth of the chunk of a that a task uses: 768 KiB, to stay in a cache of 1 MiB. */
#define CHUNK_FLOATS (1024 * PASS)
/* Columns of a task, at most. A multiple of every nr. */
#define MAX_STRIP 96
/* Strips are made narrower, if need be, until a block has this many tasks. */
#define ENOUGH_TASKS 16
/* A block of c, which every pass loads and stores: 16 MiB, to stay in the last-level cache. */
#define C_FLOATS (4 << 20)
/* Shared scratch: packed a of one pass, or all of packed b in the narrow plan. */
#define SHARED_FLOATS (2 * CHUNK_FLOATS)
/* Largest mr and nr over all instruction sets. */
#define MAX_MR 8
#define MAX_NR 48
/* Narrow plan: rows of a task when it packs a, and the number of columns from which it does if a is
 * transposed: in place, a panel uses only part of each line that it reads. */
#define NARROW_PACK_ROWS 64
#define NARROW_PACK_COLS 65
/* Of each worker, wide plan: a strip of b. Narrow plan: rows of a, or one panel for the last rows
 * when a is read in place, and one panel of b for the last columns. */
#define EDGE_FLOATS   (MAX_PASS * NARROW_PACK_ROWS)
#define WORKER_FLOATS (EDGE_FLOATS + MAX_PASS * MAX_NR)
/* The narrow plan's limit on columns. */
#define NARROW_COLS 256
/* Rows of the plan for few, and columns of a task, at most: what a task reads ahead of itself ends
 * with it, so its columns are many where that leaves ENOUGH_TASKS. */
#define FEW_MOST 16
#define FEW_COLS 128
#define FEW_UNIT 16
/* Below this, waking the pool costs more than it saves. */
#define INLINE_FLOPS 1000000

static const tri_gemm_kernels *kernels_of(tri_isa isa)
{
#if defined(__x86_64__)
    if (isa == TRI_ISA_AVX512)
        return &tri_gemm_kernels_avx512;
    if (isa == TRI_ISA_AVX2)
        return &tri_gemm_kernels_avx2;
#endif
    (void)isa;
    return &tri_gemm_kernels_base;
}

static int64_t min_i64(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

static int64_t divide_up(int64_t x, int64_t by)
{
    return (x + by - 1) / by;
}

size_t tri_gemm_scratch_bytes(int num_threads)
{
    return (SHARED_FLOATS + (size_t)num_threads * WORKER_FLOATS) * sizeof(float);
}

size_t tri_gemm_small_scratch_bytes(void)
{
    return WORKER_FLOATS * sizeof(float);
}

/* Cuts size into the fewest equal parts of at most `most`, each but the last a multiple of unit. */
static int64_t equal_part(int64_t size, int64_t most, int64_t unit)
{
    int64_t parts = divide_up(size, most);
    return parts > 0 ? round_up(divide_up(size, parts), unit) : unit;
}

static const float *a_at(const tri_gemm *g, int64_t i, int64_t p)
{
    return g->trans_a ? g->a + p * g->lda + i : g->a + i * g->lda + p;
}

static const float *b_at(const tri_gemm *g, int64_t p, int64_t j)
{
    return g->trans_b ? g->b + j * g->ldb + p : g->b + p * g->ldb + j;
}

/* The part of a block that is about c: rows from i, columns from j, values of k from p. */
static tri_gemm_block block_of_c(const tri_gemm *g, int64_t i, int64_t rows, int64_t j,
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

/* Lets the block read a in place, except for a last panel that is not whole: edge, of MAX_PASS *
 * MAX_MR floats, takes that. */
static void use_a_in_place(const tri_gemm_kernels *kernels, const tri_gemm *g,
                           tri_gemm_block *block, int64_t i, int64_t p, float *edge)
{
    int64_t mr = kernels->mr;
    block->a = a_at(g, i, p);
    block->a_panel = g->trans_a ? mr : mr * g->lda;
    block->a_row = g->trans_a ? 1 : g->lda;
    block->a_depth = g->trans_a ? g->lda : 1;
    int64_t whole = block->rows / mr * mr;
    if (whole == block->rows)
        return;
    kernels->pack_a(edge, 0, a_at(g, i + whole, p), g->lda, g->trans_a, block->rows - whole,
                    block->depth);
    block->a_edge = edge;
}

/* Packs the block's rows of a into pack. */
static void use_packed_a(const tri_gemm_kernels *kernels, const tri_gemm *g, tri_gemm_block *block,
                         int64_t i, int64_t p, float *pack)
{
    block->a = pack;
    block->a_panel = kernels->mr * block->depth;
    block->a_row = 1;
    block->a_depth = kernels->mr;
    kernels->pack_a(pack, block->a_panel, a_at(g, i, p), g->lda, g->trans_a, block->rows,
                    block->depth);
}

static void use_packed_b(const tri_gemm_kernels *kernels, tri_gemm_block *block, const float *b,
                         int64_t panel)
{
    block->b = b;
    block->b_panel = panel;
    block->b_depth = kernels->nr;
}

/* Lets the block read b in place: not transposed, and except for a last panel whose vectors would
 * reach past the matrix. edge, of MAX_PASS * MAX_NR floats, takes that. */
static void use_b_in_place(const tri_gemm_kernels *kernels, const tri_gemm *g,
                           tri_gemm_block *block, int64_t p, int64_t j, float *edge)
{
    block->b = b_at(g, p, j);
    block->b_panel = 0;
    block->b_depth = g->ldb;
    if (block->cols % kernels->width == 0)
        return;
    int64_t last = kernels->last_panel(block->cols);
    kernels->pack_b(edge, 0, b_at(g, p, j + last), g->ldb, false, block->depth, block->cols - last);
    block->b_edge = edge;
}

/* ---- one thread, small operands ---- */

void tri_gemm_small(tri_isa isa, void *scratch, const tri_gemm *g)
{
    const tri_gemm_kernels *kernels = kernels_of(isa);
    float *edge = scratch;
    float *pack = edge + MAX_PASS * MAX_MR;
    for (int64_t j = 0; j < g->n; j += MAX_STRIP) {
        int64_t cols = min_i64(MAX_STRIP, g->n - j);
        int64_t p = 0;
        do { /* once for k = 0 too: c is cleared and the epilogue applied */
            int64_t depth = min_i64(MAX_PASS, g->k - p);
            tri_gemm_block block = block_of_c(g, 0, g->m, j, cols, p, depth);
            use_a_in_place(kernels, g, &block, 0, p, edge);
            if (g->trans_b) {
                int64_t panel = depth * kernels->nr;
                kernels->pack_b(pack, panel, b_at(g, p, j), g->ldb, true, depth, cols);
                use_packed_b(kernels, &block, pack, panel);
            } else {
                use_b_in_place(kernels, g, &block, p, j, pack);
            }
            kernels->run_block(&block);
            p += depth;
        } while (p < g->k);
    }
}

/* ---- the whole pool ---- */

/* Wide plan: one turn is one pass over one block of c, rows from i, columns from j, values of k
 * from p. */
typedef struct gemm_turn {
    int64_t i, rows, j, cols, p, depth;
} gemm_turn;

typedef struct gemm_job {
    const tri_gemm *g;
    const tri_gemm_kernels *kernels;
    int num_threads; /* for guesses about what comes next only */
    float *shared, *of_workers;
    int64_t task_rows, task_cols; /* of a multiplying task, at most */
    int64_t pack_rows;            /* of a task that packs a */
    bool pack_narrow_a;           /* narrow plan: a task packs its rows of a */
    /* Wide plan: how large blocks and passes are, how many there are, and where the job is. */
    int64_t block_rows, block_cols, depth;
    int64_t num_j, num_p, num_turns;
    gemm_turn turn;
} gemm_job;

static float *worker_scratch(const gemm_job *job, int worker)
{
    return job->of_workers + (int64_t)worker * WORKER_FLOATS;
}

/* ---- narrow plan ---- */

/* A transposed b is packed whole, pass after pass, each of them panel after panel. */
static float *narrow_b(const gemm_job *job, int64_t p)
{
    return job->shared + p * round_up(job->g->n, job->kernels->nr);
}

static void narrow_pack(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    int64_t p = (int64_t)task * MAX_PASS;
    int64_t depth = min_i64(MAX_PASS, g->k - p);
    (void)worker;
    job->kernels->pack_b(narrow_b(job, p), depth * job->kernels->nr, b_at(g, p, 0), g->ldb, true,
                         depth, g->n);
}

static void narrow_multiply(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    int64_t i = task * job->task_rows;
    int64_t rows = min_i64(job->task_rows, g->m - i);
    float *edge = worker_scratch(job, worker);
    int64_t p = 0;
    do { /* once for k = 0 too: c is cleared and the epilogue applied */
        int64_t depth = min_i64(MAX_PASS, g->k - p);
        tri_gemm_block block = block_of_c(g, i, rows, 0, g->n, p, depth);
        if (job->pack_narrow_a)
            use_packed_a(job->kernels, g, &block, i, p, edge);
        else
            use_a_in_place(job->kernels, g, &block, i, p, edge);
        if (g->trans_b)
            use_packed_b(job->kernels, &block, narrow_b(job, p), depth * job->kernels->nr);
        else
            use_b_in_place(job->kernels, g, &block, p, 0, edge + EDGE_FLOATS);
        job->kernels->run_block(&block);
        p += depth;
    } while (p < g->k);
}

static void run_narrow(tri_pool *pool, gemm_job *job)
{
    const tri_gemm *g = job->g;
    /* Not so small that a panel of b is fetched for a few rows only. */
    job->task_rows = round_up(divide_up(g->m, ENOUGH_TASKS), job->kernels->mr);
    job->pack_narrow_a = g->trans_a && g->n >= NARROW_PACK_COLS;
    int64_t most = job->pack_narrow_a ? NARROW_PACK_ROWS : 128;
    job->task_rows = job->task_rows < 32 ? 32 : min_i64(job->task_rows, most);
    if (g->trans_b)
        tri_pool_run(pool, (int)divide_up(g->k, MAX_PASS), narrow_pack, job);
    tri_pool_run(pool, (int)divide_up(g->m, job->task_rows), narrow_multiply, job);
}

/* ---- few rows ---- */

static void few_multiply(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    int64_t j = (int64_t)task * job->task_cols, cols = min_i64(job->task_cols, g->n - j);
    tri_gemm_block block = block_of_c(g, 0, g->m, j, cols, 0, g->k);
    (void)worker;
    block.a = g->a;
    block.a_row = g->lda;
    block.b = b_at(g, 0, j);
    block.b_depth = g->ldb;
    job->kernels->run_few(&block, job->depth);
}

/* ---- wide plan ---- */

/* Passes follow each other within a block, blocks along a row of blocks: row after row. */
static gemm_turn turn_at(const gemm_job *job, int64_t index)
{
    const tri_gemm *g = job->g;
    int64_t block = index / job->num_p;
    gemm_turn turn = {
        .i = block / job->num_j * job->block_rows,
        .j = block % job->num_j * job->block_cols,
        .p = index % job->num_p * job->depth,
    };
    turn.rows = min_i64(job->block_rows, g->m - turn.i);
    turn.cols = min_i64(job->block_cols, g->n - turn.j);
    turn.depth = min_i64(job->depth, g->k - turn.p);
    return turn;
}

static int64_t count_tasks(const gemm_job *job, const gemm_turn *turn)
{
    return divide_up(turn->rows, job->task_rows) * divide_up(turn->cols, job->task_cols);
}

static void wide_pack(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    const gemm_turn *turn = &job->turn;
    int64_t first = task * job->pack_rows;
    (void)worker;
    job->kernels->pack_a(job->shared + first * turn->depth, job->kernels->mr * turn->depth,
                         a_at(g, turn->i + first, turn->p), g->lda, g->trans_a,
                         min_i64(job->pack_rows, turn->rows - first), turn->depth);
}

/* The strip of b that the worker will pack next if all workers keep pace. */
static tri_gemm_ahead wide_ahead(const gemm_job *job, int64_t task)
{
    const tri_gemm *g = job->g;
    const gemm_turn *turn = &job->turn;
    int64_t num_strips = divide_up(turn->cols, job->task_cols);
    int64_t first = (task + job->num_threads) % num_strips * job->task_cols;
    int64_t cols = min_i64(job->task_cols, turn->cols - first);
    const float *start = b_at(g, turn->p, turn->j + first);
    if (g->trans_b)
        return (tri_gemm_ahead){start, cols, turn->depth, g->ldb};
    return (tri_gemm_ahead){start, turn->depth, cols, g->ldb};
}

static void wide_multiply(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    const tri_gemm_kernels *kernels = job->kernels;
    const gemm_turn *turn = &job->turn;
    int64_t num_strips = divide_up(turn->cols, job->task_cols);
    int64_t first_row = task / num_strips * job->task_rows;
    int64_t first_col = task % num_strips * job->task_cols;
    int64_t rows = min_i64(job->task_rows, turn->rows - first_row);
    int64_t cols = min_i64(job->task_cols, turn->cols - first_col);
    tri_gemm_block block =
        block_of_c(g, turn->i + first_row, rows, turn->j + first_col, cols, turn->p, turn->depth);
    block.a = job->shared + first_row * turn->depth;
    block.a_panel = kernels->mr * turn->depth;
    block.a_row = 1;
    block.a_depth = kernels->mr;
    float *pack = worker_scratch(job, worker);
    int64_t panel = kernels->nr * turn->depth;
    kernels->pack_b(pack, panel, b_at(g, turn->p, turn->j + first_col), g->ldb, g->trans_b,
                    turn->depth, cols);
    use_packed_b(kernels, &block, pack, panel);
    block.ahead = wide_ahead(job, task);
    kernels->run_block(&block);
}

/* Values of k in a pass. */
static int64_t wide_depth(const tri_gemm *g)
{
    return equal_part(g->k, g->k <= MAX_PASS ? MAX_PASS : PASS, 4);
}

static void plan_wide(gemm_job *job)
{
    const tri_gemm *g = job->g;
    int64_t mr = job->kernels->mr, nr = job->kernels->nr;
    int64_t chunk = CHUNK_FLOATS / (job->depth < PASS ? PASS : job->depth) / mr * mr;
    job->task_rows = equal_part(g->m, chunk, mr);
    job->block_rows = min_i64(2, divide_up(g->m, job->task_rows)) * job->task_rows;
    job->block_cols = equal_part(g->n, C_FLOATS / job->block_rows, nr);
    int64_t panels = divide_up(job->block_cols, nr) * (job->block_rows / job->task_rows);
    job->task_cols = min_i64(divide_up(panels, ENOUGH_TASKS) * nr, MAX_STRIP / nr * nr);
    job->pack_rows = 8 * mr;
    job->num_j = divide_up(g->n, job->block_cols);
    job->num_p = g->k > 0 ? divide_up(g->k, job->depth) : 1;
    job->num_turns = divide_up(g->m, job->block_rows) * job->num_j * job->num_p;
}

static void run_wide(tri_pool *pool, gemm_job *job)
{
    plan_wide(job);
    for (int64_t i = 0; i < job->num_turns; i++) {
        job->turn = turn_at(job, i);
        tri_pool_run(pool, (int)divide_up(job->turn.rows, job->pack_rows), wide_pack, job);
        tri_pool_run(pool, (int)count_tasks(job, &job->turn), wide_multiply, job);
    }
}

void tri_gemm_run(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *g)
{
    if (g->m <= 0 || g->n <= 0)
        return;
    const tri_gemm_kernels *kernels = kernels_of(isa);
    assert(kernels->mr <= MAX_MR && kernels->nr <= MAX_NR);
    if (2 * g->m * g->n * g->k < INLINE_FLOPS)
        pool = NULL;
    gemm_job job = {
        .g = g,
        .kernels = kernels,
        .num_threads = tri_pool_threads(pool),
        .shared = scratch,
        .of_workers = (float *)scratch + SHARED_FLOATS,
    };
    bool narrow = g->n <= NARROW_COLS && round_up(g->n, kernels->nr) * g->k <= SHARED_FLOATS;
    bool few = g->m <= FEW_MOST && g->trans_b && !g->trans_a && !g->accumulate && g->alpha == 1 &&
               g->k > 0;
    job.depth = narrow ? MAX_PASS : wide_depth(g);
    if (few) {
        job.task_cols = min_i64(round_up(divide_up(g->n, ENOUGH_TASKS), FEW_UNIT), FEW_COLS);
        tri_pool_run(pool, (int)divide_up(g->n, job.task_cols), few_multiply, &job);
    } else if (narrow) {
        run_narrow(pool, &job);
    } else {
        run_wide(pool, &job);
    }
}
