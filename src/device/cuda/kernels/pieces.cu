/* Pieces of tensors that are cut along a dim, queries, keys and values apart and packed, and
 * statistics of parts of a vocabulary.
 *
 * A cut is a copy of lines: one for each index before the cut dim, as long as the part. Elements
 * are only moved, so the widest unit of bytes that divides every length and address will do. */
#include "device/cuda/kernels/common.cuh"

#include <math.h>

namespace
{

using namespace tri;

constexpr int PIECE_THREADS = 256;
constexpr int PIECE_UNITS = 4; /* of a thread, all read before one is written */

/* Lengths and steps are in units. */
struct line_copy {
    void *to;
    const void *from;
    int64_t to_step, from_step, length, num_lines;
};

template <typename U> __global__ void __launch_bounds__(PIECE_THREADS) lines_kernel(line_copy c)
{
    int64_t first = (int64_t)blockIdx.x * PIECE_THREADS * PIECE_UNITS + threadIdx.x;
    int64_t count = c.length * c.num_lines, to[PIECE_UNITS];
    U units[PIECE_UNITS];
#pragma unroll
    for (int u = 0; u < PIECE_UNITS; u++) {
        int64_t i = first + u * PIECE_THREADS;
        if (i >= count)
            break;
        int64_t line = quotient(i, c.length), at = i - line * c.length;
        units[u] = ((const U *)c.from)[line * c.from_step + at];
        to[u] = line * c.to_step + at;
    }
#pragma unroll
    for (int u = 0; u < PIECE_UNITS; u++)
        if (first + u * PIECE_THREADS < count)
            ((U *)c.to)[to[u]] = units[u];
}

template <typename U> void launch_lines(line_copy c, cudaStream_t stream)
{
    c.to_step /= (int64_t)sizeof(U);
    c.from_step /= (int64_t)sizeof(U);
    c.length /= (int64_t)sizeof(U);
    int64_t count = c.length * c.num_lines;
    if (count > 0)
        lines_kernel<U><<<(unsigned)ceil_div(count, (int64_t)PIECE_THREADS * PIECE_UNITS),
                          PIECE_THREADS, 0, stream>>>(c);
}

/* Lengths and steps are in bytes. */
void copy_lines(const line_copy &c, cudaStream_t stream)
{
    uint64_t all = (uint64_t)(uintptr_t)c.to | (uint64_t)(uintptr_t)c.from | (uint64_t)c.to_step |
                   (uint64_t)c.from_step | (uint64_t)c.length;
    if (all % 16 == 0)
        launch_lines<uint4>(c, stream);
    else if (all % 4 == 0)
        launch_lines<uint32_t>(c, stream);
    else
        launch_lines<uint16_t>(c, stream);
}

/* A tensor as outer x (the cut dim) x inner; inner in bytes. */
struct cut_view {
    int64_t outer, inner;
};

cut_view view_of(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0];
    cut_view v = {1, (int64_t)tri_dtype_bytes(x.dtype)};
    for (int d = 0; d < x.rank; d++)
        if (d != args->attr->message.cut.dim)
            *(d < args->attr->message.cut.dim ? &v.outer : &v.inner) *= x.size[d];
    return v;
}

void slice(const tri_kernel_args *args)
{
    const tri_cut *cut = &args->attr->message.cut;
    cut_view v = view_of(args);
    int64_t run = tri_cut_size(cut, cut->part) * v.inner;
    const char *from = data_of<char>(args->in[0]) + tri_cut_begin(cut, cut->part) * v.inner;
    copy_lines({args->out[0].data, from, run, cut->size * v.inner, run, v.outer}, stream_of(args));
}

/* What a piece adds to an element that is there already, or not yet. */
template <typename O, typename T>
__device__ __forceinline__ O joined(O there, T piece, bool overwrite)
{
    return narrow<O>(overwrite ? widen(piece) : widen(there) + widen(piece));
}

template <> __device__ __forceinline__ int32_t joined(int32_t there, int32_t piece, bool overwrite)
{
    return overwrite ? piece : there + piece; /* exact, as no float is */
}

/* A piece in its place, and zeros around it: `length` of every `step` elements from `begin` on. The
 * first piece writes everything, those after it add where they belong. */
template <typename T, typename O, int N>
__global__ void __launch_bounds__(PIECE_THREADS)
    unslice_kernel(O *y, const T *x, int64_t begin, int64_t length, int64_t step, int64_t count,
                   bool overwrite)
{
    int64_t i = ((int64_t)blockIdx.x * PIECE_THREADS + threadIdx.x) * N;
    if (i >= count)
        return;
    int64_t row = overwrite ? step : length, line = quotient(i, row);
    int64_t at = overwrite ? i - line * row - begin : i - line * row;
    bool inside = at >= 0 && at < length;
    pack<T, N> from = {};
    if (inside)
        from = load_pack<N>(x + line * length + at);
    O *to = y + line * step + begin + at;
    pack<O, N> sum = {};
    if (!overwrite)
        sum = load_pack<N>(to);
#pragma unroll
    for (int k = 0; k < N; k++)
        sum.at[k] = joined(sum.at[k], from.at[k], overwrite);
    store_pack<N>(to, sum);
}

template <typename T, typename O, int N>
void launch_unslice(const tri_kernel_args *args, int64_t inner)
{
    const tri_cut *cut = &args->attr->message.cut;
    int64_t count = args->overwrite ? args->out[0].count : args->in[0].count;
    if (count > 0)
        unslice_kernel<T, O, N><<<(unsigned)ceil_div(count, (int64_t)PIECE_THREADS * N),
                                  PIECE_THREADS, 0, stream_of(args)>>>(
            data_of<O>(args->out[0]), data_of<const T>(args->in[0]),
            tri_cut_begin(cut, cut->part) * inner, tri_cut_size(cut, cut->part) * inner,
            cut->size * inner, count, args->overwrite);
}

