/* Sums of a router over tokens, the loss that keeps loads equal, and the bias that does so.
 *
 * Tokens of a row (or of all rows, where the whole is asked for) are cut into chunks by shape
 * alone. A block adds up a chunk: each of its warps some of the tokens, in their order, and then
 * the warps one after the other. Chunks are added up by a second kernel. Counts are whole numbers,
 * which any order adds up to the same. */
#include "device/cuda/experts/route.cuh"
#include "device/cuda/kernels/total.cuh"

namespace
{

using namespace tri;

constexpr int SUM_WARPS = 8;
constexpr int SUM_THREADS = 32 * SUM_WARPS;
constexpr int SUM_LANES = 8; /* of the second kernel, for each expert */

/* Rows, and how each is cut. */
struct sum_cut {
    int64_t rows, tokens; /* of a row */
    int64_t chunk, chunks;
};

sum_cut cut_of(const tri_kernel_args *args)
{
    sum_cut cut = {};
    bool whole = args->attr->route.whole;
    cut.rows = whole ? 1 : args->in[0].size[0];
    cut.tokens = whole ? args->in[0].size[0] * args->in[0].size[1] : args->in[0].size[1];
    cut.chunk = 64;
    while (ceil_div(cut.tokens, cut.chunk) > 512)
        cut.chunk *= 2;
    cut.chunks = ceil_div(cut.tokens, cut.chunk);
    return cut;
}

/* Of each chunk: its scores [E], its choices [E], and z, entropy, tokens. */
enum { OF_Z, OF_ENTROPY, OF_TOKENS, NUM_TOTALS };

struct sums_call {
    tri_route_score score;
    int choices, experts;
    const float *logits;
    const int32_t *choice, *targets;
    sum_cut cut;
    double *mass;   /* [chunk of any row][E] */
    int32_t *chose; /* likewise */
    double *totals; /* [NUM_TOTALS][chunk of any row] */
    float *sums, *z, *entropy;
    float mean; /* factor of z and entropy */
    bool overwrite;
};

/* What a token gives to its lane's experts, and to z and entropy in every lane. */
template <int SLOTS>
__device__ __forceinline__ void add_token(const sums_call &c, int64_t token, double (&mass)[SLOTS],
                                          double &z, double &entropy)
{
    token_logits<SLOTS> logits;
    logits.load(c.logits + token * c.experts, c.experts);
    double part[SLOTS], sum = 0, own = 0;
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        part[s] = expert_of(s) < c.experts ? logits.score(c.score, logits.at[s]) : 0;
        sum += part[s];
    }
    sum = c.score == TRI_ROUTE_SIGMOID ? warp_sum(sum) : 1;
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        part[s] /= sum;
        mass[s] += part[s];
        own -= part[s] > 0 ? part[s] * log(part[s]) : 0;
    }
    double lse = logits.lse();
    z += lse * lse;
    entropy += warp_sum(own);
}

