/* Attention for every type, head size up to 256 and mask, in f32 arithmetic.
 *
 * A block of 16 x 16 threads works on pieces of R x R scores. Thread (y, x) has the rows
 * y, y + 16, ... and the columns x, x + 16, ... of a piece, and of the results, whose columns are
 * those of the head. Operands lie in shared memory as f32, rows an odd number of words apart, so
 * that 16 rows of one column are in different banks; columns past the head's width are zeros.
 * Probabilities go through shared memory, because a thread needs those of a whole row.
 *
 * R is what fits: 64 for heads up to 64, 32 up to 128, 16 up to 256. */
#include "device/cuda/kernels/attention.cuh"
#include "device/cuda/kernels/common.cuh"

using namespace tri;

enum { SIDE = 16, THREADS = SIDE * SIDE };

/* R rows of a head, DMAX columns; row r begins at r * (DMAX + 1). */
template <typename T, int R, int DMAX>
static __device__ void load_tile(float *tile, const T *head, int64_t step, int first, int num_pos,
                                 int width)
{
    for (int i = threadIdx.x; i < R * DMAX; i += THREADS) {
        int row = i / DMAX, column = i % DMAX, pos = first + row;
        bool read = pos < num_pos && column < width;
        tile[row * (DMAX + 1) + column] = read ? widen(head[pos * step + column]) : 0;
    }
}

/* s[i][j] = row y + 16 i of a times row x + 16 j of b. */
template <int N, int DMAX>
static __device__ __forceinline__ void dots(float (&s)[N][N], const float *a, const float *b,
                                            int width)
{
    const float *row = a + threadIdx.x / SIDE * (DMAX + 1);
    const float *column = b + threadIdx.x % SIDE * (DMAX + 1);
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
            s[i][j] = 0;
#pragma unroll 4
    for (int d = 0; d < width; d++) {
        float left[N], right[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            left[i] = row[i * SIDE * (DMAX + 1) + d];
            right[i] = column[i * SIDE * (DMAX + 1) + d];
        }
#pragma unroll
        for (int i = 0; i < N; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                s[i][j] = fmaf(left[i], right[j], s[i][j]);
    }
}

/* c[i][d] += sum over r of weight(r, y + 16 i) tile[r][x + 16 d]; weights lie with rows R + 1
 * apart: [r][row], or [row][r] where ROWS_FIRST. */
template <bool ROWS_FIRST, int R, int DMAX>
static __device__ __forceinline__ void add_rows(float (&c)[R / SIDE][DMAX / SIDE],
                                                const float *weight, const float *tile)
{
    const float *from = tile + threadIdx.x % SIDE;
    int y = threadIdx.x / SIDE;
#pragma unroll 2
    for (int r = 0; r < R; r++) {
        float w[R / SIDE];
#pragma unroll
        for (int i = 0; i < R / SIDE; i++)
            w[i] = ROWS_FIRST ? weight[(y + i * SIDE) * (R + 1) + r]
                              : weight[r * (R + 1) + y + i * SIDE];
#pragma unroll
        for (int d = 0; d < DMAX / SIDE; d++) {
            float x = from[r * (DMAX + 1) + d * SIDE];
#pragma unroll
            for (int i = 0; i < R / SIDE; i++)
                c[i][d] = fmaf(w[i], x, c[i][d]);
        }
    }
}

template <typename T, int R, int DMAX>
static __device__ __forceinline__ void
store_tile(T *head, int64_t step, int first, int num_pos, int width,
           const float (&c)[R / SIDE][DMAX / SIDE], const float (&factor)[R / SIDE])
{
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int pos = first + (int)threadIdx.x / SIDE + i * SIDE;
#pragma unroll
        for (int d = 0; d < DMAX / SIDE; d++) {
            int column = (int)threadIdx.x % SIDE + d * SIDE;
            if (pos < num_pos && column < width)
                head[pos * step + column] = narrow<T>(c[i][d] * factor[i]);
        }
    }
}

template <int N, int C> static __device__ __forceinline__ void clear(float (&c)[N][C])
{
#pragma unroll
    for (int i = 0; i < N; i++)
#pragma unroll
        for (int d = 0; d < C; d++)
            c[i][d] = 0;
}

