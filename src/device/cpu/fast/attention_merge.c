/* Two results of attention become one: [B, T, H, V] with a weight for each row of V numbers. */
#include "device/cpu/fast/fast.h"

#include <math.h>

typedef struct merge_call {
    const tri_kernel_args *args;
    int64_t rows; /* of V, in one task */
} merge_call;

/* o = w o1 + (1 - w) o2. A query that one side has no key for keeps the bits of the other. */
static void merge_row(const tri_kernel_args *args, int64_t row)
{
    const int64_t *size = args->in[0].size, num = size[1], heads = size[2], width = size[3];
    const int64_t b = row / heads / num, at = (b * heads + row % heads) * num + row / heads % num;
    const float lse1 = ((const float *)args->in[1].data)[at];
    const float lse2 = ((const float *)args->in[3].data)[at];
    const float *o1 = (const float *)args->in[0].data + row * width;
    const float *o2 = (const float *)args->in[2].data + row * width;
    float *o = (float *)args->out[0].data + row * width;
    const float max = lse1 > lse2 ? lse1 : lse2;
    const bool none = max == -INFINITY;
    const float a = none ? 0 : expf(lse1 - max), c = none ? 0 : expf(lse2 - max);
    const float sum = none ? 1 : a + c;
    ((float *)args->out[1].data)[at] = max + logf(sum);
    const float share1 = a / sum, share2 = c / sum;
    INDEPENDENT
    for (int64_t i = 0; i < width; i++)
        o[i] = share1 * o1[i] + share2 * o2[i];
}

static void merge_task(void *context, int task, int worker)
{
    (void)worker;
    const merge_call *m = context;
    const int64_t end = min_i64((task + 1) * m->rows, m->args->in[1].count);
    for (int64_t row = task * m->rows; row < end; row++)
        merge_row(m->args, row);
}

static void merge(const tri_kernel_args *args)
{
    merge_call m = {args, rows_per_task(last_dim(&args->in[0]))};
    run_tasks(args, args->in[0].count, ceil_div(args->in[1].count, m.rows), merge_task, &m);
}

const tri_kernel TRI_ISA_NAME(tri_fast_attention_merge) = {.run = merge};
