/* Products with the matrices of experts, of operands that were 8-bit and are widened by now. */
#include "device/cpu/ref/ref.h"

static double scale_of(const tri_tensor *a, const tri_tensor *b)
{
    return (double)*(const float *)a->data * *(const float *)b->data;
}

static void grouped8(const tri_kernel_args *args)
{
    const tri_tensor *w = &args->in[1];
    bool back = args->attr->grouped.back;
    int64_t experts = w->size[back ? 1 : 0], n = w->size[back ? 0 : 1], k = w->size[2];
    double scale = scale_of(&args->in[3], &args->in[4]);
    const int32_t *expert = args->in[2].data;
    for (int64_t r = 0; r < args->in[2].count; r++) {
        const float *x = (const float *)args->in[0].data + r * k;
        float *y = (float *)args->out[0].data + r * n;
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            int64_t row = back ? j * experts + expert[r] : expert[r] * n + j;
            for (int64_t i = 0; expert[r] >= 0 && i < k; i++)
                sum += (double)x[i] * ((const float *)w->data)[row * k + i];
            y[j] = (float)(scale * sum);
        }
    }
}

static void grouped8_grad(const tri_kernel_args *args)
{
    const tri_tensor *dw = &args->out[0];
    int64_t n = dw->size[1], k = dw->size[2], rows = args->in[2].count;
    const float *dy = args->in[0].data, *x = args->in[1].data;
    double scale = scale_of(&args->in[4], &args->in[5]);
    const int32_t *expert = args->in[2].data;
    for (int64_t e = 0; e < dw->size[0]; e++) {
        int64_t first = 0, end;
        while (first < rows && expert[first] != e)
            first++;
        for (end = first; end < rows && expert[end] == e;)
            end++;
        for (int64_t i = 0; i < n * k; i++) {
            double sum = 0;
            for (int64_t r = first; r < end; r++)
                sum += (double)dy[i / k * rows + r] * x[i % k * rows + r];
            tri_ref_store((float *)dw->data + e * n * k + i, scale * sum, args->overwrite);
        }
    }
}

const tri_kernel tri_ref_grouped8 = {.run = grouped8};
const tri_kernel tri_ref_grouped8_grad = {.run = grouped8_grad};
