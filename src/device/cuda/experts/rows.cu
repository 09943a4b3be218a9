/* Rows of tokens: sorted by the expert that they go to, and multiplied by a number each. */
#include "device/cuda/kernels/sort.cuh"

namespace
{

using namespace tri;

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

/* --- Sorting -------------------------------------------------------------------------------- */

/* The key of a choice is its expert; of none of them, the number of experts: past the last. */
__global__ void __launch_bounds__(THREADS)
    make_keys(const int32_t *choice, int64_t num, int experts, uint32_t *key, uint32_t *place)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= num)
        return;
    int32_t e = choice[i];
    key[i] = (uint32_t)(e >= 0 && e < experts ? e : experts);
    place[i] = (uint32_t)i;
}

struct sorted_rows {
    int32_t *place, *row, *slot, *expert;
};

__global__ void __launch_bounds__(THREADS)
    spread_kernel(const uint32_t *key, const uint32_t *from, int64_t num, uint32_t experts,
                  uint32_t choices, sorted_rows to)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= num)
        return;
    uint32_t slot = from[i], e = key[i];
    to.place[slot] = (int32_t)i;
    to.row[i] = (int32_t)(slot / choices);
    to.slot[i] = (int32_t)slot;
    to.expert[i] = e < experts ? (int32_t)e : -1;
}

size_t sort_rows_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return sort_words(args->in[0].count) * sizeof(uint32_t);
}

void sort_rows(const tri_kernel_args *args)
{
    int64_t num = args->in[0].count;
    int experts = args->attr->route.experts, bits = 1;
    if (num == 0)
        return;
    cudaStream_t stream = stream_of(args);
    sort_buffers buffers = sort_split((uint32_t *)device_of(args)->scratch, num);
    unsigned blocks = (unsigned)ceil_div(num, THREADS);
    make_keys<<<blocks, THREADS, 0, stream>>>(data_of<int32_t>(args->in[0]), num, experts,
                                              buffers.key[0], buffers.place[0]);
    while ((experts >> bits) > 0)
        bits++;
    int sorted = sort_run(buffers, num, bits, stream);
    sorted_rows to = {data_of<int32_t>(args->out[0]), data_of<int32_t>(args->out[1]),
                      data_of<int32_t>(args->out[2]), data_of<int32_t>(args->out[3])};
    spread_kernel<<<blocks, THREADS, 0, stream>>>(buffers.key[sorted], buffers.place[sorted], num,
                                                  (uint32_t)experts, (uint32_t)last_of(args->in[0]),
                                                  to);
}

/* --- A number for each row ------------------------------------------------------------------ */

__device__ __forceinline__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* Operands of rows, `packs_of_row` packs each. */
template <typename T> struct row_operands {
    const T *in[3];
    const T *gate;  /* of gate_rows */
    const float *w; /* of swiglu_rows */
    T *out[2];
    T *dgate;
    float *dw;
    float *amax[2]; /* of what is made, began as zeros; NULL: not wanted */
    int64_t rows, packs_of_row;
};

/* The largest of each part (graph/op.h) that a block has met, in shared memory first. */
struct block_amax {
    unsigned *parts;
    int64_t run;
    float largest;

    /* By all threads of the block, before anything else. */
    __device__ __forceinline__ block_amax(unsigned *shared) : parts(shared), run(0), largest(0)
    {
        for (int p = (int)threadIdx.x; p < TRI_AMAX_PARTS; p += THREADS)
            parts[p] = 0;
    }
    __device__ __forceinline__ void put()
    {
        if (largest > 0)
            atomicMax(&parts[run % TRI_AMAX_PARTS], __float_as_uint(largest));
        largest = 0;
    }
    /* N neighbours from element i on, a multiple of N. */
    template <int N, typename T> __device__ __forceinline__ void see(int64_t i, const pack<T, N> &x)
    {
        float wide[N];
        if (i / TRI_AMAX_RUN != run)
            put();
        run = i / TRI_AMAX_RUN;
        widen_pack<N>(x, wide);
#pragma unroll
        for (int k = 0; k < N; k++)
            largest = fmaxf(largest, fabsf(wide[k]));
    }
    /* By whole warps. */
    __device__ __forceinline__ void put_warp()
    {
        if (__all_sync(WHOLE_WARP, run == __shfl_sync(WHOLE_WARP, run, 0))) {
            float of_warp = warp_max(largest);
            largest = (threadIdx.x & 31) == 0 ? of_warp : 0;
        }
        put();
    }
    /* After a barrier behind the last of them. A maximum does not depend on the order. */
    __device__ __forceinline__ void finish(float *to) const
    {
        for (int p = (int)threadIdx.x; p < TRI_AMAX_PARTS; p += THREADS)
            if (parts[p] != 0)
                atomicMax((unsigned *)&to[p], parts[p]);
    }
};

