/* Losses. Sums, not means: FINISH divides by the count of the global batch.
 *
 * The rows of logits are long and need not begin at a multiple of 16 bytes: a block takes one, and
 * reads it as a few elements, whole packs, a few elements. */
#include "device/cuda/kernels/cross_entropy.cuh"
#include "device/cuda/kernels/map.cuh"
#include "device/cuda/kernels/total.cuh"

namespace
{

using namespace tri;

constexpr int ROW_THREADS = 512;

/* How a row is cut at its borders of 16 bytes. */
template <typename T> struct row_cut {
    int64_t head;  /* elements before the first pack */
    int64_t packs; /* whole ones */
    int64_t tail;  /* the first element after them */
    __device__ row_cut(const T *row, int64_t n)
    {
        constexpr int N = pack_size<T>();
        head = elements_to_border(row, n);
        packs = (n - head) / N;
        tail = head + packs * N;
    }
};

/* --- Cross entropy -------------------------------------------------------------------------- */

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    ce_stats_kernel(const T *logits, const int32_t *targets, int64_t vocab, int64_t origin,
                    float *stats)
{
    constexpr int N = pack_size<T>(), AHEAD = 4;
    __shared__ float shared_max[32], shared_sum[32];
    int64_t row = blockIdx.x;
    const T *x = logits + row * vocab;
    row_cut<T> cut(x, vocab);
    running r = {-INFINITY, 0};
    if ((int64_t)threadIdx.x < cut.head) {
        float v = widen(x[threadIdx.x]);
        r.add<1>(&v);
    }
    int64_t p = threadIdx.x;
    for (; p + (AHEAD - 1) * (int64_t)blockDim.x < cut.packs; p += AHEAD * (int64_t)blockDim.x) {
        pack<T, N> v[AHEAD];
        float f[AHEAD * N];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            v[u] = load_pack<N>(x + cut.head + (p + u * (int64_t)blockDim.x) * N);
#pragma unroll
        for (int i = 0; i < AHEAD * N; i++)
            f[i] = widen(v[i / N].at[i % N]);
        r.add<AHEAD * N>(f);
    }
    for (; p < cut.packs; p += blockDim.x) {
        pack<T, N> v = load_pack<N>(x + cut.head + p * N);
        float f[N];
#pragma unroll
        for (int i = 0; i < N; i++)
            f[i] = widen(v.at[i]);
        r.add<N>(f);
    }
    if (cut.tail + (int64_t)threadIdx.x < vocab) {
        float v = widen(x[cut.tail + threadIdx.x]);
        r.add<1>(&v);
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, num_warps = blockDim.x >> 5;
    float most = warp_max(r.max);
    if (lane == 0)
        shared_max[warp] = most;
    __syncthreads();
    most = warp_max(lane < num_warps ? shared_max[lane] : -INFINITY);
    /* A thread that saw nothing, or only -inf, adds what it has. */
    float sum = block_sum(r.max == most ? r.sum : r.sum * __expf(r.max - most), shared_sum);
    if (threadIdx.x == 0) {
        int64_t target = targets[row] - origin;
        stats[row * 3] = most;
        stats[row * 3 + 1] = sum;
        stats[row * 3 + 2] = target >= 0 && target < vocab ? widen(x[target]) : 0.0f;
    }
}

constexpr int GRAD_THREADS = 256; /* fewer than for the statistics: nothing waits for the others */

/* x and y lie alike within 16 bytes: both begin at a multiple, or they are the same. */
template <typename T>
__global__ void __launch_bounds__(GRAD_THREADS)
    ce_grad_kernel(const T *logits, const int32_t *targets, const float *lse, int vocab,
                   int64_t origin, float seed, float z, const float *scaler, T *dlogits)
{
    constexpr int N = pack_size<T>(), AHEAD = 4;
    int64_t row = blockIdx.x;
    float alpha = scaler ? seed * scaler[TRI_SCALER_SCALE] : seed;
    const T *x = logits + row * vocab;
    T *y = dlogits + row * vocab;
    int64_t target = targets[row] - origin;
    bool counts = targets[row] >= 0;
    ce_row<T> r =
        ce_row<T>::of(alpha, z, lse[row], target >= 0 && target < vocab ? (int)target : -1);
    row_cut<T> cut(x, vocab);
    int head = (int)cut.head, packs = (int)cut.packs, tail = (int)cut.tail;
    int step = (int)blockDim.x, p = (int)threadIdx.x;
    if (!counts) {
        for (int i = p; i < head; i += step)
            y[i] = narrow<T>(0.0f);
        for (int i = p; i < packs; i += step)
            store_pack<N>(y + head + i * N, pack<T, N>{});
        for (int i = tail + p; i < vocab; i += step)
            y[i] = narrow<T>(0.0f);
        return;
    }
    if (p < head)
        y[p] = r.template grad<1>(pack<T, 1>{{x[p]}}, p).at[0];
    if (tail + p < vocab)
        y[tail + p] = r.template grad<1>(pack<T, 1>{{x[tail + p]}}, tail + p).at[0];
    for (; p + (AHEAD - 1) * step < packs; p += AHEAD * step) {
        pack<T, N> v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            v[u] = load_pack<N>(x + head + (p + u * step) * N);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int first = head + (p + u * step) * N;
            store_pack<N>(y + first, r.template grad<N>(v[u], first));
        }
    }
    for (; p < packs; p += step) {
        int first = head + p * N;
        store_pack<N>(y + first, r.template grad<N>(load_pack<N>(x + first), first));
    }
}

/* Threads for a row: by its length alone. */
unsigned row_threads(int64_t n, unsigned most)
{
    unsigned threads = 32;
    while (threads < most && n > (int64_t)threads * 32)
        threads *= 2;
    return threads;
}

void ce_stats(const tri_kernel_args *args)
{
    const tri_tensor &logits = args->in[0];
    int64_t vocab = last_of(logits), rows = args->in[1].count;
    if (rows == 0)
        return;
    by_type(logits.dtype, [&](auto zero) {
        using T = decltype(zero);
        ce_stats_kernel<<<(unsigned)rows, row_threads(vocab, ROW_THREADS), 0, stream_of(args)>>>(
            data_of<T>(logits), data_of<int32_t>(args->in[1]), vocab,
            logits.origin[logits.rank - 1], data_of<float>(args->out[0]));
    });
}

/* The optional input j that holds the loss scale, or nullptr. */
const float *scaler_of(const tri_kernel_args *args, int j)
{
    return args->num_in > j ? data_of<float>(args->in[j]) : nullptr;
}

void ce_grad(const tri_kernel_args *args)
{
    const tri_tensor &logits = args->in[0];
    int64_t vocab = last_of(logits), rows = args->in[1].count;
    if (rows == 0)
        return;
    by_type(logits.dtype, [&](auto zero) {
        using T = decltype(zero);
        ce_grad_kernel<<<(unsigned)rows, row_threads(vocab, GRAD_THREADS), 0, stream_of(args)>>>(
            data_of<T>(logits), data_of<int32_t>(args->in[1]), data_of<float>(args->in[2]),
            (int)vocab, logits.origin[logits.rank - 1], args->attr->loss.alpha, args->attr->loss.z,
            scaler_of(args, 3), data_of<T>(args->out[0]));
    });
}

/* --- Sums over rows or elements ------------------------------------------------------------- */

/* Statistics of the head: what they take of a row, and where they go. */
struct head_stats {
    int num;
    tri_row_stat of[TRI_MAX_HEAD_STATS];
    float *out[TRI_MAX_HEAD_STATS];
};

/* The same in all threads of a block of whole warps. `shared` has room for 32. */
__device__ double block_join(tri_partial_how how, double value, double *shared)
{
    if (how == TRI_PARTIAL_SUM)
        return block_sum(value, shared);
    int lane = threadIdx.x & 31, num_warps = blockDim.x >> 5;
    for (int step = 16; step > 0; step /= 2)
        value = tri_join(how, value, __shfl_xor_sync(0xffffffff, value, step));
    __syncthreads(); /* what it held before has been read */
    if (lane == 0)
        shared[threadIdx.x >> 5] = value;
    __syncthreads();
    value = lane < num_warps ? shared[lane] : tri_join_start(how);
    for (int step = 16; step > 0; step /= 2)
        value = tri_join(how, value, __shfl_xor_sync(0xffffffff, value, step));
    return value;
}

/* partial: the sums of the blocks, then their counts, then their statistics. */
__global__ void __launch_bounds__(TOTAL_THREADS)
    ce_loss_kernel(const float *stats, const int32_t *targets, int64_t rows, head_stats head,
                   float *lse, double *partial)
{
    __shared__ double shared[32];
    double sum = 0, count = 0, own[TRI_MAX_HEAD_STATS];
#pragma unroll
    for (int k = 0; k < TRI_MAX_HEAD_STATS; k++)
        own[k] = k < head.num ? tri_join_start(head.of[k].join) : 0;
    for (int64_t i = (int64_t)blockIdx.x * TOTAL_THREADS + threadIdx.x; i < rows;
         i += (int64_t)gridDim.x * TOTAL_THREADS) {
        float row_lse = stats[i * 3] + logf(stats[i * 3 + 1]);
        lse[i] = row_lse;
        if (targets[i] >= 0) {
            sum += (double)row_lse - (double)stats[i * 3 + 2];
            count += 1;
#pragma unroll
            for (int k = 0; k < TRI_MAX_HEAD_STATS; k++)
                if (k < head.num)
                    own[k] = tri_join(head.of[k].join, own[k],
                                      tri_row_stat_of(&head.of[k], (double)stats[i * 3],
                                                      (double)row_lse, (double)stats[i * 3 + 2]));
        }
    }
    sum = block_sum(sum, shared);
    count = block_sum(count, shared);
#pragma unroll
    for (int k = 0; k < TRI_MAX_HEAD_STATS; k++)
        if (k < head.num)
            own[k] = block_join(head.of[k].join, own[k], shared);
    if (threadIdx.x != 0)
        return;
    partial[blockIdx.x] = sum;
    partial[gridDim.x + blockIdx.x] = count;
#pragma unroll
    for (int k = 0; k < TRI_MAX_HEAD_STATS; k++)
        if (k < head.num)
            partial[(2 + k) * gridDim.x + blockIdx.x] = own[k];
}

template <typename T>
__global__ void __launch_bounds__(TOTAL_THREADS)
    out_loss_kernel(const T *out, const float *target, int64_t num, tri_out_loss kind,
                    double *partial)
{
    __shared__ double shared[32];
    double sum = 0;
    for (int64_t i = (int64_t)blockIdx.x * TOTAL_THREADS + threadIdx.x; i < num;
         i += (int64_t)gridDim.x * TOTAL_THREADS) {
        double value = (double)widen(out[i]);
        if (kind != TRI_LOSS_MEAN) {
            value -= (double)target[i];
            value *= value * (kind == TRI_LOSS_SSE ? 0.5 : 1.0);
        }
        sum += value;
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* How the count comes about: summed like the loss, or known. */
struct loss_count {
    bool summed;
    double value;
};

__global__ void __launch_bounds__(TOTAL_THREADS)
    loss_finish(const double *partial, int num, loss_count c, bool overwrite, float *loss,
                float *count, head_stats head)
{
    __shared__ double shared[32];
    double sum = total_of(partial, num, shared);
    double counted = c.summed ? total_of(partial + num, num, shared) : c.value;
    if (threadIdx.x == 0) {
        store_sum(loss, sum, overwrite);
        store_sum(count, counted, overwrite);
    }
    for (int k = 0; k < head.num; k++) {
        tri_partial_how how = head.of[k].join;
        double own = tri_join_start(how);
        for (int i = (int)threadIdx.x; i < num; i += (int)blockDim.x)
            own = tri_join(how, own, partial[(2 + k) * num + i]);
        own = block_join(how, own, shared);
        if (threadIdx.x == 0)
            *head.out[k] = (float)(overwrite ? own : tri_join(how, (double)*head.out[k], own));
    }
}

unsigned total_blocks(int64_t num)
{
    int64_t blocks = ceil_div(num, TOTAL_THREADS);
    return (unsigned)(blocks > TOTAL_BLOCKS ? TOTAL_BLOCKS : blocks < 1 ? 1 : blocks);
}

size_t loss_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)args;
    (void)num_threads;
    return LOSS_PARTS * TOTAL_BLOCKS * sizeof(double);
}

void ce_loss(const tri_kernel_args *args)
{
    int64_t rows = args->in[1].count;
    unsigned blocks = total_blocks(rows);
    double *partial = (double *)device_of(args)->scratch;
    head_stats head = {};
    for (int k = 3; k < args->num_out; k++) {
        head.of[head.num] = tri_stat_at(args->attr->loss.stat[k - 3])->row;
        head.out[head.num++] = data_of<float>(args->out[k]);
    }
    ce_loss_kernel<<<blocks, TOTAL_THREADS, 0, stream_of(args)>>>(
        data_of<float>(args->in[0]), data_of<int32_t>(args->in[1]), rows, head,
        data_of<float>(args->out[2]), partial);
    loss_finish<<<1, TOTAL_THREADS, 0, stream_of(args)>>>(
        partial, (int)blocks, loss_count{true, 0}, args->overwrite, data_of<float>(args->out[0]),
        data_of<float>(args->out[1]), head);
}

void out_loss(const tri_kernel_args *args)
{
    int64_t num = args->in[0].count;
    unsigned blocks = total_blocks(num);
    tri_out_loss kind = args->attr->loss.kind;
    double *partial = (double *)device_of(args)->scratch;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        out_loss_kernel<<<blocks, TOTAL_THREADS, 0, stream_of(args)>>>(
            data_of<T>(args->in[0]), data_of<float>(args->in[1]), num, kind, partial);
    });
    double counted = kind == TRI_LOSS_SSE ? 0 : (double)num;
    loss_finish<<<1, TOTAL_THREADS, 0, stream_of(args)>>>(
        partial, (int)blocks, loss_count{false, counted}, args->overwrite,
        data_of<float>(args->out[0]), data_of<float>(args->out[1]), head_stats{});
}

