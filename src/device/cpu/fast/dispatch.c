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
const tri_kernel TRI_ISA_NAME(tri_fast_route_load) = {.run = route_load};
