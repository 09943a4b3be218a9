/* The end of a step: one pass over the state, bound by memory. */
#include "device/cpu/fast/fast.h"

#include <math.h>
#include <string.h>

#include "device/cpu/convert.h"
#include "device/lion.h"

extern const tri_cpu_convert TRI_ISA_NAME(tri_cpu_convert);

/* Elements of a task, and of one partial sum of squares. */
enum { UPDATE_ELEMENTS = 65536, SPAN = 2048 };

typedef struct update_job {
    const tri_kernel_args *args;
    double *partial;
    float factor, lr; /* lr with the scale of the parameter's group */
    const float *own; /* rows of the rule itself */
    float norm;       /* unit_norm: what to divide by */
} update_job;

static void run_update(const tri_kernel_args *args, update_job *job, tri_task_fn fn)
{
    int64_t num = args->in[0].count;
    job->args = args;
    run_tasks(args, num, ceil_div(num, UPDATE_ELEMENTS), fn, job);
}

static int64_t task_first(int task)
{
    return (int64_t)task * UPDATE_ELEMENTS;
}

static int64_t task_num(const update_job *job, int task)
{
    return min_i64(UPDATE_ELEMENTS, job->args->in[0].count - task_first(task));
}

/* Memory is read in order, but the processor's own prefetching stops at the end of each page of
 * 4 KiB, and starts late in the next. */
enum { LINE = 16, AHEAD = 512 };

static inline void fetch_read(const float *at)
{
    __builtin_prefetch(at + AHEAD, 0, 3);
}

static inline void fetch_write(const float *at)
{
    __builtin_prefetch(at + AHEAD, 1, 3);
}

typedef float vec_half __attribute__((vector_size(VEC_LANES * 2), aligned(4), may_alias));
typedef double vec_double __attribute__((vector_size(VEC_LANES * 4)));
enum { DOUBLES = VEC_LANES / 2 };

/* Four streams of reads: the processor looks further ahead in all of them than it would in one. */
static double block_squares(const float *x, int64_t num)
{
    vec_double lanes[4] = {{0}};
    double sum = 0;
    int64_t quarter = num / 4 / DOUBLES * DOUBLES;
    for (int64_t i = 0; i < quarter; i += DOUBLES) {
        for (int q = 0; q < 4; q++) {
            if (i % LINE == 0)
                fetch_read(x + q * quarter + i);
            vec_double wide =
                __builtin_convertvector(*(const vec_half *)(x + q * quarter + i), vec_double);
            lanes[q] += wide * wide;
        }
    }
    for (int q = 0; q < 4; q++)
        for (int l = 0; l < DOUBLES; l++)
            sum += lanes[q][l];
    for (int64_t i = 4 * quarter; i < num; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static void sum_squares_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    const float *x = job->args->in[0].data;
    job->partial[task] = block_squares(x + task_first(task), task_num(job, task));
}

static double sum_squares_of(const tri_kernel_args *args)
{
    update_job job = {.partial = cpu_of(args)->scratch};
    run_update(args, &job, sum_squares_task);
    double sum = 0;
    for (int64_t i = 0; i < ceil_div(args->in[0].count, UPDATE_ELEMENTS); i++)
        sum += job.partial[i];
    return sum;
}

static size_t sum_squares_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return (size_t)ceil_div(args->in[0].count, UPDATE_ELEMENTS) * sizeof(double);
}

static void sum_squares(const tri_kernel_args *args)
{
    float *out = args->out[0].data;
    double sum = sum_squares_of(args);
    *out = (float)(args->overwrite ? sum : *out + sum);
}

/* Reads sched and result; false when the step must write nothing. Either may be missing. */
static bool read_step(update_job *job, const tri_update_attr *attr, const float *sched,
                      const float *result)
{
    job->factor = result[TRI_RESULT_FACTOR];
    if (sched) {
        job->lr = sched[TRI_STEP_LR] * attr->lr_scale;
        job->own = sched + attr->own_rows;
    }
    return result[TRI_RESULT_OK] != 0;
}

