/* The wide plan of a matrix product, or of several, as one stream of tasks.
 *
 * A turn is one pass over one block of c, of the first product, then of the second, and so on. Its
 * rows of a are packed into shared scratch; then tasks multiply: a chunk of packed rows by a strip
 * of columns, each. Packing is mostly waiting for memory, so it rides with the tasks of the turn
 * before: while such a task multiplies it fetches a few rows of the next turn, and packs them at
 * its end. The last tasks of a turn have no riders, so that the next turn can begin while they are
 * still at work. Only the first turn is packed by tasks of its own:
 *
 *     pack 0 .. | multiply 0 and pack 1 .. | multiply 0 .. | multiply 1 and pack 2 .. | ...
 *
 * Workers take tasks from the front of the stream until it is empty, with no barrier between turns:
 * with one, all would wait for the slowest twice a turn, and a product has dozens of turns of less
 * than a millisecond. What must not overlap is kept apart by places in the stream. A worker that
 * has taken a task waits until every task before a certain place is done:
 *   1. A multiplication needs the packing of its turn, and the same chunk and strip of the turn
 *      before, which wrote the same part of c.
 *   2. Packing needs a slot of the scratch, hence all multiplications of the turn that had it last.
 * Both lie far enough back to be done almost always. Tasks are taken in order, so whoever is
 * furthest behind waits for nobody.
 *
 * Each worker says in a line of its own which place it may be working at. It does so before it
 * takes a task (then it is a lower bound), so a worker that has taken a later task always sees it.
 */
#include "device/cpu/gemm_parts.h"

#include <limits.h>
#include <stdatomic.h>

/* Rows of a packing task: whole panels of every instruction set. */
#define FIRST_ROWS 64
/* Tasks of a turn for each worker, below which they wait for each other too often. */
#define FEW_TASKS 4

/* One pass over one block of c: rows from i, columns from j, values of k from p. */
typedef struct turn {
    const tri_gemm_part *part;
    int64_t i, rows, j, cols, p, depth;
} turn;

typedef struct stream {
    const tri_gemm_job *job;
    tri_pool *pool;
    const tri_gemm_part *parts;
    int64_t num_parts;
    int64_t block_chunks, block_cols; /* a block has so many chunks of rows, of its own product */
    int64_t num_j, num_turns;
    /* Places: packing of the first turn, then num_places of each turn, of which the first
     * num_carriers carry ride_rows of the next turn. Smaller blocks, at the edges and of products
     * with few rows, leave places without a multiplication. */
    int64_t num_packs, num_places, num_carriers, ride_rows;
    int64_t num_slots, slot_floats; /* of the shared scratch, for packed rows of a turn each */
    _Alignas(64) _Atomic int64_t next;
} stream;

/* A wait of one worker: until all others have passed a place. */
typedef struct passing {
    const stream *s;
    int worker;
    int64_t place;
} passing;

/* The product that a turn is of: the last that begins no later. */
static const tri_gemm_part *part_at(const stream *s, int64_t index)
{
    int64_t low = 0, high = s->num_parts;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (s->parts[middle].first_turn <= index)
            low = middle;
        else
            high = middle;
    }
    return &s->parts[low];
}

/* Passes follow each other within a block, blocks along a row of blocks: row after row. */
static turn turn_at(const stream *s, int64_t index)
{
    const tri_gemm_part *part = part_at(s, index);
    const tri_gemm *g = part->g;
    int64_t block_rows = s->block_chunks * part->task_rows;
    int64_t block = (index - part->first_turn) / part->num_p;
    turn t = {
        .part = part,
        .i = block / s->num_j * block_rows,
        .j = block % s->num_j * s->block_cols,
        .p = (index - part->first_turn) % part->num_p * part->depth,
    };
    t.rows = min_i64(block_rows, g->m - t.i);
    t.cols = min_i64(s->block_cols, g->n - t.j);
    t.depth = part->few ? g->k : min_i64(part->depth, g->k - t.p);
    return t;
}

static float *packed_a(const stream *s, int64_t index)
{
    return s->job->shared + index % s->num_slots * s->slot_floats;
}

static int64_t start_of(const stream *s, int64_t index)
{
    return s->num_packs + index * s->num_places;
}

/* ---- the tasks ---- */

