#include "ckpt/region.h"

#include <string.h>

tri_region tri_region_whole(int num_dims, const int64_t *dim)
{
    tri_region region = {.num_dims = num_dims, .count = 1};
    for (int d = 0; d < num_dims; d++) {
        region.dim[d] = region.size[d] = dim[d];
        region.count *= dim[d];
    }
    return region;
}

static int64_t product(const int64_t *size, int from, int to)
{
    int64_t count = 1;
    for (int d = from; d < to; d++)
        count *= size[d];
    return count;
}

int64_t tri_region_tensor_count(const tri_region *region)
{
    return product(region->dim, 0, region->num_dims);
}

int64_t tri_region_box_count(const tri_region *region)
{
    return product(region->size, 0, region->num_dims);
}

bool tri_region_is_box(const tri_region *region)
{
    return region->first == 0 && region->count == tri_region_box_count(region);
}

bool tri_region_same_box(const tri_region *a, const tri_region *b)
{
    size_t bytes = (size_t)a->num_dims * sizeof *a->begin;
    return a->num_dims == b->num_dims && memcmp(a->begin, b->begin, bytes) == 0 &&
           memcmp(a->size, b->size, bytes) == 0;
}

bool tri_region_boxes_meet(const tri_region *a, const tri_region *b)
{
    for (int d = 0; d < a->num_dims; d++)
        if (a->begin[d] >= b->begin[d] + b->size[d] || b->begin[d] >= a->begin[d] + a->size[d])
            return false;
    return true;
}

/* The innermost dim that the box does not have all of: from there on elements are contiguous. */
static int line_dim(const tri_region *region)
{
    int d = region->num_dims;
    while (d > 0 && region->size[d - 1] == region->dim[d - 1])
        d--;
    return d > 0 ? d - 1 : 0;
}

static int64_t line_count(const tri_region *region)
{
    return product(region->size, line_dim(region), region->num_dims);
}

int64_t tri_region_num_stretches(const tri_region *region)
{
    if (region->count <= 0)
        return 0;
    int64_t line = line_count(region);
    return (region->first + region->count - 1) / line - region->first / line + 1;
}

tri_stretch tri_region_stretch(const tri_region *region, int64_t i)
{
    int d = line_dim(region);
    int64_t line = line_count(region), which = region->first / line + i;
    int64_t begin = i == 0 ? region->first : which * line; /* in the box */
    int64_t last = region->first + region->count, end = (which + 1) * line;
    tri_stretch run = {.local = begin - region->first, .count = (end < last ? end : last) - begin};
    int64_t stride = product(region->dim, d + 1, region->num_dims);
    if (region->num_dims > 0)
        run.logical = region->begin[d] * stride + begin - which * line;
    for (int k = d - 1; k >= 0; k--) {
        stride *= region->dim[k + 1];
        run.logical += (region->begin[k] + which % region->size[k]) * stride;
        which /= region->size[k];
    }
    return run;
}

/* The first run that ends after a logical index. */
static int64_t first_after(const tri_region *region, int64_t logical)
{
    int64_t low = 0, high = tri_region_num_stretches(region);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        tri_stretch run = tri_region_stretch(region, middle);
        if (run.logical + run.count > logical)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

tr_status tri_region_shared(const tri_region *a, const tri_region *b, tri_shared_fn fn,
                            void *context, tr_error *err)
{
    int64_t num_a = tri_region_num_stretches(a), num_b = tri_region_num_stretches(b);
    if (num_a == 0 || num_b == 0)
        return TR_OK;
    int64_t i = first_after(a, tri_region_stretch(b, 0).logical);
    int64_t j = i < num_a ? first_after(b, tri_region_stretch(a, i).logical) : num_b;
    while (i < num_a && j < num_b) {
        tri_stretch x = tri_region_stretch(a, i), y = tri_region_stretch(b, j);
        int64_t begin = x.logical > y.logical ? x.logical : y.logical;
        int64_t end_x = x.logical + x.count, end_y = y.logical + y.count;
        int64_t end = end_x < end_y ? end_x : end_y;
        if (begin < end)
            TRI_TRY(fn(context, x.local + begin - x.logical, y.local + begin - y.logical,
                       end - begin, err));
        if (end_x <= end_y)
            i++;
        if (end_y <= end_x)
            j++;
    }
    return TR_OK;
}
