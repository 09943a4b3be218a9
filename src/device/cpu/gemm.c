/* Cutting a matrix product into blocks and tasks.
 *
 * Two plans, chosen by shape:
 *
 *   Wide: op(a) is packed into shared scratch by all workers, up to A_FLOATS at a time, then each
 *   task takes a chunk of rows and a strip of columns: it packs the strip of b into scratch of its
 *   worker, KC values of k at a time, and multiplies. b, the weights as a rule, is read from memory
 *   once per chunk of rows, and needs no second pass through a shared buffer.
 *
 *   Narrow: with few columns, packing a would cost too much beside so little arithmetic. The whole
 *   of op(b) is packed into shared scratch; tasks take rows, and read a where it lies.
 *
 * All sizes below are constants or follow from the shape: see the note on determinism in gemm.h. */
#include "device/cpu/gemm.h"
#include "device/cpu/fast/gemm_kernel.h"

#include <assert.h>

/* Values of k per block: a panel of b of this depth stays near the core (72 KiB at 48 columns)
 * while rows of a stream past, and the time to load and store a tile of c is small beside it. */
#ifndef KC
#define KC 384
#endif
/* Rows of one task: their part of packed a, for one block of k, should stay in 1 MiB of cache. */
#ifndef ROW_CHUNK
#define ROW_CHUNK 512
#endif
/* Columns of one task, at most, over all instruction sets. A multiple of every nr. */
#ifndef MAX_STRIP
#define MAX_STRIP 192
#endif
/* Shared scratch: packed a, or in the narrow plan packed b. */
#define A_FLOATS (3 << 19)
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
    return (A_FLOATS + (size_t)num_threads * WORKER_FLOATS) * sizeof(float);
}

size_t tri_gemm_small_scratch_bytes(void)
{
    return WORKER_FLOATS * sizeof(float);
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
    float *shared; /* A_FLOATS */
    float *of_workers;
    int64_t task_rows, task_cols; /* of a multiplying task */
    int64_t num_strips;
    int64_t pack_rows; /* of a task that packs a */
    /* The part of op(a) that is packed (wide plan). */
    int64_t i, rows, p, depth;
} gemm_job;

static float *worker_scratch(const gemm_job *job, int worker)
{
    return job->of_workers + (int64_t)worker * WORKER_FLOATS;
}

/* Narrow plan. A transposed b is packed whole, block of k after block of k, each of them panel
 * after panel. */
