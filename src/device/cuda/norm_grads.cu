/* The whole backward of a norm in one pass: dx, the gradients of gain and shift, and dx summed over
 * the rows, which is the gradient of a bias before the residual sum.
 *
 * Blocks take pairs of rows in turn. A thread has one pack of columns of every row, and keeps the
 * sums of its columns in registers; what a row needs of all its columns (two averages) goes through
 * shared memory. The next rows are on their way meanwhile. The blocks' sums are added by a second
 * kernel, in a fixed order. With this much to do for each element the instructions count as well as
 * the bytes: packs are widened and narrowed two elements at a time. The formulas are those of
 * norm.cu; rows too long for a block go through its kernels. */
#include "device/cuda/columns.cuh"

namespace
{

using namespace tri;

constexpr int MOST_THREADS = 768;
constexpr int AT_ONCE = 576; /* threads of a multiprocessor, with the registers that they need */
constexpr int NUM_SMS = 132; /* of the GPU that this is made for; others have other waves */
constexpr int ROWS = 2;      /* at a time */
constexpr int STAGES = 3;    /* groups of rows that are here or under way */
constexpr int FINISH_ROWS = 32;

/* How rows are dealt out, a chunk to each block: by shape alone. */
struct cut {
    int threads, num_chunks;
};

cut cut_of(int64_t rows, int64_t packs)
{
    cut c = {};
    c.threads = (int)(ceil_div(packs, 32) * 32);
    int64_t chunks = NUM_SMS * (c.threads < AT_ONCE ? AT_ONCE / c.threads : 1);
    int64_t most = ceil_div(rows, ROWS);
    c.num_chunks = (int)(chunks < most ? chunks : most);
    return c;
}

template <typename T> struct operands {
    const T *dy, *x;
    const float *gain, *stats;
    const T *dsum; /* or NULL */
    T *dx;
    float *partial; /* [output][chunk][dim] */
    int64_t rows;
    int dim;
    float share; /* 1 / dim */
};

/* Over all threads of the block, V sums at once. Every other call uses the other half of shared, so
 * one barrier is enough. */
template <int V> __device__ __forceinline__ void block_sums(float *value, float *shared, int &half)
{
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, num_warps = blockDim.x >> 5;
    float *here = shared + half * 32 * V;
    half ^= 1;
#pragma unroll
    for (int v = 0; v < V; v++)
        value[v] = warp_sum(value[v]);
    if (lane == 0) {
#pragma unroll
        for (int v = 0; v < V; v++)
            here[warp * V + v] = value[v];
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; v++)
        value[v] = 0;
#pragma unroll 1
    for (int w = 0; w < num_warps; w++) {
        pack<float, V> of_warp = load_pack<V>(here + w * V);
#pragma unroll
        for (int v = 0; v < V; v++)
            value[v] += of_warp.at[v];
    }
}

/* What a thread has of the rows to come: STAGES groups of ROWS, fetched while others are worked on.
 * Nobody else reads them, so they need no barrier. */
template <typename T, int N> struct ring_slot {
    pack<T, N> dy, x, ds;
};

__device__ __forceinline__ void fetch16(void *to, const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

/* The slots of a thread lie a block's threads apart. */
template <int N, typename T>
__device__ __forceinline__ void fetch(const operands<T> &p, ring_slot<T, N> *ring, int stage,
                                      int64_t row, int64_t end, int col)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row + r < end && col < p.dim) {
            ring_slot<T, N> *to = ring + (stage * ROWS + r) * (int)blockDim.x + (int)threadIdx.x;
            int64_t at = (row + r) * p.dim + col;
            fetch16(&to->dy, p.dy + at);
            fetch16(&to->x, p.x + at);
            if (p.dsum)
                fetch16(&to->ds, p.dsum + at);
        }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <bool LAYER, typename T>
__device__ __forceinline__ void load_stats(const operands<T> &p, int64_t row, int64_t end,
                                           float *mean, float *rstd)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool here = row + r < end;
        mean[r] = LAYER && here ? p.stats[(row + r) * 2] : 0.0f;
        rstd[r] = here ? p.stats[LAYER ? (row + r) * 2 + 1 : row + r] : 0.0f;
    }
}

