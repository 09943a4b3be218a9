/* Rows picked by an integer. */
#include "device/cpu/fast/fast.h"

/* Columns of a task that adds rows: every task sees all tokens in their order, so the order of the
 * sums does not depend on the cut. */
enum { STRIP = 64 };

static void embed_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const tri_tensor *table = &args->in[0];
    const int32_t *ids = args->in[1].data;
    int64_t dim = table->size[1], rows = rows_per_task(dim), first = task * rows;
    size_t row_bytes = (size_t)dim * sizeof(float);
    for (int64_t i = first; i < min_i64(args->in[1].count, first + rows); i++) {
        int64_t row = ids[i] - table->origin[0];
        float *out = (float *)args->out[0].data + i * dim;
        if (row >= 0 && row < table->size[0])
            memcpy(out, (const float *)table->data + row * dim, row_bytes);
        else
            memset(out, 0, row_bytes);
    }
}

static void embed(const tri_kernel_args *args)
{
    run_tasks(args, args->out[0].count,
              ceil_div(args->in[1].count, rows_per_task(args->in[0].size[1])), embed_task,
              (void *)args);
}

static void clear_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    int64_t first = (int64_t)task * TASK_ELEMENTS;
    int64_t num = min_i64(TASK_ELEMENTS, args->out[0].count - first);
    memset((float *)args->out[0].data + first, 0, (size_t)num * sizeof(float));
}

static void add_row(float *restrict to, const float *restrict from, int64_t num)
{
    for (int64_t d = 0; d < num; d++)
        to[d] += from[d];
}

static void embed_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const tri_tensor *table = &args->out[0];
    const int32_t *ids = args->in[1].data;
    int64_t dim = table->size[1], first = (int64_t)task * STRIP;
    int64_t num = min_i64(STRIP, dim - first);
    const float *dy = (const float *)args->in[0].data + first;
    float *dtable = (float *)table->data + first;
    for (int64_t i = 0; i < args->in[1].count; i++) {
        int64_t row = ids[i] - table->origin[0];
        if (row >= 0 && row < table->size[0])
            add_row(dtable + row * dim, dy + i * dim, num);
    }
}

static void embed_grad(const tri_kernel_args *args)
{
    int64_t num = args->out[0].count;
    if (args->overwrite)
        run_tasks(args, num, ceil_div(num, TASK_ELEMENTS), clear_task, (void *)args);
    run_tasks(args, args->in[0].count, ceil_div(args->out[0].size[1], STRIP), embed_grad_task,
              (void *)args);
}

/* Which token of row b is meant by a position, by their places where they have any; -1: it is not
 * here. */
static int64_t token_at(const int32_t *places, int64_t num_tokens, int64_t b, int32_t position)
{
    if (!places)
        return position;
    int64_t found = -1;
    for (int64_t t = num_tokens - 1; t >= 0; t--) /* no way out: the compiler makes vectors of it */
        found = places[b * num_tokens + t] == position ? t : found;
    return found;
}

/* One row of each sample: small. */
static void select_row(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const int32_t *index = args->in[1].data;
    int64_t dim = x->size[2];
    size_t row_bytes = (size_t)dim * sizeof(float);
    for (int64_t b = 0; b < x->size[0]; b++) {
        int64_t t = token_at(args->in[2].data, x->size[1], b, index[b]);
        float *out = (float *)args->out[0].data + b * dim;
        if (t >= 0)
            memcpy(out, (const float *)x->data + (b * x->size[1] + t) * dim, row_bytes);
        else
            memset(out, 0, row_bytes);
    }
}

static void select_row_grad(const tri_kernel_args *args)
{
    const tri_tensor *dx = &args->out[0];
    const int32_t *index = args->in[1].data;
    int64_t dim = dx->size[2];
    run_tasks(args, dx->count, ceil_div(dx->count, TASK_ELEMENTS), clear_task, (void *)args);
    for (int64_t b = 0; b < dx->size[0]; b++) {
        int64_t t = token_at(args->in[3].data, dx->size[1], b, index[b]);
        if (t >= 0)
            memcpy((float *)dx->data + (b * dx->size[1] + t) * dim,
                   (const float *)args->in[0].data + b * dim, (size_t)dim * sizeof(float));
    }
}

typedef struct gather_job {
    const tri_kernel_args *args;
    int64_t num_rows, width; /* of x */
    int64_t terms;           /* of a sum */
    int64_t num_sums;
} gather_job;

static gather_job gather_of(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    gather_job job = {.args = args, .num_rows = 1, .width = 1};
    job.terms = args->attr->gather.each ? 1 : last_dim(&args->in[1]);
    for (int d = 0; d < x->rank; d++)
        *(d < args->attr->gather.lead ? &job.num_rows : &job.width) *= x->size[d];
    job.num_sums = job.width > 0 ? args->out[0].count / job.width : 0;
    return job;
}

/* The first term is copied and the others are added to it: a row of the output stays in cache. */
static void gather_row(const gather_job *job, int64_t m)
{
    const int32_t *index = (const int32_t *)job->args->in[1].data + m * job->terms;
    float *out = (float *)job->args->out[0].data + m * job->width;
    bool any = false;
    for (int64_t k = 0; k < job->terms; k++) {
        if (index[k] < 0 || index[k] >= job->num_rows)
            continue;
        const float *row = (const float *)job->args->in[0].data + index[k] * job->width;
        if (any)
            add_row(out, row, job->width);
        else
            memcpy(out, row, (size_t)job->width * sizeof(float));
        any = true;
    }
    if (!any)
        memset(out, 0, (size_t)job->width * sizeof(float));
}

static void gather_task(void *context, int task, int worker)
{
    (void)worker;
    const gather_job *job = context;
    int64_t sums = rows_per_task(job->width * job->terms), first = task * sums;
    for (int64_t m = first; m < min_i64(job->num_sums, first + sums); m++)
        gather_row(job, m);
}

static void gather_rows(const tri_kernel_args *args)
{
    gather_job job = gather_of(args);
    run_tasks(args, args->out[0].count * job.terms,
              ceil_div(job.num_sums, rows_per_task(job.width * job.terms)), gather_task, &job);
}

const tri_kernel TRI_ISA_NAME(tri_fast_embed) = {.run = embed};
const tri_kernel TRI_ISA_NAME(tri_fast_embed_grad) = {.run = embed_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_select_row) = {.run = select_row};
const tri_kernel TRI_ISA_NAME(tri_fast_select_row_grad) = {.run = select_row_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_gather_rows) = {.run = gather_rows};
