/* Rows picked by an integer. */
#include "device/cpu/ref/ref.h"

#include <string.h>

static void embed(const tri_kernel_args *args)
{
    const tri_tensor *table = &args->in[0];
    const int32_t *ids = args->in[1].data;
    const float *rows = table->data;
    float *out = args->out[0].data;
    int64_t dim = table->size[1];
    for (int64_t i = 0; i < args->in[1].count; i++) {
        int64_t row = ids[i] - table->origin[0];
        bool here = row >= 0 && row < table->size[0]; /* else on another rank's shard */
        for (int64_t d = 0; d < dim; d++)
            out[i * dim + d] = here ? rows[row * dim + d] : 0;
    }
}

static void embed_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data;
    const int32_t *ids = args->in[1].data;
    const tri_tensor *table = &args->out[0];
    float *dtable = table->data;
    int64_t dim = table->size[1];
    if (args->overwrite)
        memset(dtable, 0, (size_t)table->count * sizeof(float));
    for (int64_t i = 0; i < args->in[1].count; i++) {
        int64_t row = ids[i] - table->origin[0];
        if (row < 0 || row >= table->size[0])
            continue;
        for (int64_t d = 0; d < dim; d++)
            dtable[row * dim + d] += dy[i * dim + d];
    }
}

/* Which token of row b is meant by a position: the one of that place where they have places; -1:
 * it is not here. */
static int64_t token_at(const int32_t *places, int64_t num_tokens, int64_t b, int32_t position)
{
    for (int64_t t = 0; places && t < num_tokens; t++)
        if (places[b * num_tokens + t] == position)
            return t;
    return places ? -1 : position;
}

static void select_row(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const float *rows = x->data;
    const int32_t *index = args->in[1].data;
    float *out = args->out[0].data;
    int64_t num_batch = x->size[0], num_rows = x->size[1], dim = x->size[2];
    for (int64_t b = 0; b < num_batch; b++) {
        int64_t t = token_at(args->in[2].data, num_rows, b, index[b]);
        for (int64_t d = 0; d < dim; d++)
            out[b * dim + d] = t < 0 ? 0 : rows[(b * num_rows + t) * dim + d];
    }
}

static void select_row_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data;
    const int32_t *index = args->in[1].data;
    const tri_tensor *dx = &args->out[0];
    int64_t num_rows = dx->size[1], dim = dx->size[2];
    memset(dx->data, 0, (size_t)dx->count * sizeof(float));
    for (int64_t b = 0; b < dx->size[0]; b++) {
        int64_t t = token_at(args->in[3].data, num_rows, b, index[b]);
        for (int64_t d = 0; t >= 0 && d < dim; d++)
            ((float *)dx->data)[(b * num_rows + t) * dim + d] = dy[b * dim + d];
    }
}

static void gather_rows(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const int32_t *index = args->in[1].data;
    const float *from = x->data;
    float *y = args->out[0].data;
    int64_t terms = args->attr->gather.each ? 1 : tri_ref_last(&args->in[1]);
    int64_t num_rows = 1, width = 1;
    for (int d = 0; d < x->rank; d++)
        *(d < args->attr->gather.lead ? &num_rows : &width) *= x->size[d];
    for (int64_t i = 0; i < args->out[0].count; i++) {
        int64_t m = i / width, w = i % width;
        double sum = 0;
        for (int64_t k = 0; k < terms; k++) {
            int64_t row = index[m * terms + k];
            if (row >= 0 && row < num_rows)
                sum += from[row * width + w];
        }
        y[i] = (float)sum;
    }
}

const tri_kernel tri_ref_embed = {.run = embed};
const tri_kernel tri_ref_embed_grad = {.run = embed_grad};
const tri_kernel tri_ref_select_row = {.run = select_row};
const tri_kernel tri_ref_select_row_grad = {.run = select_row_grad};
const tri_kernel tri_ref_gather_rows = {.run = gather_rows};
