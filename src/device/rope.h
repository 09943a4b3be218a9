/* The frequencies of rotary positions: the one definition that kernels of all devices share. */
#ifndef TRI_DEVICE_ROPE_H
#define TRI_DEVICE_ROPE_H

#include <math.h>

#include "graph/op.h"

/* Radians per position of pair i of a head of this width. */
static inline double tri_rope_frequency(const tri_rope_config *rope, int64_t width, int64_t i)
{
    const double turn = 6.283185307179586476925;
    double f = pow((double)rope->theta, -2.0 * (double)i / (double)width);
    if (!(rope->factor > 0))
        return f;
    double low = (double)rope->low_freq_factor, high = (double)rope->high_freq_factor;
    double turns = (double)rope->original_max_position * f / turn;
    double kept = (turns - low) / (high - low); /* the share that is not scaled */
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return f * (kept + (1 - kept) / (double)rope->factor);
}

#endif
