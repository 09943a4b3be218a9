/* Layer norm and RMS norm.
 *
 * A row belongs to a group of threads, from 8 lanes of a warp to a block of 512 threads, by its
 * length; each thread holds up to four packs of it in registers, so that a row is read once. Rows
 * too long for that are read again for every pass over them.
 *
 * With n = (x - mean) * rstd and dn = dy * gain:
 *     dx = rstd * (dn - average(dn) - n * average(dn * n)) [+ dsum]
 * and the RMS norm is the same without the mean. */
#include "device/cuda/kernels/columns.cuh"

namespace
{

using namespace tri;

constexpr int MOST_THREADS = 512;
constexpr int HELD = 4; /* packs of a row in the registers of a thread */

struct norm_shape {
    int64_t rows;
    int dim;
    float eps;
};

struct norm_launch {
    dim3 blocks, threads;
    bool held;
};

norm_launch launch_of(int64_t rows, int64_t packs)
{
    unsigned width = 8;
    while (width < MOST_THREADS && packs > (int64_t)width * HELD)
        width *= 2;
    unsigned rows_of_block = width <= 32 ? 128 / width : 1;
    norm_launch l = {};
    l.threads = dim3(width, rows_of_block);
    l.blocks = dim3((unsigned)ceil_div(rows, rows_of_block));
    l.held = packs <= (int64_t)width * HELD;
    return l;
}

/* Over the threads of a row, which run along x. All threads of the block take part. */
__device__ __forceinline__ float row_sum(float value, float *shared)
{
    return blockDim.x <= 32 ? lanes_sum(value, (int)blockDim.x) : block_sum(value, shared);
}

/* N numbers of a gain or a shift. */
template <int N> __device__ __forceinline__ void load_floats(const float *from, float *out)
{
    constexpr int M = N < 4 ? N : 4;
#pragma unroll
    for (int j = 0; j < N; j += M) {
        pack<float, M> v = load_pack<M>(from + j);
#pragma unroll
        for (int k = 0; k < M; k++)
            out[j + k] = v.at[k];
    }
}

template <int N, typename T> __device__ __forceinline__ pack<T, N> zeros()
{
    pack<T, N> v;
#pragma unroll
    for (int k = 0; k < N; k++)
        v.at[k] = narrow<T>(0.0f);
    return v;
}

/* The sum of two packs, rounded to their type. */
template <int N, typename T>
__device__ __forceinline__ pack<T, N> sum_of(const pack<T, N> &a, const pack<T, N> &b)
{
    pack<T, N> v;
#pragma unroll
    for (int k = 0; k < N; k++)
        v.at[k] = narrow<T>(widen(a.at[k]) + widen(b.at[k]));
    return v;
}

/* A pack of a row: one that is held, or read again where none are (C is 0). */
template <int N, int C, typename T>
__device__ __forceinline__ pack<T, N> held_or_read(const pack<T, N> *held, int c, const T *from)
{
    if constexpr (C > 0)
        return held[c];
    else
        return load_pack<N>(from);
}

template <typename T> struct norm_operands {
    const T *x, *r; /* r and sum: with ADD */
    const float *gain, *shift;
    T *sum, *y;
    float *stats;
};

/* The row, or the sum of two, which is stored. All loads come before the first store: sum may be x
 * or r. `inside` says whether a pack of this thread is one of the row's, `place` where it lies. */
template <int N, int C, bool ADD, typename T, class INSIDE, class PLACE>
__device__ __forceinline__ void take_row(const norm_operands<T> &p, int num, INSIDE inside,
                                         PLACE place, pack<T, N> *held)
{
    if constexpr (C > 0) {
        pack<T, N> r[C];
#pragma unroll
        for (int c = 0; c < C; c++) {
            held[c] = inside(c) ? load_pack<N>(p.x + place(c)) : zeros<N, T>();
            if (ADD)
                r[c] = inside(c) ? load_pack<N>(p.r + place(c)) : zeros<N, T>();
        }
#pragma unroll
        for (int c = 0; ADD && c < C; c++) {
            held[c] = sum_of(held[c], r[c]);
            if (inside(c))
                store_pack<N>(p.sum + place(c), held[c]);
        }
    } else if (ADD) {
        for (int c = 0; c < num && inside(c); c++)
            store_pack<N>(p.sum + place(c),
                          sum_of(load_pack<N>(p.x + place(c)), load_pack<N>(p.r + place(c))));
    }
}

/* This thread's part of the sum over the row of `term` of each element. */
template <int N, class INSIDE, class ROW, class TERM>
__device__ __forceinline__ float part_of_sum(int num, INSIDE inside, ROW row_at, TERM term)
{
    float sum = 0;
#pragma unroll
    for (int c = 0; c < num; c++) {
        if (!inside(c))
            continue;
        auto v = row_at(c);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum += term(widen(v.at[k]));
    }
    return sum;
}

/* C: packs that a thread holds, or 0 where the row is read again. */
template <int N, int C, bool LAYER, bool ADD, typename T>
__global__ void __launch_bounds__(MOST_THREADS) norm_kernel(norm_operands<T> p, norm_shape shape)
{
    __shared__ float shared[32];
    int width = (int)blockDim.x, packs = shape.dim / N;
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int64_t base = row * shape.dim;
    bool live = row < shape.rows;
    int num = C > 0 ? C : (packs + width - 1) / width;
    pack<T, N> held[C > 0 ? C : 1];
    auto inside = [&](int c) { return live && (int)threadIdx.x + c * width < packs; };
    auto place = [&](int c) { return base + ((int64_t)threadIdx.x + c * width) * N; };
    await_previous();
    take_row<N, C, ADD>(p, num, inside, place, held);
    auto row_at = [&](int c) { /* what is normalised */
                               return held_or_read<N, C>(held, c, (ADD ? p.sum : p.x) + place(c));
    };

    float sum = part_of_sum<N>(num, inside, row_at, [](float x) { return LAYER ? x : x * x; });
    sum = row_sum(sum, shared) / (float)shape.dim;
    float mean = LAYER ? sum : 0.0f, square = sum;
    if (LAYER) {
        square =
            part_of_sum<N>(num, inside, row_at, [&](float x) { return (x - mean) * (x - mean); });
        square = row_sum(square, shared) / (float)shape.dim;
    }
    float rstd = 1.0f / sqrtf(square + shape.eps);
#pragma unroll
    for (int c = 0; c < num; c++) {
        if (!inside(c))
            continue;
        pack<T, N> v = row_at(c);
        float gain[N], shift[N];
        int col = ((int)threadIdx.x + c * width) * N;
        load_floats<N>(p.gain + col, gain);
        if (LAYER)
            load_floats<N>(p.shift + col, shift);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float n = (widen(v.at[k]) - mean) * rstd;
            v.at[k] = narrow<T>(LAYER ? fmaf(n, gain[k], shift[k]) : n * gain[k]);
        }
        store_pack<N>(p.y + place(c), v);
    }
    if (live && threadIdx.x == 0) {
        if (LAYER)
            p.stats[row * 2] = mean;
        p.stats[LAYER ? row * 2 + 1 : row] = rstd;
    }
}

