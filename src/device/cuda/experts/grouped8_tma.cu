/* Products with the matrices of experts, of 8-bit operands, by Hopper's warpgroups with copies by
 * the copy engine: organised as grouped_tma.cu, with stages of 128 k.
 *
 * Without fast_sum a warpgroup has its 64 x 256 results in registers and multiplies 128 k by one
 * half of the columns at a time: 64 x 128 short sums, which it adds in f32 while the other
 * warpgroup multiplies.
 *
 * The rows of an expert begin anywhere, but the engine begins its boxes at a multiple of 16 bytes.
 * So transposes of rows are copied from such a place on; what the engine brings of the experts
 * before and after is set to zero in shared memory. */
#include "device/cuda/experts/grouped8.cuh"
#include "device/cuda/experts/grouped_stage.cuh"
#include "device/cuda/experts/tma.cuh"
#include "device/cuda/experts/wgmma8.cuh"

namespace
{

using namespace tri;

typedef stage_plan<128, 256, 384, 4, 1> plan8;

constexpr int STAGE_K8 = 128;
constexpr int BARRIER_BYTES = 2 * 8 * plan8::STAGES;

/* The tensors as the engine knows them. */
struct maps8 {
    CUtensorMap a, b;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr int NUM_MULTIPLY = 256; /* threads */

/* Stages go round; of each of these a parity is waited for that changes with every round. */
struct ring8 {
    uint32_t shared, full, empty; /* the stages, and barriers of each */
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ ring8(uint32_t memory)
        : shared(memory), full(memory + plan8::STAGES * plan8::STAGE_BYTES),
          empty(full + 8 * plan8::STAGES)
    {
    }
    __device__ __forceinline__ uint32_t stage() const
    {
        return shared + (uint32_t)at * plan8::STAGE_BYTES;
    }
    __device__ __forceinline__ uint32_t full_one() const
    {
        return full + (uint32_t)at * 8;
    }
    __device__ __forceinline__ uint32_t empty_one() const
    {
        return empty + (uint32_t)at * 8;
    }
    __device__ __forceinline__ void next()
    {
        at = at + 1 < plan8::STAGES ? at + 1 : 0;
        parity ^= at == 0;
    }
};

/* Where the boxes of a tile begin, along k and across. */
struct boxes8 {
    int a_k, a_line, b_k, b_line, expert;
};

template <grouped_kind KIND>
__device__ __forceinline__ boxes8 boxes_of(const grouped_call &call, int index)
{
    int tiles_n = (int)((call.n + plan8::N - 1) / plan8::N), along_m = index / tiles_n;
    boxes8 boxes = {};
    boxes.b_line = (index - along_m * tiles_n) * plan8::N;
    if (KIND == GROUPED_GRAD) {
        int tiles_m = (int)((call.m + plan8::M - 1) / plan8::M);
        boxes.expert = along_m / tiles_m;
        boxes.a_line = (along_m - boxes.expert * tiles_m) * plan8::M;
        boxes.a_k = boxes.b_k = call.first[boxes.expert];
    } else {
        row_tile rows = call.tiles[along_m];
        boxes.expert = rows.expert;
        boxes.a_line = rows.first;
        boxes.b_k = KIND == GROUPED_BACK ? rows.expert * (int)call.k : 0;
    }
    return boxes;
}

/* How much of the first stage of a tile lies before its rows. */
template <grouped_kind KIND> __device__ __forceinline__ int bytes_before(const boxes8 &boxes, int k)
{
    return KIND == GROUPED_GRAD && k > 0 ? boxes.a_k % 16 : 0;
}

template <grouped_kind KIND, typename O>
__device__ __forceinline__ void bring_all(const grouped_call &call, const maps8 &maps, ring8 ring,
                                          int num_tiles)
{
    for (int index = (int)blockIdx.x; index < num_tiles; index += (int)gridDim.x) {
        grouped_tile<uint8_t, O> tile;
        if (!find_tile<KIND, plan8::M, plan8::N>(call, index, tile))
            continue;
        boxes8 boxes = boxes_of<KIND>(call, index);
        for (int k0 = -bytes_before<KIND>(boxes, tile.k); k0 < tile.k;
             k0 += STAGE_K8, ring.next()) {
            uint32_t to = ring.stage(), full = ring.full_one();
            barrier_wait(ring.empty_one(), ring.parity ^ 1); /* passes at once in the first round */
            barrier_expect(full, plan8::STAGE_BYTES);
            copy_box(to, &maps.a, boxes.a_k + k0, boxes.a_line, full);
            if (KIND == GROUPED_FORWARD)
                copy_box(to + plan8::A_BYTES, &maps.b, k0, boxes.b_line, boxes.expert, full);
            else
                copy_box(to + plan8::A_BYTES, &maps.b, boxes.b_k + k0, boxes.b_line, full);
        }
    }
}

/* The bytes of a word at `at` that are in [begin, end), as a mask. */
__device__ __forceinline__ uint32_t bytes_within(int at, int begin, int end)
{
    int low = begin - at, high = end - at;
    uint32_t before = low <= 0 ? 0u : low >= 4 ? ~0u : (1u << low * 8) - 1;
    return (high >= 4 ? ~0u : high <= 0 ? 0u : (1u << high * 8) - 1) & ~before;
}

/* Sets all lines to zero but for [begin, end); all threads that multiply do so together. */
__device__ __forceinline__ void clear_ends(uint32_t stage, int begin, int end)
{
    int thread = (int)threadIdx.x % NUM_MULTIPLY;
    for (int i = thread; i < (plan8::M + plan8::N) * LINE_PARTS; i += NUM_MULTIPLY) {
        int part = i % LINE_PARTS, first = part * 16;
        if (begin <= first && first + 16 <= end)
            continue;
        uint32_t at = stage + at_part(i / LINE_PARTS, part), word[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(at)
                     : "memory");
#pragma unroll
        for (int w = 0; w < 4; w++)
            word[w] &= bytes_within(first + w * 4, begin, end);
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(word[0]),
                     "r"(word[1]), "r"(word[2]), "r"(word[3])
                     : "memory");
    }
    show_to_tensor_cores();
    __syncwarp(); /* lanes went different ways; the barrier and wgmma want whole warps */
    asm volatile("bar.sync 1, %0;" ::"n"(NUM_MULTIPLY) : "memory");
    __syncwarp();
}

/* Sums of one stage, 128 columns at a time. */
template <typename A>
__device__ __forceinline__ void add_stage(A type, float (&sum)[32][4], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float part[16][4];
        wgmma8_stage<false>(type, part, a, b + half * 128 * LINE_BYTES);
        wgmma8_results(part);
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[half * 16 + j][i] += part[j][i];
    }
}

