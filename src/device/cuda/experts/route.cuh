/* What the kernels of routers share: a warp looks at a token, lane l at experts l, l + 32, ...
 *
 * Scores are in double, as in the reference: they are few, and which expert is chosen then depends
 * on no rounding of theirs. SLOTS, the experts of a lane, is the smallest power of two that does.
 */
#ifndef TRI_DEVICE_CUDA_EXPERTS_ROUTE_CUH
#define TRI_DEVICE_CUDA_EXPERTS_ROUTE_CUH

#include "device/cuda/kernels/common.cuh"

#include <math.h>

namespace tri
{

constexpr int ROUTE_WARPS = 4;
constexpr int ROUTE_THREADS = 32 * ROUTE_WARPS;

__device__ __forceinline__ int lane_of_thread()
{
    return (int)threadIdx.x & 31;
}

__device__ __forceinline__ int expert_of(int slot)
{
    return lane_of_thread() + 32 * slot;
}

__device__ __forceinline__ double sigmoid_of(float logit)
{
    return 1 / (1 + exp(-(double)logit));
}

/* The logits of a token in this lane, and those of all as a sum. */
template <int SLOTS> struct token_logits {
    float at[SLOTS]; /* -inf beyond the last expert */
    double max, sum; /* of exp(logit - max) */

    __device__ __forceinline__ void load(const float *logits, int experts)
    {
        float largest = -INFINITY;
#pragma unroll
        for (int s = 0; s < SLOTS; s++) {
            at[s] = expert_of(s) < experts ? logits[expert_of(s)] : -INFINITY;
            largest = fmaxf(largest, at[s]);
        }
        max = warp_max(largest);
        double part = 0;
#pragma unroll
        for (int s = 0; s < SLOTS; s++)
            part += expert_of(s) < experts ? exp(at[s] - max) : 0;
        sum = warp_sum(part);
    }

    __device__ __forceinline__ double lse() const
    {
        return max + log(sum);
    }

    /* The score of any expert, by its logit. */
    __device__ __forceinline__ double score(tri_route_score kind, float logit) const
    {
        return kind == TRI_ROUTE_SIGMOID ? sigmoid_of(logit) : exp(logit - max) / sum;
    }
};

/* Calls f with the number of slots, as a type: by_slots(experts, [&](auto slots) {
 *     constexpr int SLOTS = decltype(slots)::value; ... }); */
template <int N> struct slot_count {
    static constexpr int value = N;
};

template <typename F> inline void by_slots(int64_t experts, F f)
{
    assert(experts <= TRI_MAX_EXPERTS);
    if (experts <= 32)
        f(slot_count<1>{});
    else if (experts <= 64)
        f(slot_count<2>{});
    else if (experts <= 128)
        f(slot_count<4>{});
    else if (experts <= 256)
        f(slot_count<8>{});
    else
        f(slot_count<16>{});
}

} // namespace tri

#endif
