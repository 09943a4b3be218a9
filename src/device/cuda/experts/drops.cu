/* Rows beyond what an expert takes, and figures for people.
 *
 * A row of the batch is cut into chunks by shape alone. How often each expert occurs in a chunk is
 * counted first; then a block knows how many of its experts' rows stand before its chunk, and finds
 * by the votes of warps how many stand before each of its own. Counts are whole numbers, so nothing
 * depends on which block or thread comes first. */
#include "device/cuda/experts/route.cuh"
#include "device/cuda/kernels/total.cuh"

namespace
{

using namespace tri;

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int CHUNK = 4 * THREADS;

struct drop_call {
    const int32_t *choice, *places;
    int32_t *kept;
    int64_t tokens, choices, chunks; /* of a row of the batch */
    int64_t limit;
    int experts;
    int32_t *order;  /* scratch [B, T]: the token at a place, where there are places */
    int32_t *counts; /* scratch [B, chunks, E] */
};

/* Where the n-th choice of row b lies, in the order of places. */
__device__ __forceinline__ int64_t slot_of(const drop_call &c, int64_t b, int64_t n)
{
    int64_t place = n / c.choices, j = n - place * c.choices;
    int64_t token = c.places ? c.order[b * c.tokens + place] : place;
    return (b * c.tokens + token) * c.choices + j;
}

/* The n-th choice of the row, or -1: there is none, or it is no expert's. */
__device__ __forceinline__ int choice_at(const drop_call &c, int64_t b, int64_t n, int64_t *slot)
{
    *slot = -1;
    if (n >= c.tokens * c.choices)
        return -1;
    *slot = slot_of(c, b, n);
    int e = c.choice[*slot];
    return e < c.experts ? e : -1;
}

__global__ void __launch_bounds__(THREADS)
    order_kernel(const __grid_constant__ drop_call c, int64_t num)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < num)
        c.order[i / c.tokens * c.tokens + c.places[i]] = (int32_t)(i % c.tokens);
}

__global__ void __launch_bounds__(THREADS) count_kernel(const __grid_constant__ drop_call c)
{
    __shared__ int32_t counts[TRI_MAX_EXPERTS];
    int64_t b = blockIdx.x / c.chunks, chunk = blockIdx.x % c.chunks, slot;
    for (int e = (int)threadIdx.x; e < c.experts; e += THREADS)
        counts[e] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < CHUNK; i += THREADS) {
        int e = choice_at(c, b, chunk * CHUNK + i, &slot);
        if (e >= 0)
            atomicAdd(&counts[e], 1);
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < c.experts; e += THREADS)
        c.counts[(int64_t)blockIdx.x * c.experts + e] = counts[e];
}

/* before[e]: rows of the expert that stand before what the block looks at; own[w][e]: those of this
 * round, of each warp. */
__global__ void __launch_bounds__(THREADS) drop_kernel(const __grid_constant__ drop_call c)
{
    __shared__ int32_t before[TRI_MAX_EXPERTS], own[WARPS][TRI_MAX_EXPERTS];
    int64_t b = blockIdx.x / c.chunks, chunk = blockIdx.x % c.chunks, slot;
    int warp = (int)threadIdx.x / 32;
    for (int e = (int)threadIdx.x; e < c.experts; e += THREADS) {
        before[e] = 0;
        for (int64_t k = b * c.chunks; k < blockIdx.x; k++)
            before[e] += c.counts[k * c.experts + e];
        for (int w = 0; w < WARPS; w++)
            own[w][e] = 0;
    }
    __syncthreads();
    for (int first = 0; first < CHUNK; first += THREADS) {
        int e = choice_at(c, b, chunk * CHUNK + first + (int)threadIdx.x, &slot);
        unsigned same = __match_any_sync(WHOLE_WARP, e);
        unsigned lower = same & ((1u << lane_of_thread()) - 1);
        if (e >= 0 && lower == 0)
            own[warp][e] = __popc(same);
        __syncthreads();
        if (slot >= 0) {
            int64_t nth = __popc(lower);
            for (int w = 0; e >= 0 && w < warp; w++)
                nth += own[w][e];
            c.kept[slot] = e >= 0 && before[e] + nth < c.limit ? e : -1;
        }
        __syncthreads();
        for (int f = (int)threadIdx.x; f < c.experts; f += THREADS)
            for (int w = 0; w < WARPS; w++) {
                before[f] += own[w][f];
                own[w][f] = 0;
            }
        __syncthreads();
    }
}

