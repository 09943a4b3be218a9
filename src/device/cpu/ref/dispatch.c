/* Rows on their way to the ranks of their experts. */
#include "device/cpu/ref/ref.h"

#include <string.h>

/* On one rank all rows find room. */
static void rooms(const tri_kernel_args *args)
{
    tri_ref_store(args->out[0].data, 0, args->overwrite);
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
    memset(counts, 0, (size_t)attr->ranks * sizeof *counts);
    for (int64_t i = 0; i < args->out[1].count; i++)
        from[i] = ids[i] = -1;
    for (int64_t i = 0; i < args->in[0].count; i++) {
        to[i] = -1;
        if (expert[i] < 0)
            continue;
        int32_t rank = expert[i] / each, nth = counts[rank]++;
        if (nth >= attr->room)
            continue;
        to[i] = (int32_t)(rank * attr->room + nth);
        from[to[i]] = (int32_t)i;
        ids[to[i]] = expert[i] % each;
    }
}

static void mask_rows(const tri_kernel_args *args)
{
    const int32_t *ids = args->in[0].data, *got = args->in[1].data;
    int32_t *masked = args->out[0].data;
    int64_t room = args->in[0].size[1];
    for (int64_t i = 0; i < args->in[0].count; i++)
        masked[i] = i % room < got[i / room] ? ids[i] : -1;
}

const tri_kernel tri_ref_rooms = {.run = rooms};
const tri_kernel tri_ref_dispatch = {.run = stay};
const tri_kernel tri_ref_collect = {.run = stay};
const tri_kernel tri_ref_pack_rooms = {.run = pack_rooms};
const tri_kernel tri_ref_mask_rows = {.run = mask_rows};