/* OUT: sums kept of each column: of dy * n, [dy,] [dx]. */
template <int N, bool LAYER, bool BIAS, int THREADS, typename T>
__global__ void __launch_bounds__(THREADS) grads_kernel(operands<T> p)
{
    constexpr int OUT = 1 + LAYER + BIAS, PER_ROW = 1 + LAYER;
    extern __shared__ uint4 dynamic[];
    __shared__ alignas(16) float shared[2 * 32 * ROWS * PER_ROW];
    ring_slot<T, N> *ring = reinterpret_cast<ring_slot<T, N> *>(dynamic);
    int half = 0, col = (int)threadIdx.x * N, stage = 0;
    bool live = col < p.dim;
    float gain[N], sum[OUT][N] = {}, next_mean[ROWS], next_rstd[ROWS];
#pragma unroll
    for (int k = 0; k < N; k++)
        gain[k] = live ? p.gain[col + k] : 0.0f;
    int64_t first = (int64_t)blockIdx.x * ROWS, step = (int64_t)gridDim.x * ROWS, end = p.rows;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        fetch<N>(p, ring, s, first + s * step, end, col);
    load_stats<LAYER>(p, first, end, next_mean, next_rstd);
    for (int64_t row = first; row < end; row += step) {
        float mean[ROWS], rstd[ROWS], average[ROWS * PER_ROW] = {};
        float n[ROWS][N], dn[ROWS][N];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            mean[r] = next_mean[r];
            rstd[r] = next_rstd[r];
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        int ahead = stage == 0 ? STAGES - 1 : stage - 1; /* the one that was worked on last */
        fetch<N>(p, ring, ahead, row + (STAGES - 1) * step, end, col);
        load_stats<LAYER>(p, row + step, end, next_mean, next_rstd);
        const ring_slot<T, N> *slot = ring + stage * ROWS * (int)blockDim.x + (int)threadIdx.x;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float d[N] = {};
#pragma unroll
            for (int k = 0; k < N; k++)
                n[r][k] = 0;
            if (live && row + r < end) {
                widen_pack<N>(slot[r * (int)blockDim.x].dy, d);
                widen_pack<N>(slot[r * (int)blockDim.x].x, n[r]);
            }
#pragma unroll
            for (int k = 0; k < N; k++) {
                n[r][k] = (n[r][k] - mean[r]) * rstd[r];
                dn[r][k] = d[k] * gain[k];
                average[r * PER_ROW] += dn[r][k] * n[r][k];
                if (LAYER)
                    average[r * PER_ROW + PER_ROW - 1] += dn[r][k];
                sum[0][k] += d[k] * n[r][k];
                if (LAYER)
                    sum[1][k] += d[k];
            }
        }
        block_sums<ROWS * PER_ROW>(average, shared, half);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (!live || row + r >= end)
                continue;
            float of_n = -rstd[r] * average[r * PER_ROW] * p.share;
            float of_d = LAYER ? -rstd[r] * average[r * PER_ROW + PER_ROW - 1] * p.share : 0.0f;
            float dx[N] = {};
            if (p.dsum)
                widen_pack<N>(slot[r * (int)blockDim.x].ds, dx);
#pragma unroll
            for (int k = 0; k < N; k++) {
                dx[k] += fmaf(rstd[r], dn[r][k], fmaf(of_n, n[r][k], of_d));
                if (BIAS)
                    sum[OUT - 1][k] += dx[k];
            }
            store_pack<N>(p.dx + (row + r) * p.dim + col, narrow_pack<N, T>(dx));
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        float *to = p.partial + ((int64_t)o * gridDim.x + blockIdx.x) * p.dim + col;
#pragma unroll
        for (int k = 0; k < N; k++)
            if (live)
                to[k] = sum[o][k];
    }
}