void unslice(const tri_kernel_args *args)
{
    int64_t inner = 1;
    for (int d = args->attr->message.cut.dim + 1; d < args->out[0].rank; d++)
        inner *= args->out[0].size[d];
    if (args->in[0].dtype == TRI_I32) {
        launch_unslice<int32_t, int32_t, 1>(args, inner);
        return;
    }
    by_type(args->in[0].dtype, [&](auto from) {
        using T = decltype(from);
        by_type(args->out[0].dtype, [&](auto to) {
            using O = decltype(to);
            constexpr int N = pack_size<T, O>();
            if (inner % N == 0)
                launch_unslice<T, O, N>(args, inner);
            else
                launch_unslice<T, O, 1>(args, inner);
        });
    });
}

/* Blocks: the parts one after the other, each dense. */
void reorder(const tri_kernel_args *args, bool into_blocks)
{
    const tri_cut *cut = &args->attr->message.cut;
    cut_view v = view_of(args);
    for (int p = 0; p < cut->parts; p++) {
        int64_t begin = tri_cut_begin(cut, p) * v.inner, run = tri_cut_size(cut, p) * v.inner;
        int64_t row = cut->size * v.inner, block = begin * v.outer;
        const char *x = data_of<char>(args->in[0]);
        char *y = data_of<char>(args->out[0]);
        if (into_blocks)
            copy_lines({y + block, x + begin, run, row, run, v.outer}, stream_of(args));
        else
            copy_lines({y + begin, x + block, row, run, run, v.outer}, stream_of(args));
    }
}

void block(const tri_kernel_args *args)
{
    reorder(args, true);
}

void unblock(const tri_kernel_args *args)
{
    reorder(args, false);
}

/* Part p of [B, T, H, K] is line p of every three of what is packed. */
void split_qkv(const tri_kernel_args *args)
{
    const tri_tensor &q = args->out[0];
    int64_t line = q.size[2] * q.size[3] * (int64_t)tri_dtype_bytes(q.dtype);
    for (int p = 0; p < 3; p++)
        copy_lines({args->out[p].data, data_of<char>(args->in[0]) + p * line, line, 3 * line, line,
                    q.size[0] * q.size[1]},
                   stream_of(args));
}

void join_qkv(const tri_kernel_args *args)
{
    const tri_tensor &q = args->in[0];
    int64_t line = q.size[2] * q.size[3] * (int64_t)tri_dtype_bytes(q.dtype);
    for (int p = 0; p < 3; p++)
        copy_lines({data_of<char>(args->out[0]) + p * line, args->in[p].data, 3 * line, line, line,
                    q.size[0] * q.size[1]},
                   stream_of(args));
}

/* Statistics of a row: maximum, sum of exp(x - maximum), picked logit. */
__global__ void __launch_bounds__(PIECE_THREADS)
    ce_combine_kernel(const float *stats, int64_t parts, int64_t rows, float *out)
{
    int64_t i = (int64_t)blockIdx.x * PIECE_THREADS + threadIdx.x;
    if (i >= rows)
        return;
    float most = -INFINITY;
    double sum = 0, picked = 0;
    for (int64_t p = 0; p < parts; p++)
        most = fmaxf(most, stats[(p * rows + i) * 3]);
    for (int64_t p = 0; p < parts; p++) {
        const float *s = stats + (p * rows + i) * 3;
        sum += (double)s[1] * exp((double)s[0] - (double)most);
        picked += (double)s[2];
    }
    out[i * 3] = most;
    out[i * 3 + 1] = (float)sum;
    out[i * 3 + 2] = (float)picked;
}

void ce_combine(const tri_kernel_args *args)
{
    int64_t rows = args->out[0].count / 3;
    if (rows > 0)
        ce_combine_kernel<<<(unsigned)ceil_div(rows, PIECE_THREADS), PIECE_THREADS, 0,
                            stream_of(args)>>>(data_of<float>(args->in[0]), args->in[0].size[0],
                                               rows, data_of<float>(args->out[0]));
}

/* As many numbers as there are ranks: one thread, which adds in one order. */
__global__ void fit_rooms_kernel(const int32_t *counts, int64_t num, int64_t room, bool overwrite,
                                 int32_t *fitted, float *overflow)
{
    double lost = 0;
    for (int64_t i = 0; i < num; i++) {
        int64_t count = counts[i], fits = count < 0 ? 0 : count < room ? count : room;
        lost += fabs((double)count - (double)fits);
        fitted[i] = (int32_t)fits;
    }
    *overflow = overwrite ? (float)lost : (float)((double)*overflow + lost);
}

void fit_rooms(const tri_kernel_args *args)
{
    fit_rooms_kernel<<<1, 1, 0, stream_of(args)>>>(
        data_of<int32_t>(args->in[0]), args->in[0].count, args->attr->message.room.rows,
        args->overwrite, data_of<int32_t>(args->out[0]), data_of<float>(args->out[1]));
}

} // namespace

const tri_kernel tri_cuda_fit_rooms = {fit_rooms, nullptr, nullptr};

const tri_kernel tri_cuda_slice = {slice, nullptr, nullptr};
const tri_kernel tri_cuda_unslice = {unslice, nullptr, nullptr};
const tri_kernel tri_cuda_block = {block, nullptr, nullptr};
const tri_kernel tri_cuda_unblock = {unblock, nullptr, nullptr};
const tri_kernel tri_cuda_split_qkv = {split_qkv, nullptr, nullptr};
const tri_kernel tri_cuda_join_qkv = {join_qkv, nullptr, nullptr};
const tri_kernel tri_cuda_ce_combine = {ce_combine, nullptr, nullptr};