template <int SLOTS>
__global__ void __launch_bounds__(SUM_THREADS) chunk_kernel(const __grid_constant__ sums_call c)
{
    __shared__ double shared_mass[SLOTS * 32], shared_totals[SUM_WARPS][NUM_TOTALS];
    __shared__ int shared_chose[SLOTS * 32];
    int warp = (int)threadIdx.x / 32;
    for (int e = (int)threadIdx.x; e < SLOTS * 32; e += SUM_THREADS) {
        shared_mass[e] = 0;
        shared_chose[e] = 0;
    }
    __syncthreads();
    int64_t row = blockIdx.x / c.cut.chunks, chunk = blockIdx.x % c.cut.chunks;
    int64_t first = chunk * c.cut.chunk, end = first + c.cut.chunk;
    end = end < c.cut.tokens ? end : c.cut.tokens;
    double mass[SLOTS] = {}, z = 0, entropy = 0, tokens = 0;
    for (int64_t t = first + warp; t < end; t += SUM_WARPS) {
        int64_t token = row * c.cut.tokens + t;
        if (c.targets[token] < 0)
            continue;
        add_token(c, token, mass, z, entropy);
        tokens++;
        if (lane_of_thread() < c.choices) {
            int e = c.choice[token * c.choices + lane_of_thread()];
            if (e >= 0 && e < c.experts)
                atomicAdd(&shared_chose[e], 1);
        }
    }
    for (int w = 0; w < SUM_WARPS; w++) { /* one warp after the other */
        if (w == warp) {
#pragma unroll
            for (int s = 0; s < SLOTS; s++)
                shared_mass[expert_of(s)] += mass[s];
        }
        __syncthreads();
    }
    if (lane_of_thread() == 0) {
        shared_totals[warp][OF_Z] = z;
        shared_totals[warp][OF_ENTROPY] = entropy;
        shared_totals[warp][OF_TOKENS] = tokens;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < c.experts; e += SUM_THREADS) {
        c.mass[(int64_t)blockIdx.x * c.experts + e] = shared_mass[e];
        c.chose[(int64_t)blockIdx.x * c.experts + e] = shared_chose[e];
    }
    if (threadIdx.x < NUM_TOTALS) {
        double sum = 0;
        for (int w = 0; w < SUM_WARPS; w++)
            sum += shared_totals[w][threadIdx.x];
        c.totals[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = sum;
    }
}

/* Block (x, y): row x, 32 experts; SUM_LANES threads for each, which take chunks in turn. */
__global__ void __launch_bounds__(32 * SUM_LANES) join_kernel(const __grid_constant__ sums_call c)
{
    __shared__ double shared[3][SUM_LANES][32];
    int e = (int)blockIdx.y * 32 + (int)threadIdx.x, lane = (int)threadIdx.y;
    int64_t first = (int64_t)blockIdx.x * c.cut.chunks, all = c.cut.rows * c.cut.chunks;
    double mass = 0, chose = 0, tokens = 0;
#pragma unroll 4
    for (int64_t k = first + lane; k < first + c.cut.chunks; k += SUM_LANES) {
        mass += e < c.experts ? c.mass[k * c.experts + e] : 0;
        chose += e < c.experts ? c.chose[k * c.experts + e] : 0;
        tokens += c.totals[OF_TOKENS * all + k];
    }
    shared[TRI_ROUTE_CHOSE][lane][threadIdx.x] = chose;
    shared[TRI_ROUTE_MASS][lane][threadIdx.x] = mass;
    shared[TRI_ROUTE_TOKENS][lane][threadIdx.x] = tokens;
    __syncthreads();
    if (lane < TRI_NUM_ROUTE_SUMS && e < c.experts) {
        double sum = 0;
        for (int k = 0; k < SUM_LANES; k++)
            sum += shared[lane][k][threadIdx.x];
        c.sums[((int64_t)blockIdx.x * c.experts + e) * TRI_NUM_ROUTE_SUMS + lane] = (float)sum;
    }
}

/* One block, after the rows are done: z and entropy. */
__global__ void __launch_bounds__(1024) totals_kernel(const __grid_constant__ sums_call c)
{
    __shared__ double shared[32];
    int all = (int)(c.cut.rows * c.cut.chunks);
    double z = total_of(c.totals + OF_Z * (int64_t)all, all, shared);
    double entropy = total_of(c.totals + OF_ENTROPY * (int64_t)all, all, shared);
    if (threadIdx.x == 0) {
        store_sum(c.z, (double)c.mean * z, c.overwrite);
        store_sum(c.entropy, (double)c.mean * entropy, c.overwrite);
    }
}

size_t route_sums_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    sum_cut cut = cut_of(args);
    size_t chunks = (size_t)(cut.rows * cut.chunks), experts = (size_t)last_of(args->in[0]);
    return chunks * (experts + NUM_TOTALS) * sizeof(double) + chunks * experts * sizeof(int32_t);
}

void route_sums(const tri_kernel_args *args)
{
    sums_call c = {};
    c.score = args->attr->route.score;
    c.choices = (int)last_of(args->in[1]);
    c.experts = (int)last_of(args->in[0]);
    c.logits = data_of<float>(args->in[0]);
    c.choice = data_of<int32_t>(args->in[1]);
    c.targets = data_of<int32_t>(args->in[2]);
    c.cut = cut_of(args);
    int64_t chunks = c.cut.rows * c.cut.chunks;
    c.mass = (double *)device_of(args)->scratch;
    c.totals = c.mass + chunks * c.experts;
    c.chose = (int32_t *)(c.totals + chunks * NUM_TOTALS);
    c.sums = data_of<float>(args->out[0]);
    c.z = data_of<float>(args->out[1]);
    c.entropy = data_of<float>(args->out[2]);
    c.mean = args->attr->route.alpha;
    c.overwrite = args->overwrite;
    cudaStream_t stream = stream_of(args);
    if (chunks > 0)
        by_slots(c.experts, [&](auto slots) {
            chunk_kernel<decltype(slots)::value><<<(unsigned)chunks, SUM_THREADS, 0, stream>>>(c);
        });
    if (c.cut.rows > 0)
        join_kernel<<<dim3((unsigned)c.cut.rows, (unsigned)ceil_div(c.experts, 32)),
                      dim3(32, SUM_LANES), 0, stream>>>(c);
    totals_kernel<<<1, 1024, 0, stream>>>(c);
}