static void sgd_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    const tri_update_attr *attr = &job->args->attr->update;
    int64_t first = task_first(task), num = task_num(job, task);
    float *restrict p = (float *)job->args->out[0].data + first;
    float *restrict mom = (float *)job->args->out[1].data;
    const float *restrict g = (const float *)job->args->in[2].data + first;
    float factor = job->factor, lr = job->lr, decay = attr->weight_decay, beta = attr->beta1;
    /* The step is lr * (grad_part * grad + mom_part * mom). */
    float grad_part = attr->nesterov ? 1.0f : 0.0f, mom_part = attr->nesterov ? beta : 1.0f;
    if (!mom) {
        for (int64_t i = 0; i < num; i++)
            p[i] -= lr * (g[i] * factor + decay * p[i]);
        return;
    }
    mom += first;
    for (int64_t i = 0; i < num; i++) {
        float grad = g[i] * factor + decay * p[i];
        float next = beta * mom[i] + grad;
        mom[i] = next;
        p[i] -= lr * (grad_part * grad + mom_part * next);
    }
}

static void sgd(const tri_kernel_args *args)
{
    update_job job = {0};
    if (read_step(&job, &args->attr->update, args->in[3].data, args->in[4].data))
        run_update(args, &job, sgd_task);
}

/* The copy of a weight, in its type, while the weight is in cache. */
static void write_copy(const tri_tensor *copy, int64_t first, const float *p, int64_t num)
{
    char *to = (char *)copy->data + first * (int64_t)tri_dtype_bytes(copy->dtype);
    if (copy->dtype == TRI_F32)
        memcpy(to, p, (size_t)num * sizeof *p);
    else
        TRI_ISA_NAME(tri_cpu_convert).copy(copy->dtype, p, to, num);
}

/* Elements from the first on. */
static void adam_span(const update_job *job, int64_t first, int64_t num)
{
    const tri_update_attr *attr = &job->args->attr->update;
    float *restrict p = (float *)job->args->out[0].data + first;
    float *restrict m = (float *)job->args->out[1].data + first;
    float *restrict v = (float *)job->args->out[2].data + first;
    const float *restrict g = (const float *)job->args->in[3].data + first;
    float beta1 = attr->beta1, beta2 = attr->beta2, rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
    float factor = job->factor, lr_bias1 = job->lr * job->own[TRI_ADAM_BIAS1];
    float bias2 = job->own[TRI_ADAM_BIAS2];
    float eps = attr->eps;
    float grad_decay = attr->decoupled ? 0.0f : attr->weight_decay;
    float shrink = attr->decoupled ? 1.0f - job->lr * attr->weight_decay : 1.0f;
    for (int64_t k = 0; k < num; k += LINE) {
        fetch_write(p + k);
        fetch_write(m + k);
        fetch_write(v + k);
        fetch_read(g + k);
        for (int64_t i = k; i < min_i64(k + LINE, num); i++) {
            float grad = g[i] * factor + grad_decay * p[i];
            float mean = beta1 * m[i] + rest1 * grad;
            float square = beta2 * v[i] + rest2 * (grad * grad);
            m[i] = mean;
            v[i] = square;
            p[i] = shrink * p[i] - lr_bias1 * mean / (sqrtf(square * bias2) + eps);
        }
    }
    if (job->args->num_out > 3)
        write_copy(&job->args->out[3], first, p, num);
}

/* What has a copy goes in spans that stay in the nearest cache. */
static void adam_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    int64_t first = task_first(task), end = first + task_num(job, task);
    int64_t span = job->args->num_out > 3 ? SPAN : UPDATE_ELEMENTS;
    for (; first < end; first += span)
        adam_span(job, first, min_i64(span, end - first));
}

static void adam(const tri_kernel_args *args)
{
    update_job job = {0};
    if (read_step(&job, &args->attr->update, args->in[4].data, args->in[5].data))
        run_update(args, &job, adam_task);
}

static void narrow_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    const float *p = job->args->in[0].data;
    int64_t first = task_first(task);
    write_copy(&job->args->out[0], first, p + first, task_num(job, task));
}