/* Query i sees key j. Positions past the end see nothing and are not seen. */
static __device__ __forceinline__ bool sees(const tri_attention_call &a, const int32_t *docs, int i,
                                            int j)
{
    if (i >= a.num_pos || !tri_within(tri_keys_of(a, i), j))
        return false;
    return !docs || (docs[i] >= 0 && docs[i] == docs[j]);
}

/* The largest, or the sum, over the 16 threads of a row. */
static __device__ __forceinline__ float row_max(float x)
{
#pragma unroll
    for (int step = SIDE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

static __device__ __forceinline__ float row_sum(float x)
{
#pragma unroll
    for (int step = SIDE / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* --- Forward -------------------------------------------------------------------------------- */

/* Writes this thread's probabilities, to be multiplied with the values, and scales what has been
 * summed to the new largest score. i0, j0: the piece's first query and key. */
template <int R, int DMAX>
static __device__ __forceinline__ void
softmax(const tri_attention_call &a, const int32_t *docs, uint64_t first, int i0, int j0,
        float (&s)[R / SIDE][R / SIDE], float (&o)[R / SIDE][DMAX / SIDE],
        float (&largest)[R / SIDE], float (&sum)[R / SIDE], float *p)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int query = i0 + y + i * SIDE;
        float top = largest[i];
#pragma unroll
        for (int j = 0; j < R / SIDE; j++) {
            bool seen = sees(a, docs, query, j0 + x + j * SIDE);
            s[i][j] = seen ? s[i][j] * a.alpha2 : -INFINITY;
            top = fmaxf(top, s[i][j]);
        }
        top = row_max(top);
        float base = top == -INFINITY ? 0 : top, scale = exp2f(largest[i] - base);
        largest[i] = top;
        sum[i] *= scale;
#pragma unroll
        for (int d = 0; d < DMAX / SIDE; d++)
            o[i][d] *= scale;
#pragma unroll
        for (int j = 0; j < R / SIDE; j++) {
            int key = j0 + x + j * SIDE;
            float weight = exp2f(s[i][j] - base);
            sum[i] += weight;
            if (a.dropout > 0 && weight > 0 &&
                !tri_keep(a, first + (uint64_t)query * (uint32_t)a.num_pos + key,
                          (uint32_t)a.step[0]))
                weight = 0;
            p[(y + i * SIDE) * (R + 1) + x + j * SIDE] = weight;
        }
    }
}

template <typename T, int R, int DMAX>
static __global__ void __launch_bounds__(THREADS)
    forward(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ float floats[];
    float *q = floats, *kv = q + R * (DMAX + 1), *p = kv + R * (DMAX + 1);
    int tiles = (a.num_pos + R - 1) / R, i0 = (tiles - 1 - (int)blockIdx.x % tiles) * R;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int64_t key_start = tri_k_start(a, b, h / a.group);
    const int32_t *docs = a.docs ? a.docs + (int64_t)b * a.num_pos : nullptr;
    uint64_t first = a.dropout > 0 ? tri_first_index(a, b, h) : 0;
    float o[R / SIDE][DMAX / SIDE], largest[R / SIDE], sum[R / SIDE];
    clear(o);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        largest[i] = -INFINITY;
        sum[i] = 0;
    }
    load_tile<T, R, DMAX>(q, (const T *)a.q + tri_q_start(a, b, h), a.q_step, i0, a.num_pos,
                          a.width);
    int begin, end;
    tri_key_tiles(a, i0, R, R, &begin, &end);
    for (int tile = begin; tile < end; tile++) {
        float s[R / SIDE][R / SIDE];
        __syncthreads(); /* the last piece has been used */
        load_tile<T, R, DMAX>(kv, (const T *)a.k + key_start, a.k_step, tile * R, a.num_pos,
                              a.width);
        __syncthreads();
        dots<R / SIDE, DMAX>(s, q, kv, a.width);
        softmax<R, DMAX>(a, docs, first, i0, tile * R, s, o, largest, sum, p);
        __syncthreads();
        load_tile<T, R, DMAX>(kv, (const T *)a.v + key_start, a.k_step, tile * R, a.num_pos,
                              a.width);
        __syncthreads();
        add_rows<true, R, DMAX>(o, p, kv);
    }
    float *lse = a.lse + ((int64_t)b * a.heads + h) * a.num_pos;
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int query = i0 + (int)threadIdx.x / SIDE + i * SIDE;
        float total = row_sum(sum[i]);
        sum[i] = total > 0 ? a.keep_scale / total : 0;
        if (threadIdx.x % SIDE == 0 && query < a.num_pos)
            lse[query] = total > 0 ? largest[i] * TRI_LN_2 + logf(total) : -INFINITY;
    }
    store_tile<T, R, DMAX>((T *)a.out + tri_o_start(a, b, h), a.o_step, i0, a.num_pos, a.width, o,
                           sum);
}