int64_t chunks_of(const tri_tensor &choice)
{
    return ceil_div(choice.size[1] * choice.size[2], CHUNK);
}

void drop_rows(const tri_kernel_args *args)
{
    const tri_tensor &choice = args->in[0];
    int64_t rows = choice.size[0], num = rows * choice.size[1];
    drop_call c = {};
    c.choice = data_of<int32_t>(choice);
    c.places = data_of<int32_t>(args->in[1]);
    c.kept = data_of<int32_t>(args->out[0]);
    c.tokens = choice.size[1];
    c.choices = choice.size[2];
    c.chunks = chunks_of(choice);
    c.limit = args->attr->route.limit;
    c.experts = args->attr->route.experts;
    c.order = (int32_t *)device_of(args)->scratch;
    c.counts = c.order + num;
    if (choice.count == 0)
        return;
    cudaStream_t stream = stream_of(args);
    if (c.places)
        order_kernel<<<(unsigned)ceil_div(num, THREADS), THREADS, 0, stream>>>(c, num);
    count_kernel<<<(unsigned)(rows * c.chunks), THREADS, 0, stream>>>(c);
    drop_kernel<<<(unsigned)(rows * c.chunks), THREADS, 0, stream>>>(c);
}

size_t drop_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    const tri_tensor &choice = args->in[0];
    int64_t counts = choice.size[0] * chunks_of(choice) * args->attr->route.experts;
    return (size_t)(choice.size[0] * choice.size[1] + counts) * sizeof(int32_t);
}

constexpr int COUNT_THREADS = 1024;

__global__ void __launch_bounds__(COUNT_THREADS)
    dropped_kernel(const int32_t *kept, const int32_t *targets, int64_t num, int64_t choices,
                   float alpha, float *dropped, bool overwrite)
{
    __shared__ double shared[32];
    int64_t own = 0;
    for (int64_t i = threadIdx.x; i < num; i += COUNT_THREADS)
        own += kept[i] < 0 && targets[i / choices] >= 0;
    double sum = block_sum((double)own, shared);
    if (threadIdx.x == 0)
        store_sum(dropped, alpha * sum, overwrite);
}

void count_dropped(const tri_kernel_args *args)
{
    dropped_kernel<<<1, COUNT_THREADS, 0, stream_of(args)>>>(
        data_of<int32_t>(args->in[0]), data_of<int32_t>(args->in[1]), args->in[0].count,
        last_of(args->in[0]), args->attr->route.alpha, data_of<float>(args->out[0]),
        args->overwrite);
}

/* One warp: there are a few hundred numbers at most. */
__global__ void __launch_bounds__(32)
    largest_kernel(const float *x, int64_t num, float *most, bool overwrite)
{
    float own = 0;
    for (int64_t i = threadIdx.x; i < num; i += 32)
        own = fmaxf(own, fabsf(x[i]));
    own = warp_max(own);
    if (threadIdx.x == 0)
        *most = overwrite ? own : fmaxf(*most, own);
}

void largest(const tri_kernel_args *args)
{
    largest_kernel<<<1, 32, 0, stream_of(args)>>>(data_of<float>(args->in[0]), args->in[0].count,
                                                  data_of<float>(args->out[0]), args->overwrite);
}

} // namespace

const tri_kernel tri_cuda_drop_rows = {drop_rows, drop_scratch, nullptr};
const tri_kernel tri_cuda_count_dropped = {count_dropped, nullptr, nullptr};
const tri_kernel tri_cuda_largest = {largest, nullptr, nullptr};
