/* Operators that look at one element, or one column, at a time: bound by memory, except GELU and
 * dropout, whose arithmetic just about keeps up with it. */
#include "device/cpu/fast/fast.h"
#include "device/cpu/fast/vecfun.h"

/* The elements of one task. */
typedef struct range {
    int64_t first, num;
} range;

static range range_of(const tri_kernel_args *args, int task)
{
    int64_t first = (int64_t)task * TASK_ELEMENTS;
    return (range){first, min_i64(TASK_ELEMENTS, args->out[0].count - first)};
}

static void run_elements(const tri_kernel_args *args, tri_task_fn fn)
{
    int64_t num = args->out[0].count;
    run_tasks(args, num, ceil_div(num, TASK_ELEMENTS), fn, (void *)args);
}

static void add_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *a = (const float *)args->in[0].data + r.first;
    const float *b = (const float *)args->in[1].data + r.first;
    float *c = (float *)args->out[0].data + r.first;
    INDEPENDENT
    for (int64_t i = 0; i < r.num; i++)
        c[i] = a[i] + b[i];
}

static void add(const tri_kernel_args *args)
{
    run_elements(args, add_task);
}

static void axpby_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *x = (const float *)args->in[0].data + r.first;
    const float *y = (const float *)args->in[1].data + r.first;
    float *z = (float *)args->out[0].data + r.first;
    float alpha = args->attr->axpby.alpha, beta = args->attr->axpby.beta;
    INDEPENDENT
    for (int64_t i = 0; i < r.num; i++)
        z[i] = alpha * x[i] + beta * y[i];
}

static void axpby(const tri_kernel_args *args)
{
    run_elements(args, axpby_task);
}

static void accumulate_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *x = (const float *)args->in[0].data + r.first;
    float *acc = (float *)args->out[0].data + r.first;
    if (args->overwrite) {
        memmove(acc, x, (size_t)r.num * sizeof(float));
        return;
    }
    INDEPENDENT
    for (int64_t i = 0; i < r.num; i++)
        acc[i] += x[i];
}

static void accumulate(const tri_kernel_args *args)
{
    run_elements(args, accumulate_task);
}

/* GELU as the end of a product computes it, to the bit: where the sum before it is kept, a product
 * and its GELU in one are made again as GELU alone (src/recompute/choose.c). Fewer elements than a
 * vector has are one all the same. */
FVEC_INLINE void gelu_some(const float *x, float *y, size_t bytes)
{
    fvec v = {0};
    memcpy(&v, x, bytes);
    v = fvec_gelu(v);
    memcpy(y, &v, bytes);
}

/* y may be x. */
static void gelu(const float *x, float *y, int64_t num)
{
    int64_t i = 0;
    for (; i + FVEC_LANES <= num; i += FVEC_LANES)
        gelu_some(x + i, y + i, sizeof(fvec));
    gelu_some(x + i, y + i, (size_t)(num - i) * sizeof *x);
}

FVEC_INLINE void gelu_grad_some(const float *x, const float *dy, float *dx, size_t bytes)
{
    fvec v = {0}, d = {0};
    memcpy(&v, x, bytes);
    memcpy(&d, dy, bytes);
    d *= fvec_gelu_grad(v);
    memcpy(dx, &d, bytes);
}

/* dx may be x or dy. */
static void gelu_grad(const float *x, const float *dy, float *dx, int64_t num)
{
    int64_t i = 0;
    for (; i + FVEC_LANES <= num; i += FVEC_LANES)
        gelu_grad_some(x + i, dy + i, dx + i, sizeof(fvec));
    gelu_grad_some(x + i, dy + i, dx + i, (size_t)(num - i) * sizeof *x);
}

static void act_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *x = (const float *)args->in[0].data + r.first;
    float *y = (float *)args->out[0].data + r.first;
    switch (args->attr->act.kind) {
    case TRI_ACT_GELU:
        gelu(x, y, r.num);
        break;
    case TRI_ACT_RELU:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            y[i] = x[i] > 0 ? x[i] : 0;
        break;
    case TRI_ACT_GELU_ERF:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            y[i] = tri_gelu_erf(x[i]);
        break;
    case TRI_ACT_TANH:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            y[i] = tri_tanhf(x[i]);
        break;
    case TRI_ACT_SILU:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            y[i] = tri_silu(x[i]);
        break;
    }
}

static void act(const tri_kernel_args *args)
{
    run_elements(args, act_task);
    if (args->num_out > 1)
        TRI_ISA_NAME(tri_fast_amax_of)(args, &args->out[0], &args->out[1]);
}

static void act_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *x = (const float *)args->in[0].data + r.first;
    const float *dy = (const float *)args->in[1].data + r.first;
    float *dx = (float *)args->out[0].data + r.first;
    switch (args->attr->act.kind) {
    case TRI_ACT_GELU:
        gelu_grad(x, dy, dx, r.num);
        break;
    case TRI_ACT_RELU:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            dx[i] = x[i] > 0 ? dy[i] : 0;
        break;
    case TRI_ACT_GELU_ERF:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            dx[i] = tri_gelu_erf_grad(x[i]) * dy[i];
        break;
    case TRI_ACT_TANH:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++) {
            float t = tri_tanhf(x[i]);
            dx[i] = (1.0f - t) * (1.0f + t) * dy[i];
        }
        break;
    case TRI_ACT_SILU:
        INDEPENDENT
        for (int64_t i = 0; i < r.num; i++)
            dx[i] = tri_silu_grad(x[i]) * dy[i];
        break;
    }
}