/* --- Backward ------------------------------------------------------------------------------- */

/* From the pieces of q, do, k, v: p (times its mask) and ds, into shared memory [query][key]. */
template <int R, int DMAX>
static __device__ __forceinline__ void
scores_grad(const tri_attention_call &a, int b, int h, int i0, int j0, const float *q,
            const float *dout, const float *k, const float *v, float *p, float *ds)
{
    const int32_t *docs = a.docs ? a.docs + (int64_t)b * a.num_pos : nullptr;
    int64_t row = ((int64_t)b * a.heads + h) * a.num_pos;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    float s[R / SIDE][R / SIDE], dp[R / SIDE][R / SIDE];
    dots<R / SIDE, DMAX>(s, q, k, a.width);
    dots<R / SIDE, DMAX>(dp, dout, v, a.width);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int query = i0 + y + i * SIDE;
        float lse2 = query < a.num_pos ? a.lse2[row + query] : 0;
        float delta = query < a.num_pos ? a.delta[row + query] : 0;
#pragma unroll
        for (int j = 0; j < R / SIDE; j++) {
            int key = j0 + x + j * SIDE, at = (y + i * SIDE) * (R + 1) + x + j * SIDE;
            float weight = 0, mask = 1;
            if (sees(a, docs, query, key)) {
                weight = exp2f(fmaf(s[i][j], a.alpha2, -lse2));
                if (a.dropout > 0)
                    mask = tri_keep(a,
                                    tri_first_index(a, b, h) +
                                        (uint64_t)query * (uint32_t)a.num_pos + key,
                                    (uint32_t)a.step[0])
                               ? a.keep_scale
                               : 0;
            }
            if (p)
                p[at] = weight * mask;
            ds[at] = weight * (mask * dp[i][j] - delta);
        }
    }
}

/* Shared memory of both: q, do, k, v, p, ds. */
template <int R, int DMAX> struct grad_layout {
    enum { TILE = R * (DMAX + 1), SCORES = R * (R + 1), FLOATS = 4 * TILE + 2 * SCORES };
};

template <typename T, int R, int DMAX>
static __global__ void __launch_bounds__(THREADS)
    key_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ float floats[];
    typedef grad_layout<R, DMAX> at;
    float *q = floats, *dout = q + at::TILE, *k = dout + at::TILE, *v = k + at::TILE;
    float *p = v + at::TILE, *ds = p + at::SCORES;
    int tiles = (a.num_pos + R - 1) / R, j0 = (int)blockIdx.x % tiles * R;
    int g = (int)blockIdx.x / tiles % a.key_heads, b = (int)blockIdx.x / tiles / a.key_heads;
    int64_t start = tri_k_start(a, b, g);
    float dk[R / SIDE][DMAX / SIDE], dv[R / SIDE][DMAX / SIDE], scale[R / SIDE], one[R / SIDE];
    clear(dk);
    clear(dv);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        scale[i] = a.alpha;
        one[i] = 1;
    }
    load_tile<T, R, DMAX>(k, (const T *)a.k + start, a.k_step, j0, a.num_pos, a.width);
    load_tile<T, R, DMAX>(v, (const T *)a.v + start, a.k_step, j0, a.num_pos, a.width);
    int begin, end;
    tri_query_tiles(a, j0, R, R, &begin, &end);
    for (int h = g * a.group; h < (g + 1) * a.group; h++) {
        for (int tile = begin; tile < end; tile++) {
            __syncthreads(); /* the last piece has been used */
            load_tile<T, R, DMAX>(q, (const T *)a.q + tri_q_start(a, b, h), a.q_step, tile * R,
                                  a.num_pos, a.width);
            load_tile<T, R, DMAX>(dout, (const T *)a.dout + tri_o_start(a, b, h), a.o_step,
                                  tile * R, a.num_pos, a.width);
            __syncthreads();
            scores_grad<R, DMAX>(a, b, h, tile * R, j0, q, dout, k, v, p, ds);
            __syncthreads();
            add_rows<false, R, DMAX>(dv, p, dout);
            add_rows<false, R, DMAX>(dk, ds, q);
        }
    }
    store_tile<T, R, DMAX>((T *)a.dk + start, a.k_step, j0, a.num_pos, a.width, dk, scale);
    store_tile<T, R, DMAX>((T *)a.dv + start, a.k_step, j0, a.num_pos, a.width, dv, one);
}

