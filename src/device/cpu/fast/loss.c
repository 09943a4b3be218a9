/* Losses. Cross-entropy runs over the whole vocabulary for every position, so it is bound by
 * memory, which is swept once. */
#include "device/cpu/fast/fast.h"

#include <math.h>

/* Elements of a block whose sum is one partial sum. */
enum { SUM_BLOCK = 65536 };

typedef struct rows_job {
    const tri_kernel_args *args;
    int64_t num_rows, dim, origin;
    int64_t rows_per_task;
} rows_job;

static rows_job rows_of(const tri_kernel_args *args)
{
    const tri_tensor *logits = &args->in[0];
    int64_t dim = last_dim(logits);
    return (rows_job){args, args->in[1].count, dim, logits->origin[logits->rank - 1],
                      rows_per_task(dim)};
}

static void run_rows(const rows_job *job, tri_task_fn fn)
{
    run_tasks(job->args, job->num_rows * job->dim, ceil_div(job->num_rows, job->rows_per_task), fn,
              (void *)job);
}

static float row_max(const float *restrict row, int64_t dim)
{
    float lane[SUM_LANES];
    for (int l = 0; l < SUM_LANES; l++)
        lane[l] = -INFINITY;
    int64_t v = 0;
    for (; v + SUM_LANES <= dim; v += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] = row[v + l] > lane[l] ? row[v + l] : lane[l];
    for (; v < dim; v++)
        lane[0] = row[v] > lane[0] ? row[v] : lane[0];
    for (int l = 1; l < SUM_LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

static float row_sum_exp(const float *restrict row, int64_t dim, float max)
{
    float lane[SUM_LANES] = {0};
    int64_t v = 0;
    for (; v + SUM_LANES <= dim; v += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += exp_weight(row[v + l] - max);
    for (; v < dim; v++)
        lane[0] += exp_weight(row[v] - max);
    return sum_of_lanes(lane);
}

/* Maximum and sum of exponentials in one sweep over memory: a chunk at a time, and the sum is
 * scaled down when a chunk raises the maximum. While one chunk is summed, the next is on its way.
 */
static void row_stats(const float *row, int64_t dim, float *max, float *sum)
{
    enum { CHUNK = 1024, LINE = 16 };
    *max = -INFINITY;
    *sum = 0;
    for (int64_t first = 0; first < dim; first += CHUNK) {
        int64_t num = min_i64(CHUNK, dim - first);
        float chunk_max = row_max(row + first, num);
        for (int64_t v = first + CHUNK; v < min_i64(first + 2 * CHUNK, dim); v += LINE)
            __builtin_prefetch(row + v);
        if (chunk_max > *max) {
            *sum *= exp_weight(*max - chunk_max);
            *max = chunk_max;
        }
        *sum += row_sum_exp(row + first, num, *max);
    }
}

static void ce_stats_task(void *context, int task, int worker)
{
    (void)worker;
    const rows_job *job = context;
    const int32_t *targets = job->args->in[1].data;
    float *stats = job->args->out[0].data;
    int64_t first = task * job->rows_per_task;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++) {
        const float *row = (const float *)job->args->in[0].data + i * job->dim;
        int64_t target = targets[i] - job->origin;
        row_stats(row, job->dim, &stats[i * 3], &stats[i * 3 + 1]);
        stats[i * 3 + 2] = target >= 0 && target < job->dim ? row[target] : 0;
    }
}

static void ce_stats(const tri_kernel_args *args)
{
    rows_job job = rows_of(args);
    run_rows(&job, ce_stats_task);
}

static void ce_grad_row(const float *row, float *drow, int64_t dim, float lse, float alpha)
{
    INDEPENDENT
    for (int64_t v = 0; v < dim; v++)
        drow[v] = alpha * exp_weight(row[v] - lse);
}

static void ce_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const rows_job *job = context;
    const int32_t *targets = job->args->in[1].data;
    const float *lse = job->args->in[2].data;
    float alpha = job->args->attr->loss.alpha * tri_kernel_scale(job->args, 3);
    float z = job->args->attr->loss.z;
    int64_t first = task * job->rows_per_task;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++) {
        const float *row = (const float *)job->args->in[0].data + i * job->dim;
        float *drow = (float *)job->args->out[0].data + i * job->dim;
        int64_t target = targets[i] - job->origin;
        if (targets[i] < 0) {
            memset(drow, 0, (size_t)job->dim * sizeof(float));
            continue;
        }
        ce_grad_row(row, drow, job->dim, lse[i], z != 0 ? alpha * (1 + 2 * z * lse[i]) : alpha);
        if (target >= 0 && target < job->dim)
            drow[target] -= alpha;
    }
}

static void ce_grad(const tri_kernel_args *args)
{
    rows_job job = rows_of(args);
    run_rows(&job, ce_grad_task);
}

