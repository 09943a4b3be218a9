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
    tri_ref_amax_of(&args->in[0], args->out[0].data);
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

static void quantise(const tri_kernel_args *args)
{
    const tri_quantise_attr *attr = &args->attr->quantise;
    const float *x = args->in[0].data;
    float *q = attr->straight ? args->out[1].data : NULL;
    float *turned = attr->turned ? args->out[1 + attr->straight].data : NULL;
    float scale = tri_cpu_scale8(args);
    int64_t rows = 1, cols = 1;
    for (int d = 0; d < args->in[0].rank; d++)
        *(d < attr->split ? &rows : &cols) *= args->in[0].size[d];
    *(float *)args->out[0].data = scale;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float value = x[i * cols + j] / scale;
            if (q)
                q[i * cols + j] = value;
            if (turned)
                turned[j * rows + i] = value;
        }
    for (int64_t j = 0; args->num_out > 3 && j < cols; j++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += x[i * cols + j];
        tri_ref_store((float *)args->out[3].data + j, sum, args->overwrite);
    }
}

const tri_kernel tri_ref_amax = {.run = amax};
const tri_kernel tri_ref_quantise = {.run = quantise};
