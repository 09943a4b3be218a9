/* Sums over the rows of a matrix, column by column, in two stages and in a fixed order: blocks sum
 * chunks of rows into scratch, a second kernel adds the chunks. For the gradients of biases and of
 * the parameters of norms. */
#ifndef TRI_DEVICE_CUDA_KERNELS_COLUMNS_CUH
#define TRI_DEVICE_CUDA_KERNELS_COLUMNS_CUH

#include "device/cuda/kernels/early.cuh"

namespace tri
{

constexpr int COLUMN_LANES = 32; /* threads of a block along the columns, a pack each */
constexpr int COLUMN_ROWS = 8;   /* threads along the rows */

enum column_kind {
    COLUMN_BIAS,  /* dy */
    COLUMN_LAYER, /* dy * (x - mean) * rstd, and dy */
    COLUMN_RMS,   /* dy * x * rstd */
};

template <column_kind KIND> constexpr int column_outputs = KIND == COLUMN_LAYER ? 2 : 1;

/* How rows are cut: by shape alone. About a thousand blocks, at most 256 of them over each other.
 */
struct column_cut {
    int64_t rows_of_chunk;
    int num_chunks;
    unsigned num_col_blocks;
};

inline column_cut cut_columns(int64_t rows, int64_t cols, int pack)
{
    column_cut cut = {};
    int64_t blocks = ceil_div(cols, (int64_t)COLUMN_LANES * pack);
    int64_t chunks = blocks > 512 ? 1 : 1024 / blocks;
    int64_t most = ceil_div(rows, 2 * COLUMN_ROWS);
    chunks = chunks > 256 ? 256 : chunks;
    chunks = chunks > most ? most : chunks;
    chunks = chunks < 1 ? 1 : chunks;
    cut.rows_of_chunk = rows > 0 ? ceil_div(rows, chunks) : 1;
    cut.num_chunks = rows > 0 ? (int)ceil_div(rows, cut.rows_of_chunk) : 1;
    cut.num_col_blocks = (unsigned)blocks;
    return cut;
}

/* partial is [output][chunk][cols]. */
template <int N, column_kind KIND, typename T>
__global__ void __launch_bounds__(COLUMN_LANES *COLUMN_ROWS)
    column_chunks(const T *dy, const T *x, const float *stats, int64_t rows, int64_t cols,
                  int64_t rows_of_chunk, float *partial)
{
    constexpr int OUT = column_outputs<KIND>;
    __shared__ float shared[OUT][COLUMN_ROWS][COLUMN_LANES * N];
    int64_t block_col = (int64_t)blockIdx.x * COLUMN_LANES * N;
    int64_t col = block_col + (int64_t)threadIdx.x * N;
    int64_t first = (int64_t)blockIdx.y * rows_of_chunk;
    int64_t end = first + rows_of_chunk < rows ? first + rows_of_chunk : rows;
    float sum[OUT][N] = {};
    await_previous();
    if (col < cols) {
#pragma unroll 4
        for (int64_t row = first + threadIdx.y; row < end; row += COLUMN_ROWS) {
            pack<T, N> d = load_pack<N>(dy + row * cols + col), v = d;
            float mean = 0, rstd = 1;
            if (KIND != COLUMN_BIAS)
                v = load_pack<N>(x + row * cols + col);
            if (KIND == COLUMN_LAYER) {
                mean = stats[row * 2];
                rstd = stats[row * 2 + 1];
            } else if (KIND == COLUMN_RMS) {
                rstd = stats[row];
            }
#pragma unroll
            for (int k = 0; k < N; k++) {
                float g = widen(d.at[k]);
                sum[0][k] += KIND == COLUMN_BIAS ? g : g * ((widen(v.at[k]) - mean) * rstd);
                if (KIND == COLUMN_LAYER)
                    sum[OUT - 1][k] += g;
            }
        }
    }
    for (int o = 0; o < OUT; o++)
        for (int k = 0; k < N; k++)
            shared[o][threadIdx.y][threadIdx.x * N + k] = sum[o][k];
    __syncthreads();
    release_next();
    int thread = (int)(threadIdx.y * COLUMN_LANES + threadIdx.x);
    for (int o = 0; o < OUT; o++)
        for (int j = thread; j < COLUMN_LANES * N; j += COLUMN_LANES * COLUMN_ROWS) {
            float total = 0;
            for (int y = 0; y < COLUMN_ROWS; y++)
                total += shared[o][y][j];
            if (block_col + j < cols)
                partial[((int64_t)o * gridDim.y + blockIdx.y) * cols + block_col + j] = total;
        }
}

template <typename O>
__global__ void __launch_bounds__(COLUMN_LANES *COLUMN_ROWS)
    column_finish(const float *partial, int num_chunks, int64_t cols, bool overwrite, O *out0,
                  O *out1)
{
    __shared__ float shared[COLUMN_ROWS][COLUMN_LANES];
    int64_t col = (int64_t)blockIdx.x * COLUMN_LANES + threadIdx.x;
    const float *from = partial + (int64_t)blockIdx.y * num_chunks * cols;
    float sum = 0;
    await_previous();
    if (col < cols) {
#pragma unroll 8
        for (int chunk = (int)threadIdx.y; chunk < num_chunks; chunk += COLUMN_ROWS)
            sum += from[(int64_t)chunk * cols + col];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= cols)
        return;
    float total = 0;
    for (int y = 0; y < COLUMN_ROWS; y++)
        total += shared[y][threadIdx.x];
    store_sum((blockIdx.y == 0 ? out0 : out1) + col, total, overwrite);
}

template <typename T> inline int column_pack(int64_t cols)
{
    constexpr int N = pack_size<T>();
    return cols % N == 0 ? N : 1;
}

/* The scratch that sum_columns needs. */
template <column_kind KIND> inline size_t column_bytes(tri_dtype dtype, int64_t rows, int64_t cols)
{
    int pack = dtype == TRI_F32 ? column_pack<float>(cols) : column_pack<__half>(cols);
    column_cut cut = cut_columns(rows, cols, pack);
    return (size_t)column_outputs<KIND> * (size_t)cut.num_chunks * (size_t)cols * sizeof(float);
}

template <int N, column_kind KIND, typename T, typename O>
inline void sum_columns_of(const tri_kernel_args *args, const float *stats, int64_t rows,
                           int64_t cols)
{
    column_cut cut = cut_columns(rows, cols, N);
    float *partial = (float *)device_of(args)->scratch;
    dim3 threads(COLUMN_LANES, COLUMN_ROWS);
    launch_early(args, column_chunks<N, KIND, T>,
                 dim3(cut.num_col_blocks, (unsigned)cut.num_chunks), threads, 0,
                 data_of<T>(args->in[0]), KIND == COLUMN_BIAS ? nullptr : data_of<T>(args->in[1]),
                 stats, rows, cols, cut.rows_of_chunk, partial);
    constexpr int OUT = column_outputs<KIND>;
    launch_early(args, column_finish<O>, dim3((unsigned)ceil_div(cols, COLUMN_LANES), OUT), threads,
                 0, partial, cut.num_chunks, cols, args->overwrite, data_of<O>(args->out[0]),
                 OUT > 1 ? data_of<O>(args->out[OUT - 1]) : nullptr);
}

/* Into out[0] (and out[1]), of type O; dy is in[0], x in[1]. */
template <column_kind KIND, typename T, typename O>
inline void sum_columns(const tri_kernel_args *args, const float *stats, int64_t rows, int64_t cols)
{
    constexpr int N = pack_size<T>();
    if (cols == 0)
        return;
    bool aligned =
        aligned16(args->in[0].data) && (KIND == COLUMN_BIAS || aligned16(args->in[1].data));
    if (column_pack<T>(cols) == N && aligned)
        sum_columns_of<N, KIND, T, O>(args, stats, rows, cols);
    else
        sum_columns_of<1, KIND, T, O>(args, stats, rows, cols);
}

} // namespace tri

#endif
