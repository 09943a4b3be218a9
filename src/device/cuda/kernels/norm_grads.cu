/* The whole backward of a norm in one pass: dx, the gradients of gain and shift, and dx summed over
 * the rows, which is the gradient of a bias before the residual sum.
 *
 * Blocks take tiles of a few rows in turn. Rows are neighbours, so a tile is one piece of memory of
 * each operand, and the copy engine brings it into shared memory while the tile before is worked
 * on; threads fetch nothing themselves. A thread has a few columns of every row, and keeps their
 * sums in registers. What a row needs of all its columns (two averages) is summed for all rows of a
 * tile at once, so that a tile costs two barriers, whatever its rows. The blocks' sums are added by
 * a second kernel, in a fixed order. The formulas are those of norm.cu; rows too long for a block
 * go through its kernels. */
#include "device/cuda/kernels/columns.cuh"
#include "device/cuda/kernels/early.cuh"
#include "device/cuda/kernels/norm_inbox.cuh"

#include <type_traits>

namespace
{

using namespace tri;

constexpr int MOST_THREADS = 768, NARROW_THREADS = 512;
constexpr int AT_ONCE = 1024;  /* threads of a multiprocessor, with the registers that they need */
constexpr int MOST_BLOCKS = 4; /* of a multiprocessor */
constexpr int NUM_SMS = 132;   /* of the GPU that this is made for; others have other waves */
constexpr size_t MOST_SHARED = 216 << 10; /* of a multiprocessor, for tiles */
constexpr int FINISH_ROWS = 32;

/* Conditions that are settled before a loop. */
using yes = std::true_type;
using no = std::false_type;

/* How rows are dealt out: by shape alone. Threads have few columns, so that there are many of them;
 * more where a block would be too large. */
struct cut {
    int columns, threads, rows, num_chunks; /* rows of a tile; chunks: blocks */
    size_t shared_bytes;
};

cut cut_of(int64_t rows, int64_t dim, size_t element)
{
    cut c = {};
    c.columns = element == 2 && dim > 4 * NARROW_THREADS ? 8 : 4;
    int64_t threads = ceil_div(dim, 32 * c.columns) * 32;
    if (threads > MOST_THREADS)
        return cut{};
    c.threads = (int)threads;
    c.rows = c.threads > NARROW_THREADS ? 2 : 4;
    c.shared_bytes = (size_t)(NORM_STAGES * 3 * c.rows) * (size_t)dim * element;
    int64_t blocks = AT_ONCE / c.threads, fit = (int64_t)(MOST_SHARED / c.shared_bytes);
    blocks = blocks > fit ? fit : blocks;
    blocks = NUM_SMS * (blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks < 1 ? 1 : blocks);
    int64_t most = ceil_div(rows, c.rows);
    c.num_chunks = (int)(blocks < most ? blocks : most);
    return c;
}

/* V sums over a warp at once: half of the values change places with the other half of the lanes,
 * then half of the rest, so that nine exchanges do for eight sums where one by one takes forty.
 * Lane l gets sum l / (32 / V). */
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

/* ---- the kernel ---- */

/* Of the R rows from `row` on, which is a multiple of R; zeros past the end. */
template <int R, bool LAYER, typename T>
__device__ __forceinline__ void load_stats(const norm_grads_operands<T> &p, int64_t row,
                                           float *mean, float *rstd)
{
    constexpr int PER_ROW = 1 + LAYER, NUM = R * PER_ROW, M = NUM < 4 ? NUM : 4;
    alignas(16) float all[NUM] = {};
    const float *from = p.stats + row * PER_ROW;
    if (row + R <= p.rows) {
#pragma unroll
        for (int i = 0; i < NUM; i += M)
            *reinterpret_cast<pack<float, M> *>(all + i) = load_pack<M>(from + i);
    } else {
#pragma unroll
        for (int i = 0; i < NUM; i++)
            if (row + i / PER_ROW < p.rows)
                all[i] = from[i];
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        mean[r] = LAYER ? all[r * PER_ROW] : 0.0f;
        rstd[r] = all[r * PER_ROW + LAYER];
    }
}

/* The averages of R rows: of dn * n and, for layer norm, of dn, times the number of columns. Of a
 * type of 16 bits the mean is taken off late, from the sum instead of every element: what that
 * rounds is far below what the type keeps. */
template <int N, int R, bool LAYER, typename T>
__device__ __forceinline__ void row_terms(const T *dy, const T *x, int dim, const float *gain,
                                          const float *mean, const float *rstd, float *term)
{
    constexpr int PER_ROW = 1 + LAYER;
    constexpr bool LATE = sizeof(T) == 2;
#pragma unroll
    for (int r = 0; r < R; r++) {
        float d[N], v[N], of_x = 0, of_d = 0;
        widen_pack<N>(load_pack<N>(dy + r * dim), d);
        widen_pack<N>(load_pack<N>(x + r * dim), v);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float dn = d[k] * gain[k];
            of_x = fmaf(dn, LAYER && !LATE ? v[k] - mean[r] : v[k], of_x);
            if (LAYER)
                of_d += dn;
        }
        term[r * PER_ROW] = rstd[r] * (LAYER && LATE ? fmaf(-mean[r], of_d, of_x) : of_x);
        if (LAYER)
            term[r * PER_ROW + PER_ROW - 1] = of_d;
    }
}

