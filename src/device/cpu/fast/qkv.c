/* Queries, keys and values, apart and packed. */
#include "device/cpu/fast/fast.h"

enum { NUM_PARTS = 3 };

/* Elements of a part in one token: H K of [B, T, H, K]. */
static int64_t part_width(const tri_tensor *part)
{
    return part->size[2] * part->size[3];
}

static int64_t num_tasks(const tri_tensor *part)
{
    return ceil_div(part->size[0] * part->size[1], rows_per_task(NUM_PARTS * part_width(part)));
}

/* Of the tokens of a task, all three parts: what is packed is read or written in one sweep. */
static void move_tokens(const tri_tensor *packed, const tri_tensor *parts, bool split, int task)
{
    int64_t width = part_width(parts), rows = rows_per_task(NUM_PARTS * width);
    int64_t first = task * rows, end = min_i64(parts->size[0] * parts->size[1], first + rows);
    for (int64_t i = first; i < end; i++)
        for (int p = 0; p < NUM_PARTS; p++) {
            float *part = (float *)parts[p].data + i * width;
            float *there = (float *)packed->data + (i * NUM_PARTS + p) * width;
            memcpy(split ? part : there, split ? there : part, (size_t)width * sizeof(float));
        }
}

static void split_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    move_tokens(&args->in[0], args->out, true, task);
}

static void join_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    move_tokens(&args->out[0], args->in, false, task);
}

static void split_qkv(const tri_kernel_args *args)
{
    run_tasks(args, args->in[0].count, num_tasks(&args->out[0]), split_task, (void *)args);
}

static void join_qkv(const tri_kernel_args *args)
{
    run_tasks(args, args->out[0].count, num_tasks(&args->in[0]), join_task, (void *)args);
}

const tri_kernel TRI_ISA_NAME(tri_fast_split_qkv) = {.run = split_qkv};
const tri_kernel TRI_ISA_NAME(tri_fast_join_qkv) = {.run = join_qkv};
