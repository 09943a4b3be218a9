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
#include "device/cuda/early.cuh"

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

/* V sums over a warp at once: half of the values change places with the other half of the lanes,
 * then half of the rest, so that six exchanges do for four sums where one by one takes twenty. Lane
 * l gets sum l / (32 / V). */
template <int V> __device__ __forceinline__ float warp_sums(float *value)
{
    int lane = (int)threadIdx.x & 31;
#pragma unroll
    for (int half = V / 2, bit = 16; half > 0; half /= 2, bit /= 2) {
        bool upper = lane & bit;
#pragma unroll
        for (int v = 0; v < half; v++) {
            float keep = upper ? value[v + half] : value[v];
            float give = upper ? value[v] : value[v + half];
            value[v] = keep + __shfl_xor_sync(WHOLE_WARP, give, bit);
        }
    }
    return lanes_sum(value[0], 32 / V);
}

/* Over all threads of a block of at most WARPS warps, V sums at once. Every other call uses the
 * other half of shared, so one barrier is enough. Places of warps that are not there hold zeros, so
 * that the loop has no end to look for. */
template <int V, int WARPS>
__device__ __forceinline__ void block_sums(float *value, float *shared, int &half)
{
    int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
    float *here = shared + half;
    half ^= WARPS * V;
    float mine = warp_sums<V>(value);
    if (lane % (32 / V) == 0)
        here[warp * V + lane / (32 / V)] = mine;
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; v++)
        value[v] = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        pack<float, V> of_warp = load_pack<V>(here + w * V);
#pragma unroll
        for (int v = 0; v < V; v++)
            value[v] += of_warp.at[v];
    }
}

/* What a thread has of the rows to come: STAGES groups of ROWS, fetched while others are worked on.
 * Nobody else reads them, so they need no barrier. A slot that nothing was fetched into holds
 * zeros, which add nothing to any sum: threads without columns and rows past the end need no care.
 */
template <typename T, int N> struct ring_slot {
    pack<T, N> dy, x, ds;
};

__device__ __forceinline__ void fetch16(void *to, const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

template <typename T, int N> __device__ __forceinline__ void clear(ring_slot<T, N> *slot)
{
    uint4 *words = reinterpret_cast<uint4 *>(slot);
#pragma unroll
    for (int i = 0; i < 3; i++)
        words[i] = make_uint4(0, 0, 0, 0);
}

/* The group that begins at `row`; `at`: its first element that is this thread's. The slots of a
 * thread lie a block's threads apart. */
template <int N, typename T>
__device__ __forceinline__ void fetch(const operands<T> &p, ring_slot<T, N> *to, int64_t row,
                                      int64_t at, bool live)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (row + r < p.rows) {
            if (live) {
                fetch16(&to->dy, p.dy + at);
                fetch16(&to->x, p.x + at);
                if (p.dsum)
                    fetch16(&to->ds, p.dsum + at);
            }
        } else {
            clear(to);
        }
        to += blockDim.x;
        at += p.dim;
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Zeros for rows past the end. */
template <bool LAYER, typename T>
__device__ __forceinline__ void load_stats(const operands<T> &p, int64_t row, float *mean,
                                           float *rstd)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        mean[r] = rstd[r] = 0;
        if (row + r < p.rows) {
            if (LAYER) {
                pack<float, 2> both = load_pack<2>(p.stats + (row + r) * 2);
                mean[r] = both.at[0];
                rstd[r] = both.at[1];
            } else {
                rstd[r] = p.stats[row + r];
            }
        }
    }
}

/* Of a type of 16 bits the mean is taken off after the product, in the same instruction: what that
 * rounds is far below what the type keeps. */
template <bool LAYER, typename T>
__device__ __forceinline__ float normed(float x, float mean, float rstd, float shift)
{
    if (!LAYER)
        return x * rstd;
    return sizeof(T) == 2 ? fmaf(x, rstd, shift) : (x - mean) * rstd;
}