struct out_loss_grad_op {
    float seed;
    const float *scaler;
    bool mean;
    __device__ void operator()(float out, float target, float, float *result) const
    {
        float alpha = scaler ? seed * scaler[TRI_SCALER_SCALE] : seed;
        result[0] = mean ? alpha : alpha * (out - target);
    }
};

void out_loss_grad(const tri_kernel_args *args)
{
    tri_out_loss kind = args->attr->loss.kind;
    out_loss_grad_op op = {args->attr->loss.alpha * (kind == TRI_LOSS_MSE ? 2.0f : 1.0f),
                           scaler_of(args, 2), kind == TRI_LOSS_MEAN};
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        map<2, 1, T, float, T, T>(args, op, args->in[0].data, args->in[1].data, nullptr);
    });
}

} // namespace

const tri_kernel tri_cuda_ce_stats = {ce_stats, nullptr, nullptr};
const tri_kernel tri_cuda_ce_loss = {ce_loss, loss_scratch, nullptr};
const tri_kernel tri_cuda_ce_grad = {ce_grad, nullptr, nullptr};
const tri_kernel tri_cuda_out_loss = {out_loss, loss_scratch, nullptr};
const tri_kernel tri_cuda_out_loss_grad = {out_loss_grad, nullptr, nullptr};
