/* Pieces of tensors that are cut along a dim, queries, keys and values apart and packed, and
 * statistics of parts of a vocabulary. */
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

/* A tensor as outer x (the cut dim) x inner elements of 4 bytes. */
typedef struct lines {
    int64_t outer, inner;
} lines;

static lines lines_of(const tri_tensor *x, const tri_cut *cut)
{
    lines l = {1, 1};
    for (int d = 0; d < x->rank; d++)
        *(d < cut->dim ? &l.outer : &l.inner) *= d == cut->dim ? 1 : x->size[d];
    return l;
}

static void copy(float *to, const float *from, int64_t count)
{
    if (count > 0) /* an empty piece may have no memory */
        memcpy(to, from, (size_t)count * sizeof *to);
}

static void slice(const tri_kernel_args *args)
{
    const tri_cut *cut = &args->attr->message.cut;
    lines l = lines_of(&args->in[0], cut);
    int64_t run = tri_cut_size(cut, cut->part) * l.inner, begin = tri_cut_begin(cut, cut->part);
    const float *x = args->in[0].data;
    for (int64_t o = 0; o < l.outer; o++)
        copy((float *)args->out[0].data + o * run, x + (o * cut->size + begin) * l.inner, run);
}

/* Whole numbers are added as such: the bits of most are those of a tiny float. */
static void store_element(const tri_tensor *y, int64_t at, const tri_tensor *x, int64_t from,
                          bool overwrite)
{
    if (y->dtype == TRI_I32) {
        int32_t *to = (int32_t *)y->data + at;
        *to = (overwrite ? 0 : *to) + ((const int32_t *)x->data)[from];
        return;
    }
    tri_ref_store((float *)y->data + at, ((const float *)x->data)[from], overwrite);
}

static void unslice(const tri_kernel_args *args)
{
    const tri_cut *cut = &args->attr->message.cut;
    lines l = lines_of(&args->out[0], cut);
    int64_t run = tri_cut_size(cut, cut->part) * l.inner, begin = tri_cut_begin(cut, cut->part);
    const tri_tensor *y = &args->out[0];
    if (args->overwrite && y->count > 0)
        memset(y->data, 0, (size_t)y->count * sizeof(float));
    for (int64_t o = 0; o < l.outer; o++)
        for (int64_t i = 0; i < run; i++)
            store_element(y, (o * cut->size + begin) * l.inner + i, &args->in[0], o * run + i,
                          args->overwrite);
}

static void reorder(const tri_kernel_args *args, bool into_blocks)
{
    const tri_cut *cut = &args->attr->message.cut;
    lines l = lines_of(&args->in[0], cut);
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    for (int p = 0; p < cut->parts; p++) {
        int64_t begin = tri_cut_begin(cut, p), run = tri_cut_size(cut, p) * l.inner;
        for (int64_t o = 0; o < l.outer; o++) {
            int64_t dense = begin * l.inner * l.outer + o * run;
            int64_t spread = (o * cut->size + begin) * l.inner;
            if (into_blocks)
                copy(y + dense, x + spread, run);
            else
                copy(y + spread, x + dense, run);
        }
    }
}

static void block(const tri_kernel_args *args)
{
    reorder(args, true);
}

static void unblock(const tri_kernel_args *args)
{
    reorder(args, false);
}

/* Of parts [B, T, H, K], part p is [:, :, p] of what is packed. */
static void split_qkv(const tri_kernel_args *args)
{
    int64_t width = args->out[0].size[2] * args->out[0].size[3];
    const float *packed = args->in[0].data;
    for (int64_t i = 0; i < args->out[0].size[0] * args->out[0].size[1]; i++)
        for (int p = 0; p < 3; p++)
            copy((float *)args->out[p].data + i * width, packed + (3 * i + p) * width, width);
}

static void join_qkv(const tri_kernel_args *args)
{
    int64_t width = args->in[0].size[2] * args->in[0].size[3];
    float *packed = args->out[0].data;
    for (int64_t i = 0; i < args->in[0].size[0] * args->in[0].size[1]; i++)
        for (int p = 0; p < 3; p++)
            copy(packed + (3 * i + p) * width, (const float *)args->in[p].data + i * width, width);
}

static void ce_combine(const tri_kernel_args *args)
{
    int64_t parts = args->in[0].size[0], rows = args->out[0].count / 3;
    const float *stats = args->in[0].data;
    float *y = args->out[0].data;
    for (int64_t i = 0; i < rows; i++) {
        double max = -INFINITY, sum = 0, picked = 0;
        for (int64_t p = 0; p < parts; p++)
            max = fmax(max, stats[(p * rows + i) * 3]);
        for (int64_t p = 0; p < parts; p++) {
            const float *s = stats + (p * rows + i) * 3;
            sum += s[1] * exp(s[0] - max);
            picked += s[2];
        }
        y[i * 3] = (float)max;
        y[i * 3 + 1] = (float)sum;
        y[i * 3 + 2] = (float)picked;
    }
}

static void fit_rooms(const tri_kernel_args *args)
{
    const int32_t *counts = args->in[0].data;
    int32_t *fitted = args->out[0].data;
    int64_t room = args->attr->message.room.rows;
    double lost = 0;
    for (int64_t i = 0; i < args->in[0].count; i++) {
        int64_t fits = counts[i] < 0 ? 0 : counts[i] < room ? counts[i] : room;
        lost += fabs((double)counts[i] - (double)fits);
        fitted[i] = (int32_t)fits;
    }
    tri_ref_store(args->out[1].data, lost, args->overwrite);
}

const tri_kernel tri_ref_fit_rooms = {.run = fit_rooms};
const tri_kernel tri_ref_slice = {.run = slice};
const tri_kernel tri_ref_unslice = {.run = unslice};
const tri_kernel tri_ref_block = {.run = block};
const tri_kernel tri_ref_unblock = {.run = unblock};
const tri_kernel tri_ref_split_qkv = {.run = split_qkv};
const tri_kernel tri_ref_join_qkv = {.run = join_qkv};
const tri_kernel tri_ref_ce_combine = {.run = ce_combine};