template <int N, bool AMAX, typename T>
__global__ void __launch_bounds__(THREADS)
    swiglu_rows_kernel(const __grid_constant__ row_operands<T> p)
{
    __shared__ unsigned parts[AMAX ? TRI_AMAX_PARTS : 1];
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    bool there = i < p.rows * p.packs_of_row;
    pack<T, N> made = {};
    if (there) {
        float gate[N], up[N], w = p.w[quotient(i, p.packs_of_row)];
        widen_pack<N>(load_pack<N>(p.in[0] + i * N), gate);
        widen_pack<N>(load_pack<N>(p.in[1] + i * N), up);
#pragma unroll
        for (int k = 0; k < N; k++)
            gate[k] = w * gate[k] * sigmoid(gate[k]) * up[k];
        made = narrow_pack<N, T>(gate);
        store_pack<N>(p.out[0] + i * N, made);
    }
    if (AMAX) {
        block_amax amax(parts);
        __syncthreads();
        amax.see<N>(i * N, made);
        amax.put_warp();
        __syncthreads();
        amax.finish(p.amax[0]);
    }
}

/* A warp for each row, whose lanes take packs in turn. Outputs may lie on inputs: a pack is stored
 * by the lane that loaded it, afterwards. */
template <int N, bool AMAX, typename T>
__device__ __forceinline__ void swiglu_row_grad(const row_operands<T> &p, int64_t row,
                                                block_amax *amax)
{
    float w = p.w[row], sum = 0;
    for (int64_t at = threadIdx.x & 31; at < p.packs_of_row; at += 32) {
        int64_t i = (row * p.packs_of_row + at) * N;
        float gate[N], up[N], dy[N];
        widen_pack<N>(load_pack<N>(p.in[0] + i), gate);
        widen_pack<N>(load_pack<N>(p.in[1] + i), up);
        widen_pack<N>(load_pack<N>(p.in[2] + i), dy);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float s = sigmoid(gate[k]), silu = gate[k] * s, d = w * dy[k];
            sum += dy[k] * silu * up[k];
            gate[k] = d * up[k] * s * (1 + gate[k] * (1 - s));
            up[k] = d * silu;
        }
        pack<T, N> of_gate = narrow_pack<N, T>(gate), of_up = narrow_pack<N, T>(up);
        store_pack<N>(p.out[0] + i, of_gate);
        store_pack<N>(p.out[1] + i, of_up);
        if (AMAX) {
            amax[0].see<N>(i, of_gate);
            amax[1].see<N>(i, of_up);
        }
    }
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        p.dw[row] = sum;
}

template <int N, bool AMAX, typename T>
__global__ void __launch_bounds__(THREADS)
    swiglu_rows_grad_kernel(const __grid_constant__ row_operands<T> p)
{
    __shared__ unsigned parts[2][AMAX ? TRI_AMAX_PARTS : 1];
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if constexpr (AMAX) {
        block_amax amax[2] = {block_amax(parts[0]), block_amax(parts[1])};
        __syncthreads();
        if (row < p.rows)
            swiglu_row_grad<N, true>(p, row, amax);
        amax[0].put_warp();
        amax[1].put_warp();
        __syncthreads();
        amax[0].finish(p.amax[0]);
        amax[1].finish(p.amax[1]);
    } else if (row < p.rows) {
        swiglu_row_grad<N, false>(p, row, nullptr);
    }
}

template <int N, typename T>
__global__ void __launch_bounds__(THREADS)
    gate_rows_kernel(const __grid_constant__ row_operands<T> p)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= p.rows * p.packs_of_row)
        return;
    float x[N], s = sigmoid(widen(p.gate[quotient(i, p.packs_of_row)]));
    widen_pack<N>(load_pack<N>(p.in[0] + i * N), x);
#pragma unroll
    for (int k = 0; k < N; k++)
        x[k] *= s;
    store_pack<N>(p.out[0] + i * N, narrow_pack<N, T>(x));
}

template <int N, typename T>
__global__ void __launch_bounds__(THREADS)
    gate_rows_grad_kernel(const __grid_constant__ row_operands<T> p)
{
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= p.rows)
        return;
    float s = sigmoid(widen(p.gate[row])), sum = 0;
    for (int64_t at = threadIdx.x & 31; at < p.packs_of_row; at += 32) {
        int64_t i = (row * p.packs_of_row + at) * N;
        float dy[N], x[N];
        widen_pack<N>(load_pack<N>(p.in[0] + i), dy);
        widen_pack<N>(load_pack<N>(p.in[1] + i), x);
#pragma unroll
        for (int k = 0; k < N; k++) {
            sum += dy[k] * x[k];
            dy[k] *= s;
        }
        store_pack<N>(p.out[0] + i, narrow_pack<N, T>(dy));
    }
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0)
        p.dgate[row] = narrow<T>(s * (1 - s) * sum);
}

