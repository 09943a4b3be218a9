/* Products with the matrices of experts: the list of tiles, a plain kernel for all operands, and
 * which kernel does what. */
#include "device/cuda/experts/grouped.cuh"

namespace
{

using namespace tri;

/* --- Tiles of rows -------------------------------------------------------------------------- */

constexpr int LIST_THREADS = 1024;
static_assert(TRI_MAX_EXPERTS <= LIST_THREADS, "an expert for each thread");

__device__ __forceinline__ int key_of(int32_t expert, int experts)
{
    return expert >= 0 && expert < experts ? expert : experts;
}

/* The first row whose key is at least this, or the number of rows. */
__device__ __forceinline__ int lower_bound(const int32_t *expert, int rows, int experts, int key)
{
    int low = 0, high = rows;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (key_of(expert[middle], experts) < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How an expert's rows are cut: into tiles of `most`; or, for grad, into parts of about equal size
 * and at most that, at least one, and none of rows without an expert. */
struct cut_rows {
    int most;
    bool parts;

    __device__ __forceinline__ int num(int rows, bool none) const
    {
        int num = (rows + most - 1) / most;
        return !parts ? num : none ? 0 : num > 0 ? num : 1;
    }
    __device__ __forceinline__ int size(int rows, int num) const
    {
        return parts ? (rows + num * PART_STEP - 1) / (num * PART_STEP) * PART_STEP : most;
    }
};

/* One block. first[e] for all experts and one more; then the tiles of each expert in turn, and of
 * the rows without one. */
__global__ void __launch_bounds__(LIST_THREADS)
    list_kernel(const int32_t *expert, int rows, int experts, cut_rows cut, int32_t *first,
                row_tile *tiles, int num_tiles)
{
    __shared__ int start[TRI_MAX_EXPERTS + 2];  /* of an expert's rows */
    __shared__ int before[TRI_MAX_EXPERTS + 2]; /* tiles of those before it */
    for (int e = (int)threadIdx.x; e <= experts; e += LIST_THREADS) {
        start[e] = lower_bound(expert, rows, experts, e);
        first[e] = start[e];
    }
    if (threadIdx.x == 0)
        start[experts + 1] = rows;
    __syncthreads();
    if (threadIdx.x < 32) { /* a warp adds up, 32 experts at a time */
        int sum = 0;
        for (int e0 = 0; e0 <= experts; e0 += 32) {
            int e = e0 + (int)threadIdx.x, own = 0;
            if (e <= experts)
                own = cut.num(start[e + 1] - start[e], e == experts);
            int scan = own;
            for (int offset = 1; offset < 32; offset *= 2) {
                int other = __shfl_up_sync(WHOLE_WARP, scan, (unsigned)offset);
                scan += (int)threadIdx.x >= offset ? other : 0;
            }
            if (e <= experts)
                before[e] = sum + scan - own;
            sum += __shfl_sync(WHOLE_WARP, scan, 31);
        }
        if (threadIdx.x == 0)
            before[experts + 1] = sum;
    }
    __syncthreads();
    for (int t = (int)threadIdx.x; t < num_tiles; t += LIST_THREADS) {
        row_tile tile = {-1, 0, 0, 0};
        if (t < before[experts + 1]) {
            int low = 0, high = experts; /* the last e with before[e] <= t */
            while (low < high) {
                int middle = low + (high - low + 1) / 2;
                if (before[middle] <= t)
                    low = middle;
                else
                    high = middle - 1;
            }
            int size = cut.size(start[low + 1] - start[low], before[low + 1] - before[low]);
            tile.expert = low < experts ? low : -1;
            tile.part = t - before[low];
            tile.first = start[low] + tile.part * size;
            tile.rows = min(max(start[low + 1] - tile.first, 0), size);
        }
        tiles[t] = tile;
    }
}

/* --- A plain kernel ------------------------------------------------------------------------- */

constexpr int PLAIN_THREADS = 256;
constexpr int PLAIN_N = 64;  /* columns of a tile */
constexpr int PLAIN_K = 16;  /* of a step */
constexpr int PLAIN_OWN = 8; /* rows of a thread; it has 4 columns */

/* A piece of an operand, [PLAIN_K][NUM], zeros where nothing is. */
template <int NUM, bool ALONG_K, typename T>
__device__ __forceinline__ void load_piece(const T *from, int64_t step, int num, int k0, int k,
                                           float (*to)[NUM + 4])
{
    for (int i = (int)threadIdx.x; i < NUM * PLAIN_K; i += PLAIN_THREADS) {
        int j = ALONG_K ? i / PLAIN_K : i % NUM, at = ALONG_K ? i % PLAIN_K : i / NUM;
        bool there = j < num && k0 + at < k;
        int64_t index = ALONG_K ? j * step + k0 + at : (k0 + at) * step + j;
        to[at][j] = there ? widen(from[index]) : 0.0f;
    }
}

template <grouped_kind KIND, typename T, typename O>
__global__ void __launch_bounds__(PLAIN_THREADS)
    plain_kernel(const __grid_constant__ grouped_call call)
{
    __shared__ float a[PLAIN_K][GROUPED_ROWS + 4], b[PLAIN_K][PLAIN_N + 4];
    grouped_tile<T, O> tile;
    if (!find_tile<KIND, GROUPED_ROWS, PLAIN_N>(call, (int)blockIdx.x, tile))
        return;
    int row = (int)threadIdx.x / 16 * PLAIN_OWN, column = (int)threadIdx.x % 16 * 4;
    float sum[PLAIN_OWN][4] = {};
    for (int k0 = 0; k0 < tile.k; k0 += PLAIN_K) {
        load_piece<GROUPED_ROWS, a_along_k(KIND)>(tile.a, call.lda, tile.m, k0, tile.k, a);
        load_piece<PLAIN_N, b_along_k(KIND)>(tile.b, call.ldb, tile.n, k0, tile.k, b);
        __syncthreads();
        float part[PLAIN_OWN][4] = {}; /* sums of sums: shorter chains round less */
#pragma unroll
        for (int k = 0; k < PLAIN_K; k++)
#pragma unroll
            for (int i = 0; i < PLAIN_OWN; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    part[i][j] = fmaf(a[k][row + i], b[k][column + j], part[i][j]);
#pragma unroll
        for (int i = 0; i < PLAIN_OWN; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] += part[i][j];
        __syncthreads();
    }
    for (int i = 0; i < PLAIN_OWN; i++)
        for (int j = 0; j < 4; j++)
            if (row + i < tile.m && column + j < tile.n)
                store_sum(tile.c + (row + i) * call.ldc + column + j, sum[i][j], call.overwrite);
}

template <grouped_kind KIND> void run_plain(const grouped_call &call, cudaStream_t stream)
{
    unsigned blocks = (unsigned)grouped_blocks(call, KIND, GROUPED_ROWS, PLAIN_N);
    by_type(call.type, [&](auto in) {
        using T = decltype(in);
        auto kernel = plain_kernel<KIND, T, T>;
        if constexpr (KIND == GROUPED_GRAD)
            if (call.out_type == TRI_F32)
                return plain_kernel<KIND, T, float><<<blocks, PLAIN_THREADS, 0, stream>>>(call);
        kernel<<<blocks, PLAIN_THREADS, 0, stream>>>(call);
    });
}

/* --- Calls ---------------------------------------------------------------------------------- */

/* Tiles that there can be: every expert, and those without one, may have a last one that is short.
 */
int64_t most_tiles(int64_t rows, int64_t experts)
{
    return rows / GROUPED_ROWS + experts + 1;
}

size_t bytes_of_tiles(int64_t rows, int64_t experts)
{
    return (size_t)most_tiles(rows, experts) * sizeof(row_tile);
}

size_t bytes_of_list(int64_t rows, int64_t experts)
{
    return bytes_of_tiles(rows, experts) + (size_t)(experts + 1) * sizeof(int32_t);
}

void make_list(const tri_kernel_args *args, cut_rows cut, grouped_call &call)
{
    char *scratch = (char *)device_of(args)->scratch;
    row_tile *tiles = (row_tile *)scratch;
    int32_t *first = (int32_t *)(scratch + bytes_of_tiles(call.rows, call.experts));
    call.tiles = tiles;
    call.first = first;
    list_kernel<<<1, LIST_THREADS, 0, stream_of(args)>>>(data_of<int32_t>(args->in[2]),
                                                         (int)call.rows, (int)call.experts, cut,
                                                         first, tiles, (int)call.num_tiles);
}

/* The fastest that may be used and takes the operands. */
template <grouped_kind KIND> void run_best(const tri_kernel_args *args, const grouped_call &call)
{
    tri_cuda_products first = device_of(args)->products;
    bool narrow = call.type != TRI_F32;
    int num_sms = device_of(args)->num_sms;
    if (narrow && first <= TRI_PRODUCTS_TMA && grouped_tma(call, KIND, num_sms, stream_of(args)))
        return;
    if (narrow && first <= TRI_PRODUCTS_MMA && grouped_mma(call, KIND, stream_of(args)))
        return;
    run_plain<KIND>(call, stream_of(args));
}

size_t grouped_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return grouped_bytes(args);
}

void grouped(const tri_kernel_args *args)
{
    bool back = args->attr->grouped.back;
    if (args->out[0].count > 0)
        grouped_run(args, grouped_begin(args, back), back ? GROUPED_BACK : GROUPED_FORWARD);
}

/* Tiles of an expert's matrix. */
int64_t tiles_of_grad(const tri_tensor &dw)
{
    return ceil_div(dw.size[1], (int64_t)PART_M) * ceil_div(dw.size[2], (int64_t)PART_N);
}

size_t bytes_of_turns(const tri_tensor &dw)
{
    return (size_t)(1 + dw.size[0] * tiles_of_grad(dw) * PART_WARPS) * sizeof(int32_t);
}

/* So many that every processor has about two parts to do whatever the balance, and none that is all
 * overhead: with more of them parts wait longer for their turns than the balance gains. Results of
 * 16 bits are not added up by parts. */
int rows_of_part(const tri_kernel_args *args, const grouped_call &call)
{
    constexpr int64_t LEAST = 1024, TURNS = 2;
    int64_t even =
        ceil_div(call.rows * tiles_of_grad(args->out[0]), TURNS * device_of(args)->num_sms);
    int64_t most = call.out_type != TRI_F32 ? call.rows + 1 : even > LEAST ? even : LEAST;
    return (int)(ceil_div(most, (int64_t)PART_STEP) * PART_STEP);
}

size_t grouped_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return bytes_of_list(args->in[2].count, args->out[0].size[0]) + bytes_of_turns(args->out[0]);
}

void grouped_grad(const tri_kernel_args *args)
{
    const tri_tensor &dw = args->out[0];
    grouped_call call = {};
    call.a = args->in[0].data;
    call.b = args->in[1].data;
    call.c = dw.data;
    call.rows = args->in[2].count;
    call.experts = dw.size[0];
    call.m = call.lda = dw.size[1];
    call.n = call.ldb = call.ldc = dw.size[2];
    call.of_expert = dw.size[1] * dw.size[2];
    call.type = args->in[0].dtype;
    call.out_type = dw.dtype;
    call.overwrite = args->overwrite;
    assert(args->in[1].dtype == call.type);
    assert(call.out_type == call.type || call.out_type == TRI_F32);
    if (dw.count == 0)
        return;
    int most = rows_of_part(args, call);
    call.num_tiles = call.rows / most + call.experts;
    call.next =
        (int32_t *)((char *)device_of(args)->scratch + bytes_of_list(call.rows, call.experts));
    call.done = call.next + 1;
    cudaMemsetAsync(call.next, 0, bytes_of_turns(dw), stream_of(args));
    make_list(args, {most, true}, call);
    grouped_run(args, call, GROUPED_GRAD);
}

} // namespace

size_t tri::grouped_list_bytes(int64_t rows, int64_t experts)
{
    return bytes_of_list(rows, experts);
}

void tri::grouped_list(const tri_kernel_args *args, grouped_call &call)
{
    call.num_tiles = most_tiles(call.rows, call.experts);
    make_list(args, {GROUPED_ROWS, false}, call);
}

grouped_call tri::grouped_begin(const tri_kernel_args *args, bool back)
{
    const tri_tensor &w = args->in[1];
    grouped_call call = {};
    call.a = args->in[0].data;
    call.b = w.data;
    call.c = args->out[0].data;
    call.rows = args->in[2].count;
    call.experts = w.size[0];
    call.n = back ? w.size[2] : w.size[1];
    call.k = back ? w.size[1] : w.size[2];
    call.lda = call.k;
    call.ldb = w.size[2];
    call.ldc = call.n;
    call.of_expert = w.size[1] * w.size[2];
    call.type = call.out_type = args->in[0].dtype;
    call.overwrite = true;
    assert(w.dtype == call.type && args->out[0].dtype == call.type);
    grouped_list(args, call);
    return call;
}

size_t tri::grouped_bytes(const tri_kernel_args *args)
{
    return bytes_of_list(args->in[2].count, args->in[1].size[0]);
}

void tri::grouped_run(const tri_kernel_args *args, const grouped_call &call, grouped_kind kind)
{
    if (kind == GROUPED_FORWARD)
        run_best<GROUPED_FORWARD>(args, call);
    else if (kind == GROUPED_BACK)
        run_best<GROUPED_BACK>(args, call);
    else
        run_best<GROUPED_GRAD>(args, call);
}

const tri_kernel tri_cuda_grouped = {grouped, grouped_scratch, nullptr};
const tri_kernel tri_cuda_grouped_grad = {grouped_grad, grouped_grad_scratch, nullptr};
