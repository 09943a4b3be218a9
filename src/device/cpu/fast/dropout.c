/* Dropout and jitter. The word of an element depends on its global index alone, so every layout
 * drops the same ones, and the gradient recomputes the mask instead of reading one. */
#include "device/cpu/fast/philox.h"

/* Elements that follow each other in the local tensor and in the logical one: a run is the part of
 * the local tensor below which no dim is cut. Tokens that have places lie in any order: then a run
 * is within one. */
typedef struct dropout_job {
    const tri_kernel_args *args;
    philox_key key;
    bool jitter;
    uint32_t threshold;
    float scale, jitter_by;
    int run_dims;       /* dims [run_dims, rank) make up a run */
    int64_t run_length; /* local elements */
} dropout_job;

static dropout_job job_of(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const int32_t *step = args->in[2].data;
    float p = args->attr->dropout.p;
    dropout_job job = {.args = args,
                       .key = {args->seed, (uint32_t)step[0], args->attr->dropout.stream},
                       .threshold = tri_dropout_threshold(p),
                       .scale = 1.0f / (1.0f - p),
                       .jitter_by = p,
                       .run_dims = x->rank,
                       .run_length = 1};
    int outside = args->in[3].data ? 2 : 1;
    while (job.run_dims > outside) {
        int dim = --job.run_dims;
        job.run_length *= x->size[dim];
        if (x->size[dim] != x->global[dim])
            break; /* a part of this dim is contiguous, what is outside of it is not */
    }
    return job;
}

/* The global index of the first element of a run. */
static uint64_t run_start(const dropout_job *job, int64_t run)
{
    const tri_tensor *x = &job->args->in[0];
    const int32_t *rows = job->args->in[1].data, *places = job->args->in[3].data;
    int64_t at[TRI_MAX_RANK] = {0};
    for (int d = job->run_dims - 1; d >= 0; d--) {
        at[d] = run % x->size[d];
        run /= x->size[d];
    }
    uint64_t g = (uint64_t)rows[at[0]];
    for (int d = 1; d < x->rank; d++) {
        bool placed = places && d == 1;
        int64_t index = placed ? places[at[0] * x->size[1] + at[1]] : at[d] + x->origin[d];
        g = g * (uint64_t)x->global[d] + (uint64_t)index;
    }
    return g;
}

/* The words of num_blocks blocks in their order; num_blocks is a multiple of WIDE_LANES. */
static void fill_words(const philox_key *key, uint64_t first_block, int64_t num_blocks,
                       uint32_t *restrict to)
{
    vec_wide block = lane_steps(1) + first_block;
    for (int64_t at = 0; at < num_blocks; at += WIDE_LANES) {
        vec_wide word[4];
        philox_wide(key, block, word);
        store_in_order(to + at * 4, word);
        block += WIDE_LANES;
    }
}

static void apply_words(const uint32_t *word, uint32_t threshold, float scale, const float *x,
                        float *y, int64_t num)
{
    INDEPENDENT
    for (int64_t i = 0; i < num; i++)
        y[i] = word[i] >= threshold ? x[i] * scale : 0.0f;
}

static void apply_jitter(const uint32_t *word, float p, const float *x, float *y, int64_t num)
{
    INDEPENDENT
    for (int64_t i = 0; i < num; i++)
        y[i] = x[i] * tri_jitter_factor(word[i], p);
}

/* num elements from global index g on; x and y may be equal. */
static void drop_span(const dropout_job *job, uint64_t g, const float *x, float *y, int64_t num)
{
    enum { WORDS = 1024 }; /* made at a time: they stay in the nearest cache */
    uint32_t word[WORDS];
    for (int64_t i = 0; i < num;) {
        int64_t skip = (int64_t)(g % 4), part = min_i64(num - i, WORDS - skip);
        fill_words(&job->key, g / 4, round_up(ceil_div(skip + part, 4), WIDE_LANES), word);
        if (job->jitter)
            apply_jitter(word + skip, job->jitter_by, x + i, y + i, part);
        else
            apply_words(word + skip, job->threshold, job->scale, x + i, y + i, part);
        g += (uint64_t)part;
        i += part;
    }
}

static void dropout_task(void *context, int task, int worker)
{
    (void)worker;
    const dropout_job *job = context;
    const float *x = job->args->in[0].data;
    float *y = job->args->out[0].data;
    int64_t at = (int64_t)task * TASK_ELEMENTS;
    int64_t end = min_i64(at + TASK_ELEMENTS, job->args->out[0].count);
    while (at < end) {
        int64_t run = at / job->run_length, offset = at % job->run_length;
        int64_t num = min_i64(end - at, job->run_length - offset);
        drop_span(job, run_start(job, run) + (uint64_t)offset, x + at, y + at, num);
        at += num;
    }
}

static void dropout(const tri_kernel_args *args)
{
    dropout_job job = job_of(args);
    int64_t num = args->out[0].count;
    run_tasks(args, num, ceil_div(num, TASK_ELEMENTS), dropout_task, &job);
}

static void jitter(const tri_kernel_args *args)
{
    dropout_job job = job_of(args);
    int64_t num = args->out[0].count;
    job.jitter = true;
    run_tasks(args, num, ceil_div(num, TASK_ELEMENTS), dropout_task, &job);
}

const tri_kernel TRI_ISA_NAME(tri_fast_dropout) = {.run = dropout};
const tri_kernel TRI_ISA_NAME(tri_fast_jitter) = {.run = jitter};
