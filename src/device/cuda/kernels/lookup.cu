/* Rows picked by an integer.
 *
 * The gradient of a table adds up the rows of dy that belong to the same id, in the order of the
 * tokens. The tokens are sorted by id; the sorted list is cut into pieces of a fixed length,
 * whatever the ids are, so that an id that fills half of the batch costs no more than others. A run
 * of equal ids within a piece goes to the table at once; the parts of one that crosses borders of
 * pieces go to scratch, and a second kernel adds them up. */
#include "device/cuda/kernels/sort.cuh"

namespace
{

using namespace tri;

constexpr int THREADS = 256;

/* --- Rows copied ---------------------------------------------------------------------------- */

/* Which row of the source a row of the output is, or -1: zeros. */
struct embed_rows {
    const int32_t *ids;
    int64_t origin, num_rows;
    __device__ int64_t operator()(int64_t row) const
    {
        int64_t from = ids[row] - origin;
        return from >= 0 && from < num_rows ? from : -1;
    }
};

struct select_rows {
    const int32_t *index;
    int64_t num_rows;
    __device__ int64_t operator()(int64_t row) const
    {
        int32_t at = index[row];
        return at >= 0 && at < num_rows ? row * num_rows + at : -1;
    }
};

struct select_grad_rows {
    const int32_t *index, *places; /* or NULL: token t has place t */
    int64_t num_rows;
    __device__ int64_t operator()(int64_t row) const
    {
        int64_t b = quotient(row, num_rows);
        return (places ? places[row] : row - b * num_rows) == index[b] ? b : -1;
    }
};

/* A thread per pack of the output. */
template <int N, typename T, typename Rows>
__global__ void __launch_bounds__(THREADS)
    copy_rows_kernel(Rows rows, const T *from, T *to, int64_t num_packs, int64_t packs_of_row)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= num_packs)
        return;
    int64_t row = quotient(i, packs_of_row), at = i - row * packs_of_row;
    int64_t source = rows(row);
    pack<T, N> v;
    for (int k = 0; k < N; k++)
        v.at[k] = narrow<T>(0.0f);
    if (source >= 0)
        v = load_pack<N>(from + (source * packs_of_row + at) * N);
    store_pack<N>(to + i * N, v);
}

template <typename Rows> void copy_rows(const tri_kernel_args *args, Rows rows, const void *from)
{
    const tri_tensor &out = args->out[0];
    int64_t dim = last_of(out);
    if (out.count == 0)
        return;
    by_type(out.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        if (dim % N == 0 && aligned16(from) && aligned16(out.data)) {
            unsigned blocks = (unsigned)ceil_div(out.count / N, THREADS);
            copy_rows_kernel<N><<<blocks, THREADS, 0, stream_of(args)>>>(
                rows, (const T *)from, data_of<T>(out), out.count / N, dim / N);
        } else {
            unsigned blocks = (unsigned)ceil_div(out.count, THREADS);
            copy_rows_kernel<1><<<blocks, THREADS, 0, stream_of(args)>>>(
                rows, (const T *)from, data_of<T>(out), out.count, dim);
        }
    });
}

void embed(const tri_kernel_args *args)
{
    const tri_tensor &table = args->in[0];
    copy_rows(args, embed_rows{data_of<int32_t>(args->in[1]), table.origin[0], table.size[0]},
              table.data);
}

/* Block b: all of its threads look for the token of that place, and copy it. */
template <int N, typename T>
__global__ void __launch_bounds__(THREADS)
    select_placed_kernel(const int32_t *index, const int32_t *places, int64_t num_tokens,
                         const T *x, T *y, int64_t packs_of_row)
{
    __shared__ int found;
    int64_t b = blockIdx.x;
    int32_t wanted = index[b];
    if (threadIdx.x == 0)
        found = INT32_MAX;
    __syncthreads();
    for (int64_t t = threadIdx.x; t < num_tokens; t += THREADS)
        if (places[b * num_tokens + t] == wanted)
            atomicMin(&found, (int)t);
    __syncthreads();
    for (int64_t at = threadIdx.x; at < packs_of_row; at += THREADS) {
        pack<T, N> v;
        for (int k = 0; k < N; k++)
            v.at[k] = narrow<T>(0.0f);
        if (found < num_tokens)
            v = load_pack<N>(x + ((b * num_tokens + found) * packs_of_row + at) * N);
        store_pack<N>(y + (b * packs_of_row + at) * N, v);
    }
}