template <typename T> struct grad_operands {
    const T *dy, *x;
    const float *gain, *stats;
    const T *dsum; /* or NULL */
    T *dx;
};

template <int N, int C, bool LAYER, typename T>
__global__ void __launch_bounds__(MOST_THREADS) grad_kernel(grad_operands<T> p, norm_shape shape)
{
    __shared__ float shared[32];
    int width = (int)blockDim.x, packs = shape.dim / N;
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y, base = row * shape.dim;
    bool live = row < shape.rows;
    int num = C > 0 ? C : (packs + width - 1) / width;
    pack<T, N> held_dy[C > 0 ? C : 1], held_x[C > 0 ? C : 1], held_dsum[C > 0 ? C : 1];
    float mean = LAYER && live ? p.stats[row * 2] : 0.0f;
    float rstd = live ? p.stats[LAYER ? row * 2 + 1 : row] : 0.0f;
    auto inside = [&](int c) { return live && (int)threadIdx.x + c * width < packs; };
    auto place = [&](int c) { return base + ((int64_t)threadIdx.x + c * width) * N; };

    if constexpr (C > 0) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            if (!inside(c))
                continue;
            held_dy[c] = load_pack<N>(p.dy + place(c));
            held_x[c] = load_pack<N>(p.x + place(c));
            if (p.dsum)
                held_dsum[c] = load_pack<N>(p.dsum + place(c));
        }
    }
    auto dy_of = [&](int c) { return held_or_read<N, C>(held_dy, c, p.dy + place(c)); };
    auto x_of = [&](int c) { return held_or_read<N, C>(held_x, c, p.x + place(c)); };

    float average = 0, average_n = 0;