/* Rows of a turn, from `first` on and at most `most`. */
static void pack(const stream *s, int64_t index, int64_t first, int64_t most)
{
    const tri_gemm_job *job = s->job;
    turn t = turn_at(s, index);
    const tri_gemm *g = t.part->g;
    if (first < t.rows && !t.part->few)
        job->kernels->pack_a(packed_a(s, index) + first * t.depth, job->kernels->mr * t.depth,
                             a_at(g, t.i + first, t.p), g->lda, g->trans_a,
                             min_i64(most, t.rows - first), t.depth);
}

static tri_gemm_ahead rectangle(const float *start, int64_t rows, int64_t cols, int64_t ld,
                                bool transposed)
{
    if (transposed)
        return (tri_gemm_ahead){start, cols, rows, ld};
    return (tri_gemm_ahead){start, rows, cols, ld};
}

/* What the worker will pack next: the rows that ride with this task, and the strip of b that it
 * gets if all workers keep pace. */
static void look_ahead(const stream *s, int64_t index, const turn *t, int64_t task,
                       tri_gemm_ahead ahead[TRI_GEMM_AHEAD])
{
    const tri_gemm_job *job = s->job;
    if (task < s->num_carriers && index + 1 < s->num_turns) {
        turn next = turn_at(s, index + 1);
        const tri_gemm *of = next.part->g;
        int64_t first = task * s->ride_rows;
        if (first < next.rows && !next.part->few)
            *ahead++ = rectangle(a_at(of, next.i + first, next.p),
                                 min_i64(s->ride_rows, next.rows - first), next.depth, of->lda,
                                 of->trans_a);
    }
    const tri_gemm *g = t->part->g;
    int64_t num_strips = divide_up(t->cols, job->task_cols);
    int64_t first = (task + job->num_threads) % num_strips * job->task_cols;
    int64_t cols = min_i64(job->task_cols, t->cols - first);
    *ahead = rectangle(b_at(g, t->p, t->j + first), t->depth, cols, g->ldb, g->trans_b);
}

/* A product with few rows: its b is read once, in order, and packed nowhere. */
static void multiply_few(const stream *s, const turn *t, tri_gemm_block *block)
{
    const tri_gemm *g = t->part->g;
    block->a = g->a;
    block->a_row = g->lda;
    block->b_depth = g->ldb;
    s->job->kernels->run_few(block, t->part->depth);
}

static void multiply(const stream *s, int64_t index, int64_t task, int worker)
{
    const tri_gemm_job *job = s->job;
    const tri_gemm_kernels *kernels = job->kernels;
    turn t = turn_at(s, index);
    const tri_gemm *g = t.part->g;
    int64_t num_strips = divide_up(t.cols, job->task_cols);
    int64_t first_row = task / num_strips * t.part->task_rows;
    int64_t first_col = task % num_strips * job->task_cols;
    if (first_row >= t.rows)
        return;
    int64_t rows = min_i64(t.part->task_rows, t.rows - first_row);
    int64_t cols = min_i64(job->task_cols, t.cols - first_col);
    tri_gemm_block block =
        block_of_c(g, t.i + first_row, rows, t.j + first_col, cols, t.p, t.depth);
    block.b = b_at(g, t.p, t.j + first_col);
    if (t.part->few) {
        multiply_few(s, &t, &block);
        return;
    }
    block.a = packed_a(s, index) + first_row * t.depth;
    block.a_panel = kernels->mr * t.depth;
    block.a_row = 1;
    block.a_depth = kernels->mr;
    float *strip = worker_scratch(job, worker);
    int64_t panel = kernels->nr * t.depth;
    kernels->pack_b(strip, panel, block.b, g->ldb, g->trans_b, t.depth, cols);
    use_packed_b(kernels, &block, strip, panel);
    look_ahead(s, index, &t, task, block.ahead);
    kernels->run_block(&block);
}

/* ---- the stream ---- */

static _Atomic int64_t *position_of(const tri_gemm_job *job, int worker)
{
    return (_Atomic int64_t *)(worker_scratch(job, worker) + POSITION_AT);
}

static bool others_passed(void *context)
{
    const passing *p = context;
    for (int w = 0; w < p->s->job->num_threads; w++)
        if (w != p->worker && atomic_load(position_of(p->s->job, w)) < p->place)
            return false;
    return true;
}

static void wait_for(const stream *s, int worker, int64_t place)
{
    passing p = {s, worker, place};
    if (!others_passed(&p))
        tri_pool_wait(s->pool, others_passed, &p);
}