template <typename T, int R, int DMAX>
static __global__ void __launch_bounds__(THREADS)
    query_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ float floats[];
    typedef grad_layout<R, DMAX> at;
    float *q = floats, *dout = q + at::TILE, *k = dout + at::TILE, *v = k + at::TILE;
    float *ds = v + at::TILE;
    int tiles = (a.num_pos + R - 1) / R, i0 = (tiles - 1 - (int)blockIdx.x % tiles) * R;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int64_t start = tri_k_start(a, b, h / a.group);
    float dq[R / SIDE][DMAX / SIDE], scale[R / SIDE];
    clear(dq);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++)
        scale[i] = a.alpha;
    load_tile<T, R, DMAX>(q, (const T *)a.q + tri_q_start(a, b, h), a.q_step, i0, a.num_pos,
                          a.width);
    load_tile<T, R, DMAX>(dout, (const T *)a.dout + tri_o_start(a, b, h), a.o_step, i0, a.num_pos,
                          a.width);
    int begin, end;
    tri_key_tiles(a, i0, R, R, &begin, &end);
    for (int tile = begin; tile < end; tile++) {
        __syncthreads(); /* the last piece has been used */
        load_tile<T, R, DMAX>(k, (const T *)a.k + start, a.k_step, tile * R, a.num_pos, a.width);
        load_tile<T, R, DMAX>(v, (const T *)a.v + start, a.k_step, tile * R, a.num_pos, a.width);
        __syncthreads();
        scores_grad<R, DMAX>(a, b, h, i0, tile * R, q, dout, k, v, nullptr, ds);
        __syncthreads();
        add_rows<true, R, DMAX>(dq, ds, k);
    }
    store_tile<T, R, DMAX>((T *)a.dq + tri_q_start(a, b, h), a.q_step, i0, a.num_pos, a.width, dq,
                           scale);
}

/* --- Launch --------------------------------------------------------------------------------- */

template <typename T, int R, int DMAX>
static void launch_forward(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t blocks = (int64_t)a->num_batch * a->heads * tri_tiles(a->num_pos, R);
    size_t bytes = (2 * R * (DMAX + 1) + R * (R + 1)) * sizeof(float);
    tri_attention_launch(forward<T, R, DMAX>, blocks, THREADS, bytes, stream, a);
}

template <typename T, int R, int DMAX>
static void launch_grad(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t tiles = (int64_t)a->num_batch * tri_tiles(a->num_pos, R);
    size_t bytes = grad_layout<R, DMAX>::FLOATS * sizeof(float);
    tri_attention_launch(key_grad<T, R, DMAX>, tiles * a->key_heads, THREADS, bytes, stream, a);
    tri_attention_launch(query_grad<T, R, DMAX>, tiles * a->heads, THREADS, bytes, stream, a);
}

template <typename T> static void forward_of(const tri_attention_call *a, cudaStream_t stream)
{
    if (a->width <= 64)
        launch_forward<T, 64, 64>(a, stream);
    else if (a->width <= 128)
        launch_forward<T, 32, 128>(a, stream);
    else
        launch_forward<T, 16, 256>(a, stream);
}

template <typename T> static void grad_of(const tri_attention_call *a, cudaStream_t stream)
{
    if (a->width <= 64)
        launch_grad<T, 64, 64>(a, stream);
    else if (a->width <= 128)
        launch_grad<T, 32, 128>(a, stream);
    else
        launch_grad<T, 16, 256>(a, stream);
}

void tri_attention_any_forward(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream)
{
    by_type(dtype, [&](auto zero) { forward_of<decltype(zero)>(a, stream); });
}

void tri_attention_any_grad(const tri_attention_call *a, tri_dtype dtype, cudaStream_t stream)
{
    by_type(dtype, [&](auto zero) { grad_of<decltype(zero)>(a, stream); });
}
