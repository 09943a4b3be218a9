/* What becomes of the results of a product by warpgroups: they are stored, or gate and up become
 * what swiglu_rows makes of them, or the gradient of that becomes those of gate and up. */
#ifndef TRI_DEVICE_CUDA_EXPERTS_GROUPED_END_CUH
#define TRI_DEVICE_CUDA_EXPERTS_GROUPED_END_CUH

#include "device/cuda/experts/grouped_stage.cuh"
#include "device/cuda/experts/grouped_turn.cuh"
#include "device/cuda/experts/wgmma.cuh"

namespace tri
{

typedef stage_plan<128, 256, 384, 4, 1> tma_plan;

constexpr int NUM_MULTIPLY = 256;           /* threads */
constexpr int WARP_BYTES = 16 * LINE_BYTES; /* of a warp's results on their way out */
constexpr int OUT_BYTES = NUM_MULTIPLY / 32 * WARP_BYTES;
constexpr int TMA_BYTES = tma_plan::BYTES + OUT_BYTES + 2 * 8 * tma_plan::STAGES + TURN_BYTES;

/* The tensors as the engine knows them. `a` and `b` are multiplied; `more` are those of a second
 * product that is added, or what the end needs. */
struct tma_maps {
    CUtensorMap a, b, more_a, more_b;
};

/* What becomes of a product's results, beside c. */
struct grouped_more {
    const float *w;  /* of each row */
    void *gate, *up; /* results; NULL where nobody needs them. With END_SWIGLU_GRAD up alone */
    float *part;     /* of dw, [rows][num_parts] */
    int num_parts;
};

enum grouped_end {
    END_STORE,
    END_SWIGLU,      /* b is gate, more_b is up; c is what swiglu_rows makes of both */
    END_SWIGLU_GRAD, /* the product is dy of swiglu_rows; more_a is gate, more_b up; c is dgate */
};

/* With PAIR, the products of a with b and of more_a with more_b are added up. */
template <grouped_kind KIND_, grouped_end END_, bool PAIR_> struct tma_job {
    static constexpr grouped_kind KIND = KIND_;
    static constexpr grouped_end END = END_;
    static constexpr bool PAIR = PAIR_;
    static constexpr int N = END == END_SWIGLU ? tma_plan::N / 2 : tma_plan::N; /* of results */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* Stages go round; of each of these a parity is waited for that changes with every round. */
struct stage_ring {
    uint32_t shared, out, full, empty; /* the stages, what goes out, and barriers of each stage */
    int at = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ stage_ring(uint32_t memory)
        : shared(memory), out(memory + tma_plan::STAGES * tma_plan::STAGE_BYTES),
          full(out + OUT_BYTES), empty(full + 8 * tma_plan::STAGES)
    {
    }
    __device__ __forceinline__ uint32_t stage() const
    {
        return shared + (uint32_t)at * tma_plan::STAGE_BYTES;
    }
    __device__ __forceinline__ uint32_t full_one() const
    {
        return full + (uint32_t)at * 8;
    }
    __device__ __forceinline__ uint32_t empty_one() const
    {
        return empty + (uint32_t)at * 8;
    }
    __device__ __forceinline__ void next()
    {
        at = at + 1 < tma_plan::STAGES ? at + 1 : 0;
        parity ^= at == 0;
    }
};

__device__ __forceinline__ void arrive_warp(uint32_t barrier)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* The 16 rows x 64 columns of a warp go through shared memory, so that 128 bytes of a row are
 * stored at once. What lanes have of 16 columns is four words: of the first 8 columns (r, 2c..) and
 * (r + 8, 2c..), then of the others. */
struct out_piece {
    uint32_t at;   /* the first line */
    uint32_t lane; /* of what this lane gives the address */

    __device__ __forceinline__ out_piece(uint32_t first_line)
        : at(first_line), lane(threadIdx.x & 31)
    {
    }
    __device__ __forceinline__ uint32_t of(int sixteen) const
    {
        return at + at_part((int)(lane % 16), sixteen * 2 + (int)(lane / 16));
    }
    __device__ __forceinline__ void put(int sixteen, const uint32_t (&word)[4]) const
    {
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(of(sixteen)),
            "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
            : "memory");
    }
    __device__ __forceinline__ void get(int sixteen, uint32_t (&word)[4]) const
    {
        tri_ldmatrix(word, of(sixteen));
    }
    /* Stores the rows from `row` on and the columns from `column` on that are there. */
    template <typename T, typename O>
    __device__ __forceinline__ void store(const grouped_tile<T, O> &tile, O *c, int64_t step,
                                          int row, int column) const
    {
        int part = (int)(lane % 8);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = i * 4 + (int)(lane / 8);
            uint4 v;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(at + at_part(r, part))
                         : "memory");
            if (row + r < tile.m && column + part * 8 < tile.n)
                *(uint4 *)(c + (row + r) * step + column + part * 8) = v;
        }
        __syncwarp();
    }
};

