/* Layer norm and its gradient: a row at a time, which stays in the nearest cache. */
#include "device/cpu/fast/fast.h"

#include <math.h>

typedef struct norm_job {
    const tri_kernel_args *args;
    int64_t num_rows, dim;
    int64_t rows_per_task;
} norm_job;

static norm_job norm_of(const tri_kernel_args *args)
{
    int64_t dim = last_dim(&args->in[0]);
    return (norm_job){args, args->in[0].count / dim, dim, rows_per_task(dim)};
}

static void run_norm(const norm_job *job, tri_task_fn fn)
{
    run_tasks(job->args, job->num_rows * job->dim, ceil_div(job->num_rows, job->rows_per_task), fn,
              (void *)job);
}

static float row_mean(const float *restrict x, int64_t dim)
{
    float lane[SUM_LANES] = {0};
    int64_t d = 0;
    for (; d + SUM_LANES <= dim; d += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += x[d + l];
    for (; d < dim; d++)
        lane[0] += x[d];
    return sum_of_lanes(lane) / (float)dim;
}

static float row_variance(const float *restrict x, int64_t dim, float mean)
{
    float lane[SUM_LANES] = {0};
    int64_t d = 0;
    for (; d + SUM_LANES <= dim; d += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += (x[d + l] - mean) * (x[d + l] - mean);
    for (; d < dim; d++)
        lane[0] += (x[d] - mean) * (x[d] - mean);
    return sum_of_lanes(lane) / (float)dim;
}

static void norm_row(const float *restrict x, const float *restrict g, const float *restrict b,
                     float eps, int64_t dim, float *restrict y, float *restrict stats)
{
    float mean = row_mean(x, dim);
    float inv = 1.0f / sqrtf(row_variance(x, dim, mean) + eps);
    for (int64_t d = 0; d < dim; d++)
        y[d] = (x[d] - mean) * inv * g[d] + b[d];
    stats[0] = mean;
    stats[1] = inv;
}

static void layernorm_task(void *context, int task, int worker)
{
    (void)worker;
    const norm_job *job = context;
    const tri_kernel_args *args = job->args;
    const float *x = args->in[0].data;
    float *y = args->out[0].data, *stats = args->out[1].data;
    int64_t first = task * job->rows_per_task, dim = job->dim;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++)
        norm_row(x + i * dim, args->in[1].data, args->in[2].data, args->attr->norm.eps, dim,
                 y + i * dim, stats + i * 2);
}

static void layernorm(const tri_kernel_args *args)
{
    norm_job job = norm_of(args);
    run_norm(&job, layernorm_task);
}

static void add_row(const float *x, const float *r, int64_t dim, float *s)
{
    INDEPENDENT
    for (int64_t d = 0; d < dim; d++)
        s[d] = x[d] + r[d];
}

static void add_layernorm_task(void *context, int task, int worker)
{
    (void)worker;
    const norm_job *job = context;
    const tri_kernel_args *args = job->args;
    const float *x = args->in[0].data, *r = args->in[1].data;
    float *s = args->out[0].data, *y = args->out[1].data, *stats = args->out[2].data;
    int64_t first = task * job->rows_per_task, dim = job->dim;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++) {
        add_row(x + i * dim, r + i * dim, dim, s + i * dim);
        norm_row(s + i * dim, args->in[2].data, args->in[3].data, args->attr->norm.eps, dim,
                 y + i * dim, stats + i * 2);
    }
}

static void add_layernorm(const tri_kernel_args *args)
{
    norm_job job = norm_of(args);
    run_norm(&job, add_layernorm_task);
}

/* Averages over the row of dn = dy * g and of dn * n, n = (x - mean) * inv. */
static void grad_averages(const float *restrict dy, const float *restrict x,
                          const float *restrict g, float mean, float inv, int64_t dim, float *avg,
                          float *avg_n)
{
    float lane[SUM_LANES] = {0}, lane_n[SUM_LANES] = {0};
    int64_t d = 0;
    for (; d + SUM_LANES <= dim; d += SUM_LANES) {
        for (int l = 0; l < SUM_LANES; l++) {
            float dn = dy[d + l] * g[d + l];
            lane[l] += dn;
            lane_n[l] += dn * (x[d + l] - mean);
        }
    }
    for (; d < dim; d++) {
        lane[0] += dy[d] * g[d];
        lane_n[0] += dy[d] * g[d] * (x[d] - mean);
    }
    *avg = sum_of_lanes(lane) / (float)dim;
    *avg_n = sum_of_lanes(lane_n) * inv / (float)dim;
}

