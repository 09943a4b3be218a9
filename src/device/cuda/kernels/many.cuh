/* Elementwise work on many tensors in one launch: update rules, narrow copies, accumulation.
 *
 * The table of tensors is a parameter of the kernel, passed by value. A block works on a stretch of
 * one tensor and finds the tensor by its number. What a rule does to the elements of its tensors
 * (at most five, each with a type of its own) is a class:
 *     NUM_DATA        tensors
 *     PACKS           packs that a thread loads before it stores any
 *     WIDE            bit d: tensor d is always f32
 *     STORES          bit d: tensor d is written
 *     COPIES          bit d: tensor d is the 16-bit copy of a weight, and rounds as such
 *     loads(entry)    bit d: tensor d is read
 *     apply(entry, step, v)   v[d]: one element of each tensor, in and out */
#ifndef TRI_DEVICE_CUDA_KERNELS_MANY_CUH
#define TRI_DEVICE_CUDA_KERNELS_MANY_CUH

#include "base/half.h"
#include "device/cuda/kernels/common.cuh"

#include <string.h>

namespace tri
{

constexpr int MANY_THREADS = 256;
constexpr int MANY_STEPS = 4; /* packs of a thread, four elements each */
constexpr int MANY_ELEMENTS = MANY_THREADS * 4 * MANY_STEPS;

struct many_entry {
    void *data[5];
    int64_t count;
    float k[5]; /* constants of the rule */
    uint32_t first_block;
    uint8_t type[5];
    uint8_t aligned;
    uint16_t flags; /* of the rule */
};

/* Parameters of a kernel may have 32,764 bytes. */
enum { MANY_FEW = 8, MANY_MOST = 400 };
static_assert(sizeof(many_entry) * MANY_MOST < 32600, "the parameters of a kernel");

template <int CAPACITY> struct many_table {
    many_entry entry[CAPACITY];
    int num;
};

/* What differs from step to step. */
constexpr int MANY_OWN = 2;
struct many_step {
    float lr, factor;
    float own[MANY_OWN]; /* rows of the rule itself */
};

inline void many_data(many_entry *e, int d, const tri_tensor &t)
{
    if (d == 0)
        e->aligned = 1;
    e->data[d] = t.data;
    e->type[d] = (uint8_t)t.dtype;
    e->aligned = e->aligned && aligned16(t.data);
}

/* Four elements as they lie in memory; a 16-bit type fills half. */
__device__ __forceinline__ uint4 load_bits(const void *data, bool wide, int64_t i)
{
    if (wide)
        return *reinterpret_cast<const uint4 *>((const float *)data + i);
    uint2 half = *reinterpret_cast<const uint2 *>((const uint16_t *)data + i);
    return make_uint4(half.x, half.y, 0, 0);
}

__device__ __forceinline__ float widen_bits(const uint4 &bits, int type, int k)
{
    if (type == TRI_F32)
        return __uint_as_float(k == 0 ? bits.x : k == 1 ? bits.y : k == 2 ? bits.z : bits.w);
    uint32_t word = k < 2 ? bits.x : bits.y;
    uint16_t half = (uint16_t)(k & 1 ? word >> 16 : word);
    if (type == TRI_BF16)
        return __uint_as_float((uint32_t)half << 16);
    return __half2float(__ushort_as_half(half));
}

__device__ __forceinline__ float load_one(const void *data, int type, int64_t i)
{
    if (type == TRI_F32)
        return ((const float *)data)[i];
    if (type == TRI_BF16)
        return widen(((const __nv_bfloat16 *)data)[i]);
    return widen(((const __half *)data)[i]);
}

/* copy is known when it is compiled: STORES and COPIES are constants of a rule. */
__device__ __forceinline__ __nv_bfloat16 narrow_bf16(float value, bool copy)
{
    return copy ? __ushort_as_bfloat16(tri_weight_to_bf16(value)) : narrow<__nv_bfloat16>(value);
}

__device__ __forceinline__ void store_one(void *data, int type, bool copy, int64_t i, float value)
{
    if (type == TRI_F32)
        ((float *)data)[i] = value;
    else if (type == TRI_BF16)
        ((__nv_bfloat16 *)data)[i] = narrow_bf16(value, copy);
    else
        ((__half *)data)[i] = narrow<__half>(value);
}

__device__ __forceinline__ void store_four(void *data, int type, bool copy, int64_t i,
                                           const float *value)
{
    if (type == TRI_F32) {
        store_pack<4>((float *)data + i, narrow_pack<4, float>(value));
    } else if (type == TRI_BF16) {
        pack<__nv_bfloat16, 4> out;
#pragma unroll
        for (int k = 0; k < 4; k++)
            out.at[k] = narrow_bf16(value[k], copy);
        store_pack<4>((__nv_bfloat16 *)data + i, out);
    } else {
        store_pack<4>((__half *)data + i, narrow_pack<4, __half>(value));
    }
}

/* A whole stretch, by packs. first is the thread's first element. */
template <typename Rule>
__device__ __forceinline__ void many_packs(const many_entry &e, const many_step &step,
                                           int64_t first)
{
    constexpr int D = Rule::NUM_DATA, P = Rule::PACKS;
    unsigned loads = Rule::loads(e);
#pragma unroll 1
    for (int s = 0; s < MANY_STEPS; s += P) {
        uint4 bits[P][D];
#pragma unroll
        for (int u = 0; u < P; u++)
#pragma unroll
            for (int d = 0; d < D; d++)
                bits[u][d] = loads >> d & 1
                                 ? load_bits(e.data[d], Rule::WIDE >> d & 1 || e.type[d] == TRI_F32,
                                             first + (int64_t)(s + u) * MANY_THREADS * 4)
                                 : make_uint4(0, 0, 0, 0);
#pragma unroll
        for (int u = 0; u < P; u++) {
            float out[D][4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float v[D];
#pragma unroll
                for (int d = 0; d < D; d++)
                    v[d] =
                        widen_bits(bits[u][d], Rule::WIDE >> d & 1 ? (int)TRI_F32 : e.type[d], k);
                Rule::apply(e, step, v);
#pragma unroll
                for (int d = 0; d < D; d++)
                    out[d][k] = v[d];
            }
#pragma unroll
            for (int d = 0; d < D; d++)
                if (Rule::STORES >> d & 1 && e.data[d])
                    store_four(e.data[d], Rule::WIDE >> d & 1 ? (int)TRI_F32 : e.type[d],
                               Rule::COPIES >> d & 1, first + (int64_t)(s + u) * MANY_THREADS * 4,
                               out[d]);
        }
    }
}

template <typename Rule, int CAPACITY>
__global__ void __launch_bounds__(MANY_THREADS)
    many_kernel(const __grid_constant__ many_table<CAPACITY> table, const float *sched,
                const float *own, const float *result)
{
    many_step step = {};
    if (result) {
        if (result[TRI_RESULT_OK] == 0)
            return;
        step.factor = result[TRI_RESULT_FACTOR];
    }
    if (sched)
        step.lr = sched[TRI_STEP_LR];
    for (int k = 0; own && k < MANY_OWN; k++)
        step.own[k] = own[k];
    int low = 0, high = table.num - 1; /* the last entry that begins at this block or before */
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (table.entry[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    const many_entry &e = table.entry[low];
    int64_t begin = (int64_t)(blockIdx.x - e.first_block) * MANY_ELEMENTS;
    if (e.aligned && begin + MANY_ELEMENTS <= e.count) {
        many_packs<Rule>(e, step, begin + (int64_t)threadIdx.x * 4);
        return;
    }
    constexpr int D = Rule::NUM_DATA;
    int64_t end = begin + MANY_ELEMENTS < e.count ? begin + MANY_ELEMENTS : e.count;
    unsigned loads = Rule::loads(e);
    for (int64_t i = begin + threadIdx.x; i < end; i += MANY_THREADS) {
        float v[D];
#pragma unroll
        for (int d = 0; d < D; d++)
            v[d] = loads >> d & 1 ? load_one(e.data[d], e.type[d], i) : 0.0f;
        Rule::apply(e, step, v);
#pragma unroll
        for (int d = 0; d < D; d++)
            if (Rule::STORES >> d & 1 && e.data[d])
                store_one(e.data[d], e.type[d], Rule::COPIES >> d & 1, i, v[d]);
    }
}

/* Collects entries and launches them when there is no more room, or on demand. */
template <typename Rule> class many_batch
{
  public:
    explicit many_batch(cudaStream_t stream) : stream_(stream)
    {
        table_.num = 0;
    }

    /* Whether tensor 0 of an entry lies here. */
    bool holds(const void *data) const
    {
        for (int i = 0; i < table_.num; i++)
            if (table_.entry[i].data[0] == data)
                return true;
        return false;
    }

    void add(many_entry e)
    {
        int64_t blocks = ceil_div(e.count, MANY_ELEMENTS);
        if (blocks == 0)
            return;
        if (table_.num == MANY_MOST || (int64_t)num_blocks_ + blocks > 0x7fffffff)
            launch();
        e.first_block = num_blocks_;
        num_blocks_ += (uint32_t)blocks;
        table_.entry[table_.num++] = e;
    }

    void launch()
    {
        if (table_.num == 0)
            return;
        if (table_.num <= MANY_FEW) {
            many_table<MANY_FEW> few;
            few.num = table_.num;
            memcpy(few.entry, table_.entry, (size_t)few.num * sizeof few.entry[0]);
            many_kernel<Rule, MANY_FEW>
                <<<num_blocks_, MANY_THREADS, 0, stream_>>>(few, sched_, own_, result_);
        } else {
            many_kernel<Rule, MANY_MOST>
                <<<num_blocks_, MANY_THREADS, 0, stream_>>>(table_, sched_, own_, result_);
        }
        table_.num = 0;
        num_blocks_ = 0;
    }

    /* From now on the step's numbers are read here; `own`: the first of MANY_OWN rows that the rule
     * has added, or NULL. */
    void read(const void *sched, const void *result, const float *own = nullptr)
    {
        if (sched == sched_ && result == result_ && own == own_)
            return;
        launch();
        sched_ = (const float *)sched;
        result_ = (const float *)result;
        own_ = own;
    }

  private:
    cudaStream_t stream_;
    const float *sched_ = nullptr, *own_ = nullptr, *result_ = nullptr;
    uint32_t num_blocks_ = 0;
    many_table<MANY_MOST> table_;
};

} // namespace tri

#endif
