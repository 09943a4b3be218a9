/* The end of a step: the norm of the gradient, the one factor, the update rules.
 *
 * A rule reads the accumulated gradient times FACTOR and writes nothing when OK is 0. Rules and
 * norms take all tensors of a model in a few launches (run_many). */
#include "device/cuda/kernels/many.cuh"
#include "device/cuda/kernels/total.cuh"
#include "device/lion.h"

#include <math.h>

namespace
{

using namespace tri;

/* --- Sums of squares ------------------------------------------------------------------------ */

constexpr int CHUNK = 8192; /* elements of one tensor, for a block */

struct square_entry {
    const void *data;
    int64_t count;
    uint32_t first_chunk;
    uint32_t type;
};

enum { SQUARES_FEW = 8, SQUARES_MOST = 1024 };

template <int CAPACITY> struct square_table {
    square_entry entry[CAPACITY];
    int num;
    uint32_t num_chunks;
};

template <typename T>
__device__ __forceinline__ double chunk_squares(const square_entry &e, int64_t first)
{
    constexpr int N = pack_size<T>(), PACKS = CHUNK / (TOTAL_THREADS * N);
    const T *x = (const T *)e.data;
    double sum = 0;
    if (first + CHUNK <= e.count && ((uintptr_t)x & 15) == 0) {
        pack<T, N> v[PACKS];
#pragma unroll
        for (int u = 0; u < PACKS; u++)
            v[u] = load_pack<N>(x + first + ((int64_t)u * TOTAL_THREADS + threadIdx.x) * N);
#pragma unroll
        for (int u = 0; u < PACKS; u++)
#pragma unroll
            for (int k = 0; k < N; k++) {
                double value = (double)widen(v[u].at[k]);
                sum += value * value;
            }
        return sum;
    }
    int64_t end = first + CHUNK < e.count ? first + CHUNK : e.count;
    for (int64_t i = first + threadIdx.x; i < end; i += TOTAL_THREADS) {
        double value = (double)widen(x[i]);
        sum += value * value;
    }
    return sum;
}

template <int CAPACITY>
__global__ void __launch_bounds__(TOTAL_THREADS)
    squares_kernel(const __grid_constant__ square_table<CAPACITY> table, double *partial)
{
    __shared__ double shared[32];
    double sum = 0;
    for (uint32_t chunk = blockIdx.x; chunk < table.num_chunks; chunk += gridDim.x) {
        int low = 0, high = table.num - 1; /* the last entry that begins here or before */
        while (low < high) {
            int middle = (low + high + 1) / 2;
            if (table.entry[middle].first_chunk <= chunk)
                low = middle;
            else
                high = middle - 1;
        }
        const square_entry &e = table.entry[low];
        int64_t first = (int64_t)(chunk - e.first_chunk) * CHUNK;
        if (e.type == TRI_F32)
            sum += chunk_squares<float>(e, first);
        else if (e.type == TRI_BF16)
            sum += chunk_squares<__nv_bfloat16>(e, first);
        else
            sum += chunk_squares<__half>(e, first);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(TOTAL_THREADS)
    squares_finish(const double *partial, int num, bool overwrite, float *out)
{
    __shared__ double shared[32];
    double sum = total_of(partial, num, shared);
    if (threadIdx.x == 0)
        store_sum(out, sum, overwrite);
}

void squares_add(square_table<SQUARES_MOST> *table, const tri_tensor &x)
{
    square_entry *e = &table->entry[table->num++];
    e->data = x.data;
    e->count = x.count;
    e->type = (uint32_t)x.dtype;
    e->first_chunk = table->num_chunks;
    table->num_chunks += (uint32_t)ceil_div(x.count, CHUNK);
}

/* Into scratch; returns the number of partial sums there. */
int squares_launch(const tri_kernel_args *args, const square_table<SQUARES_MOST> &table)
{
    unsigned blocks = table.num_chunks < TOTAL_BLOCKS ? table.num_chunks : TOTAL_BLOCKS;
    blocks = blocks > 0 ? blocks : 1;
    double *partial = (double *)device_of(args)->scratch;
    if (table.num <= SQUARES_FEW) {
        square_table<SQUARES_FEW> few;
        few.num = table.num;
        few.num_chunks = table.num_chunks;
        memcpy(few.entry, table.entry, (size_t)few.num * sizeof few.entry[0]);
        squares_kernel<<<blocks, TOTAL_THREADS, 0, stream_of(args)>>>(few, partial);
    } else {
        squares_kernel<<<blocks, TOTAL_THREADS, 0, stream_of(args)>>>(table, partial);
    }
    return (int)blocks;
}

/* Tensors in a row that add to the same statistic go together. */
void sum_squares_many(const tri_kernel_args *const *args, int count)
{
    square_table<SQUARES_MOST> table;
    for (int first = 0, next; first < count; first = next) {
        const tri_kernel_args *lead = args[first];
        table.num = 0;
        table.num_chunks = 0;
        squares_add(&table, lead->in[0]);
        for (next = first + 1; next < count && table.num < SQUARES_MOST; next++) {
            if (args[next]->out[0].data != lead->out[0].data || args[next]->overwrite)
                break;
            squares_add(&table, args[next]->in[0]);
        }
        int blocks = squares_launch(lead, table);
        squares_finish<<<1, TOTAL_THREADS, 0, stream_of(lead)>>>(
            (const double *)device_of(lead)->scratch, blocks, lead->overwrite,
            data_of<float>(lead->out[0]));
    }
}

void sum_squares(const tri_kernel_args *args)
{
    sum_squares_many(&args, 1);
}

size_t squares_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)args;
    (void)num_threads;
    return TOTAL_BLOCKS * sizeof(double); /* whatever the number of tensors */
}

/* y = x / (norm + eps); every block adds up the partial sums for itself. */
template <typename T>
__global__ void __launch_bounds__(TOTAL_THREADS)
    scale_kernel(const T *x, T *y, int64_t count, const double *partial, int num, float eps,
                 bool aligned)
{
    __shared__ double shared[32];
    constexpr int N = pack_size<T>();
    float inverse = (float)(1.0 / (sqrt(total_of(partial, num, shared)) + (double)eps));
    int64_t packs = aligned ? count / N : 0;
    int64_t first = (int64_t)blockIdx.x * TOTAL_THREADS + threadIdx.x;
    int64_t step = (int64_t)gridDim.x * TOTAL_THREADS;
    for (int64_t p = first; p < packs; p += step) {
        pack<T, N> v = load_pack<N>(x + p * N);
#pragma unroll
        for (int k = 0; k < N; k++)
            v.at[k] = narrow<T>(widen(v.at[k]) * inverse);
        store_pack<N>(y + p * N, v);
    }
    for (int64_t i = packs * N + first; i < count; i += step)
        y[i] = narrow<T>(widen(x[i]) * inverse);
}

void unit_norm(const tri_kernel_args *args)
{
    const tri_tensor &x = args->in[0];
    if (x.count == 0)
        return;
    square_table<SQUARES_MOST> table;
    table.num = 0;
    table.num_chunks = 0;
    squares_add(&table, x);
    int num = squares_launch(args, table);
    by_type(x.dtype, [&](auto zero) {
        using T = decltype(zero);
        int64_t blocks = ceil_div(x.count, (int64_t)TOTAL_THREADS * pack_size<T>());
        scale_kernel<<<(unsigned)(blocks < TOTAL_BLOCKS ? blocks : TOTAL_BLOCKS), TOTAL_THREADS, 0,
                       stream_of(args)>>>(data_of<T>(x), data_of<T>(args->out[0]), x.count,
                                          (const double *)device_of(args)->scratch, num,
                                          args->attr->update.eps,
                                          aligned16(x.data) && aligned16(args->out[0].data));
    });
}

/* --- Rules ---------------------------------------------------------------------------------- */

/* data: p, momentum or none, g. k: lr_scale, beta1, weight_decay. flags: nesterov. */
struct sgd_rule {
    static constexpr int NUM_DATA = 3, PACKS = 2;
    static constexpr unsigned WIDE = 3, STORES = 3, COPIES = 0;
    static __device__ unsigned loads(const many_entry &e)
    {
        return e.data[1] ? 7 : 5;
    }
    static __device__ void apply(const many_entry &e, const many_step &step, float *v)
    {
        float lr = step.lr * e.k[0], beta1 = e.k[1];
        float grad = fmaf(v[2], step.factor, e.k[2] * v[0]), direction = grad;
        if (e.data[1]) {
            v[1] = fmaf(beta1, v[1], grad);
            direction = e.flags ? fmaf(beta1, v[1], grad) : v[1];
        }
        v[0] = fmaf(-lr, direction, v[0]);
    }
};

/* data: p, m, v, g, copy or none. k: lr_scale, beta1, beta2, eps, weight_decay. flags: decoupled.
 */
struct adam_rule {
    static constexpr int NUM_DATA = 5, PACKS = 2;
    static constexpr unsigned WIDE = 7, STORES = 7 | 1 << 4, COPIES = 1 << 4;
    static __device__ unsigned loads(const many_entry &)
    {
        return 15;
    }
    static __device__ void apply(const many_entry &e, const many_step &step, float *v)
    {
        float lr = step.lr * e.k[0], beta1 = e.k[1], beta2 = e.k[2], decay = e.k[4];
        float grad = v[3] * step.factor, param = v[0];
        if (e.flags)
            param = fmaf(-(lr * decay), param, param);
        else
            grad = fmaf(decay, param, grad);
        v[1] = fmaf(beta1, v[1], (1.0f - beta1) * grad);
        v[2] = fmaf(beta2, v[2], (1.0f - beta2) * grad * grad);
        float direction =
            v[1] * step.own[TRI_ADAM_BIAS1] / (sqrtf(v[2] * step.own[TRI_ADAM_BIAS2]) + e.k[3]);
        v[0] = v[4] = fmaf(-lr, direction, param);
    }
};

/* data: p, m, g. k: lr_scale, beta1, beta2, weight_decay. */
struct lion_rule {
    static constexpr int NUM_DATA = 3, PACKS = 2;
    static constexpr unsigned WIDE = 3, STORES = 3, COPIES = 0;
    static __device__ unsigned loads(const many_entry &)
    {
        return 7;
    }
    static __device__ void apply(const many_entry &e, const many_step &step, float *v)
    {
        const tri_lion k = tri_lion_of(step.factor, step.lr * e.k[0], e.k[3], e.k[1], e.k[2]);
        tri_lion_update(&k, v[2], &v[0], &v[1]);
    }
};

/* data: momentum, update, g. k: beta1. flags: nesterov. */
struct momentum_rule {
    static constexpr int NUM_DATA = 3, PACKS = 4;
    static constexpr unsigned WIDE = 3, STORES = 3, COPIES = 0;
    static __device__ unsigned loads(const many_entry &)
    {
        return 5;
    }
    static __device__ void apply(const many_entry &e, const many_step &step, float *v)
    {
        float grad = v[2] * step.factor;
        v[0] = fmaf(e.k[0], v[0], grad);
        v[1] = e.flags ? fmaf(e.k[0], v[0], grad) : v[0];
    }
};

/* data: p, update. k: lr_scale, alpha, weight_decay. */
struct apply_rule {
    static constexpr int NUM_DATA = 2, PACKS = 4;
    static constexpr unsigned WIDE = 3, STORES = 1, COPIES = 0;
    static __device__ unsigned loads(const many_entry &)
    {
        return 3;
    }
    static __device__ void apply(const many_entry &e, const many_step &step, float *v)
    {
        float lr = step.lr * e.k[0];
        v[0] = v[0] - lr * fmaf(e.k[2], v[0], e.k[1] * v[1]);
    }
};

/* data: p, copy. */
struct narrow_rule {
    static constexpr int NUM_DATA = 2, PACKS = 4;
    static constexpr unsigned WIDE = 1, STORES = 2, COPIES = 2;
    static __device__ unsigned loads(const many_entry &)
    {
        return 1;
    }
    static __device__ void apply(const many_entry &, const many_step &, float *v)
    {
        v[1] = v[0];
    }
};

void sgd_many(const tri_kernel_args *const *args, int count)
{
    many_batch<sgd_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        const tri_kernel_args *a = args[i];
        many_entry e = {};
        e.count = a->out[0].count;
        many_data(&e, 0, a->out[0]);
        many_data(&e, 1, a->num_out > 1 ? a->out[1] : tri_tensor{});
        many_data(&e, 2, a->in[2]);
        e.k[0] = a->attr->update.lr_scale;
        e.k[1] = a->attr->update.beta1;
        e.k[2] = a->attr->update.weight_decay;
        e.flags = a->attr->update.nesterov;
        batch.read(a->in[3].data, a->in[4].data);
        batch.add(e);
    }
    batch.launch();
}