__device__ __forceinline__ float fast_sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + __expf(-x));
}

__device__ __forceinline__ float2 unpack(__nv_bfloat16, uint32_t both)
{
    return make_float2(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
}

__device__ __forceinline__ float2 unpack(__half, uint32_t both)
{
    __half2 h = *reinterpret_cast<__half2 *>(&both);
    return __half22float2(h);
}

/* Word i of 16 columns of results, from the j-th 8 on. */
template <typename T>
__device__ __forceinline__ uint32_t word_of(T type, const float (&sum)[32][4], int j, int i)
{
    return tri_pack(type, sum[j + i / 2][i % 2 * 2], sum[j + i / 2][i % 2 * 2 + 1]);
}

template <typename T>
__device__ __forceinline__ void end_store(const grouped_tile<T, T> &tile, int64_t step, int row,
                                          const out_piece &piece, const float (&sum)[32][4])
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j * 64 >= tile.n)
            continue;
#pragma unroll
        for (int sixteen = 0; sixteen < 4; sixteen++) {
            uint32_t word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = word_of(T{}, sum, j * 8 + sixteen * 2, i);
            piece.put(sixteen, word);
        }
        piece.store(tile, tile.c, step, row, j * 64);
    }
}

/* What swiglu_rows makes of gate and up, as these are when rounded. */
template <typename T>
__device__ __forceinline__ uint32_t swiglu_word(T type, uint32_t gate, uint32_t up, float w)
{
    float2 g = unpack(type, gate), u = unpack(type, up);
    return tri_pack(type, w * g.x * fast_sigmoid(g.x) * u.x, w * g.y * fast_sigmoid(g.y) * u.y);
}

template <typename T>
__device__ __forceinline__ void end_swiglu(const grouped_tile<T, T> &tile, const grouped_call &call,
                                           const grouped_more &more, const float (&w)[2], int row,
                                           const out_piece &piece, const float (&sum)[32][4])
{
    int64_t at = tile.c - (T *)call.c;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (j * 64 >= tile.n)
            continue;
#pragma unroll
        for (int which = 0; which < 3; which++) { /* gate, up, what is made of them */
#pragma unroll
            for (int sixteen = 0; sixteen < 4; sixteen++) {
                uint32_t word[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t gate = word_of(T{}, sum, j * 16 + sixteen * 2, i);
                    uint32_t up = word_of(T{}, sum, j * 16 + 8 + sixteen * 2, i);
                    word[i] = which == 0   ? gate
                              : which == 1 ? up
                                           : swiglu_word(T{}, gate, up, w[i % 2]);
                }
                piece.put(sixteen, word);
            }
            T *to = which == 0 ? (T *)more.gate + at : which == 1 ? (T *)more.up + at : tile.c;
            piece.store(tile, to, call.ldc, row, j * 64);
        }
    }
}