static float *narrow_b(const gemm_job *job, int64_t p)
{
    return job->shared + p * job->num_strips * job->kernels->nr;
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
    do {
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
    /* Some sixteen tasks, but not so small that a panel of b is fetched for a few rows only. */
    job->task_rows = round_up(divide_up(g->m, 16), job->kernels->mr);
    job->task_rows = job->task_rows < 32 ? 32 : min_i64(job->task_rows, 128);
    job->num_strips = divide_up(g->n, job->kernels->nr);
    if (g->trans_b)
        tri_pool_run(pool, (int)divide_up(g->k, KC), narrow_pack, job);
    tri_pool_run(pool, (int)divide_up(g->m, job->task_rows), narrow_multiply, job);
}

/* Wide plan. Packed a has panels of mr rows and job->depth values of k. */
static float *wide_a(const gemm_job *job, int64_t i, int64_t p)
{
    return job->shared + (i - job->i) * job->depth + (p - job->p) * job->kernels->mr;
}

static void wide_pack(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    int64_t first = task * job->pack_rows;
    int64_t rows = min_i64(job->pack_rows, job->rows - first);
    int64_t i = job->i + first;
    (void)worker;
    for (int64_t p = job->p; p < job->p + job->depth; p += KC) {
        int64_t depth = min_i64(KC, job->p + job->depth - p);
        job->kernels->pack_a(wide_a(job, i, p), job->kernels->mr * job->depth, a_at(g, i, p),
                             g->lda, g->trans_a, rows, depth);
    }
}

static void wide_multiply(void *context, int task, int worker)
{
    const gemm_job *job = context;
    const tri_gemm *g = job->g;
    const tri_gemm_kernels *kernels = job->kernels;
    int64_t first = task / job->num_strips * job->task_rows;
    int64_t i = job->i + first;
    int64_t rows = min_i64(job->task_rows, job->rows - first);
    int64_t j = task % job->num_strips * job->task_cols;
    int64_t cols = min_i64(job->task_cols, g->n - j);
    float *pack = worker_scratch(job, worker);
    int64_t p = job->p;
    do {
        int64_t depth = min_i64(KC, job->p + job->depth - p);
        tri_gemm_block block = block_of_c(g, i, rows, j, cols, p, depth);
#ifdef INPLACE
        if (!g->trans_a) use_a_in_place(kernels, g, &block, i, p, pack + KC*MAX_STRIP);
        else
#endif
        {
        block.a = wide_a(job, i, p);
        block.a_panel = kernels->mr * job->depth;
        block.a_row = 1;
        block.a_depth = kernels->mr;
        }
        kernels->pack_b(pack, depth * kernels->nr, b_at(g, p, j), g->ldb, g->trans_b, depth, cols);
        use_packed_b(kernels, &block, pack, depth * kernels->nr);
        kernels->run_block(&block);
        p += depth;
    } while (p < job->p + job->depth);
}

static void run_wide(tri_pool *pool, gemm_job *job)
{
    const tri_gemm *g = job->g;
    int64_t nr = job->kernels->nr, mr = job->kernels->mr;
    job->task_rows = ROW_CHUNK;
    /* Wide strips read b better, narrow ones give more tasks. */
    int64_t panels = divide_up(g->n, nr);
    int64_t panels_per_task = min_i64(MAX_STRIP / nr, divide_up(panels, 16));
    job->task_cols = panels_per_task * nr;
    job->num_strips = divide_up(g->n, job->task_cols);
    job->pack_rows = 8 * mr;

    /* All of k at once if it fits beside two chunks of rows, and then as many rows as fit. */
    int64_t rows_at_once = min_i64(round_up(g->m, mr), 2 * ROW_CHUNK);
    int64_t depth_at_once = A_FLOATS / rows_at_once / KC * KC;
    if (g->k > 0 && g->k <= depth_at_once && g->m > rows_at_once)
        rows_at_once = A_FLOATS / g->k / ROW_CHUNK * ROW_CHUNK;
    for (job->i = 0; job->i < g->m; job->i += rows_at_once) {
        job->rows = min_i64(rows_at_once, g->m - job->i);
        job->p = 0;
        do {
            job->depth = min_i64(depth_at_once, g->k - job->p);
#ifdef INPLACE
            if (g->trans_a)
#endif
            tri_pool_run(pool, (int)divide_up(job->rows, job->pack_rows), wide_pack, job);
            int64_t chunks = divide_up(job->rows, job->task_rows);
            tri_pool_run(pool, (int)(chunks * job->num_strips), wide_multiply, job);
            job->p += job->depth;
        } while (job->p < g->k);
    }
}

void tri_gemm_run(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *g)
{
    if (g->m <= 0 || g->n <= 0)
        return;
    const tri_gemm_kernels *kernels = kernels_of(isa);
    assert(kernels->mr <= MAX_MR && kernels->nr <= MAX_NR && MAX_STRIP % kernels->nr == 0);
    gemm_job job = {
        .g = g,
        .kernels = kernels,
        .shared = scratch,
        .of_workers = (float *)scratch + A_FLOATS,
    };
    if (2 * g->m * g->n * g->k < INLINE_FLOPS)
        pool = NULL;
    if (g->n <= NARROW_COLS && round_up(g->n, kernels->nr) * g->k <= A_FLOATS)
        run_narrow(pool, &job);
    else
        run_wide(pool, &job);
}
