/* Adam with moments of 8 bits: a warp has a block of them, eight elements a thread. */
#include "device/adam8.h"
#include "device/cuda/kernels/common.cuh"

namespace
{

using namespace tri;

constexpr int WARPS = 8, EACH = TRI_BLOCK8 / 32;

/* The largest of a warp, in every thread. */
__device__ __forceinline__ uint32_t warp_most(uint32_t x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        uint32_t other = __shfl_xor_sync(WHOLE_WARP, x, step);
        x = other > x ? other : x;
    }
    return x;
}

template <bool SIGNED>
__device__ __forceinline__ void decode(const uint8_t *block, int num, float (&x)[EACH])
{
    float scale = *(const float *)(block + TRI_BLOCK8);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int i = k * 32 + (int)threadIdx.x;
        x[k] = i < num ? tri_block8_wide(SIGNED, block[i], scale) : 0.0f;
    }
}

template <bool SIGNED>
__device__ __forceinline__ void encode(const float (&x)[EACH], int num, uint32_t key,
                                       uint8_t *block)
{
    uint32_t most = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        uint32_t size = tri_bits_of(x[k]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    float scale = tri_block8_scale(warp_most(most));
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int i = k * 32 + (int)threadIdx.x;
        if (i < num)
            block[i] = tri_block8_code(SIGNED, x[k], scale, tri_block8_random(x[k], key));
    }
    if (threadIdx.x == 0)
        *(float *)(block + TRI_BLOCK8) = scale;
}

template <typename G>
__global__ void __launch_bounds__(32 * WARPS)
    adam8_kernel(const tri_update_attr attr, const float *sched, const float *result, float *p,
                 uint8_t *m8, uint8_t *v8, const G *g, int64_t count)
{
    int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.y, first = block * TRI_BLOCK8;
    if (first >= count || result[TRI_RESULT_OK] == 0)
        return;
    const tri_adam8 step = tri_adam8_of(&attr, sched, result);
    int num = count - first < TRI_BLOCK8 ? (int)(count - first) : (int)TRI_BLOCK8;
    float m[EACH], v[EACH];
    p += first;
    g += first;
    m8 += block * TRI_BLOCK8_BYTES;
    v8 += block * TRI_BLOCK8_BYTES;
    decode<true>(m8, num, m);
    decode<false>(v8, num, v);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int i = k * 32 + (int)threadIdx.x;
        if (i >= num)
            continue;
        float weight = p[i];
        tri_adam8_update(&step, widen(g[i]), &weight, &m[k], &v[k]);
        p[i] = weight;
    }
    encode<true>(m, num, step.key_m, m8);
    encode<false>(v, num, step.key_v, v8);
}

void adam8(const tri_kernel_args *args)
{
    int64_t count = args->out[0].count, blocks = ceil_div(count, (int64_t)TRI_BLOCK8 * WARPS);
    if (count == 0)
        return;
    by_type(args->in[3].dtype, [&](auto zero) {
        using G = decltype(zero);
        adam8_kernel<<<(unsigned)blocks, dim3(32, WARPS), 0, stream_of(args)>>>(
            args->attr->update, data_of<float>(args->in[4]), data_of<float>(args->in[5]),
            data_of<float>(args->out[0]), data_of<uint8_t>(args->out[1]),
            data_of<uint8_t>(args->out[2]), data_of<G>(args->in[3]), count);
    });
}

} // namespace

const tri_kernel tri_cuda_adam8 = {adam8, nullptr, nullptr};