/* gate and up become dgate and dup; gives what they add to dw. */
template <typename T>
__device__ __forceinline__ float swiglu_grad_word(T type, const float *dy, float w, uint32_t &gate,
                                                  uint32_t &up)
{
    float2 g = unpack(type, gate), u = unpack(type, up);
    float sx = fast_sigmoid(g.x), sy = fast_sigmoid(g.y);
    float ax = g.x * sx, ay = g.y * sy, dx = w * dy[0], dz = w * dy[1];
    gate =
        tri_pack(type, dx * u.x * sx * (1 + g.x * (1 - sx)), dz * u.y * sy * (1 + g.y * (1 - sy)));
    up = tri_pack(type, dx * ax, dz * ay);
    return dy[0] * ax * u.x + dy[1] * ay * u.y;
}

/* gate and up come by stages, in which results then lie on their way out. */
template <typename T>
__device__ __forceinline__ void
end_swiglu_grad(const grouped_tile<T, T> &tile, const grouped_call &call, const grouped_more &more,
                const float (&w)[2], int row, stage_ring &ring, const float (&sum)[32][4])
{
    int64_t at = tile.c - (T *)call.c;
    float dw[2] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (j * 64 >= tile.n)
            continue;
        out_piece gates(ring.stage() + (uint32_t)row * LINE_BYTES);
        out_piece ups(gates.at + tma_plan::A_BYTES);
        barrier_wait(ring.full_one(), ring.parity);
        __syncwarp();
#pragma unroll
        for (int sixteen = 0; sixteen < 4; sixteen++) {
            uint32_t gate[4], up[4];
            gates.get(sixteen, gate);
            ups.get(sixteen, up);
#pragma unroll
            for (int i = 0; i < 4; i++)
                dw[i % 2] += swiglu_grad_word(T{}, &sum[j * 8 + sixteen * 2 + i / 2][i % 2 * 2],
                                              w[i % 2], gate[i], up[i]);
            gates.put(sixteen, gate);
            ups.put(sixteen, up);
        }
        gates.store(tile, tile.c, call.ldc, row, j * 64);
        ups.store(tile, (T *)more.up + at, call.ldc, row, j * 64);
        show_to_tensor_cores(); /* and to the engine, which writes there next */
        __syncwarp();
        arrive_warp(ring.empty_one());
        ring.next();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) { /* quads have a row */
        float all = dw[half];
        all += __shfl_xor_sync(WHOLE_WARP, all, 1);
        all += __shfl_xor_sync(WHOLE_WARP, all, 2);
        int lane = (int)threadIdx.x & 31, r = row + lane / 4 + half * 8;
        if (lane % 4 == 0 && r < tile.m) {
            int64_t from = at / call.ldc, tile_n = (at - from * call.ldc) / tma_plan::N;
            more.part[(from + r) * more.num_parts + tile_n] = all;
        }
    }
}

template <class job, typename T, typename O>
__device__ __forceinline__ void end_tile(const grouped_tile<T, O> &tile, const part_place &place,
                                         const grouped_call &call, const grouped_more &more,
                                         const float (&w)[2], int row, stage_ring &ring,
                                         const float (&sum)[32][4])
{
    out_piece piece(ring.out + threadIdx.x / 32 % (NUM_MULTIPLY / 32) * WARP_BYTES);
    if constexpr (job::KIND == GROUPED_GRAD && sizeof(O) == sizeof(float)) {
        await_turn(call, place);
        store_part(tile, call.ldc, row, sum, begins(call, place));
        end_turn(call, place);
    } else if constexpr (job::KIND == GROUPED_GRAD)
        store_results(tile, call.ldc, row, 0, sum, call.overwrite);
    else if constexpr (job::END == END_STORE)
        end_store(tile, call.ldc, row, piece, sum);
    else if constexpr (job::END == END_SWIGLU)
        end_swiglu(tile, call, more, w, row, piece, sum);
    else
        end_swiglu_grad(tile, call, more, w, row, ring, sum);
}

#endif

} // namespace tri

#endif