/* Output blockIdx.y: parameters in f32, then the bias. */
template <typename O>
__global__ void __launch_bounds__(32 *FINISH_ROWS)
    finish_kernel(const float *partial, int num_chunks, int dim, bool overwrite, float *dgain,
                  float *dshift, O *dbias)
{
    __shared__ float shared[FINISH_ROWS][33];
    int col = (int)(blockIdx.x * 32 + threadIdx.x);
    const float *from = partial + (int64_t)blockIdx.y * num_chunks * dim;
    float sum = 0;
    if (col < dim) {
#pragma unroll 8
        for (int chunk = (int)threadIdx.y; chunk < num_chunks; chunk += FINISH_ROWS)
            sum += from[(int64_t)chunk * dim + col];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    float total = warp_sum(shared[threadIdx.x][threadIdx.y]); /* a warp adds up a column */
    int mine = (int)(blockIdx.x * 32 + threadIdx.y);
    if (threadIdx.x != 0 || mine >= dim)
        return;
    unsigned output = blockIdx.y;
    if (output == 0)
        store_sum(dgain + mine, total, overwrite);
    else if (output == 1 && dshift)
        store_sum(dshift + mine, total, overwrite);
    else
        store_sum(dbias + mine, total, overwrite);
}

/* ---- runs ---- */

template <int N, bool LAYER, bool BIAS, typename T> auto kernel_for(int threads)
{
    return threads <= 128   ? grads_kernel<N, LAYER, BIAS, 128, T>
           : threads <= 256 ? grads_kernel<N, LAYER, BIAS, 256, T>
           : threads <= 512 ? grads_kernel<N, LAYER, BIAS, 512, T>
                            : grads_kernel<N, LAYER, BIAS, MOST_THREADS, T>;
}

/* False where a block cannot have that much shared memory. */
template <int N, bool LAYER, typename T>
bool launch(const tri_kernel_args *args, operands<T> p, const cut &c)
{
    constexpr int PARAMS = 1 + LAYER;
    bool bias = args->num_out > 1 + PARAMS;
    cudaStream_t stream = stream_of(args);
    auto kernel = bias ? kernel_for<N, LAYER, true, T>(c.threads)
                       : kernel_for<N, LAYER, false, T>(c.threads);
    size_t ring = (size_t)c.threads * STAGES * ROWS * sizeof(ring_slot<T, N>);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    kernel<<<(unsigned)c.num_chunks, c.threads, ring, stream>>>(p);
    dim3 blocks((unsigned)ceil_div(p.dim, 32), PARAMS + bias), threads(32, FINISH_ROWS);
    float *dgain = data_of<float>(args->out[1]);
    float *dshift = LAYER ? data_of<float>(args->out[2]) : nullptr;
    by_type(bias ? args->out[1 + PARAMS].dtype : TRI_F32, [&](auto zero) {
        using O = decltype(zero);
        finish_kernel<O><<<blocks, threads, 0, stream>>>(
            p.partial, c.num_chunks, p.dim, args->overwrite, dgain, dshift,
            bias ? data_of<O>(args->out[1 + PARAMS]) : nullptr);
    });
    return true;
}

/* The parts, one after the other. The sums come first: dx may lie where dy does. */
template <bool LAYER> void run_parts(const tri_kernel_args *args)
{
    constexpr int PARAMS = 1 + LAYER;
    tri_kernel_args part = *args;
    part.in[2] = args->in[3];
    part.num_in = 3;
    for (int k = 0; k < PARAMS; k++)
        part.out[k] = args->out[1 + k];
    part.num_out = PARAMS;
    (LAYER ? tri_cuda_layernorm_param_grad : tri_cuda_rmsnorm_param_grad).run(&part);
    part = *args;
    part.num_in = args->in[4].count > 0 ? 5 : 4;
    part.num_out = 1;
    (LAYER ? tri_cuda_layernorm_grad : tri_cuda_rmsnorm_grad).run(&part);
    if (args->num_out == 1 + PARAMS)
        return;
    tri_attr attr = {};
    attr.split_a = (uint8_t)(args->in[0].rank - 1);
    part = *args;
    part.attr = &attr;
    part.in[0] = args->out[0];
    part.num_in = part.num_out = 1;
    part.out[0] = args->out[1 + PARAMS];
    tri_cuda_bias_grad.run(&part);
}

bool aligned(const tri_kernel_args *args)
{
    bool fits = aligned16(args->in[0].data) && aligned16(args->in[1].data) &&
                aligned16(args->out[0].data);
    return fits && (args->in[4].count == 0 || aligned16(args->in[4].data));
}

template <bool LAYER> void norm_grads(const tri_kernel_args *args)
{
    int64_t dim = last_of(args->in[0]), rows = dim > 0 ? args->in[0].count / dim : 0;
    bool done = false;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        if (rows == 0 || dim % N != 0 || dim / N > MOST_THREADS || !aligned(args))
            return;
        cut c = cut_of(rows, dim / N);
        operands<T> p = {};
        p.dy = data_of<T>(args->in[0]);
        p.x = data_of<T>(args->in[1]);
        p.gain = data_of<float>(args->in[2]);
        p.stats = data_of<float>(args->in[3]);
        p.dsum = args->in[4].count > 0 ? data_of<T>(args->in[4]) : nullptr;
        p.dx = data_of<T>(args->out[0]);
        p.partial = (float *)device_of(args)->scratch;
        p.rows = rows;
        p.dim = (int)dim;
        p.share = 1.0f / (float)dim;
        done = launch<N, LAYER>(args, p, c);
    });
    if (!done)
        run_parts<LAYER>(args);
}

/* Enough for either way. */
template <bool LAYER> size_t grads_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t dim = last_of(args->in[0]), rows = dim > 0 ? args->in[0].count / dim : 0;
    tri_dtype dtype = args->in[0].dtype;
    size_t parts = column_bytes<LAYER ? COLUMN_LAYER : COLUMN_RMS>(dtype, rows, dim);
    size_t bias = column_bytes<COLUMN_BIAS>(dtype, rows, dim);
    int64_t packs = ceil_div(dim, dtype == TRI_F32 ? 4 : 8);
    size_t whole = 0;
    if (rows > 0 && packs <= MOST_THREADS)
        whole = (size_t)(2 + LAYER) * (size_t)cut_of(rows, packs).num_chunks * (size_t)dim *
                sizeof(float);
    size_t most = parts > bias ? parts : bias;
    return most > whole ? most : whole;
}

} // namespace

const tri_kernel tri_cuda_layernorm_grads = {norm_grads<true>, grads_scratch<true>, nullptr};
const tri_kernel tri_cuda_rmsnorm_grads = {norm_grads<false>, grads_scratch<false>, nullptr};
