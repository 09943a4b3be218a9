/* Cutting a matrix product into blocks and tasks.
 *
 * Two plans, chosen by shape:
 *
 *   Wide. A task multiplies a chunk of rows by a strip of columns, over up to MAX_DEPTH values of
 * k: its part of a stays in the second-level cache, its panel of b in the first, its part of c in
 *   registers and then close by. Panels of b are packed, all of them beforehand into shared scratch
 *   when several chunks of rows will use them, else by each task for itself. Rows of a are read
 *   where they lie, unless transposed: then a is packed beforehand too. While it computes, a task
 *   fetches what is needed next (tri_gemm_block.ahead), for packing is mostly waiting for memory.
 *
 *   Narrow. With few columns, packing a would cost too much beside so little arithmetic, and
 *   packing b too unless it is transposed: tasks take rows and read in place what they can.
 *
 * All sizes follow from constants and the shape, never from the number of threads: see gemm.h. The
 * cuts along k alone decide the bits of the result; those of rows and columns do not. */
#include "device/cpu/gemm.h"
#include "device/cpu/fast/gemm_kernel.h"

#include <assert.h>

/* Values of k per pass of the micro kernel, at most: more make the panel of b (72 KiB at 48
 * columns) too large, fewer load and store tiles of c too often. */
#ifndef KC
#define KC 384
#endif
/* Rows of a task and values of k of a block, at most: 768 KiB of a, to stay in a cache of 1 MiB. */
#ifndef ROW_CHUNK
#define ROW_CHUNK 256
#endif
#ifndef MAX_DEPTH
#define MAX_DEPTH 768
#endif
/* Columns of a task, at most. A multiple of every nr. */
#ifndef MAX_STRIP
#define MAX_STRIP 192
#endif
/* Cutting rows and columns goes on until there are this many tasks, if there is enough of them. */
#define ENOUGH_TASKS 16
/* Shared scratch for packed a and for packed b. */
#define A_FLOATS (3 << 19)
#define B_FLOATS (3 << 19)
/* Largest mr and nr over all instruction sets. */
#define MAX_MR 8
#define MAX_NR 48
/* Of each worker: a strip of b, and one panel of a for the last rows when a is read in place. */
#define EDGE_FLOATS   (MAX_MR * KC)
#define WORKER_FLOATS (KC * MAX_STRIP + EDGE_FLOATS)
/* The narrow plan's limit on columns. */
#define NARROW_COLS 256
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
    return (A_FLOATS + B_FLOATS + (size_t)num_threads * WORKER_FLOATS) * sizeof(float);
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

/* Lets the block read a in place, except for a last panel that is not whole: edge, of EDGE_FLOATS,
 * takes that. */
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

static void use_packed_b(const tri_gemm_kernels *kernels, tri_gemm_block *block, const float *b,
                         int64_t panel)
{
    block->b = b;
    block->b_panel = panel;
    block->b_depth = kernels->nr;
}