static void narrow(const tri_kernel_args *args)
{
    update_job job = {0};
    run_update(args, &job, narrow_task);
}

static void lion_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    const tri_update_attr *attr = &job->args->attr->update;
    int64_t first = task_first(task), num = task_num(job, task);
    float *restrict p = (float *)job->args->out[0].data + first;
    float *restrict m = (float *)job->args->out[1].data + first;
    const float *restrict g = (const float *)job->args->in[2].data + first;
    const tri_lion k =
        tri_lion_of(job->factor, job->lr, attr->weight_decay, attr->beta1, attr->beta2);
    for (int64_t i = 0; i < num; i++)
        tri_lion_update(&k, g[i], &p[i], &m[i]);
}

static void lion(const tri_kernel_args *args)
{
    update_job job = {0};
    if (read_step(&job, &args->attr->update, args->in[3].data, args->in[4].data))
        run_update(args, &job, lion_task);
}

static void momentum_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    int64_t first = task_first(task), num = task_num(job, task);
    float *restrict mom = (float *)job->args->out[0].data + first;
    float *restrict update = (float *)job->args->out[1].data + first;
    const float *restrict g = (const float *)job->args->in[1].data + first;
    float beta = job->args->attr->update.beta1, factor = job->factor;
    float grad_part = job->args->attr->update.nesterov ? 1.0f : 0.0f;
    float mom_part = job->args->attr->update.nesterov ? beta : 1.0f;
    for (int64_t i = 0; i < num; i++) {
        float grad = g[i] * factor, next = beta * mom[i] + grad;
        mom[i] = next;
        update[i] = grad_part * grad + mom_part * next;
    }
}

static void momentum(const tri_kernel_args *args)
{
    update_job job = {0};
    if (read_step(&job, &args->attr->update, NULL, args->in[2].data))
        run_update(args, &job, momentum_task);
}

static void unit_norm_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    const float *x = (const float *)job->args->in[0].data + task_first(task);
    float *y = (float *)job->args->out[0].data + task_first(task);
    float norm = job->norm;
    int64_t num = task_num(job, task);
    INDEPENDENT
    for (int64_t i = 0; i < num; i++)
        y[i] = x[i] / norm;
}

static void unit_norm(const tri_kernel_args *args)
{
    update_job job = {.norm = (float)(sqrt(sum_squares_of(args)) + args->attr->update.eps)};
    run_update(args, &job, unit_norm_task);
}

static void apply_update_task(void *context, int task, int worker)
{
    (void)worker;
    const update_job *job = context;
    const tri_update_attr *attr = &job->args->attr->update;
    float *restrict p = (float *)job->args->out[0].data + task_first(task);
    const float *restrict update = (const float *)job->args->in[1].data + task_first(task);
    float shrink = 1.0f - job->lr * attr->weight_decay, step = job->lr * attr->alpha;
    int64_t num = task_num(job, task);
    for (int64_t i = 0; i < num; i++)
        p[i] = shrink * p[i] - step * update[i];
}

static void apply_update(const tri_kernel_args *args)
{
    update_job job = {0};
    if (read_step(&job, &args->attr->update, args->in[2].data, args->in[3].data))
        run_update(args, &job, apply_update_task);
}

const tri_kernel TRI_ISA_NAME(tri_fast_sum_squares) = {.run = sum_squares,
                                                       .scratch_bytes = sum_squares_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_sgd) = {.run = sgd};
const tri_kernel TRI_ISA_NAME(tri_fast_adam) = {.run = adam};
const tri_kernel TRI_ISA_NAME(tri_fast_narrow) = {.run = narrow};
const tri_kernel TRI_ISA_NAME(tri_fast_lion) = {.run = lion};
const tri_kernel TRI_ISA_NAME(tri_fast_momentum) = {.run = momentum};
const tri_kernel TRI_ISA_NAME(tri_fast_unit_norm) = {.run = unit_norm,
                                                     .scratch_bytes = sum_squares_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_apply_update) = {.run = apply_update};
