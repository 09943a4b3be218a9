/* Cross-entropy in one pass: statistics, loss, and the gradient in the place of the logits.
 *
 * A row of the logits fits into the shared memory of a multiprocessor, so it is read once and
 * written once, where the parts (loss.cu) read it twice. Two blocks share a multiprocessor; each
 * takes row after row, and a thread fetches its piece of the next row as soon as it has written the
 * same piece of this one. Rows that do not fit, or are not whole packs, go through the parts. */
#include "device/cuda/kernels/cross_entropy.cuh"
#include "device/cuda/kernels/total.cuh"

namespace
{

using namespace tri;

constexpr int THREADS = 512;
constexpr size_t LONGEST_ROW = 224 << 10; /* bytes: what a block may have on sm_90, less a little */
constexpr size_t SHORT_ROW = 112 << 10;   /* two of them side by side */

__device__ __forceinline__ void fetch16(void *to, const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}

__device__ __forceinline__ void fetched()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

template <typename T> struct ce_operands {
    const T *logits;
    const int32_t *targets;
    int64_t rows;
    int vocab;
    float seed, z;
    const float *scaler; /* or NULL */
    float *stats;        /* [rows][3], as ce_stats has them */
    T *dlogits;
};

template <typename T> __global__ void __launch_bounds__(THREADS, 2) ce_kernel(ce_operands<T> p)
{
    constexpr int N = pack_size<T>();
    extern __shared__ uint4 held[];
    __shared__ float shared_max[32], shared_sum[32];
    int packs = p.vocab / N, thread = (int)threadIdx.x;
    int lane = thread & 31, warp = thread >> 5;
    float alpha = p.scaler ? p.seed * p.scaler[TRI_SCALER_SCALE] : p.seed;
    int64_t row = blockIdx.x;
    for (int i = thread; row < p.rows && i < packs; i += THREADS)
        fetch16(&held[i], p.logits + row * p.vocab + (int64_t)i * N);
    for (; row < p.rows; row += gridDim.x) {
        fetched(); /* a thread's own pieces; the others' after the next barrier */
        running r = {-INFINITY, 0};
        for (int i = thread; i < packs; i += THREADS) {
            pack<T, N> v = *reinterpret_cast<const pack<T, N> *>(&held[i]);
            float f[N];
#pragma unroll
            for (int k = 0; k < N; k++)
                f[k] = widen(v.at[k]);
            r.add<N>(f);
        }
        float most = warp_max(r.max);
        if (lane == 0)
            shared_max[warp] = most;
        __syncthreads();
        int target = p.targets[row];
        bool counts = target >= 0, inside = counts && target < p.vocab;
        float picked = thread == 0 && inside ? widen(reinterpret_cast<const T *>(held)[target]) : 0;
        most = warp_max(lane < THREADS / 32 ? shared_max[lane] : -INFINITY);
        float sum = block_sum(r.max == most ? r.sum : r.sum * __expf(r.max - most), shared_sum);
        if (thread == 0) {
            p.stats[row * 3] = most;
            p.stats[row * 3 + 1] = sum;
            p.stats[row * 3 + 2] = picked;
        }
        ce_row<T> grad = ce_row<T>::of(alpha, p.z, most + logf(sum), inside ? target : -1);
        T *out = p.dlogits + row * p.vocab;
        int64_t next = row + gridDim.x;
        const T *from = p.logits + next * p.vocab;
        bool more = next < p.rows;
        for (int i = thread; i < packs; i += THREADS) {
            pack<T, N> v = *reinterpret_cast<const pack<T, N> *>(&held[i]);
            store_pack<N>(out + i * N, counts ? grad.template grad<N>(v, i * N) : pack<T, N>{});
            if (more)
                fetch16(&held[i], from + (int64_t)i * N);
        }
    }
}

size_t row_bytes(const tri_tensor &logits)
{
    return (size_t)last_of(logits) * tri_dtype_bytes(logits.dtype);
}

size_t floats(int64_t count)
{
    return ((size_t)count * sizeof(float) + 255) / 256 * 256;
}

/* Scratch: what ce_loss uses, then the statistics of the rows, then their lse. */
constexpr size_t LOSS_BYTES = (LOSS_PARTS * TOTAL_BLOCKS * sizeof(double) + 255) / 256 * 256;

size_t scratch_bytes(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t rows = args->in[1].count;
    return LOSS_BYTES + floats(3 * rows) + floats(rows);
}

/* False when the GPU has too little shared memory for a row. */
template <typename T> bool run_whole(const tri_kernel_args *args, float *stats)
{
    const tri_tensor &logits = args->in[0];
    size_t bytes = row_bytes(logits);
    if (bytes % 16 != 0 || bytes > LONGEST_ROW || !aligned16(logits.data) ||
        !aligned16(args->out[2].data))
        return false;
    if (cudaFuncSetAttribute(ce_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)bytes) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    ce_operands<T> p = {};
    p.logits = data_of<T>(logits);
    p.targets = data_of<int32_t>(args->in[1]);
    p.rows = args->in[1].count;
    p.vocab = (int)last_of(logits);
    p.seed = args->attr->loss.alpha;
    p.z = args->attr->loss.z;
    p.scaler = args->num_in > 2 ? data_of<float>(args->in[2]) : nullptr;
    p.stats = stats;
    p.dlogits = data_of<T>(args->out[2]);
    int64_t blocks = (int64_t)device_of(args)->num_sms * (bytes <= SHORT_ROW ? 2 : 1);
    if (blocks > p.rows)
        blocks = p.rows;
    ce_kernel<T><<<(unsigned)blocks, THREADS, bytes, stream_of(args)>>>(p);
    return true;
}

void cross_entropy(const tri_kernel_args *args)
{
    int64_t rows = args->in[1].count;
    char *scratch = (char *)device_of(args)->scratch;
    float *stats = (float *)(scratch + LOSS_BYTES);
    float *lse = (float *)(scratch + LOSS_BYTES + floats(3 * rows));
    bool whole = rows == 0;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        whole = whole || run_whole<T>(args, stats);
    });
    tri_kernel_args part = *args;
    part.num_in = 2;
    part.num_out = 1;
    part.out[0].data = stats;
    if (!whole)
        tri_cuda_ce_stats.run(&part);
    part = *args;
    part.in[0].data = stats;
    part.num_in = 2;
    part.out[2].data = lse;
    tri_cuda_ce_loss.run(&part);
    if (whole)
        return;
    part = *args;
    part.in[2].data = lse;
    part.in[3] = args->in[2];
    part.num_in = args->num_in + 1;
    part.num_out = 1;
    part.out[0] = args->out[2];
    tri_cuda_ce_grad.run(&part);
}

} // namespace

const tri_kernel tri_cuda_cross_entropy = {cross_entropy, scratch_bytes, nullptr};
