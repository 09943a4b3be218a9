/* Rows on their way to the ranks of their experts. Lists of whole numbers, a pass each: little
 * beside the rows themselves. */
#include <string.h>

#include "device/cpu/fast/fast.h"

/* On one rank all rows find room. */
static void rooms(const tri_kernel_args *args)
{
    float *lost = args->out[0].data;
    *lost = args->overwrite ? 0 : *lost;
}

/* And they are where they belong. */
static void stay(const tri_kernel_args *args)
{
    const tri_tensor *rows = &args->in[0];
    if (rows->count > 0)
        memcpy(args->out[0].data, rows->data, (size_t)rows->count * tri_dtype_bytes(rows->dtype));
}

static void pack_rooms(const tri_kernel_args *args)
{
    const tri_route_attr *attr = &args->attr->route;
    const int32_t *expert = args->in[0].data, each = attr->experts / attr->ranks;
    int32_t *counts = args->out[0].data, *from = args->out[1].data, *to = args->out[2].data;
    int32_t *ids = args->out[3].data;
    const int64_t num = args->in[0].count;
    memset(from, 0xff, (size_t)args->out[1].count * sizeof *from); /* -1 */
    memset(ids, 0xff, (size_t)args->out[3].count * sizeof *ids);
    int64_t i = 0;
    for (int32_t rank = 0; rank < attr->ranks; rank++) { /* rows of a rank's experts lie together */
        const int64_t first = i, place = rank * attr->room;
        for (; i < num && expert[i] >= 0 && expert[i] < (rank + 1) * each; i++) {
            const int64_t nth = i - first;
            to[i] = nth < attr->room ? (int32_t)(place + nth) : -1;
            if (nth >= attr->room)
                continue;
            from[place + nth] = (int32_t)i;
            ids[place + nth] = expert[i] - rank * each;
        }
        counts[rank] = (int32_t)(i - first);
    }
    for (; i < num; i++)
        to[i] = -1;
}

static void mask_rows(const tri_kernel_args *args)
{
    const int32_t *ids = args->in[0].data, *got = args->in[1].data;
    int32_t *masked = args->out[0].data;
    const int64_t room = args->in[0].size[1];
    for (int64_t r = 0; r < args->in[0].size[0]; r++)
        for (int64_t i = 0; i < room; i++)
            masked[r * room + i] = i < got[r] ? ids[r * room + i] : -1;
}

/* A row of the batch: its tokens in the order of their places, of which `order` is the way back. */
static void drop_task(void *context, int task, int worker)
{
    (void)worker;
    const tri_kernel_args *args = context;
    const int64_t tokens = args->in[0].size[1], choices = args->in[0].size[2];
    const int64_t limit = args->attr->route.limit, first = task * tokens;
    const int32_t *choice = args->in[0].data, *places = args->in[1].data;
    int32_t *kept = args->out[0].data, *order = (int32_t *)cpu_of(args)->scratch + first;
    int32_t taken[TRI_MAX_EXPERTS] = {0};
    for (int64_t t = 0; places && t < tokens; t++)
        order[places[first + t]] = (int32_t)t;
    for (int64_t place = 0; place < tokens; place++) {
        const int64_t at = (first + (places ? order[place] : place)) * choices;
        for (int64_t i = at; i < at + choices; i++)
            kept[i] = choice[i] >= 0 && taken[choice[i]]++ < limit ? choice[i] : -1;
    }
}

static void drop_rows(const tri_kernel_args *args)
{
    run_tasks(args, args->in[0].count, args->in[0].size[0], drop_task,
              (void *)(uintptr_t)args); /* which no task changes */
}

static size_t drop_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return (size_t)(args->in[0].size[0] * args->in[0].size[1]) * sizeof(int32_t);
}

static void count_dropped(const tri_kernel_args *args)
{
    const int32_t *kept = args->in[0].data, *targets = args->in[1].data;
    const int64_t choices = last_dim(&args->in[0]);
    float *dropped = args->out[0].data;
    int64_t num = 0;
    for (int64_t t = 0; t < args->in[1].count; t++)
        for (int64_t i = t * choices; targets[t] >= 0 && i < (t + 1) * choices; i++)
            num += kept[i] < 0;
    *dropped = (args->overwrite ? 0 : *dropped) + args->attr->route.alpha * (float)num;
}

static void route_load(const tri_kernel_args *args)
{
    const float *sums = args->in[0].data;
    float *load = args->out[0].data;
    const int64_t experts = args->out[0].count, row = experts * TRI_NUM_ROUTE_SUMS;
    for (int64_t e = 0; e < experts; e++) {
        double sum = args->overwrite ? 0 : (double)load[e];
        for (int64_t i = e * TRI_NUM_ROUTE_SUMS; i < args->in[0].count; i += row)
            sum += (double)sums[i + TRI_ROUTE_CHOSE];
        load[e] = (float)sum;
    }
}

const tri_kernel TRI_ISA_NAME(tri_fast_rooms) = {.run = rooms};
const tri_kernel TRI_ISA_NAME(tri_fast_dispatch) = {.run = stay};
const tri_kernel TRI_ISA_NAME(tri_fast_collect) = {.run = stay};
const tri_kernel TRI_ISA_NAME(tri_fast_pack_rooms) = {.run = pack_rooms};
const tri_kernel TRI_ISA_NAME(tri_fast_mask_rows) = {.run = mask_rows};
const tri_kernel TRI_ISA_NAME(tri_fast_drop_rows) = {.run = drop_rows,
                                                     .scratch_bytes = drop_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_count_dropped) = {.run = count_dropped};
const tri_kernel TRI_ISA_NAME(tri_fast_route_load) = {.run = route_load};