#pragma unroll
    for (int c = 0; c < num; c++) {
        if (!inside(c))
            continue;
        pack<T, N> d = dy_of(c), x = x_of(c);
        float gain[N];
        load_floats<N>(p.gain + ((int)threadIdx.x + c * width) * N, gain);
#pragma unroll
        for (int k = 0; k < N; k++) {
            float dn = widen(d.at[k]) * gain[k];
            average += dn;
            average_n += dn * ((widen(x.at[k]) - mean) * rstd);
        }
    }
    average = LAYER ? row_sum(average, shared) / (float)shape.dim : 0.0f;
    average_n = row_sum(average_n, shared) / (float)shape.dim;
#pragma unroll
    for (int c = 0; c < num; c++) {
        if (!inside(c))
            continue;
        pack<T, N> d = dy_of(c), x = x_of(c), s;
        float gain[N];
        load_floats<N>(p.gain + ((int)threadIdx.x + c * width) * N, gain);
        if (C > 0 || p.dsum)
            s = held_or_read<N, C>(held_dsum, c, p.dsum + place(c));
#pragma unroll
        for (int k = 0; k < N; k++) {
            float n = (widen(x.at[k]) - mean) * rstd;
            float value = rstd * (widen(d.at[k]) * gain[k] - average - n * average_n);
            d.at[k] = narrow<T>(p.dsum ? value + widen(s.at[k]) : value);
        }
        store_pack<N>(p.dx + place(c), d);
    }
}

/* --- Runs ----------------------------------------------------------------------------------- */

/* Elements of a row: only an RMS norm has rows of several dims. */
template <bool LAYER> int64_t width_of(const tri_kernel_args *args)
{
    return LAYER ? last_of(args->in[0]) : tri_norm_width(args);
}

template <bool LAYER> norm_shape shape_of(const tri_kernel_args *args)
{
    norm_shape shape = {};
    shape.dim = (int)width_of<LAYER>(args);
    shape.rows = shape.dim > 0 ? args->in[0].count / shape.dim : 0;
    shape.eps = args->attr->norm.eps;
    return shape;
}

/* Whether rows are whole packs of the type, at addresses that are multiples of 16 bytes. */
template <bool LAYER, typename T> bool in_packs(const tri_kernel_args *args)
{
    bool fits = width_of<LAYER>(args) % pack_size<T>() == 0;
    for (int i = 0; i < args->num_in; i++)
        fits = fits && aligned16(args->in[i].data);
    for (int o = 0; o < args->num_out; o++)
        fits = fits && aligned16(args->out[o].data);
    return fits;
}

template <int N, bool LAYER, bool ADD, typename T>
void norm_packs(const tri_kernel_args *args, const norm_operands<T> &p)
{
    norm_shape shape = shape_of<LAYER>(args);
    norm_launch l = launch_of(shape.rows, shape.dim / N);
    if (l.held)
        launch_early(args, norm_kernel<N, HELD, LAYER, ADD, T>, l.blocks, l.threads, 0, p, shape);
    else
        launch_early(args, norm_kernel<N, 0, LAYER, ADD, T>, l.blocks, l.threads, 0, p, shape);
}