/* dx of R rows, or of the first few, and what they add to the sums of a thread's columns. */
template <int N, int R, bool LAYER, bool BIAS, bool DSUM, bool WHOLE, typename T>
__device__ __forceinline__ void end_rows(const T *dy, const T *x, const T *ds, int dim, int here,
                                         const float *gain, const float *mean, const float *rstd,
                                         const float *total, float one_of_dim,
                                         float (&sum)[1 + LAYER + BIAS][N], T *to)
{
    constexpr int PER_ROW = 1 + LAYER;
    constexpr bool LATE = sizeof(T) == 2;
#pragma unroll
    for (int r = 0; r < R; r++, dy += dim, x += dim, ds += dim, to += dim) {
        if (!WHOLE && r >= here)
            break;
        float d[N], v[N], dx[N] = {};
        float share = -rstd[r] * one_of_dim, of_n = share * total[r * PER_ROW];
        float of_d = LAYER ? share * total[r * PER_ROW + LAYER] : 0.0f;
        float shift = -mean[r] * rstd[r];
        widen_pack<N>(load_pack<N>(dy), d);
        widen_pack<N>(load_pack<N>(x), v);
        if (DSUM)
            widen_pack<N>(load_pack<N>(ds), dx);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float n = !LAYER ? v[k] * rstd[r]
                      : LATE ? fmaf(v[k], rstd[r], shift)
                             : (v[k] - mean[r]) * rstd[r];
            float dn = d[k] * gain[k];
            dx[k] = LAYER ? dx[k] + of_d : dx[k];
            dx[k] = fmaf(rstd[r], dn, fmaf(of_n, n, dx[k]));
            sum[0][k] = fmaf(d[k], n, sum[0][k]);
            if (LAYER)
                sum[1][k] += d[k];
            if (BIAS)
                sum[LAYER + BIAS][k] += dx[k];
        }
        store_pack<N>(to, narrow_pack<N, T>(dx));
    }
}

/* row_terms of the R rows of a tile, or of those that are here. */
template <int N, int R, bool LAYER, typename T>
__device__ __forceinline__ void tile_terms(bool live, int here, const T *dy, const T *x, int dim,
                                           const float *gain, const float *mean, const float *rstd,
                                           float *term)
{
    if (live && here == R)
        row_terms<N, R, LAYER>(dy, x, dim, gain, mean, rstd, term);
    else if (live)
        for (int r = 0; r < here; r++) /* the last rows of all */
#pragma unroll
            for (int place = 0; place < R; place++)
                if (place == r)
                    row_terms<N, 1, LAYER>(dy + r * dim, x + r * dim, dim, gain, mean + place,
                                           rstd + place, term + place * (1 + LAYER));
}

/* A thread's sums of its columns, for the kernel that adds those of all blocks. */
template <int N, int OUT, typename T>
__device__ __forceinline__ void store_sums(const norm_grads_operands<T> &p, int col,
                                           float (&sum)[OUT][N])
{
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        float *to = p.partial + ((int64_t)o * gridDim.x + blockIdx.x) * p.dim + col;
#pragma unroll
        for (int k = 0; k < N; k += 4)
            store_pack<4>(to + k, *reinterpret_cast<pack<float, 4> *>(&sum[o][k]));
    }
}

/* Calls f, if at all, with both conditions settled. */
template <class F>
__device__ __forceinline__ void settled(bool live, bool one, bool other, const F &f)
{
    if (live && one && other)
        f(yes{}, yes{});
    else if (live && one)
        f(yes{}, no{});
    else if (live && other)
        f(no{}, yes{});
    else if (live)
        f(no{}, no{});
}