/* dx = inv * (dn - avg - n * avg_n) [+ ds]; dx may be dy or ds. */
static void grad_row(const float *dy, const float *x, const float *g, const float *ds,
                     const float *stats, int64_t dim, float *dx)
{
    float mean = stats[0], inv = stats[1], avg, avg_n;
    grad_averages(dy, x, g, mean, inv, dim, &avg, &avg_n);
    float slope = inv * avg_n;
    if (ds) {
        INDEPENDENT
        for (int64_t d = 0; d < dim; d++)
            dx[d] = inv * (dy[d] * g[d] - avg - (x[d] - mean) * slope) + ds[d];
        return;
    }
    INDEPENDENT
    for (int64_t d = 0; d < dim; d++)
        dx[d] = inv * (dy[d] * g[d] - avg - (x[d] - mean) * slope);
}

static void layernorm_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const norm_job *job = context;
    const tri_kernel_args *args = job->args;
    const float *dy = args->in[0].data, *x = args->in[1].data, *stats = args->in[3].data;
    const float *ds = args->in[4].data;
    float *dx = args->out[0].data;
    int64_t first = task * job->rows_per_task, dim = job->dim;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++)
        grad_row(dy + i * dim, x + i * dim, args->in[2].data, ds ? ds + i * dim : NULL,
                 stats + i * 2, dim, dx + i * dim);
}

static void layernorm_grad(const tri_kernel_args *args)
{
    norm_job job = norm_of(args);
    run_norm(&job, layernorm_grad_task);
}

static void param_grad_rows(const float *restrict dy, const float *restrict x, float mean,
                            float inv, int64_t dim, float *restrict dg, float *restrict db)
{
    for (int64_t d = 0; d < dim; d++) {
        dg[d] += dy[d] * ((x[d] - mean) * inv);
        db[d] += dy[d];
    }
}

/* One block of rows into its own sums (dg, then db) in scratch. */
static void param_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const norm_job *job = context;
    const float *dy = job->args->in[0].data, *x = job->args->in[1].data;
    const float *stats = job->args->in[2].data;
    int64_t dim = job->dim, block = row_block(job->num_rows), first = task * block;
    float *dg = (float *)cpu_of(job->args)->scratch + task * 2 * dim;
    memset(dg, 0, (size_t)(2 * dim) * sizeof(float));
    for (int64_t i = first; i < min_i64(job->num_rows, first + block); i++)
        param_grad_rows(dy + i * dim, x + i * dim, stats[i * 2], stats[i * 2 + 1], dim, dg,
                        dg + dim);
}

static size_t layernorm_param_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    norm_job job = norm_of(args);
    return (size_t)(num_row_blocks(job.num_rows) * 2 * job.dim) * sizeof(float);
}

static void layernorm_param_grad(const tri_kernel_args *args)
{
    norm_job job = norm_of(args);
    int64_t num_blocks = num_row_blocks(job.num_rows), dim = job.dim;
    float *partial = cpu_of(args)->scratch;
    run_tasks(args, job.num_rows * dim, num_blocks, param_grad_task, &job);
    combine_rows(partial, num_blocks, 2 * dim, dim, args->out[0].data, args->overwrite);
    combine_rows(partial + dim, num_blocks, 2 * dim, dim, args->out[1].data, args->overwrite);
}

const tri_kernel TRI_ISA_NAME(tri_fast_layernorm) = {.run = layernorm};
const tri_kernel TRI_ISA_NAME(tri_fast_add_layernorm) = {.run = add_layernorm};
const tri_kernel TRI_ISA_NAME(tri_fast_layernorm_grad) = {.run = layernorm_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_layernorm_param_grad) = {
    .run = layernorm_param_grad, .scratch_bytes = layernorm_param_grad_scratch};