void adam_many(const tri_kernel_args *const *args, int count)
{
    many_batch<adam_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        const tri_kernel_args *a = args[i];
        many_entry e = {};
        e.count = a->out[0].count;
        for (int d = 0; d < 3; d++)
            many_data(&e, d, a->out[d]);
        many_data(&e, 3, a->in[3]);
        many_data(&e, 4, a->num_out > 3 ? a->out[3] : tri_tensor{});
        e.k[0] = a->attr->update.lr_scale;
        e.k[1] = a->attr->update.beta1;
        e.k[2] = a->attr->update.beta2;
        e.k[3] = a->attr->update.eps;
        e.k[4] = a->attr->update.weight_decay;
        e.flags = a->attr->update.decoupled;
        batch.read(a->in[4].data, a->in[5].data,
                   data_of<float>(a->in[4]) + a->attr->update.own_rows);
        batch.add(e);
    }
    batch.launch();
}

void lion_many(const tri_kernel_args *const *args, int count)
{
    many_batch<lion_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        const tri_kernel_args *a = args[i];
        many_entry e = {};
        e.count = a->out[0].count;
        many_data(&e, 0, a->out[0]);
        many_data(&e, 1, a->out[1]);
        many_data(&e, 2, a->in[2]);
        e.k[0] = a->attr->update.lr_scale;
        e.k[1] = a->attr->update.beta1;
        e.k[2] = a->attr->update.beta2;
        e.k[3] = a->attr->update.weight_decay;
        batch.read(a->in[3].data, a->in[4].data);
        batch.add(e);
    }
    batch.launch();
}