void select_placed(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0], &y = args->out[0];
    int64_t dim = last_of(y);
    if (y.count == 0)
        return;
    by_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        bool packs = dim % N == 0 && aligned16(x.data) && aligned16(y.data);
        auto kernel = packs ? select_placed_kernel<N, T> : select_placed_kernel<1, T>;
        kernel<<<(unsigned)y.size[0], THREADS, 0, stream_of(args)>>>(
            data_of<int32_t>(args->in[1]), data_of<int32_t>(args->in[2]), x.size[1], data_of<T>(x),
            data_of<T>(y), packs ? dim / N : dim);
    });
}

void select_row(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0];
    if (args->in[2].data) {
        select_placed(args);
        return;
    }
    copy_rows(args, select_rows{data_of<int32_t>(args->in[1]), x.size[1]}, x.data);
}

void select_row_grad(const tri_kernel_args *args)
{
    copy_rows(args,
              select_grad_rows{data_of<int32_t>(args->in[1]), data_of<int32_t>(args->in[3]),
                               args->out[0].size[1]},
              args->in[0].data);
}

/* --- Rows added up -------------------------------------------------------------------------- */

struct gather_list {
    const int32_t *index;
    int64_t terms;    /* of a sum */
    int64_t num_rows; /* of x */
};

/* A thread per pack of the output. */
template <int N, typename T>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(gather_list list, const T *x, T *y, int64_t num_packs, int64_t packs_of_row)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= num_packs)
        return;
    int64_t m = quotient(i, packs_of_row), at = i - m * packs_of_row;
    float sum[N] = {};
    for (int64_t k = 0; k < list.terms; k++) {
        int64_t row = list.index[m * list.terms + k];
        if (row < 0 || row >= list.num_rows)
            continue;
        float term[N];
        widen_pack(load_pack<N>(x + (row * packs_of_row + at) * N), term);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += term[j];
    }
    store_pack<N>(y + i * N, narrow_pack<N, T>(sum));
}

/* Whole numbers, such as the ids of experts. */
__global__ void __launch_bounds__(THREADS)
    gather_ints(gather_list list, const int32_t *x, int32_t *y, int64_t count, int64_t width)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    int64_t m = quotient(i, width), at = i - m * width;
    int32_t sum = 0;
    for (int64_t k = 0; k < list.terms; k++) {
        int64_t row = list.index[m * list.terms + k];
        sum += row >= 0 && row < list.num_rows ? x[row * width + at] : 0;
    }
    y[i] = sum;
}

void gather_rows(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0], &y = args->out[0];
    gather_list list = {data_of<int32_t>(args->in[1]),
                        args->attr->gather.each ? 1 : last_of(args->in[1]), 1};
    int64_t width = 1;
    for (int d = 0; d < x.rank; d++)
        *(d < args->attr->gather.lead ? &list.num_rows : &width) *= x.size[d];
    if (y.count == 0)
        return;
    if (y.dtype == TRI_I32) {
        gather_ints<<<(unsigned)ceil_div(y.count, THREADS), THREADS, 0, stream_of(args)>>>(
            list, data_of<int32_t>(x), data_of<int32_t>(y), y.count, width);
        return;
    }
    by_type(y.dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        bool packs = width % N == 0 && aligned16(x.data) && aligned16(y.data);
        auto kernel = packs ? gather_kernel<N, T> : gather_kernel<1, T>;
        int64_t per = packs ? N : 1;
        kernel<<<(unsigned)ceil_div(y.count / per, THREADS), THREADS, 0, stream_of(args)>>>(
            list, data_of<T>(x), data_of<T>(y), y.count / per, width / per);
    });
}

/* --- The gradient of a table ---------------------------------------------------------------- */

constexpr int PIECE_THREADS = 128;
constexpr int MAX_PIECE = 1024;

/* Tokens of a piece: by shape alone. Longer ones where the partial sums, two rows of f32 for each
 * piece, would take more than 64 MiB. */