static void run_place(const stream *s, int64_t place, int worker)
{
    if (place < s->num_packs) {
        pack(s, 0, place * FIRST_ROWS, FIRST_ROWS);
        return;
    }
    int64_t index = (place - s->num_packs) / s->num_places, task = place - start_of(s, index);
    int64_t packed = index == 0 ? s->num_packs : start_of(s, index - 1) + s->num_carriers;
    int64_t same = index == 0 ? 0 : place - s->num_places + 1;
    wait_for(s, worker, same > packed ? same : packed); /* rule 1 */
    multiply(s, index, task, worker);
    if (task >= s->num_carriers || index + 1 == s->num_turns)
        return;
    if (index + 1 >= s->num_slots)
        wait_for(s, worker, start_of(s, index + 2 - s->num_slots)); /* rule 2 */
    pack(s, index + 1, task * s->ride_rows, s->ride_rows);
}

static void set_position(const stream *s, int worker, int64_t at)
{
    atomic_store(position_of(s->job, worker), at);
    tri_pool_notify(s->pool);
}

/* What each worker does: a task of the pool, of which there are as many as workers. */
static void work(void *context, int task, int worker)
{
    stream *s = context;
    int64_t end = start_of(s, s->num_turns);
    (void)task;
    for (;;) {
        set_position(s, worker, atomic_load(&s->next));
        int64_t place = atomic_fetch_add(&s->next, 1);
        if (place >= end)
            break;
        set_position(s, worker, place);
        run_place(s, place, worker);
    }
    set_position(s, worker, INT64_MAX);
}

/* Rows of a chunk of a product. */
static int64_t chunk_rows(const tri_gemm_part *part, int64_t mr)
{
    int64_t most = part->g->k <= part->depth ? LARGE_CHUNK_FLOATS : CHUNK_FLOATS;
    int64_t chunk = most / (part->depth < PASS ? PASS : part->depth) / mr * mr;
    return equal_part(part->g->m, chunk, mr);
}

/* Blocks of one chunk, and many slots, keep workers from waiting for each other; where a turn would
 * then have few tasks for each, blocks of two. */
static void plan(stream *s, tri_gemm_job *job, tri_gemm_part *parts)
{
    int64_t mr = job->kernels->mr, nr = job->kernels->nr, threads = job->num_threads;
    int64_t n = parts[0].g->n, most_rows = 0;
    bool two = false;
    for (tri_gemm_part *part = parts; part < parts + s->num_parts; part++) {
        part->task_rows = chunk_rows(part, mr);
        most_rows = part->task_rows > most_rows ? part->task_rows : most_rows;
        two |=
            threads > 1 && part->g->m > part->task_rows && divide_up(n, nr) < FEW_TASKS * threads;
    }
    s->block_chunks = two ? 2 : 1;
    s->block_cols = equal_part(n, C_FLOATS / (s->block_chunks * most_rows), nr);
    int64_t panels = divide_up(s->block_cols, nr) * s->block_chunks;
    job->task_cols = min_i64(divide_up(panels, ENOUGH_TASKS) * nr, MAX_STRIP / nr * nr);
    s->num_j = divide_up(n, s->block_cols);
    for (tri_gemm_part *part = parts; part < parts + s->num_parts; part++) {
        part->first_turn = s->num_turns;
        part->num_p = part->few || part->g->k == 0 ? 1 : divide_up(part->g->k, part->depth);
        s->num_turns +=
            divide_up(part->g->m, s->block_chunks * part->task_rows) * s->num_j * part->num_p;
    }
    s->num_packs = divide_up(s->block_chunks * parts[0].task_rows, FIRST_ROWS);
    s->num_places = s->block_chunks * divide_up(s->block_cols, job->task_cols);
    s->num_carriers = s->num_places > 2 * threads ? s->num_places - threads : s->num_places;
    s->ride_rows = round_up(divide_up(s->block_chunks * most_rows, s->num_carriers), mr);
    s->num_slots = (threads > 1 ? 4 : 2) / s->block_chunks;
    s->slot_floats = s->block_chunks * (int64_t)LARGE_CHUNK_FLOATS;
}

void tri_gemm_run_wide(tri_pool *pool, tri_gemm_job *job, tri_gemm_part *parts, int64_t num_parts)
{
    stream s = {.job = job, .pool = pool, .parts = parts, .num_parts = num_parts};
    plan(&s, job, parts);
    atomic_init(&s.next, 0);
    for (int w = 0; w < job->num_threads; w++)
        atomic_init(position_of(job, w), INT64_MAX);
    tri_pool_run(pool, job->num_threads, work, &s);
}