void momentum_many(const tri_kernel_args *const *args, int count)
{
    many_batch<momentum_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        const tri_kernel_args *a = args[i];
        many_entry e = {};
        e.count = a->out[0].count;
        many_data(&e, 0, a->out[0]);
        many_data(&e, 1, a->out[1]);
        many_data(&e, 2, a->in[1]);
        e.k[0] = a->attr->update.beta1;
        e.flags = a->attr->update.nesterov;
        batch.read(nullptr, a->in[2].data);
        batch.add(e);
    }
    batch.launch();
}

void apply_many(const tri_kernel_args *const *args, int count)
{
    many_batch<apply_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        const tri_kernel_args *a = args[i];
        many_entry e = {};
        e.count = a->out[0].count;
        many_data(&e, 0, a->out[0]);
        many_data(&e, 1, a->in[1]);
        e.k[0] = a->attr->update.lr_scale;
        e.k[1] = a->attr->update.alpha;
        e.k[2] = a->attr->update.weight_decay;
        batch.read(a->in[2].data, a->in[3].data);
        batch.add(e);
    }
    batch.launch();
}

void narrow_many(const tri_kernel_args *const *args, int count)
{
    many_batch<narrow_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        many_entry e = {};
        e.count = args[i]->out[0].count;
        many_data(&e, 0, args[i]->in[0]);
        many_data(&e, 1, args[i]->out[0]);
        batch.add(e);
    }
    batch.launch();
}

/* One tensor is many of one. */
template <void (*MANY)(const tri_kernel_args *const *, int)> void one(const tri_kernel_args *args)
{
    MANY(&args, 1);
}

} // namespace

const tri_kernel tri_cuda_sum_squares = {sum_squares, squares_scratch, sum_squares_many};
const tri_kernel tri_cuda_sgd = {one<sgd_many>, nullptr, sgd_many};
const tri_kernel tri_cuda_adam = {one<adam_many>, nullptr, adam_many};
const tri_kernel tri_cuda_lion = {one<lion_many>, nullptr, lion_many};
const tri_kernel tri_cuda_momentum = {one<momentum_many>, nullptr, momentum_many};
const tri_kernel tri_cuda_unit_norm = {unit_norm, squares_scratch, nullptr};
const tri_kernel tri_cuda_apply_update = {one<apply_many>, nullptr, apply_many};
const tri_kernel tri_cuda_narrow = {one<narrow_many>, nullptr, narrow_many};