int64_t piece_of(int64_t num_tokens, int64_t dim)
{
    int64_t piece = 32;
    while (piece < MAX_PIECE && ceil_div(num_tokens, piece) * dim * 8 > (int64_t)64 << 20)
        piece *= 2;
    return piece;
}

size_t round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* The key of a token is its row of the table, or the number of rows: past the last. */
__global__ void __launch_bounds__(THREADS)
    make_keys(const int32_t *ids, int64_t num, int64_t origin, int64_t num_rows, uint32_t *key,
              uint32_t *place)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= num)
        return;
    int64_t row = ids[i] - origin;
    key[i] = (uint32_t)(row >= 0 && row < num_rows ? row : num_rows);
    place[i] = (uint32_t)i;
}

struct piece_list {
    const uint32_t *key, *place; /* sorted by key, and by place where keys are equal */
    int64_t num;
    uint32_t num_rows;
    int piece;
};

template <int N, typename O>
__device__ __forceinline__ void add_to_row(O *dtable, int64_t row, int64_t dim, int64_t col,
                                           const float *sum, bool overwrite)
{
    constexpr int M = N < pack_size<O>() ? N : pack_size<O>();
    O *to = dtable + row * dim + col;
#pragma unroll
    for (int j = 0; j < N; j += M) {
        pack<O, M> v;
        if (!overwrite)
            v = load_pack<M>(to + j);
#pragma unroll
        for (int k = 0; k < M; k++)
            v.at[k] = narrow<O>(overwrite ? sum[j + k] : widen(v.at[k]) + sum[j + k]);
        store_pack<M>(to + j, v);
    }
}

/* Block (x, y): piece x, columns of block y. partial is [piece][2][dim]: the part of a run that
 * began in an earlier piece, and of one that goes on in the next. */
template <int N, typename T, typename O>
__global__ void __launch_bounds__(PIECE_THREADS)
    sum_pieces(piece_list list, const T *dy, O *dtable, int64_t dim, bool overwrite, float *partial)
{
    __shared__ uint32_t key[MAX_PIECE + 1], place[MAX_PIECE];
    int64_t first = (int64_t)blockIdx.x * list.piece;
    int num = (int)(list.num - first < list.piece ? list.num - first : list.piece);
    for (int i = (int)threadIdx.x; i < num; i += PIECE_THREADS) {
        key[i] = list.key[first + i];
        place[i] = list.place[first + i];
    }
    if (threadIdx.x == 0) /* what comes after: any other key where nothing does */
        key[num] = first + num < list.num ? list.key[first + num] : list.num_rows;
    uint32_t key_before = first > 0 ? list.key[first - 1] : list.num_rows;
    __syncthreads();
    int64_t col = ((int64_t)blockIdx.y * PIECE_THREADS + threadIdx.x) * N;
    if (col >= dim)
        return;
    constexpr int AHEAD = 4;
    float sum[N] = {};
    bool continued = key_before == key[0]; /* the run began before this piece */
    for (int i = 0; i < num && key[i] < list.num_rows; i += AHEAD) {
        pack<T, N> v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (i + u < num && key[i + u] < list.num_rows)
                v[u] = load_pack<N>(dy + (int64_t)place[i + u] * dim + col);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (i + u >= num || key[i + u] >= list.num_rows)
                break;
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] += widen(v[u].at[k]);
            bool last = i + u == num - 1;
            if (!last && key[i + u + 1] == key[i + u])
                continue;
            bool goes_on = last && key[num] == key[i + u];
            float *part = partial + ((int64_t)blockIdx.x * 2 + !continued) * dim + col;
            if (continued || goes_on)
                for (int k = 0; k < N; k++)
                    part[k] = sum[k];
            else
                add_to_row<N>(dtable, key[i + u], dim, col, sum, overwrite);
            for (int k = 0; k < N; k++)
                sum[k] = 0;
            continued = false;
        }
    }
}

