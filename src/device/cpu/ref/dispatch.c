/* Rows on their way to the ranks of their experts. */
#include "device/cpu/ref/ref.h"

#include <math.h>
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

/* The token of row b that is at a place. */
static int64_t token_at(const tri_kernel_args *args, int64_t b, int64_t place)
{
    const int32_t *places = args->in[1].data;
    int64_t tokens = args->in[0].size[1], t = 0;
    if (!places)
        return place;
    while (t < tokens && places[b * tokens + t] != place)
        t++;
    return t;
}

static void drop_rows(const tri_kernel_args *args)
{
    const tri_route_attr *attr = &args->attr->route;
    const int32_t *choice = args->in[0].data;
    int32_t *kept = args->out[0].data;
    int64_t tokens = args->in[0].size[1], choices = args->in[0].size[2];
    for (int64_t b = 0; b < args->in[0].size[0]; b++) {
        int64_t taken[TRI_MAX_EXPERTS] = {0};
        for (int64_t place = 0; place < tokens; place++)
            for (int64_t j = 0; j < choices; j++) {
                int64_t i = (b * tokens + token_at(args, b, place)) * choices + j;
                kept[i] = choice[i] >= 0 && taken[choice[i]]++ < attr->limit ? choice[i] : -1;
            }
    }
}

static void count_dropped(const tri_kernel_args *args)
{
    const int32_t *kept = args->in[0].data, *targets = args->in[1].data;
    int64_t choices = tri_ref_last(&args->in[0]);
    double num = 0;
    for (int64_t i = 0; i < args->in[0].count; i++)
        num += kept[i] < 0 && targets[i / choices] >= 0;
    tri_ref_store(args->out[0].data, args->attr->route.alpha * num, args->overwrite);
}

static void largest(const tri_kernel_args *args)
{
    const float *x = args->in[0].data;
    float *most = args->out[0].data;
    *most = args->overwrite ? 0 : *most;
    for (int64_t i = 0; i < args->in[0].count; i++)
        *most = fmaxf(*most, fabsf(x[i]));
}

const tri_kernel tri_ref_drop_rows = {.run = drop_rows};
const tri_kernel tri_ref_count_dropped = {.run = count_dropped};
const tri_kernel tri_ref_largest = {.run = largest};
const tri_kernel tri_ref_rooms = {.run = rooms};
const tri_kernel tri_ref_dispatch = {.run = stay};
const tri_kernel tri_ref_collect = {.run = stay};
const tri_kernel tri_ref_pack_rooms = {.run = pack_rooms};
const tri_kernel tri_ref_mask_rows = {.run = mask_rows};