/* --- Calls ---------------------------------------------------------------------------------- */

/* Operands of rows as wide as the first input; `packs` where all of them can be cut into whole
 * ones. */
template <typename T>
row_operands<T> operands_of(const tri_kernel_args *args, int num_in, int num_out, bool &packs)
{
    row_operands<T> p = {};
    int64_t width = last_of(args->in[0]);
    packs = width % pack_size<T>() == 0;
    for (int j = 0; j < num_in; j++) {
        p.in[j] = data_of<T>(args->in[j]);
        packs = packs && aligned16(p.in[j]);
    }
    for (int k = 0; k < num_out; k++) {
        p.out[k] = data_of<T>(args->out[k]);
        packs = packs && aligned16(p.out[k]);
    }
    p.rows = width > 0 ? args->in[0].count / width : 0;
    p.packs_of_row = packs ? width / pack_size<T>() : width;
    return p;
}

template <typename T> unsigned blocks_of_packs(const row_operands<T> &p)
{
    return (unsigned)ceil_div(p.rows * p.packs_of_row, THREADS);
}

template <typename T> unsigned blocks_of_rows(const row_operands<T> &p)
{
    return (unsigned)ceil_div(p.rows, WARPS);
}

/* Whether the largest are among the outputs, `num` of them from `first` on; clears them. */
template <typename T>
bool want_amax(const tri_kernel_args *args, int first, int num, row_operands<T> &p)
{
    for (int k = 0; k < num && args->num_out > first; k++) {
        p.amax[k] = data_of<float>(args->out[first + k]);
        cudaMemsetAsync(p.amax[k], 0, TRI_AMAX_PARTS * sizeof(float), stream_of(args));
    }
    return args->num_out > first;
}

void swiglu_rows(const tri_kernel_args *args)
{
    if (args->in[0].count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        bool packs;
        row_operands<T> p = operands_of<T>(args, 2, 1, packs);
        p.w = data_of<float>(args->in[2]);
        auto kernel =
            packs ? swiglu_rows_kernel<pack_size<T>(), false, T> : swiglu_rows_kernel<1, false, T>;
        if (want_amax(args, 1, 1, p))
            kernel = packs ? swiglu_rows_kernel<pack_size<T>(), true, T>
                           : swiglu_rows_kernel<1, true, T>;
        kernel<<<blocks_of_packs(p), THREADS, 0, stream_of(args)>>>(p);
    });
}

void swiglu_rows_grad(const tri_kernel_args *args)
{
    if (args->in[0].count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        bool packs;
        row_operands<T> p = operands_of<T>(args, 3, 2, packs);
        p.w = data_of<float>(args->in[3]);
        p.dw = data_of<float>(args->out[2]);
        auto kernel = packs ? swiglu_rows_grad_kernel<pack_size<T>(), false, T>
                            : swiglu_rows_grad_kernel<1, false, T>;
        if (want_amax(args, 3, 2, p))
            kernel = packs ? swiglu_rows_grad_kernel<pack_size<T>(), true, T>
                           : swiglu_rows_grad_kernel<1, true, T>;
        kernel<<<blocks_of_rows(p), THREADS, 0, stream_of(args)>>>(p);
    });
}

void gate_rows(const tri_kernel_args *args)
{
    if (args->in[0].count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        bool packs;
        row_operands<T> p = operands_of<T>(args, 1, 1, packs);
        p.gate = data_of<T>(args->in[1]);
        auto kernel = packs ? gate_rows_kernel<pack_size<T>(), T> : gate_rows_kernel<1, T>;
        kernel<<<blocks_of_packs(p), THREADS, 0, stream_of(args)>>>(p);
    });
}

void gate_rows_grad(const tri_kernel_args *args)
{
    if (args->in[0].count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        bool packs;
        row_operands<T> p = operands_of<T>(args, 2, 1, packs);
        p.gate = data_of<T>(args->in[2]);
        p.dgate = data_of<T>(args->out[1]);
        auto kernel =
            packs ? gate_rows_grad_kernel<pack_size<T>(), T> : gate_rows_grad_kernel<1, T>;
        kernel<<<blocks_of_rows(p), THREADS, 0, stream_of(args)>>>(p);
    });
}

} // namespace

const tri_kernel tri_cuda_sort_rows = {sort_rows, sort_rows_scratch, nullptr};
const tri_kernel tri_cuda_swiglu_rows = {swiglu_rows, nullptr, nullptr};
const tri_kernel tri_cuda_swiglu_rows_grad = {swiglu_rows_grad, nullptr, nullptr};
const tri_kernel tri_cuda_gate_rows = {gate_rows, nullptr, nullptr};
const tri_kernel tri_cuda_gate_rows_grad = {gate_rows_grad, nullptr, nullptr};