/* Block (x, y): the run that begins in piece x and goes on in the next, if there is one. */
template <typename O>
__global__ void __launch_bounds__(PIECE_THREADS)
    join_pieces(piece_list list, O *dtable, int64_t dim, bool overwrite, const float *partial)
{
    int64_t first = (int64_t)blockIdx.x * list.piece, end = first + list.piece;
    if (end >= list.num)
        return;
    uint32_t key = list.key[end - 1];
    if (key >= list.num_rows || list.key[end] != key)
        return;
    if (first > 0 && list.key[first - 1] == key) /* sorted: all of this piece is the same run */
        return;
    int64_t low = end, high = list.num; /* the first place past the run lies in (low, high] */
    while (low + 1 < high) {
        int64_t middle = low + (high - low) / 2;
        if (list.key[middle] == key)
            low = middle;
        else
            high = middle;
    }
    int64_t last_piece = low / list.piece;
    int64_t col = (int64_t)blockIdx.y * PIECE_THREADS + threadIdx.x;
    if (col >= dim)
        return;
    float sum = partial[((int64_t)blockIdx.x * 2 + 1) * dim + col];
#pragma unroll 8
    for (int64_t piece = (int64_t)blockIdx.x + 1; piece <= last_piece; piece++)
        sum += partial[piece * 2 * dim + col];
    store_sum(dtable + (int64_t)key * dim + col, sum, overwrite);
}

size_t embed_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t num = args->in[1].count, dim = args->out[0].size[1];
    size_t pieces = (size_t)ceil_div(num, piece_of(num, dim));
    return round64(sort_words(num) * sizeof(uint32_t)) + pieces * 2 * (size_t)dim * sizeof(float);
}

template <int N, typename T, typename O>
void sum_tokens(const tri_kernel_args *args, const piece_list &list, float *partial)
{
    int64_t dim = args->out[0].size[1];
    unsigned pieces = (unsigned)ceil_div(list.num, list.piece);
    O *dtable = data_of<O>(args->out[0]);
    dim3 sums(pieces, (unsigned)ceil_div(dim, (int64_t)PIECE_THREADS * N));
    dim3 joins(pieces, (unsigned)ceil_div(dim, PIECE_THREADS));
    sum_pieces<N><<<sums, PIECE_THREADS, 0, stream_of(args)>>>(
        list, data_of<T>(args->in[0]), dtable, dim, args->overwrite, partial);
    join_pieces<<<joins, PIECE_THREADS, 0, stream_of(args)>>>(list, dtable, dim, args->overwrite,
                                                              partial);
}

void embed_grad(const tri_kernel_args *args)
{
    const tri_tensor &table = args->out[0];
    int64_t num = args->in[1].count, dim = table.size[1];
    cudaStream_t stream = stream_of(args);
    if (args->overwrite)
        cudaMemsetAsync(table.data, 0, (size_t)table.count * (table.dtype == TRI_F32 ? 4 : 2),
                        stream);
    if (num == 0 || table.count == 0)
        return;
    uint32_t *words = (uint32_t *)device_of(args)->scratch;
    float *partial = (float *)((char *)words + round64(sort_words(num) * sizeof(uint32_t)));
    sort_buffers buffers = sort_split(words, num);
    make_keys<<<(unsigned)ceil_div(num, THREADS), THREADS, 0, stream>>>(
        data_of<int32_t>(args->in[1]), num, table.origin[0], table.size[0], buffers.key[0],
        buffers.place[0]);
    int bits = 1;
    while ((table.size[0] >> bits) > 0)
        bits++;
    int sorted = sort_run(buffers, num, bits, stream);
    piece_list list = {buffers.key[sorted], buffers.place[sorted], num, (uint32_t)table.size[0],
                       (int)piece_of(num, dim)};
    by_type(args->in[0].dtype, [&](auto from) {
        using T = decltype(from);
        by_type(table.dtype, [&](auto to) {
            using O = decltype(to);
            constexpr int N = pack_size<T>();
            if (dim % N == 0 && aligned16(args->in[0].data) && aligned16(table.data))
                sum_tokens<N, T, O>(args, list, partial);
            else
                sum_tokens<1, T, O>(args, list, partial);
        });
    });
}

} // namespace

const tri_kernel tri_cuda_embed = {embed, nullptr, nullptr};
const tri_kernel tri_cuda_embed_grad = {embed_grad, embed_grad_scratch, nullptr};
const tri_kernel tri_cuda_select_row = {select_row, nullptr, nullptr};
const tri_kernel tri_cuda_select_row_grad = {select_row_grad, nullptr, nullptr};
const tri_kernel tri_cuda_gather_rows = {gather_rows, nullptr, nullptr};