template <bool LAYER, bool ADD> void norm(const tri_kernel_args *args)
{
    if (args->in[0].count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        norm_operands<T> p = {};
        p.x = data_of<T>(args->in[0]);
        if (ADD) {
            p.r = data_of<T>(args->in[1]);
            p.sum = data_of<T>(args->out[0]);
        }
        p.gain = data_of<float>(args->in[ADD ? 2 : 1]);
        if (LAYER)
            p.shift = data_of<float>(args->in[ADD ? 3 : 2]);
        p.y = data_of<T>(args->out[ADD ? 1 : 0]);
        p.stats = data_of<float>(args->out[ADD ? 2 : 1]);
        if (in_packs<LAYER, T>(args))
            norm_packs<pack_size<T>(), LAYER, ADD>(args, p);
        else
            norm_packs<1, LAYER, ADD>(args, p);
    });
}

template <int N, bool LAYER, typename T>
void grad_packs(const tri_kernel_args *args, const grad_operands<T> &p)
{
    norm_shape shape = shape_of<LAYER>(args);
    norm_launch l = launch_of(shape.rows, shape.dim / N);
    if (l.held)
        grad_kernel<N, HELD, LAYER><<<l.blocks, l.threads, 0, stream_of(args)>>>(p, shape);
    else
        grad_kernel<N, 0, LAYER><<<l.blocks, l.threads, 0, stream_of(args)>>>(p, shape);
}

template <bool LAYER> void norm_grad(const tri_kernel_args *args)
{
    if (args->in[0].count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        grad_operands<T> p = {};
        p.dy = data_of<T>(args->in[0]);
        p.x = data_of<T>(args->in[1]);
        p.gain = data_of<float>(args->in[2]);
        p.stats = data_of<float>(args->in[3]);
        p.dsum = args->num_in > 4 ? data_of<T>(args->in[4]) : nullptr;
        p.dx = data_of<T>(args->out[0]);
        if (in_packs<LAYER, T>(args))
            grad_packs<pack_size<T>(), LAYER>(args, p);
        else
            grad_packs<1, LAYER>(args, p);
    });
}

template <column_kind KIND> size_t param_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    norm_shape shape = shape_of<KIND == COLUMN_LAYER>(args);
    return column_bytes<KIND>(args->in[0].dtype, shape.rows, shape.dim);
}

template <column_kind KIND> void param_grad(const tri_kernel_args *args)
{
    norm_shape shape = shape_of<KIND == COLUMN_LAYER>(args);
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        sum_columns<KIND, T, float>(args, data_of<float>(args->in[2]), shape.rows, shape.dim);
    });
}

} // namespace

const tri_kernel tri_cuda_layernorm = {norm<true, false>, nullptr, nullptr};
const tri_kernel tri_cuda_add_layernorm = {norm<true, true>, nullptr, nullptr};
const tri_kernel tri_cuda_layernorm_grad = {norm_grad<true>, nullptr, nullptr};
const tri_kernel tri_cuda_layernorm_param_grad = {param_grad<COLUMN_LAYER>,
                                                  param_grad_scratch<COLUMN_LAYER>, nullptr};
const tri_kernel tri_cuda_rmsnorm = {norm<false, false>, nullptr, nullptr};
const tri_kernel tri_cuda_add_rmsnorm = {norm<false, true>, nullptr, nullptr};
const tri_kernel tri_cuda_rmsnorm_grad = {norm_grad<false>, nullptr, nullptr};
const tri_kernel tri_cuda_rmsnorm_param_grad = {param_grad<COLUMN_RMS>,
                                                param_grad_scratch<COLUMN_RMS>, nullptr};