/* OUT: sums kept of each column: of dy * n, [dy,] [dx]. */
template <int N, bool LAYER, bool BIAS, int THREADS, typename T>
__global__ void __launch_bounds__(THREADS) grads_kernel(operands<T> p)
{
    constexpr int OUT = 1 + LAYER + BIAS, PER_ROW = 1 + LAYER, V = ROWS * PER_ROW;
    constexpr int WARPS = THREADS / 32;
    extern __shared__ uint4 dynamic[];
    __shared__ alignas(16) float shared[2 * WARPS * V];
    ring_slot<T, N> *ring = reinterpret_cast<ring_slot<T, N> *>(dynamic) + threadIdx.x;
    const int stage_slots = ROWS * (int)blockDim.x;
    int half = 0, col = (int)threadIdx.x * N;
    bool live = col < p.dim;
    float gain[N], sum[OUT][N] = {}, next_mean[ROWS], next_rstd[ROWS];
    for (int i = (int)threadIdx.x; i < 2 * WARPS * V; i += (int)blockDim.x)
        shared[i] = 0;
#pragma unroll
    for (int s = 0; s < STAGES * ROWS; s++)
        clear(ring + s * (int)blockDim.x);
    await_previous();
#pragma unroll
    for (int k = 0; k < N; k++)
        gain[k] = live ? p.gain[col + k] : 0.0f;
    const int64_t step = (int64_t)gridDim.x * ROWS, step_at = step * p.dim;
    int64_t row = (int64_t)blockIdx.x * ROWS, at = row * p.dim + col;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        fetch<N>(p, ring + s * stage_slots, row + s * step, at + s * step_at, live);
    load_stats<LAYER>(p, row, next_mean, next_rstd);
    __syncthreads(); /* the zeros in shared */
    ring_slot<T, N> *slot = ring, *last = ring + (STAGES - 1) * stage_slots, *ahead = last;
    for (; row < p.rows; row += step, at += step_at) {
        float mean[ROWS], rstd[ROWS], average[V] = {}, n[ROWS][N], dn[ROWS][N];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            mean[r] = next_mean[r];
            rstd[r] = next_rstd[r];
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        fetch<N>(p, ahead, row + (STAGES - 1) * step, at + (STAGES - 1) * step_at, live);
        load_stats<LAYER>(p, row + step, next_mean, next_rstd);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float d[N], x[N], shift = -mean[r] * rstd[r];
            widen_pack<N>(slot[r * (int)blockDim.x].dy, d);
            widen_pack<N>(slot[r * (int)blockDim.x].x, x);
#pragma unroll
            for (int k = 0; k < N; k++) {
                n[r][k] = normed<LAYER, T>(x[k], mean[r], rstd[r], shift);
                dn[r][k] = d[k] * gain[k];
                average[r * PER_ROW] = fmaf(dn[r][k], n[r][k], average[r * PER_ROW]);
                if (LAYER)
                    average[r * PER_ROW + PER_ROW - 1] += dn[r][k];
                sum[0][k] = fmaf(d[k], n[r][k], sum[0][k]);
                if (LAYER)
                    sum[1][k] += d[k];
            }
        }
        block_sums<V, WARPS>(average, shared, half);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float share = -rstd[r] * p.share, of_n = share * average[r * PER_ROW];
            float of_d = LAYER ? share * average[r * PER_ROW + PER_ROW - 1] : 0.0f, dx[N];
            widen_pack<N>(slot[r * (int)blockDim.x].ds, dx);
#pragma unroll
            for (int k = 0; k < N; k++) {
                dx[k] = LAYER ? dx[k] + of_d : dx[k];
                dx[k] = fmaf(rstd[r], dn[r][k], fmaf(of_n, n[r][k], dx[k]));
                if (BIAS)
                    sum[OUT - 1][k] += dx[k];
            }
            if (live && row + r < p.rows)
                store_pack<N>(p.dx + at + r * p.dim, narrow_pack<N, T>(dx));
        }
        ahead = slot; /* the one that was worked on last */
        slot = slot == last ? ring : slot + stage_slots;
    }
    release_next();
#pragma unroll
    for (int o = 0; live && o < OUT; o++) {
        float *to = p.partial + ((int64_t)o * gridDim.x + blockIdx.x) * p.dim + col;
#pragma unroll
        for (int k = 0; k < N; k += 4)
            store_pack<4>(to + k, *reinterpret_cast<pack<float, 4> *>(&sum[o][k]));
    }
}

/* Output blockIdx.y: parameters in f32, then the bias. */
template <typename O>
__global__ void __launch_bounds__(32 * FINISH_ROWS)
    finish_kernel(const float *partial, int num_chunks, int dim, bool overwrite, float *dgain,
                  float *dshift, O *dbias)
{
    __shared__ float shared[FINISH_ROWS][33];
    int col = (int)(blockIdx.x * 32 + threadIdx.x);
    const float *from = partial + (int64_t)blockIdx.y * num_chunks * dim;
    float sum = 0;
    await_previous();
    if (col < dim) {
#pragma unroll 16
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
    auto kernel =
        bias ? kernel_for<N, LAYER, true, T>(c.threads) : kernel_for<N, LAYER, false, T>(c.threads);
    size_t ring = (size_t)c.threads * STAGES * ROWS * sizeof(ring_slot<T, N>);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)ring) !=
        cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    launch_early(args, kernel, (unsigned)c.num_chunks, c.threads, ring, p);
    dim3 blocks((unsigned)ceil_div(p.dim, 32), PARAMS + bias), threads(32, FINISH_ROWS);
    float *dgain = data_of<float>(args->out[1]);
    float *dshift = LAYER ? data_of<float>(args->out[2]) : nullptr;
    by_type(bias ? args->out[1 + PARAMS].dtype : TRI_F32, [&](auto zero) {
        using O = decltype(zero);
        launch_early(args, finish_kernel<O>, blocks, threads, 0, p.partial, c.num_chunks, p.dim,
                     args->overwrite, dgain, dshift,
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
                aligned16(args->out[0].data) && aligned16(args->in[3].data);
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
    size_t parts = column_bytes < LAYER ? COLUMN_LAYER : COLUMN_RMS > (dtype, rows, dim);
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
