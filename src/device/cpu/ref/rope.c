/* Rotary positions: pair (i, i + K/2) of each head, or of its part that turns, turns by
 * position * f_i. */
#include "device/rope.h"
#include "device/cpu/ref/ref.h"

#include <math.h>

static void rope(const tri_kernel_args *args)
{
    const tri_tensor *x = &args->in[0];
    const int32_t *position = args->in[1].data;
    const tri_rope_config *config = &args->attr->rope.config;
    int64_t heads = x->size[2], width = x->size[3];
    int64_t turned = tri_rope_turned(config, width), half = turned / 2;
    double magnitude = tri_rope_magnitude(config);
    for (int64_t row = 0; row < x->size[0] * x->size[1]; row++) {
        const float *from = (const float *)x->data + row * heads * width;
        float *to = (float *)args->out[0].data + row * heads * width;
        for (int64_t i = 0; i < half; i++) {
            double angle = position[row] * tri_rope_frequency(config, turned, i);
            double c = magnitude * cos(angle), s = magnitude * sin(angle);
            s = args->attr->rope.inverse ? -s : s;
            for (int64_t at = i; at < heads * width; at += width) {
                double a = from[at], b = from[at + half];
                to[at] = (float)(a * c - b * s);
                to[at + half] = (float)(b * c + a * s);
            }
        }
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = turned; i < width; i++)
                to[h * width + i] = from[h * width + i];
    }
}

const tri_kernel tri_ref_rope = {.run = rope};
