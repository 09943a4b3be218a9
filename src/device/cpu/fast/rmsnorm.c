/* RMS norm and its gradient: a row at a time, which stays in the nearest cache. */
#include "device/cpu/fast/fast.h"

#include <math.h>

typedef struct rmsnorm_job {
    const tri_kernel_args *args;
    int64_t num_rows, dim;
    int64_t rows_per_task;
} rmsnorm_job;

static rmsnorm_job norm_of(const tri_kernel_args *args)
{
    int64_t dim = tri_norm_width(args);
    return (rmsnorm_job){args, args->in[0].count / dim, dim, rows_per_task(dim)};
}

static void run_norm(const tri_kernel_args *args, tri_task_fn fn)
{
    rmsnorm_job job = norm_of(args);
    run_tasks(args, job.num_rows * job.dim, ceil_div(job.num_rows, job.rows_per_task), fn, &job);
}

static float row_dot(const float *restrict a, const float *restrict b, int64_t dim)
{
    float lane[SUM_LANES] = {0};
    int64_t d = 0;
    for (; d + SUM_LANES <= dim; d += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += a[d + l] * b[d + l];
    for (; d < dim; d++)
        lane[0] += a[d] * b[d];
    return sum_of_lanes(lane);
}

static void norm_row(const float *restrict x, const float *restrict g, float eps, int64_t dim,
                     float *restrict y, float *restrict rstd)
{
    float inv = 1.0f / sqrtf(row_dot(x, x, dim) / (float)dim + eps);
    for (int64_t d = 0; d < dim; d++)
        y[d] = x[d] * inv * g[d];
    *rstd = inv;
}

static void rmsnorm_task(void *context, int task, int worker)
{
    (void)worker;
    const rmsnorm_job *job = context;
    const tri_kernel_args *args = job->args;
    const float *x = args->in[0].data;
    float *y = args->out[0].data, *rstd = args->out[1].data;
    int64_t first = task * job->rows_per_task, dim = job->dim;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++)
        norm_row(x + i * dim, args->in[1].data, args->attr->norm.eps, dim, y + i * dim, rstd + i);
}

static void rmsnorm(const tri_kernel_args *args)
{
    run_norm(args, rmsnorm_task);
}

static void add_row(const float *x, const float *r, int64_t dim, float *s)
{
    INDEPENDENT
    for (int64_t d = 0; d < dim; d++)
        s[d] = x[d] + r[d];
}

static void add_rmsnorm_task(void *context, int task, int worker)
{
    (void)worker;
    const rmsnorm_job *job = context;
    const tri_kernel_args *args = job->args;
    const float *x = args->in[0].data, *r = args->in[1].data;
    float *s = args->out[0].data, *y = args->out[1].data, *rstd = args->out[2].data;
    int64_t first = task * job->rows_per_task, dim = job->dim;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++) {
        add_row(x + i * dim, r + i * dim, dim, s + i * dim);
        norm_row(s + i * dim, args->in[2].data, args->attr->norm.eps, dim, y + i * dim, rstd + i);
    }
}

static void add_rmsnorm(const tri_kernel_args *args)
{
    run_norm(args, add_rmsnorm_task);
}

/* The sum over a row of dy * g * x. */
static float grad_sum(const float *restrict dy, const float *restrict x, const float *restrict g,
                      int64_t dim)
{
    float lane[SUM_LANES] = {0};
    int64_t d = 0;
    for (; d + SUM_LANES <= dim; d += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += dy[d + l] * g[d + l] * x[d + l];
    for (; d < dim; d++)
        lane[0] += dy[d] * g[d] * x[d];
    return sum_of_lanes(lane);
}

/* dx = inv * (dy g - x inv^2 average(dy g x)) [+ ds]; dx may be dy or ds. */
static void grad_row(const float *dy, const float *x, const float *g, const float *ds, float inv,
                     int64_t dim, float *dx)
{
    float slope = inv * inv * (grad_sum(dy, x, g, dim) / (float)dim);
    if (ds) {
        INDEPENDENT
        for (int64_t d = 0; d < dim; d++)
            dx[d] = inv * (dy[d] * g[d] - x[d] * slope) + ds[d];
        return;
    }
    INDEPENDENT
    for (int64_t d = 0; d < dim; d++)
        dx[d] = inv * (dy[d] * g[d] - x[d] * slope);
}

static void rmsnorm_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const rmsnorm_job *job = context;
    const tri_kernel_args *args = job->args;
    const float *dy = args->in[0].data, *x = args->in[1].data, *rstd = args->in[3].data;
    const float *ds = args->in[4].data;
    float *dx = args->out[0].data;
    int64_t first = task * job->rows_per_task, dim = job->dim;
    for (int64_t i = first; i < min_i64(job->num_rows, first + job->rows_per_task); i++)
        grad_row(dy + i * dim, x + i * dim, args->in[2].data, ds ? ds + i * dim : NULL, rstd[i],
                 dim, dx + i * dim);
}

static void rmsnorm_grad(const tri_kernel_args *args)
{
    run_norm(args, rmsnorm_grad_task);
}

static void param_grad_row(const float *restrict dy, const float *restrict x, float inv,
                           int64_t dim, float *restrict dg)
{
    for (int64_t d = 0; d < dim; d++)
        dg[d] += dy[d] * (x[d] * inv);
}

/* One block of rows into its own sums in scratch. */
static void param_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const rmsnorm_job *job = context;
    const float *dy = job->args->in[0].data, *x = job->args->in[1].data;
    const float *rstd = job->args->in[2].data;
    int64_t dim = job->dim, block = row_block(job->num_rows), first = task * block;
    float *dg = (float *)cpu_of(job->args)->scratch + task * dim;
    memset(dg, 0, (size_t)dim * sizeof(float));
    for (int64_t i = first; i < min_i64(job->num_rows, first + block); i++)
        param_grad_row(dy + i * dim, x + i * dim, rstd[i], dim, dg);
}

static size_t rmsnorm_param_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    rmsnorm_job job = norm_of(args);
    return (size_t)(num_row_blocks(job.num_rows) * job.dim) * sizeof(float);
}

static void rmsnorm_param_grad(const tri_kernel_args *args)
{
    rmsnorm_job job = norm_of(args);
    int64_t num_blocks = num_row_blocks(job.num_rows);
    run_tasks(args, job.num_rows * job.dim, num_blocks, param_grad_task, &job);
    combine_rows(cpu_of(args)->scratch, num_blocks, job.dim, job.dim, args->out[0].data,
                 args->overwrite);
}

const tri_kernel TRI_ISA_NAME(tri_fast_rmsnorm) = {.run = rmsnorm};
const tri_kernel TRI_ISA_NAME(tri_fast_add_rmsnorm) = {.run = add_rmsnorm};
const tri_kernel TRI_ISA_NAME(tri_fast_rmsnorm_grad) = {.run = rmsnorm_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_rmsnorm_param_grad) = {
    .run = rmsnorm_param_grad, .scratch_bytes = rmsnorm_param_grad_scratch};