static void act_grad(const tri_kernel_args *args)
{
    run_elements(args, act_grad_task);
    if (args->num_out > 1)
        TRI_ISA_NAME(tri_fast_amax_of)(args, &args->out[0], &args->out[1]);
}

static void swiglu_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *gate = (const float *)args->in[0].data + r.first;
    const float *up = (const float *)args->in[1].data + r.first;
    float *y = (float *)args->out[0].data + r.first;
    INDEPENDENT
    for (int64_t i = 0; i < r.num; i++)
        y[i] = tri_silu(gate[i]) * up[i];
}

static void swiglu(const tri_kernel_args *args)
{
    run_elements(args, swiglu_task);
    if (args->num_out > 1)
        TRI_ISA_NAME(tri_fast_amax_of)(args, &args->out[0], &args->out[1]);
}

static void swiglu_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    range r = range_of(args, task);
    const float *gate = (const float *)args->in[0].data + r.first;
    const float *up = (const float *)args->in[1].data + r.first;
    const float *dy = (const float *)args->in[2].data + r.first;
    float *dgate = (float *)args->out[0].data + r.first;
    float *dup = (float *)args->out[1].data + r.first;
    INDEPENDENT
    for (int64_t i = 0; i < r.num; i++) {
        float g = gate[i], u = up[i], d = dy[i]; /* first, because the outputs may be these */
        dgate[i] = d * u * tri_silu_grad(g);
        dup[i] = d * tri_silu(g);
    }
}

static void swiglu_grad(const tri_kernel_args *args)
{
    run_elements(args, swiglu_grad_task);
    for (int k = 2; k < args->num_out; k++)
        TRI_ISA_NAME(tri_fast_amax_of)(args, &args->out[k - 2], &args->out[k]);
}

static void bias_row(const float *x, const float *bias, int64_t dim, float *y)
{
    INDEPENDENT
    for (int64_t d = 0; d < dim; d++)
        y[d] = x[d] + bias[d];
}

static void bias_add_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    int64_t dim = args->in[1].count, num_rows = args->in[0].count / dim;
    int64_t rows = rows_per_task(dim), first = task * rows;
    for (int64_t i = first; i < min_i64(num_rows, first + rows); i++)
        bias_row(x + i * dim, args->in[1].data, dim, y + i * dim);
}

static void bias_add(const tri_kernel_args *args)
{
    int64_t dim = args->in[1].count, num_rows = args->in[0].count / dim;
    run_tasks(args, args->in[0].count, ceil_div(num_rows, rows_per_task(dim)), bias_add_task,
              (void *)args);
}

enum { SUM_ROWS = 4 };

/* SUM_ROWS rows onto the sums, one after the other. They are streams of reads side by side, and
 * the rows after them are fetched meanwhile. */
static void add_rows(const float *restrict x, int64_t dim, float *restrict sum)
{
    enum { LINE = 16 };
    int64_t d = 0;
    for (; d + LINE <= dim; d += LINE) {
        for (int r = 0; r < SUM_ROWS; r++)
            __builtin_prefetch(x + (SUM_ROWS + r) * dim + d);
        for (int l = 0; l < LINE; l += VEC_LANES) {
            vec total = *(const vec *)(sum + d + l);
            for (int r = 0; r < SUM_ROWS; r++)
                total += *(const vec *)(x + r * dim + d + l);
            *(vec *)(sum + d + l) = total;
        }
    }
    for (; d < dim; d++)
        for (int r = 0; r < SUM_ROWS; r++)
            sum[d] += x[r * dim + d];
}

/* One block of rows into its own sums. */
static void bias_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const float *dy = args->in[0].data;
    int64_t dim = args->out[0].count, num_rows = args->in[0].count / dim;
    int64_t block = row_block(num_rows), first = task * block;
    float *sum = (float *)cpu_of(args)->scratch + task * dim;
    memset(sum, 0, (size_t)dim * sizeof(float));
    int64_t i = first, end = min_i64(num_rows, first + block);
    for (; i + SUM_ROWS <= end; i += SUM_ROWS)
        add_rows(dy + i * dim, dim, sum);
    for (; i < end; i++)
        bias_row(sum, dy + i * dim, dim, sum);
}

static size_t bias_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t dim = args->out[0].count;
    return (size_t)(num_row_blocks(args->in[0].count / dim) * dim) * sizeof(float);
}

static void bias_grad(const tri_kernel_args *args)
{
    int64_t dim = args->out[0].count, num_blocks = num_row_blocks(args->in[0].count / dim);
    run_tasks(args, args->in[0].count, num_blocks, bias_grad_task, (void *)args);
    combine_rows(cpu_of(args)->scratch, num_blocks, dim, dim, args->out[0].data, args->overwrite);
}

const tri_kernel TRI_ISA_NAME(tri_fast_add) = {.run = add};
const tri_kernel TRI_ISA_NAME(tri_fast_bias_add) = {.run = bias_add};
const tri_kernel TRI_ISA_NAME(tri_fast_bias_grad) = {.run = bias_grad,
                                                     .scratch_bytes = bias_grad_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_act) = {.run = act};
const tri_kernel TRI_ISA_NAME(tri_fast_act_grad) = {.run = act_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_accumulate) = {.run = accumulate};
const tri_kernel TRI_ISA_NAME(tri_fast_axpby) = {.run = axpby};
const tri_kernel TRI_ISA_NAME(tri_fast_swiglu) = {.run = swiglu};
const tri_kernel TRI_ISA_NAME(tri_fast_swiglu_grad) = {.run = swiglu_grad};
