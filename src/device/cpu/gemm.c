/* Cutting a matrix product into blocks and tasks.
 *
 * Three plans, chosen by shape:
 *
 *   Wide. c is cut into blocks, and k into passes. For each pass over a block, the rows of a are
 *   packed into shared scratch by all workers, then a task multiplies a chunk of them by a strip of
 *   columns: it packs the strip of b for itself, so that a panel of it is in the first-level cache
 *   when it is used, while the chunk of a stays in the second. Packing is mostly waiting for
 *   memory, so a task fetches ahead what it will pack next (tri_gemm_block.ahead). How the tasks of
 *   all passes become one stream is told in gemm_wide.c.
 *
 *   Narrow. With few columns, packing a would cost too much beside so little arithmetic, and
 *   packing b too unless it is transposed: tasks take rows and read in place what they can.
 *
 *   Few. With few rows the product waits for b alone, which is read once, in order, and packed
 *   nowhere: tasks take columns.
 *
 * Several products (tri_gemm_run_list) are one stream of the wide plan, in which those with few
 * rows read b in place as well.
 *
 * All sizes follow from constants and the shape, never from the number of threads: see gemm.h. The
 * cuts along k alone decide the bits of the result; those of rows and columns do not. */
#include "device/cpu/gemm_parts.h"

#include <assert.h>

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

static size_t shared_floats(int num_threads)
{
    return (num_threads > 1 ? 2 : 1) * (size_t)SHARED_FLOATS;
}

size_t tri_gemm_scratch_bytes(int num_threads)
{
    return (shared_floats(num_threads) + (size_t)num_threads * WORKER_FLOATS) * sizeof(float);
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

/* ---- the whole pool ---- */

/* ---- narrow plan ---- */

/* A transposed b is packed whole, pass after pass, each of them panel after panel. */
static float *narrow_b(const tri_gemm_job *job, int64_t p)
{
    return job->shared + p * round_up(job->g->n, job->kernels->nr);
}

static void narrow_pack(void *context, int task, int worker)
{
    const tri_gemm_job *job = context;
    const tri_gemm *g = job->g;
    int64_t p = (int64_t)task * MAX_PASS;
    int64_t depth = min_i64(MAX_PASS, g->k - p);
    (void)worker;
    job->kernels->pack_b(narrow_b(job, p), depth * job->kernels->nr, b_at(g, p, 0), g->ldb, true,
                         depth, g->n);
}

static void narrow_multiply(void *context, int task, int worker)
{
    const tri_gemm_job *job = context;
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

static void run_narrow(tri_pool *pool, tri_gemm_job *job)
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
    const tri_gemm_job *job = context;
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

/* Values of k in a pass of the wide plan. */
static int64_t wide_depth(const tri_gemm *g)
{
    return equal_part(g->k, g->k <= MAX_PASS ? MAX_PASS : PASS, 4);
}

static bool is_narrow(const tri_gemm_kernels *kernels, const tri_gemm *g)
{
    return g->n <= NARROW_COLS && round_up(g->n, kernels->nr) * g->k <= SHARED_FLOATS;
}

static bool is_few(const tri_gemm *g)
{
    return g->m <= FEW_MOST && g->trans_b && !g->trans_a && !g->accumulate && g->alpha == 1 &&
           g->k > 0;
}

/* Values of k in a pass: the bits of a product are those of its cut along k, in every plan. */
static int64_t pass_depth(const tri_gemm_kernels *kernels, const tri_gemm *g)
{
    return is_narrow(kernels, g) ? MAX_PASS : wide_depth(g);
}

static tri_gemm_job job_of(tri_pool *pool, const tri_gemm_kernels *kernels, void *scratch)
{
    assert(kernels->mr <= MAX_MR && kernels->nr <= MAX_NR);
    return (tri_gemm_job){
        .kernels = kernels,
        .num_threads = tri_pool_threads(pool),
        .shared = scratch,
        .of_workers = (float *)scratch + shared_floats(tri_pool_threads(pool)),
    };
}

void tri_gemm_run(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *g)
{
    if (g->m <= 0 || g->n <= 0)
        return;
    const tri_gemm_kernels *kernels = kernels_of(isa);
    if (2 * g->m * g->n * g->k < INLINE_FLOPS)
        pool = NULL;
    tri_gemm_job job = job_of(pool, kernels, scratch);
    job.g = g;
    job.depth = pass_depth(kernels, g);
    if (is_few(g)) {
        job.task_cols = min_i64(round_up(divide_up(g->n, ENOUGH_TASKS), FEW_UNIT), FEW_COLS);
        tri_pool_run(pool, (int)divide_up(g->n, job.task_cols), few_multiply, &job);
    } else if (is_narrow(kernels, g)) {
        run_narrow(pool, &job);
    } else {
        tri_gemm_part part = {.g = g, .depth = job.depth};
        tri_gemm_run_wide(pool, &job, &part, 1);
    }
}

/* ---- a list ---- */

size_t tri_gemm_list_scratch_bytes(int num_threads, int64_t count)
{
    return tri_gemm_scratch_bytes(num_threads) + (size_t)count * sizeof(tri_gemm_part);
}

void tri_gemm_run_list(tri_pool *pool, tri_isa isa, void *scratch, const tri_gemm *list,
                       int64_t count)
{
    const tri_gemm_kernels *kernels = kernels_of(isa);
    tri_gemm_part *parts =
        (tri_gemm_part *)((char *)scratch + tri_gemm_scratch_bytes(tri_pool_threads(pool)));
    int64_t num_parts = 0, flops = 0;
    for (const tri_gemm *g = list; g < list + count; g++) {
        if (g->m <= 0 || g->n <= 0)
            continue;
        flops += 2 * g->m * g->n * g->k;
        parts[num_parts++] =
            (tri_gemm_part){.g = g, .depth = pass_depth(kernels, g), .few = is_few(g)};
    }
    if (num_parts == 1) {
        tri_gemm_run(pool, isa, scratch, parts[0].g);
    } else if (num_parts > 1) {
        pool = flops < INLINE_FLOPS ? NULL : pool;
        tri_gemm_job job = job_of(pool, kernels, scratch);
        tri_gemm_run_wide(pool, &job, parts, num_parts);
    }
}
