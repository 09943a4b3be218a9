/* Operators that look at one element, or one column, at a time. */
#include "device/cuda/kernels/columns.cuh"
#include "device/cuda/kernels/many.cuh"
#include "device/cuda/kernels/map_amax.cuh"

namespace
{

using namespace tri;

/* --- Activations ---------------------------------------------------------------------------- */

__device__ __forceinline__ float sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

/* The argument of the tanh form of GELU, doubled: (1 + tanh(u)) / 2 = sigmoid(2u). */
__device__ __forceinline__ float gelu_argument(float x)
{
    const float twice_root = 1.5957691216057308f; /* 2 sqrt(2/pi) */
    return twice_root * (x + 0.044715f * x * x * x);
}

/* The normal distribution up to x. */
__device__ __forceinline__ float normal_below(float x)
{
    return 0.5f * erfcf(x * -0.70710678118654752f);
}

template <tri_act KIND> __device__ __forceinline__ float act_of(float x)
{
    if (KIND == TRI_ACT_GELU)
        return x * sigmoid(gelu_argument(x));
    if (KIND == TRI_ACT_RELU)
        return fmaxf(x, 0.0f);
    if (KIND == TRI_ACT_GELU_ERF)
        return x * normal_below(x);
    if (KIND == TRI_ACT_TANH)
        return tanhf(x);
    return x * sigmoid(x);
}

__device__ __forceinline__ float silu_slope(float x, float s)
{
    return s * (1.0f + x * (1.0f - s));
}

template <tri_act KIND> __device__ __forceinline__ float act_slope(float x)
{
    if (KIND == TRI_ACT_GELU) {
        const float root = 0.79788456080286536f; /* sqrt(2/pi) */
        float s = sigmoid(gelu_argument(x));
        float du = root * (1.0f + 0.134145f * x * x);
        return s + 2.0f * x * (s * (1.0f - s)) * du;
    }
    if (KIND == TRI_ACT_RELU)
        return x > 0 ? 1.0f : 0.0f;
    if (KIND == TRI_ACT_GELU_ERF)
        return normal_below(x) + x * 0.39894228040143268f * __expf(-0.5f * x * x);
    if (KIND == TRI_ACT_TANH) {
        float t = tanhf(x);
        return 1.0f - t * t;
    }
    return silu_slope(x, sigmoid(x));
}

/* --- Functors ------------------------------------------------------------------------------- */

struct add_op {
    __device__ void operator()(float a, float b, float, float *out) const
    {
        out[0] = a + b;
    }
};

struct axpby_op {
    float alpha, beta;
    __device__ void operator()(float x, float y, float, float *out) const
    {
        out[0] = fmaf(alpha, x, beta * y);
    }
};

struct copy_op {
    __device__ void operator()(float x, float, float, float *out) const
    {
        out[0] = x;
    }
};

template <tri_act KIND> struct act_op {
    __device__ void operator()(float x, float, float, float *out) const
    {
        out[0] = act_of<KIND>(x);
    }
};

template <tri_act KIND> struct act_grad_op {
    __device__ void operator()(float x, float dy, float, float *out) const
    {
        out[0] = act_slope<KIND>(x) * dy;
    }
};

struct swiglu_op {
    __device__ void operator()(float gate, float up, float, float *out) const
    {
        out[0] = gate * sigmoid(gate) * up;
    }
};

struct swiglu_grad_op {
    __device__ void operator()(float gate, float up, float dy, float *out) const
    {
        float s = sigmoid(gate);
        out[0] = dy * up * silu_slope(gate, s);
        out[1] = dy * gate * s;
    }
};

/* --- Runs ----------------------------------------------------------------------------------- */

void add(const tri_kernel_args *args)
{
    map_same<2, 1>(args, add_op{});
}

void axpby(const tri_kernel_args *args)
{
    map_same<2, 1>(args, axpby_op{args->attr->axpby.alpha, args->attr->axpby.beta});
}

template <int NUM_IN, typename F> void map_one(const tri_kernel_args *args, F f)
{
    if (args->num_out > 1)
        map_amax<NUM_IN, 1>(args, f);
    else
        map_same<NUM_IN, 1>(args, f);
}

void swiglu(const tri_kernel_args *args)
{
    map_one<2>(args, swiglu_op{});
}

void swiglu_grad(const tri_kernel_args *args)
{
    if (args->num_out > 2)
        return map_amax<3, 2>(args, swiglu_grad_op{});
    map_same<3, 2>(args, swiglu_grad_op{});
}

void act(const tri_kernel_args *args)
{
    switch (args->attr->act.kind) {
    case TRI_ACT_GELU:
        return map_one<1>(args, act_op<TRI_ACT_GELU>{});
    case TRI_ACT_RELU:
        return map_one<1>(args, act_op<TRI_ACT_RELU>{});
    case TRI_ACT_GELU_ERF:
        return map_one<1>(args, act_op<TRI_ACT_GELU_ERF>{});
    case TRI_ACT_TANH:
        return map_one<1>(args, act_op<TRI_ACT_TANH>{});
    case TRI_ACT_SILU:
        return map_one<1>(args, act_op<TRI_ACT_SILU>{});
    }
}

void act_grad(const tri_kernel_args *args)
{
    switch (args->attr->act.kind) {
    case TRI_ACT_GELU:
        return map_one<2>(args, act_grad_op<TRI_ACT_GELU>{});
    case TRI_ACT_RELU:
        return map_one<2>(args, act_grad_op<TRI_ACT_RELU>{});
    case TRI_ACT_GELU_ERF:
        return map_one<2>(args, act_grad_op<TRI_ACT_GELU_ERF>{});
    case TRI_ACT_TANH:
        return map_one<2>(args, act_grad_op<TRI_ACT_TANH>{});
    case TRI_ACT_SILU:
        return map_one<2>(args, act_grad_op<TRI_ACT_SILU>{});
    }
}

void cast(const tri_kernel_args *args)
{
    by_type(args->in[0].dtype, [&](auto from) {
        using T = decltype(from);
        by_type(args->out[0].dtype, [&](auto to) {
            using O = decltype(to);
            map<1, 1, T, T, T, O>(args, copy_op{}, args->in[0].data, nullptr, nullptr);
        });
    });
}

/* --- Biases --------------------------------------------------------------------------------- */

/* Each thread one pack of x; whole packs of the bias where its length and the addresses allow. */
template <int N, typename T>
__global__ void __launch_bounds__(MAP_THREADS)
    bias_add_kernel(const T *x, const T *bias, T *y, int64_t count, int64_t n, bool packs)
{
    int64_t first = ((int64_t)blockIdx.x * MAP_THREADS + threadIdx.x) * N;
    if (first >= count)
        return;
    int64_t col = first - quotient(first, n) * n;
    if (packs) {
        pack<T, N> v = load_pack<N>(x + first), b = load_pack<N>(bias + col);
#pragma unroll
        for (int k = 0; k < N; k++)
            v.at[k] = narrow<T>(widen(v.at[k]) + widen(b.at[k]));
        store_pack<N>(y + first, v);
        return;
    }
    for (int64_t i = first; i < first + N && i < count; i++) {
        y[i] = narrow<T>(widen(x[i]) + widen(bias[col]));
        col = col + 1 < n ? col + 1 : 0;
    }
}

void bias_add(const tri_kernel_args *args)
{
    int64_t count = args->out[0].count, n = args->in[1].count;
    assert(args->in[1].dtype == args->in[0].dtype);
    if (count == 0)
        return;
    by_type(args->in[0].dtype, [&](auto zero) {
        using T = decltype(zero);
        constexpr int N = pack_size<T>();
        T *x = data_of<T>(args->in[0]), *bias = data_of<T>(args->in[1]);
        T *y = data_of<T>(args->out[0]);
        bool packs = n % N == 0 && aligned16(x) && aligned16(bias) && aligned16(y);
        unsigned blocks = (unsigned)ceil_div(count, (int64_t)MAP_THREADS * N);
        bias_add_kernel<N>
            <<<blocks, MAP_THREADS, 0, stream_of(args)>>>(x, bias, y, count, n, packs);
    });
}

int64_t bias_grad_rows(const tri_kernel_args *args)
{
    int64_t n = args->out[0].count;
    return n > 0 ? args->in[0].count / n : 0;
}

size_t bias_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    int64_t n = args->out[0].count;
    return n > 0 ? column_bytes<COLUMN_BIAS>(args->in[0].dtype, bias_grad_rows(args), n) : 0;
}