/* A few numbers per position: not worth a second thread. */
static void ce_loss(const tri_kernel_args *args)
{
    const float *stats = args->in[0].data;
    const int32_t *targets = args->in[1].data;
    float *loss = args->out[0].data, *count = args->out[1].data, *lse = args->out[2].data;
    double sum = 0;
    int64_t num = 0;
    tri_head_stats head = tri_cpu_head_begin(args);
    for (int64_t i = 0; i < args->in[1].count; i++) {
        double row_lse = stats[i * 3] + (double)logf(stats[i * 3 + 1]);
        lse[i] = (float)row_lse;
        if (targets[i] >= 0) {
            sum += row_lse - stats[i * 3 + 2];
            num++;
            tri_cpu_head_row(args, &head, &stats[i * 3], row_lse);
        }
    }
    *loss = (float)(args->overwrite ? sum : *loss + sum);
    *count = (float)(args->overwrite ? (double)num : *count + (double)num);
    tri_cpu_head_end(args, &head);
}

typedef struct sum_job {
    const tri_kernel_args *args;
    double *partial;
} sum_job;

/* mean: the sum of a, otherwise of (a - b)^2. */
static double block_sum(const float *restrict a, const float *restrict b, int64_t num, bool mean)
{
    double lane[SUM_LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUM_LANES <= num; i += SUM_LANES) {
        if (mean) {
            for (int l = 0; l < SUM_LANES; l++)
                lane[l] += a[i + l];
        } else {
            for (int l = 0; l < SUM_LANES; l++) {
                double diff = (double)a[i + l] - b[i + l];
                lane[l] += diff * diff;
            }
        }
    }
    for (int l = 0; l < SUM_LANES; l++)
        sum += lane[l];
    for (; i < num; i++)
        sum += mean ? a[i] : ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

static void out_loss_task(void *context, int task, int worker)
{
    (void)worker;
    const sum_job *job = context;
    const float *out = job->args->in[0].data, *target = job->args->in[1].data;
    int64_t first = (int64_t)task * SUM_BLOCK;
    int64_t num = min_i64(SUM_BLOCK, job->args->in[0].count - first);
    bool mean = job->args->attr->loss.kind == TRI_LOSS_MEAN;
    /* MEAN does not look at the target, which may be missing. */
    job->partial[task] = block_sum(out + first, mean ? NULL : target + first, num, mean);
}

static size_t out_loss_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return (size_t)ceil_div(args->in[0].count, SUM_BLOCK) * sizeof(double);
}

static void out_loss(const tri_kernel_args *args)
{
    float *loss = args->out[0].data, *count = args->out[1].data;
    int64_t num = args->in[0].count, num_blocks = ceil_div(num, SUM_BLOCK);
    tri_out_loss kind = args->attr->loss.kind;
    sum_job job = {args, cpu_of(args)->scratch};
    run_tasks(args, num, num_blocks, out_loss_task, &job);
    double sum = 0;
    for (int64_t i = 0; i < num_blocks; i++)
        sum += job.partial[i];
    if (kind == TRI_LOSS_SSE)
        sum *= 0.5;
    *loss = (float)(args->overwrite ? sum : *loss + sum);
    double counted = kind == TRI_LOSS_SSE ? 0 : (double)num;
    *count = (float)(args->overwrite ? counted : *count + counted);
}

static void out_loss_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const float *out = args->in[0].data, *target = args->in[1].data;
    float *restrict dout = args->out[0].data;
    tri_out_loss kind = args->attr->loss.kind;
    float factor = args->attr->loss.alpha * tri_kernel_scale(args, 2);
    factor *= kind == TRI_LOSS_MSE ? 2.0f : 1.0f;
    int64_t first = (int64_t)task * TASK_ELEMENTS;
    int64_t end = min_i64(first + TASK_ELEMENTS, args->out[0].count);
    if (kind == TRI_LOSS_MEAN) {
        for (int64_t i = first; i < end; i++)
            dout[i] = factor;
        return;
    }
    for (int64_t i = first; i < end; i++)
        dout[i] = factor * (out[i] - target[i]);
}

static void out_loss_grad(const tri_kernel_args *args)
{
    int64_t num = args->out[0].count;
    run_tasks(args, num, ceil_div(num, TASK_ELEMENTS), out_loss_grad_task, (void *)args);
}

const tri_kernel TRI_ISA_NAME(tri_fast_ce_stats) = {.run = ce_stats};
const tri_kernel TRI_ISA_NAME(tri_fast_ce_loss) = {.run = ce_loss};
const tri_kernel TRI_ISA_NAME(tri_fast_ce_grad) = {.run = ce_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_out_loss) = {.run = out_loss,
                                                    .scratch_bytes = out_loss_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_out_loss_grad) = {.run = out_loss_grad};
