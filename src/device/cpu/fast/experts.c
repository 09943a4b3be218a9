/* Rows sorted by expert, and what is done to each row with a weight or a gate of its own. */
#include "device/cpu/fast/fast.h"

/* A counting sort: blocks of choices count how often each expert occurs, from which follows where
 * the first of each block and expert goes; then each block puts its choices there, in order. */
typedef struct sort_job {
    const tri_kernel_args *args;
    int64_t count, block, num_blocks;
    int64_t num_bins; /* the experts, and none of them */
    int32_t *at;      /* [block][bin] */
} sort_job;

static int64_t sort_block(int64_t count)
{
    int64_t block = ceil_div(count, MAX_ROW_BLOCKS);
    return block < SMALL_WORK ? SMALL_WORK : block;
}

static int64_t bin_of(int32_t choice, int64_t num_bins)
{
    return choice < 0 || choice >= num_bins - 1 ? num_bins - 1 : choice;
}

static void count_task(void *context, int task, int worker)
{
    (void)worker;
    const sort_job *job = context;
    const int32_t *choice = job->args->in[0].data;
    int64_t first = task * job->block, end = min_i64(job->count, first + job->block);
    int32_t *at = job->at + task * job->num_bins;
    memset(at, 0, (size_t)job->num_bins * sizeof *at);
    for (int64_t i = first; i < end; i++)
        at[bin_of(choice[i], job->num_bins)]++;
}

static void deal_task(void *context, int task, int worker)
{
    (void)worker;
    const sort_job *job = context;
    const tri_kernel_args *args = job->args;
    const int32_t *choice = args->in[0].data;
    int32_t *place = args->out[0].data, *row = args->out[1].data, *slot = args->out[2].data;
    int32_t *expert = args->out[3].data, choices = (int32_t)last_dim(&args->in[0]);
    int64_t first = task * job->block, end = min_i64(job->count, first + job->block);
    int32_t *at = job->at + task * job->num_bins;
    for (int64_t i = first; i < end; i++) {
        int64_t bin = bin_of(choice[i], job->num_bins);
        int32_t to = at[bin]++;
        place[i] = to;
        row[to] = (int32_t)i / choices;
        slot[to] = (int32_t)i;
        expert[to] = bin == job->num_bins - 1 ? -1 : (int32_t)bin;
    }
}

static void sort_rows(const tri_kernel_args *args)
{
    int64_t count = args->in[0].count, block = sort_block(count);
    sort_job job = {.args = args,
                    .count = count,
                    .block = block,
                    .num_blocks = ceil_div(count, block),
                    .num_bins = args->attr->route.experts + 1,
                    .at = cpu_of(args)->scratch};
    run_tasks(args, count, job.num_blocks, count_task, &job);
    int32_t sum = 0;
    for (int64_t bin = 0; bin < job.num_bins; bin++)
        for (int64_t b = 0; b < job.num_blocks; b++) {
            int32_t num = job.at[b * job.num_bins + bin];
            job.at[b * job.num_bins + bin] = sum;
            sum += num;
        }
    run_tasks(args, count, job.num_blocks, deal_task, &job);
}

static size_t sort_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t count = args->in[0].count;
    return (size_t)(ceil_div(count, sort_block(count)) * (args->attr->route.experts + 1)) *
           sizeof(int32_t);
}

/* Rows of a width, in tasks. */
typedef struct weighed_rows {
    const tri_kernel_args *args;
    int64_t num_rows, width;
} weighed_rows;

static void run_rows(const tri_kernel_args *args, tri_task_fn fn)
{
    int64_t width = last_dim(&args->in[0]);
    weighed_rows job = {args, width > 0 ? args->in[0].count / width : 0, width};
    run_tasks(args, args->in[0].count, ceil_div(job.num_rows, rows_per_task(width)), fn, &job);
}

static int64_t rows_of(const weighed_rows *job, int task, int64_t *end)
{
    int64_t rows = rows_per_task(job->width), first = task * rows;
    *end = min_i64(job->num_rows, first + rows);
    return first;
}

static void weigh_row(const float *gate, const float *up, float w, float *y, int64_t width)
{
    INDEPENDENT
    for (int64_t i = 0; i < width; i++)
        y[i] = w * (tri_silu(gate[i]) * up[i]);
}

static void swiglu_rows_task(void *context, int task, int worker)
{
    (void)worker;
    const weighed_rows *job = context;
    const tri_kernel_args *args = job->args;
    const float *gate = args->in[0].data, *up = args->in[1].data, *w = args->in[2].data;
    float *y = args->out[0].data;
    int64_t end, width = job->width;
    for (int64_t r = rows_of(job, task, &end); r < end; r++)
        weigh_row(gate + r * width, up + r * width, w[r], y + r * width, width);
}