void bias_grad(const tri_kernel_args *args)
{
    by_type(args->in[0].dtype, [&](auto from) {
        using T = decltype(from);
        by_type(args->out[0].dtype, [&](auto to) {
            using O = decltype(to);
            sum_columns<COLUMN_BIAS, T, O>(args, nullptr, bias_grad_rows(args), args->out[0].count);
        });
    });
}

/* --- Accumulation --------------------------------------------------------------------------- */

/* data: sum, x. */
struct accumulate_rule {
    static constexpr int NUM_DATA = 2, PACKS = 4;
    static constexpr unsigned WIDE = 0, STORES = 1, COPIES = 0;
    static __device__ unsigned loads(const many_entry &e)
    {
        return e.flags ? 2 : 3;
    }
    static __device__ void apply(const many_entry &e, const many_step &, float *v)
    {
        v[0] = e.flags ? v[1] : v[0] + v[1];
    }
};

void accumulate_many(const tri_kernel_args *const *args, int count)
{
    many_batch<accumulate_rule> batch(stream_of(args[0]));
    for (int i = 0; i < count; i++) {
        many_entry e = {};
        e.flags = args[i]->overwrite;
        e.count = args[i]->out[0].count;
        many_data(&e, 0, args[i]->out[0]);
        many_data(&e, 1, args[i]->in[0]);
        if (batch.holds(e.data[0])) /* a second contribution comes after the first */
            batch.launch();
        batch.add(e);
    }
    batch.launch();
}

void accumulate(const tri_kernel_args *args)
{
    accumulate_many(&args, 1);
}

} // namespace

const tri_kernel tri_cuda_add = {add, nullptr, nullptr};
const tri_kernel tri_cuda_bias_add = {bias_add, nullptr, nullptr};
const tri_kernel tri_cuda_bias_grad = {bias_grad, bias_grad_scratch, nullptr};
const tri_kernel tri_cuda_act = {act, nullptr, nullptr};
const tri_kernel tri_cuda_act_grad = {act_grad, nullptr, nullptr};
const tri_kernel tri_cuda_accumulate = {accumulate, nullptr, accumulate_many};
const tri_kernel tri_cuda_axpby = {axpby, nullptr, nullptr};
const tri_kernel tri_cuda_cast = {cast, nullptr, nullptr};
const tri_kernel tri_cuda_swiglu = {swiglu, nullptr, nullptr};
const tri_kernel tri_cuda_swiglu_grad = {swiglu_grad, nullptr, nullptr};