/* Lets the block read b in place: not transposed, and except for a last panel whose vectors would
 * reach past the matrix. edge, of KC * MAX_NR floats, takes that. */
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
    float *pack = scratch;
    float *edge = pack + KC * MAX_STRIP;
    for (int64_t j = 0; j < g->n; j += MAX_STRIP) {
        int64_t cols = min_i64(MAX_STRIP, g->n - j);
        int64_t p = 0;
        do { /* once for k = 0 too: c is cleared and the epilogue applied */
            int64_t depth = min_i64(KC, g->k - p);
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

typedef struct gemm_job {
    const tri_gemm *g;
    const tri_gemm_kernels *kernels;
    int num_threads; /* for guesses about what comes next only */
    float *shared_a, *shared_b, *of_workers;
    bool a_in_place, b_shared;
    /* The block at hand: rows from i, columns from j, values of k from p. */
    int64_t i, rows, j, cols, p, depth;
    int64_t pass;                 /* values of k per pass of the micro kernel */
    int64_t task_rows, task_cols; /* of a multiplying task */
    int64_t num_strips;
    int64_t pack_rows;   /* of a task that packs a */
    int64_t num_a_tasks; /* packing tasks: those of a, then those of b, a strip each */
} gemm_job;

static float *worker_scratch(const gemm_job *job, int worker)
{
    return job->of_workers + (int64_t)worker * WORKER_FLOATS;
}

/* Narrow plan. A transposed b is packed whole, block of k after block of k, each of them panel
 * after panel. */
static float *narrow_b(const gemm_job *job, int64_t p)
{
    return job->shared_b + p * job->num_strips * job->kernels->nr;
}

static void narrow_pack(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    int64_t p = (int64_t)task * KC;
    int64_t depth = min_i64(KC, g->k - p);
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
        int64_t depth = min_i64(KC, g->k - p);
        tri_gemm_block block = block_of_c(g, i, rows, 0, g->n, p, depth);
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
    job->task_rows = job->task_rows < 32 ? 32 : min_i64(job->task_rows, 128);
    job->num_strips = divide_up(g->n, job->kernels->nr);
    if (g->trans_b)
        tri_pool_run(pool, (int)divide_up(g->k, KC), narrow_pack, job);
    tri_pool_run(pool, (int)divide_up(g->m, job->task_rows), narrow_multiply, job);
}

/* Wide plan. Packed panels have the depth of the block at hand; those of a strip of b follow each
 * other. */
static float *wide_a(const gemm_job *job, int64_t i, int64_t p)
{
    return job->shared_a + (i - job->i) * job->depth + (p - job->p) * job->kernels->mr;
}

static float *wide_b(const gemm_job *job, int64_t j, int64_t p)
{
    return job->shared_b + (j - job->j) * job->depth + (p - job->p) * job->kernels->nr;
}

static void wide_pack(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    const tri_gemm_kernels *kernels = job->kernels;
    (void)worker;
    if (task < job->num_a_tasks) {
        int64_t i = job->i + task * job->pack_rows;
        int64_t rows = min_i64(job->pack_rows, job->i + job->rows - i);
        kernels->pack_a(wide_a(job, i, job->p), kernels->mr * job->depth, a_at(g, i, job->p),
                        g->lda, g->trans_a, rows, job->depth);
    } else {
        int64_t j = job->j + (task - job->num_a_tasks) * job->task_cols;
        int64_t cols = min_i64(job->task_cols, job->j + job->cols - j);
        kernels->pack_b(wide_b(job, j, job->p), kernels->nr * job->depth, b_at(g, job->p, j),
                        g->ldb, g->trans_b, job->depth, cols);
    }
}

static int64_t strip_start(const gemm_job *job, int64_t task)
{
    return job->j + task % job->num_strips * job->task_cols;
}

/* The part of b that the worker is likely to need next: the same strip further along k or, at the
 * end of that, the strip of the task it will claim if all workers keep pace. */
static tri_gemm_ahead wide_ahead(const gemm_job *job, int64_t task, int64_t p)
{
    const tri_gemm *g = job->g;
    int64_t end = job->p + job->depth, nr = job->kernels->nr;
    p += job->pass;
    if (p >= end) {
        p = job->p;
        task += job->num_threads;
    }
    int64_t j = strip_start(job, task);
    int64_t cols = min_i64(job->task_cols, job->j + job->cols - j);
    int64_t depth = min_i64(job->pass, end - p);
    if (job->b_shared)
        return (tri_gemm_ahead){wide_b(job, j, p), divide_up(cols, nr), depth * nr,
                                nr * job->depth};
    if (g->trans_b)
        return (tri_gemm_ahead){b_at(g, p, j), cols, depth, g->ldb};
    return (tri_gemm_ahead){b_at(g, p, j), depth, cols, g->ldb};
}

/* Points the block at its part of a, and of b, which it packs if nobody has. */
static void wide_operands(const gemm_job *job, tri_gemm_block *block, int64_t i, int64_t j,
                          int64_t p, float *scratch)
{
    const tri_gemm *g = job->g;
    const tri_gemm_kernels *kernels = job->kernels;
    if (job->a_in_place) {
        use_a_in_place(kernels, g, block, i, p, scratch + KC * MAX_STRIP);
    } else {
        block->a = wide_a(job, i, p);
        block->a_panel = kernels->mr * job->depth;
        block->a_row = 1;
        block->a_depth = kernels->mr;
    }
    if (job->b_shared) {
        use_packed_b(kernels, block, wide_b(job, j, p), kernels->nr * job->depth);
    } else {
        int64_t panel = kernels->nr * block->depth;
        kernels->pack_b(scratch, panel, b_at(g, p, j), g->ldb, g->trans_b, block->depth,
                        block->cols);
        use_packed_b(kernels, block, scratch, panel);
    }
}

static void wide_multiply(void *context, int task, int worker)
{
    const gemm_job *job = context;
    int64_t i = job->i + task / job->num_strips * job->task_rows;
    int64_t rows = min_i64(job->task_rows, job->i + job->rows - i);
    int64_t j = strip_start(job, task);
    int64_t cols = min_i64(job->task_cols, job->j + job->cols - j);
    int64_t p = job->p;
    do { /* once for k = 0 too */
        int64_t depth = min_i64(job->pass, job->p + job->depth - p);
        tri_gemm_block block = block_of_c(job->g, i, rows, j, cols, p, depth);
        wide_operands(job, &block, i, j, p, worker_scratch(job, worker));
        block.ahead = wide_ahead(job, task, p);
        job->kernels->run_block(&block);
        p += depth;
    } while (p < job->p + job->depth);
}

static void run_wide_block(tri_pool *pool, gemm_job *job, bool pack_a, bool pack_b)
{
    job->num_strips = divide_up(job->cols, job->task_cols);
    job->num_a_tasks = pack_a ? divide_up(job->rows, job->pack_rows) : 0;
    int64_t num_b_tasks = pack_b ? job->num_strips : 0;
    tri_pool_run(pool, (int)(job->num_a_tasks + num_b_tasks), wide_pack, job);
    int64_t chunks = divide_up(job->rows, job->task_rows);
    tri_pool_run(pool, (int)(chunks * job->num_strips), wide_multiply, job);
}

static void run_wide(tri_pool *pool, gemm_job *job)
{
    const tri_gemm *g = job->g;
    int64_t mr = job->kernels->mr, nr = job->kernels->nr;
    int64_t max_depth = equal_part(g->k, MAX_DEPTH, 4);
    job->pass = equal_part(max_depth, KC, 4);
    job->task_rows = equal_part(g->m, ROW_CHUNK, mr);
    int64_t chunks = divide_up(g->m, job->task_rows);
    int64_t panels = divide_up(divide_up(g->n, nr) * chunks, ENOUGH_TASKS);
    job->task_cols = min_i64(panels * nr, MAX_STRIP / nr * nr);
    job->pack_rows = 8 * mr;
    job->b_shared = chunks > 1;
    /* Rows a multiple of 4 KiB apart would fight for the same lines of the cache. */
    job->a_in_place = !g->trans_a && g->lda % 1024 != 0;

    int64_t max_rows =
        job->a_in_place ? g->m : A_FLOATS / max_depth / job->task_rows * job->task_rows;
    int64_t max_cols =
        job->b_shared ? B_FLOATS / max_depth / job->task_cols * job->task_cols : g->n;
    job->p = 0;
    do { /* once for k = 0 too */
        job->depth = min_i64(max_depth, g->k - job->p);
        for (job->j = 0; job->j < g->n; job->j += max_cols) {
            job->cols = min_i64(max_cols, g->n - job->j);
            for (job->i = 0; job->i < g->m; job->i += max_rows) {
                job->rows = min_i64(max_rows, g->m - job->i);
                bool same_a = job->j > 0 && max_rows >= g->m;
                run_wide_block(pool, job, !job->a_in_place && !same_a,
                               job->b_shared && job->i == 0);
            }
        }
        job->p += job->depth;
    } while (job->p < g->k);
}

void tri_gemm_run(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *g)
{
    if (g->m <= 0 || g->n <= 0)
        return;
    const tri_gemm_kernels *kernels = kernels_of(isa);
    assert(kernels->mr <= MAX_MR && kernels->nr <= MAX_NR && kernels->nr <= MAX_STRIP);
    if (2 * g->m * g->n * g->k < INLINE_FLOPS)
        pool = NULL;
    gemm_job job = {
        .g = g,
        .kernels = kernels,
        .num_threads = tri_pool_threads(pool),
        .shared_a = scratch,
        .shared_b = (float *)scratch + A_FLOATS,
        .of_workers = (float *)scratch + A_FLOATS + B_FLOATS,
    };
    if (g->n <= NARROW_COLS && round_up(g->n, kernels->nr) * g->k <= B_FLOATS)
        run_narrow(pool, &job);
    else
        run_wide(pool, &job);
}
