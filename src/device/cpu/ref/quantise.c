/* Towards 8-bit operands. On the CPU 8-bit numbers are storage (widen.c rounds what is made here):
 * the kernels divide by the scale, which is exact. */
#include "device/cpu/ref/ref.h"

#include <math.h>

#include "base/float8.h"

void tri_ref_amax_of(const tri_tensor *of, float *out)
{
    const float *x = of->data;
    for (int64_t p = 0; p < TRI_AMAX_PARTS; p++)
        out[p] = 0;
    for (int64_t i = 0; i < of->count; i++) {
        float *part = &out[i / TRI_AMAX_RUN % TRI_AMAX_PARTS];
        *part = fmaxf(*part, fabsf(x[i]));
    }
}

static void amax(const tri_kernel_args *args)
{
    const tri_tensor *of = &args->in[0];
    if (args->num_in < 2) {
        tri_ref_amax_of(of, args->out[0].data);
        return;
    }
    const float *x = of->data;
    const int32_t *expert = args->in[1].data;
    float *out = args->out[0].data;
    for (int64_t p = 0; p < TRI_AMAX_PARTS; p++)
        out[p] = 0;
    for (int64_t i = 0, width = of->count / (args->in[1].count + !args->in[1].count); i < of->count;
         i++) {
        float *part = &out[i / TRI_AMAX_RUN % TRI_AMAX_PARTS];
        if (expert[i / width] >= 0)
            *part = fmaxf(*part, fabsf(x[i]));
    }
}

float tri_cpu_scale8(const tri_kernel_args *args)
{
    const float *parts = args->in[1].data;
    float largest = 0;
    for (int64_t p = 0; p < args->in[1].count; p++)
        largest = fmaxf(largest, parts[p]);
    return tri_scale8(largest,
                      args->attr->quantise.dtype == TRI_F8E4M3 ? TRI_E4M3_MAX : TRI_E5M2_MAX);
}

void tri_cpu_quantise_sides(const tri_kernel_args *args, int64_t *rows, int64_t *cols)
{
    const tri_tensor *x = &args->in[0];
    bool index = args->num_in > 2;
    int split = index ? args->attr->quantise.lead : args->attr->quantise.split;
    *rows = *cols = 1;
    for (int d = 0; d < x->rank; d++)
        *(d < split ? rows : cols) *= x->size[d];
    if (index)
        *rows = args->in[2].count;
}

static void quantise(const tri_kernel_args *args)
{
    const tri_quantise_attr *attr = &args->attr->quantise;
    const float *x = args->in[0].data;
    const int32_t *index = args->num_in > 2 ? args->in[2].data : NULL;
    float *q = attr->straight ? args->out[1].data : NULL;
    float *turned = attr->turned ? args->out[1 + attr->straight].data : NULL;
    float scale = tri_cpu_scale8(args);
    int64_t rows, cols;
    tri_cpu_quantise_sides(args, &rows, &cols);
    *(float *)args->out[0].data = scale;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float value = x[(index ? index[i] : i) * cols + j] / scale;
            if (q)
                q[i * cols + j] = value;
            if (turned)
                turned[j * rows + i] = value;
        }
    for (int64_t j = 0; args->num_out > 3 && j < cols; j++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += x[(index ? index[i] : i) * cols + j];
        tri_ref_store((float *)args->out[3].data + j, sum, args->overwrite);
    }
}

const tri_kernel tri_ref_amax = {.run = amax};
const tri_kernel tri_ref_quantise = {.run = quantise};