static void swiglu_rows(const tri_kernel_args *args)
{
    run_rows(args, swiglu_rows_task);
    if (args->num_out > 1)
        TRI_ISA_NAME(tri_fast_amax_of)(args, &args->out[0], &args->out[1]);
}

/* The sum of dy silu(gate) up over a row; before the outputs, which may be these. */
static float weight_grad(const float *restrict gate, const float *restrict up,
                         const float *restrict dy, int64_t width)
{
    float lane[SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= width; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += dy[i + l] * (tri_silu(gate[i + l]) * up[i + l]);
    for (; i < width; i++)
        lane[0] += dy[i] * (tri_silu(gate[i]) * up[i]);
    return sum_of_lanes(lane);
}

static void weigh_grads(const float *gate, const float *up, const float *dy, float w, float *dgate,
                        float *dup, int64_t width)
{
    INDEPENDENT
    for (int64_t i = 0; i < width; i++) {
        float g = gate[i], u = up[i], d = w * dy[i];
        dgate[i] = d * u * tri_silu_grad(g);
        dup[i] = d * tri_silu(g);
    }
}

static void swiglu_rows_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const weighed_rows *job = context;
    const tri_kernel_args *args = job->args;
    const float *w = args->in[3].data;
    int64_t end, width = job->width;
    for (int64_t r = rows_of(job, task, &end); r < end; r++) {
        const float *gate = (const float *)args->in[0].data + r * width;
        const float *up = (const float *)args->in[1].data + r * width;
        const float *dy = (const float *)args->in[2].data + r * width;
        ((float *)args->out[2].data)[r] = weight_grad(gate, up, dy, width);
        weigh_grads(gate, up, dy, w[r], (float *)args->out[0].data + r * width,
                    (float *)args->out[1].data + r * width, width);
    }
}

static void swiglu_rows_grad(const tri_kernel_args *args)
{
    run_rows(args, swiglu_rows_grad_task);
    for (int k = 3; k < args->num_out; k++)
        TRI_ISA_NAME(tri_fast_amax_of)(args, &args->out[k - 3], &args->out[k]);
}

static void scale_row(const float *x, float by, float *y, int64_t width)
{
    INDEPENDENT
    for (int64_t i = 0; i < width; i++)
        y[i] = by * x[i];
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + tri_expf(-x));
}

static void gate_rows_task(void *context, int task, int worker)
{
    (void)worker;
    const weighed_rows *job = context;
    const tri_kernel_args *args = job->args;
    const float *x = args->in[0].data, *gate = args->in[1].data;
    float *y = args->out[0].data;
    int64_t end, width = job->width;
    for (int64_t r = rows_of(job, task, &end); r < end; r++)
        scale_row(x + r * width, sigmoid(gate[r]), y + r * width, width);
}

static void gate_rows(const tri_kernel_args *args)
{
    run_rows(args, gate_rows_task);
}

static float dot_row(const float *restrict a, const float *restrict b, int64_t width)
{
    float lane[SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= width; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (; i < width; i++)
        lane[0] += a[i] * b[i];
    return sum_of_lanes(lane);
}

static void gate_rows_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const weighed_rows *job = context;
    const tri_kernel_args *args = job->args;
    const float *dy = args->in[0].data, *x = args->in[1].data, *gate = args->in[2].data;
    float *dx = args->out[0].data, *dgate = args->out[1].data;
    int64_t end, width = job->width;
    for (int64_t r = rows_of(job, task, &end); r < end; r++) {
        float e = tri_expf(-tri_clampf(gate[r], -80.0f, 80.0f)), s = 1.0f / (1.0f + e);
        dgate[r] = s * (e * s) * dot_row(dy + r * width, x + r * width, width); /* 1 - s = e s */
        scale_row(dy + r * width, s, dx + r * width, width);
    }
}

static void gate_rows_grad(const tri_kernel_args *args)
{
    run_rows(args, gate_rows_grad_task);
}

const tri_kernel TRI_ISA_NAME(tri_fast_sort_rows) = {.run = sort_rows,
                                                     .scratch_bytes = sort_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_swiglu_rows) = {.run = swiglu_rows};
const tri_kernel TRI_ISA_NAME(tri_fast_swiglu_rows_grad) = {.run = swiglu_rows_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_gate_rows) = {.run = gate_rows};
const tri_kernel TRI_ISA_NAME(tri_fast_gate_rows_grad) = {.run = gate_rows_grad};
