/* The frequencies of rotary positions: the one definition that kernels of all devices share. */
#ifndef TRI_DEVICE_ROPE_H
#define TRI_DEVICE_ROPE_H

#include <math.h>

#include "graph/op.h"

/* Elements of a head of this width that turn. */
static inline int64_t tri_rope_turned(const tri_rope_config *rope, int64_t width)
{
    return rope->turned > 0 ? rope->turned : width;
}

static inline float tri_rope_magnitude(const tri_rope_config *rope)
{
    return rope->magnitude > 0 ? rope->magnitude : 1.0f;
}

/* Radians per position of pair i of those, i below turned / 2. */
static inline double tri_rope_frequency(const tri_rope_config *rope, int64_t turned, int64_t i)
{
    const double turn = 6.283185307179586476925;
    double f = pow((double)rope->theta, -2.0 * (double)i / (double)turned);
    if (!(rope->factor > 0))
        return f;
    if (rope->scaling == TRI_ROPE_LISTED)
        return f / (double)rope->stretch[i];
    double low = (double)rope->low_freq_factor, high = (double)rope->high_freq_factor;
    double kept = 0; /* the share that is not scaled */
    if (rope->scaling == TRI_ROPE_LLAMA3)
        kept = ((double)rope->original_max_position * f / turn - low) / (high - low);
    else if (rope->scaling == TRI_ROPE_RAMP)
        kept = (high - (double)i) / (high - low);
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return f * (kept + (1 - kept) / (double)rope->factor);
}

#endif