/* --- Balance -------------------------------------------------------------------------------- */

__global__ void __launch_bounds__(1024)
    balance_kernel(const float *sums, int64_t num, float alpha, float *loss, bool overwrite)
{
    __shared__ double shared[32];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < num; i += 1024) {
        const float *of = sums + i * TRI_NUM_ROUTE_SUMS;
        if (of[TRI_ROUTE_TOKENS] > 0)
            sum += (double)of[TRI_ROUTE_CHOSE] * of[TRI_ROUTE_MASS] / of[TRI_ROUTE_TOKENS];
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        store_sum(loss, alpha * sum, overwrite);
}

__global__ void __launch_bounds__(256)
    balance_grad_kernel(const float *sums, int64_t num, float alpha, const float *scaler,
                        float *dsums)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= num)
        return;
    const float *of = sums + i * TRI_NUM_ROUTE_SUMS;
    float *d = dsums + i * TRI_NUM_ROUTE_SUMS;
    double factor = (double)alpha * (scaler ? scaler[TRI_SCALER_SCALE] : 1.0f);
    float tokens = of[TRI_ROUTE_TOKENS];
    float grad = tokens > 0 ? (float)(factor * of[TRI_ROUTE_CHOSE] / tokens) : 0.0f;
    d[TRI_ROUTE_CHOSE] = d[TRI_ROUTE_TOKENS] = 0;
    d[TRI_ROUTE_MASS] = grad;
}

__global__ void __launch_bounds__(1024)
    move_bias_kernel(const float *old, const float *load, const float *result, int experts,
                     float alpha, float *bias)
{
    __shared__ double shared[32];
    if (result[TRI_RESULT_OK] == 0)
        return;
    double sum = 0;
    for (int e = (int)threadIdx.x; e < experts; e += 1024)
        sum += load[e];
    double mean = block_sum(sum, shared) / experts;
    for (int e = (int)threadIdx.x; e < experts; e += 1024)
        bias[e] = old[e] + alpha * (float)((load[e] < mean) - (load[e] > mean));
}

__global__ void __launch_bounds__(256)
    load_kernel(const float *sums, int64_t rows, int experts, float *load, bool overwrite)
{
    int e = (int)(blockIdx.x * 256 + threadIdx.x);
    if (e >= experts)
        return;
    double sum = 0;
#pragma unroll 4
    for (int64_t row = 0; row < rows; row++)
        sum += sums[(row * experts + e) * TRI_NUM_ROUTE_SUMS + TRI_ROUTE_CHOSE];
    store_sum(load + e, sum, overwrite);
}

void route_load(const tri_kernel_args *args)
{
    int64_t experts = args->out[0].count;
    load_kernel<<<(unsigned)ceil_div(experts, 256), 256, 0, stream_of(args)>>>(
        data_of<float>(args->in[0]), args->in[0].count / (experts * TRI_NUM_ROUTE_SUMS),
        (int)experts, data_of<float>(args->out[0]), args->overwrite);
}

void balance(const tri_kernel_args *args)
{
    balance_kernel<<<1, 1024, 0, stream_of(args)>>>(
        data_of<float>(args->in[0]), args->in[0].count / TRI_NUM_ROUTE_SUMS,
        args->attr->route.alpha, data_of<float>(args->out[0]), args->overwrite);
}

void balance_grad(const tri_kernel_args *args)
{
    int64_t num = args->in[0].count / TRI_NUM_ROUTE_SUMS;
    if (num == 0)
        return;
    balance_grad_kernel<<<(unsigned)ceil_div(num, 256), 256, 0, stream_of(args)>>>(
        data_of<float>(args->in[0]), num, args->attr->route.alpha,
        args->num_in > 1 ? data_of<float>(args->in[1]) : nullptr, data_of<float>(args->out[0]));
}

void move_bias(const tri_kernel_args *args)
{
    move_bias_kernel<<<1, 1024, 0, stream_of(args)>>>(
        data_of<float>(args->in[0]), data_of<float>(args->in[1]), data_of<float>(args->in[2]),
        (int)args->in[1].count, args->attr->route.alpha, data_of<float>(args->out[0]));
}

} // namespace

const tri_kernel tri_cuda_route_sums = {route_sums, route_sums_scratch, nullptr};
const tri_kernel tri_cuda_route_load = {route_load, nullptr, nullptr};
const tri_kernel tri_cuda_balance = {balance, nullptr, nullptr};
const tri_kernel tri_cuda_balance_grad = {balance_grad, nullptr, nullptr};
const tri_kernel tri_cuda_move_bias = {move_bias, nullptr, nullptr};