/* As store_results, of 16-bit results that nothing is added to: pairs are exchanged as one word. */
template <typename O>
__device__ __forceinline__ void store_narrow(const grouped_tile<uint8_t, O> &tile, int64_t step,
                                             int row, const float (&sum)[32][4])
{
    int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int j = 0; j < 32; j += 4) {
        int at = (j + lane % 4) * 8;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                O low = narrow<O>(sum[j + i][half * 2]), high = narrow<O>(sum[j + i][half * 2 + 1]);
                word[i] = (uint32_t) * (uint16_t *)&low | (uint32_t) * (uint16_t *)&high << 16;
            }
            transpose_quad(word);
            int r = row + lane / 4 + half * 8;
            if (r < tile.m && at < tile.n)
                *(uint4 *)(tile.c + r * step + at) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
}

template <grouped_kind KIND, bool FAST, typename A, typename O>
__device__ __forceinline__ void multiply_all(const grouped8_call &call, ring8 ring, int num_tiles)
{
    int group = (int)threadIdx.x / 128 - 1, warp = (int)threadIdx.x % 128 / 32;
    bool first_lane = threadIdx.x % 32 == 0;
    bool overwrite = KIND != GROUPED_GRAD || call.of.overwrite;
    float scale = *call.scale_a * *call.scale_b;
    for (int index = (int)blockIdx.x; index < num_tiles; index += (int)gridDim.x) {
        grouped_tile<uint8_t, O> tile;
        if (!find_tile<KIND, plan8::M, plan8::N>(call.of, index, tile))
            continue;
        float sum[32][4] = {};
        uint32_t before = 0; /* the barrier of the stage that was used last */
        boxes8 boxes = boxes_of<KIND>(call.of, index);
        for (int k0 = -bytes_before<KIND>(boxes, tile.k); k0 < tile.k;
             k0 += STAGE_K8, ring.next()) {
            uint32_t b = ring.stage() + plan8::A_BYTES;
            uint32_t a = ring.stage() + (uint32_t)group * 64 * LINE_BYTES;
            barrier_wait(ring.full_one(), ring.parity);
            __syncwarp();
            if (KIND == GROUPED_GRAD && (k0 < 0 || tile.k - k0 < STAGE_K8))
                clear_ends(ring.stage(), -k0, tile.k - k0);
            if constexpr (FAST) {
                wgmma8_stage<true>(A{}, sum, a, b);
                wgmma_wait<1>(); /* of the stage before */
                if (before != 0 && first_lane)
                    barrier_arrive(before);
                before = ring.empty_one();
            } else {
                add_stage(A{}, sum, a, b);
                if (first_lane)
                    barrier_arrive(ring.empty_one());
            }
        }
        if constexpr (FAST) {
            wgmma8_results(sum);
            if (before != 0 && first_lane)
                barrier_arrive(before);
        }
#pragma unroll
        for (int j = 0; j < 32; j++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                sum[j][i] *= scale;
        if constexpr (sizeof(O) == 2) {
            if (overwrite) {
                store_narrow(tile, call.of.ldc, group * 64 + warp * 16, sum);
                continue;
            }
        }
        store_results(tile, call.of.ldc, group * 64 + warp * 16, 0, sum, overwrite);
    }
}
#endif

template <grouped_kind KIND, bool FAST, typename A, typename O>
__global__ void __launch_bounds__(plan8::THREADS, 1)
    tma8_kernel(const __grid_constant__ grouped8_call call, const __grid_constant__ maps8 maps,
                int num_tiles)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char memory[];
    ring8 ring((tri_shared_address(memory) + 1023) & ~1023u);
    if (threadIdx.x == 0) {
        for (uint32_t s = 0; s < plan8::STAGES; s++) {
            barrier_init(ring.full + s * 8, 1);
            barrier_init(ring.empty + s * 8, NUM_MULTIPLY / 32);
        }
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        fewer_registers<40>();
        if (threadIdx.x == 0)
            bring_all<KIND, O>(call.of, maps, ring, num_tiles);
    } else {
        more_registers<232>();
        multiply_all<KIND, FAST, A, O>(call, ring, num_tiles);
    }
#else
    (void)call, (void)maps, (void)num_tiles;
    __trap(); /* built without what this GPU has: see CUDA_ARCH in the Makefile */
#endif
}

