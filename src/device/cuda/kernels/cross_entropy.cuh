/* The arithmetic of cross-entropy, for its parts (loss.cu) and the whole (cross_entropy.cu). */
#ifndef TRI_DEVICE_CUDA_KERNELS_CROSS_ENTROPY_CUH
#define TRI_DEVICE_CUDA_KERNELS_CROSS_ENTROPY_CUH

#include "device/cuda/kernels/common.cuh"

#include <math.h>

namespace tri
{

/* A maximum and the sum of exp(x - maximum), for elements that come in one after the other. */
struct running {
    float max, sum;

    template <int M> __device__ __forceinline__ void add(const float *x)
    {
        float most = max;
#pragma unroll
        for (int k = 0; k < M; k++)
            most = fmaxf(most, x[k]);
        if (most > max) {
            sum *= __expf(max - most); /* of nothing so far: 0 times 0 */
            max = most;
        }
        float from = max == -INFINITY ? 0.0f : max; /* -inf adds 0, also before any number */
#pragma unroll
        for (int k = 0; k < M; k++)
            sum += __expf(x[k] - from);
    }
};

__device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* slope exp(x - lse) - alpha at the target, for neighbours. slope is alpha, or, with the squared
 * lse in the loss by a weight z, alpha (1 + 2 z lse). Which of them is the target is asked once for
 * all: for one element in a row it costs as much as the exponential of each. */
template <typename T> struct ce_row {
    float alpha, slope, lse2; /* lse2: lse / ln 2 */
    int target;               /* within the row, or outside of it */

    __device__ __forceinline__ float part(T logit) const
    {
        return slope * power_of_two(fmaf(widen(logit), LOG2_E, -lse2));
    }

    template <int M>
    __device__ __forceinline__ pack<T, M> grad(const pack<T, M> &x, int first) const
    {
        pack<T, M> out;
#pragma unroll
        for (int k = 0; k < M; k++)
            out.at[k] = narrow<T>(part(x.at[k]));
        if ((unsigned)(target - first) < (unsigned)M) {
#pragma unroll
            for (int k = 0; k < M; k++)
                if (first + k == target)
                    out.at[k] = narrow<T>(part(x.at[k]) - alpha);
        }
        return out;
    }

    static __device__ __forceinline__ ce_row of(float alpha, float z, float lse, int target)
    {
        float slope = z != 0.0f ? alpha * fmaf(2.0f * z, lse, 1.0f) : alpha;
        return {alpha, slope, lse * LOG2_E, target};
    }

    static constexpr float LOG2_E = 1.4426950408889634f;
};

} // namespace tri

#endif
