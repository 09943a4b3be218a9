/* Rotary positions: pair (i, i + K/2) of each head turns by position * f_i. */
#include "device/rope.h"
#include "device/cpu/ref/ref.h"

#include <math.h>

static void rope(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const int32_t *position = args->in[1].data;
    int64_t heads = x->size[2], width = x->size[3], half = width / 2;
    for (int64_t row = 0; row < x->size[0] * x->size[1]; row++) {
        for (int64_t i = 0; i < half; i++) {
            double angle = position[row] * tri_rope_frequency(&args->attr->rope.config, width, i);
            double c = cos(angle), s = args->attr->rope.inverse ? -sin(angle) : sin(angle);
            for (int64_t h = 0; h < heads; h++) {
                const float *from = (const float *)x->data + (row * heads + h) * width + i;
                float *to = (float *)args->out[0].data + (row * heads + h) * width + i;
                double a = from[0], b = from[half];
                to[0] = (float)(a * c - b * s);
                to[half] = (float)(b * c + a * s);
            }
        }
    }
}

const tri_kernel tri_ref_rope = {.run = rope};