/* --- Calls ---------------------------------------------------------------------------------- */

typedef CUresult (*encode_map)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                               const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                               const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                               CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's, or NULL where it is too old. */
encode_map find_encode_map()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                         cudaEnableDefault, &result);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess)
        cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? (encode_map)found
                                                                         : nullptr;
}

/* A dense tensor of rank 2 or 3, its last dim first, and boxes of 128 x lines of it. */
bool make_map(encode_map encode, CUtensorMap *map, const void *data, int rank, const int64_t *size,
              int lines)
{
    cuuint64_t dims[3], steps[2], bytes = 1;
    cuuint32_t box[3] = {STAGE_K8, (cuuint32_t)lines, 1}, each[3] = {1, 1, 1};
    for (int d = 0; d < rank; d++) {
        dims[d] = (cuuint64_t)size[d];
        bytes *= dims[d];
        if (d + 1 < rank)
            steps[d] = bytes;
    }
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, (cuuint32_t)rank, (void *)data, dims, steps,
                  box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool make_maps(const grouped_call &call, grouped_kind kind, maps8 &maps)
{
    encode_map encode = find_encode_map();
    const int64_t a[] = {call.lda, kind == GROUPED_GRAD ? call.m : call.rows};
    const int64_t b[] = {call.ldb, call.n, call.experts};
    return encode && make_map(encode, &maps.a, call.a, 2, a, plan8::M) &&
           make_map(encode, &maps.b, call.b, kind == GROUPED_FORWARD ? 3 : 2, b, plan8::N);
}

template <grouped_kind KIND, bool FAST, typename A, typename O>
bool launch(const grouped8_call &call, const maps8 &maps, int num_sms, cudaStream_t stream)
{
    auto kernel = tma8_kernel<KIND, FAST, A, O>;
    size_t bytes = plan8::BYTES + BARRIER_BYTES;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    int64_t tiles = grouped_blocks(call.of, KIND, plan8::M, plan8::N);
    unsigned blocks = (unsigned)(tiles < num_sms ? tiles : num_sms);
    kernel<<<blocks, plan8::THREADS, bytes, stream>>>(call, maps, (int)tiles);
    return true;
}

template <grouped_kind KIND, typename O>
bool run_backward(const grouped8_call &call, const maps8 &maps, int num_sms, cudaStream_t stream)
{
    return call.fast_sum ? launch<KIND, true, e5m2_operand, O>(call, maps, num_sms, stream)
                         : launch<KIND, false, e5m2_operand, O>(call, maps, num_sms, stream);
}

/* What the quantise pass makes: bf16 results of e4m3 in the forward, of e5m2 and e4m3 in the
 * backward. */
bool takes(const grouped8_call &call, grouped_kind kind)
{
    const grouped_call &of = call.of;
    bool forward = kind == GROUPED_FORWARD;
    bool types = of.type == (forward ? TRI_F8E4M3 : TRI_F8E5M2) && call.type_b == TRI_F8E4M3 &&
                 (!forward || call.fast_sum) &&
                 (of.out_type == TRI_BF16 || (kind == GROUPED_GRAD && of.out_type == TRI_F32));
    int device = 0, major = 0;
    return types && of.lda % 16 == 0 && of.ldb % 16 == 0 && of.n % 8 == 0 && aligned16(of.a) &&
           aligned16(of.b) && aligned16(of.c) && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major == 9;
}

} // namespace

bool tri::grouped8_tma(const grouped8_call &call, grouped_kind kind, int num_sms,
                       cudaStream_t stream)
{
    maps8 maps;
    if (!takes(call, kind) || !make_maps(call.of, kind, maps))
        return false;
    if (kind == GROUPED_FORWARD)
        return launch<GROUPED_FORWARD, true, e4m3_operand, __nv_bfloat16>(call, maps, num_sms,
                                                                          stream);
    if (kind == GROUPED_BACK)
        return run_backward<GROUPED_BACK, __nv_bfloat16>(call, maps, num_sms, stream);
    return call.of.out_type == TRI_F32
               ? run_backward<GROUPED_GRAD, float>(call, maps, num_sms, stream)
               : run_backward<GROUPED_GRAD, __nv_bfloat16>(call, maps, num_sms, stream);
}