/* Sums kept of each column: of dy * n, [dy,] [dx]. */
template <int N, int R, bool LAYER, bool BIAS, int THREADS, typename T>
__global__ void __launch_bounds__(THREADS, THREADS > NARROW_THREADS ? 1 : AT_ONCE / THREADS)
    grads_kernel(norm_grads_operands<T> p)
{
    constexpr int OUT = 1 + LAYER + BIAS, V = R * (1 + LAYER);
    extern __shared__ uint4 dynamic[];
    __shared__ float of_warps[THREADS / 32 * V], total[V];
    __shared__ uint64_t arrived[NORM_STAGES];
    const norm_inbox<R, T> in = {reinterpret_cast<T *>(dynamic), arrived};
    const int col = (int)threadIdx.x * N, lane = (int)threadIdx.x & 31;
    const int warp = (int)threadIdx.x >> 5, num_warps = (int)blockDim.x >> 5;
    const bool live = col < p.dim;
    const int64_t step = (int64_t)gridDim.x * R;
    float gain[N], sum[OUT][N] = {}, next_mean[R], next_rstd[R];
    in.open();
    await_previous();
    int64_t row = (int64_t)blockIdx.x * R;
    in.fetch(p, 0, row);
    in.fetch(p, 1, row + step);
#pragma unroll
    for (int k = 0; k < N; k++)
        gain[k] = live ? p.gain[col + k] : 0.0f;
    load_stats<R, LAYER>(p, row, next_mean, next_rstd);
    int stage = 0;
    unsigned phase = 0;
    for (bool first = true; row < p.rows; row += step, first = false) {
        const int here = p.rows - row < R ? (int)(p.rows - row) : R;
        const T *dy = in.part(p, stage, 0) + col, *x = in.part(p, stage, 1) + col;
        const T *ds = in.part(p, stage, 2) + col;
        float mean[R], rstd[R], term[V] = {};
#pragma unroll
        for (int r = 0; r < R; r++) {
            mean[r] = next_mean[r];
            rstd[r] = next_rstd[r];
        }
        load_stats<R, LAYER>(p, row + step, next_mean, next_rstd);
        in.await(stage, phase);
        tile_terms<N, R, LAYER>(live, here, dy, x, p.dim, gain, mean, rstd, term);
        float mine = warp_sums<V>(term);
        if (lane % (32 / V) == 0)
            of_warps[warp * V + lane / (32 / V)] = mine;
        __syncthreads();
        if (!first) /* nobody reads the tile before any more */
            in.fetch(p, stage ^ 1, row + step);
        for (int v = warp; v < V; v += num_warps) {
            float all = warp_sum(lane < num_warps ? of_warps[lane * V + v] : 0.0f);
            if (lane == 0)
                total[v] = all;
        }
        __syncthreads();
        auto end = [&](auto whole, auto adds) {
            end_rows<N, R, LAYER, BIAS, decltype(adds)::value, decltype(whole)::value>(
                dy, x, ds, p.dim, here, gain, mean, rstd, total, p.share, sum,
                p.dx + row * p.dim + col);
        };
        settled(live, here == R, p.dsum != nullptr, end);
        stage ^= 1;
        phase ^= stage == 0;
    }
    release_next();
    if (live)
        store_sums(p, col, sum);
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

template <bool LAYER, bool BIAS, typename T> auto kernel_for(const cut &c)
{
    constexpr int WIDE = sizeof(T) == 2 ? 8 : 4;
    if (c.threads > NARROW_THREADS)
        return grads_kernel<WIDE, 2, LAYER, BIAS, MOST_THREADS, T>;
    if (c.columns > 4)
        return grads_kernel<WIDE, 4, LAYER, BIAS, NARROW_THREADS, T>;
    return c.threads > 256 ? grads_kernel<4, 4, LAYER, BIAS, NARROW_THREADS, T>
                           : grads_kernel<4, 4, LAYER, BIAS, 256, T>;
}

/* False where a block cannot have that much shared memory. */
template <bool LAYER, typename T>
bool launch(const tri_kernel_args *args, norm_grads_operands<T> p, const cut &c)
{
    constexpr int PARAMS = 1 + LAYER;
    bool bias = args->num_out > 1 + PARAMS;
    auto kernel = bias ? kernel_for<LAYER, true, T>(c) : kernel_for<LAYER, false, T>(c);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)c.shared_bytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    launch_early(args, kernel, (unsigned)c.num_chunks, c.threads, c.shared_bytes, p);
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
    int dims = !LAYER && args->attr->norm.dims > 1 ? args->attr->norm.dims : 1;
    attr.bias_grad.leading = (uint8_t)(args->in[0].rank - dims);
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
    int64_t dim = LAYER ? last_of(args->in[0]) : tri_norm_width(args);
    int64_t rows = dim > 0 ? args->in[0].count / dim : 0;
    bool done = false;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        cut c = rows > 0 && dim % N == 0 && aligned(args) ? cut_of(rows, dim, sizeof(T)) : cut{};
        if (c.threads == 0)
            return;
        norm_grads_operands<T> p = {};
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
        done = launch<LAYER>(args, p, c);
    });
    if (!done)
        run_parts<LAYER>(args);
}

/* Enough for either way. */
template <bool LAYER> size_t grads_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t dim = LAYER ? last_of(args->in[0]) : tri_norm_width(args);
    int64_t rows = dim > 0 ? args->in[0].count / dim : 0;
    tri_dtype dtype = args->in[0].dtype;
    size_t parts = column_bytes < LAYER ? COLUMN_LAYER : COLUMN_RMS > (dtype, rows, dim);
    size_t bias = column_bytes<COLUMN_BIAS>(dtype, rows, dim);
    size_t whole = 0;
    if (rows > 0 && dim > 0)
        whole = (size_t)(2 + LAYER) * (size_t)cut_of(rows, dim, tri_dtype_bytes(dtype)).num_chunks *
                (size_t)dim * sizeof(float);
    size_t most = parts > bias ? parts : bias;
    return most > whole ? most : whole;
}

} // namespace

const tri_kernel tri_cuda_layernorm_grads = {norm_grads<true>, grads_scratch<true>, nullptr};
const tri_kernel tri_cuda_rmsnorm_grads = {norm_grads<false>, grads_scratch<false>, nullptr};
