/* Attention for every type, head sizes up to 256 and every mask, in f32 arithmetic; and over a
 * cache.
 *
 * A block of 16 x 16 threads works on pieces of R x R scores. Thread (y, x) has the rows
 * y, y + 16, ... and the columns x, x + 16, ... of a piece, and of the results, whose columns are
 * those of the head. Operands lie in shared memory as f32, rows an odd number of words apart, so
 * that 16 rows of one column are in different banks; columns past the head's width are zeros.
 * Probabilities go through shared memory, because a thread needs those of a whole row.
 *
 * R is what fits: 64 for heads up to 64, 32 up to 128, 16 up to 256. Over a cache it is 16 for all,
 * since there are few queries; and so the bits of a query do not depend on how many there are. */
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

/* The places that a query sees, from first to end - 1; and its document, if there are any. */
struct view {
    int first, end, doc;
};

/* A query past the end sees nothing. */
static __device__ __forceinline__ view view_of(const tri_attention_call &a, int b, int i)
{
    if (i >= a.num_queries)
        return {0, 0, 0};
    if (a.mode == TRI_PLAIN) {
        tri_span keys = tri_keys_of(a, i);
        return {keys.first, keys.first + keys.num, 0};
    }
    int64_t at = (int64_t)b * a.num_queries + i;
    int2 own = a.intervals[at];
    return {own.x, own.y, a.docs ? a.docs[at] : 0};
}

/* A key past the end is not seen. In a cache an interval may go on from the ring's end at its
 * start.
 */
static __device__ __forceinline__ bool sees(const tri_attention_call &a, int b, const view &query,
                                            int j)
{
    if (j >= a.num_keys)
        return false;
    int place = a.mode == TRI_PLAIN ? j : tri_key_place(a, b, j);
    bool within = place >= query.first && place < query.end;
    if (a.ring > 0)
        within = within || place < query.end - a.ring;
    return within && (!a.docs || a.docs[(int64_t)b * a.num_keys + j] == query.doc);
}

/* In a plain call the tiles from begin to end - 1 are looked at; otherwise those of them that meet.
 */
template <int R>
static __device__ __forceinline__ void key_tiles(const tri_attention_call &a, int i0, int *begin,
                                                 int *end)
{
    *begin = 0;
    *end = (a.num_keys + R - 1) / R;
    if (a.mode == TRI_PLAIN)
        tri_key_tiles(a, i0, R, R, begin, end);
}

template <int R>
static __device__ __forceinline__ bool meet(const tri_attention_call &a, int b, int i0, int j0)
{
    return a.mode == TRI_PLAIN || tri_tiles_meet(a, b, i0, R, j0, R);
}

/* The row of k and v that belongs to a row of the batch. */
static __device__ __forceinline__ int key_row(const tri_attention_call &a, int b)
{
    return a.ring > 0 ? a.rows[b] : b;
}

/* What dropout makes of a probability, but for the scale of all. */
static __device__ __forceinline__ bool keeps(const tri_attention_call &a, int b, uint64_t first,
                                             int query, int key)
{
    uint64_t row = tri_row_index(a, first, tri_query_place(a, b, query));
    return tri_keep(a, row + tri_key_place(a, b, key), (uint32_t)a.step[0]);
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
softmax(const tri_attention_call &a, int b, uint64_t first, int i0, int j0,
        float (&s)[R / SIDE][R / SIDE], float (&o)[R / SIDE][DMAX / SIDE],
        float (&largest)[R / SIDE], float (&sum)[R / SIDE], float *p)
{
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int query = i0 + y + i * SIDE;
        view own = view_of(a, b, query);
        float top = largest[i];
#pragma unroll
        for (int j = 0; j < R / SIDE; j++) {
            bool seen = sees(a, b, own, j0 + x + j * SIDE);
            float score =
                a.cap_out > 0 ? a.cap_out * tanhf(s[i][j] * a.cap_in) : s[i][j] * a.alpha2;
            s[i][j] = seen ? score : -INFINITY;
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
            float weight = exp2f(s[i][j] - base);
            sum[i] += weight;
            if (a.dropout > 0 && weight > 0 && !keeps(a, b, first, query, j0 + x + j * SIDE))
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
    int tiles = (a.num_queries + R - 1) / R, i0 = (tiles - 1 - (int)blockIdx.x % tiles) * R;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    const T *k = (const T *)a.k + tri_start(a.k_lay, key_row(a, b), h / a.group);
    const T *v = (const T *)a.v + tri_start(a.v_lay, key_row(a, b), h / a.group);
    uint64_t first = a.dropout > 0 ? tri_first_index(a, b, h) : 0;
    float o[R / SIDE][DMAX / SIDE], largest[R / SIDE], sum[R / SIDE];
    clear(o);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        largest[i] = -INFINITY;
        sum[i] = 0;
    }
    load_tile<T, R, DMAX>(q, (const T *)a.q + tri_start(a.q_lay, b, h), a.q_lay.step, i0,
                          a.num_queries, a.width);
    int begin, end;
    key_tiles<R>(a, i0, &begin, &end);
    for (int tile = begin; tile < end; tile++) {
        if (!meet<R>(a, b, i0, tile * R))
            continue;
        float s[R / SIDE][R / SIDE];
        __syncthreads(); /* the last piece has been used */
        load_tile<T, R, DMAX>(kv, k, a.k_lay.step, tile * R, a.num_keys, a.width);
        __syncthreads();
        dots<R / SIDE, DMAX>(s, q, kv, a.width);
        softmax<R, DMAX>(a, b, first, i0, tile * R, s, o, largest, sum, p);
        __syncthreads();
        load_tile<T, R, DMAX>(kv, v, a.v_lay.step, tile * R, a.num_keys, a.v_width);
        __syncthreads();
        add_rows<true, R, DMAX>(o, p, kv);
    }
    float *lse = a.lse + ((int64_t)b * a.heads + h) * a.num_queries;
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int query = i0 + (int)threadIdx.x / SIDE + i * SIDE;
        tri_row_end row = tri_end_row(a, h, largest[i], 1, TRI_LN_2, row_sum(sum[i]));
        sum[i] = row.factor;
        if (threadIdx.x % SIDE == 0 && query < a.num_queries)
            lse[query] = row.lse;
    }
    store_tile<T, R, DMAX>((T *)a.out + tri_start(a.o_lay, b, h), a.o_lay.step, i0, a.num_queries,
                           a.v_width, o, sum);
}

/* --- Backward ------------------------------------------------------------------------------- */

/* From the pieces of q, do, k, v: p (times its mask) and ds, into shared memory [query][key]. */
template <int R, int DMAX>
static __device__ __forceinline__ void
scores_grad(const tri_attention_call &a, int b, int h, int i0, int j0, const float *q,
            const float *dout, const float *k, const float *v, float *p, float *ds)
{
    int64_t row = ((int64_t)b * a.heads + h) * a.num_queries;
    uint64_t first = a.dropout > 0 ? tri_first_index(a, b, h) : 0;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    float s[R / SIDE][R / SIDE], dp[R / SIDE][R / SIDE];
    dots<R / SIDE, DMAX>(s, q, k, a.width);
    dots<R / SIDE, DMAX>(dp, dout, v, a.v_width);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        int query = i0 + y + i * SIDE;
        view own = view_of(a, b, query);
        float lse2 = query < a.num_queries ? a.lse2[row + query] : 0;
        float delta = query < a.num_queries ? a.delta[row + query] : 0;
#pragma unroll
        for (int j = 0; j < R / SIDE; j++) {
            int key = j0 + x + j * SIDE, at = (y + i * SIDE) * (R + 1) + x + j * SIDE;
            float weight = 0, mask = 1, slope = 1;
            if (sees(a, b, own, key)) {
                float t = a.cap_out > 0 ? tanhf(s[i][j] * a.cap_in) : 0;
                slope = 1 - t * t;
                weight = a.cap_out > 0 ? exp2f(fmaf(t, a.cap_out, -lse2))
                                       : exp2f(fmaf(s[i][j], a.alpha2, -lse2));
                if (a.dropout > 0)
                    mask = keeps(a, b, first, query, key) ? a.keep_scale : 0;
            }
            if (p)
                p[at] = weight * mask;
            ds[at] = weight * (mask * dp[i][j] - delta) * slope;
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
    int tiles = (a.num_keys + R - 1) / R, j0 = (int)blockIdx.x % tiles * R;
    int g = (int)blockIdx.x / tiles % a.key_heads, b = (int)blockIdx.x / tiles / a.key_heads;
    int64_t k_start = tri_start(a.k_lay, b, g), v_start = tri_start(a.v_lay, b, g);
    float dk[R / SIDE][DMAX / SIDE], dv[R / SIDE][DMAX / SIDE], scale[R / SIDE], one[R / SIDE];
    clear(dk);
    clear(dv);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++) {
        scale[i] = a.alpha;
        one[i] = 1;
    }
    load_tile<T, R, DMAX>(k, (const T *)a.k + k_start, a.k_lay.step, j0, a.num_keys, a.width);
    load_tile<T, R, DMAX>(v, (const T *)a.v + v_start, a.v_lay.step, j0, a.num_keys, a.v_width);
    int begin = 0, end = (a.num_queries + R - 1) / R;
    if (a.mode == TRI_PLAIN)
        tri_query_tiles(a, j0, R, R, &begin, &end);
    for (int h = g * a.group; h < (g + 1) * a.group; h++) {
        for (int tile = begin; tile < end; tile++) {
            if (!meet<R>(a, b, tile * R, j0))
                continue;
            __syncthreads(); /* the last piece has been used */
            load_tile<T, R, DMAX>(q, (const T *)a.q + tri_start(a.q_lay, b, h), a.q_lay.step,
                                  tile * R, a.num_queries, a.width);
            load_tile<T, R, DMAX>(dout, (const T *)a.dout + tri_start(a.o_lay, b, h), a.o_lay.step,
                                  tile * R, a.num_queries, a.v_width);
            __syncthreads();
            scores_grad<R, DMAX>(a, b, h, tile * R, j0, q, dout, k, v, p, ds);
            __syncthreads();
            add_rows<false, R, DMAX>(dv, p, dout);
            add_rows<false, R, DMAX>(dk, ds, q);
        }
    }
    store_tile<T, R, DMAX>((T *)a.dk + k_start, a.k_lay.step, j0, a.num_keys, a.width, dk, scale);
    store_tile<T, R, DMAX>((T *)a.dv + v_start, a.v_lay.step, j0, a.num_keys, a.v_width, dv, one);
}

template <typename T, int R, int DMAX>
static __global__ void __launch_bounds__(THREADS)
    query_grad(const __grid_constant__ tri_attention_call a)
{
    extern __shared__ float floats[];
    typedef grad_layout<R, DMAX> at;
    float *q = floats, *dout = q + at::TILE, *k = dout + at::TILE, *v = k + at::TILE;
    float *ds = v + at::TILE;
    int tiles = (a.num_queries + R - 1) / R, i0 = (tiles - 1 - (int)blockIdx.x % tiles) * R;
    int h = (int)blockIdx.x / tiles % a.heads, b = (int)blockIdx.x / tiles / a.heads;
    int64_t k_start = tri_start(a.k_lay, b, h / a.group);
    int64_t v_start = tri_start(a.v_lay, b, h / a.group);
    float dq[R / SIDE][DMAX / SIDE], scale[R / SIDE];
    clear(dq);
#pragma unroll
    for (int i = 0; i < R / SIDE; i++)
        scale[i] = a.alpha;
    load_tile<T, R, DMAX>(q, (const T *)a.q + tri_start(a.q_lay, b, h), a.q_lay.step, i0,
                          a.num_queries, a.width);
    load_tile<T, R, DMAX>(dout, (const T *)a.dout + tri_start(a.o_lay, b, h), a.o_lay.step, i0,
                          a.num_queries, a.v_width);
    int begin, end;
    key_tiles<R>(a, i0, &begin, &end);
    for (int tile = begin; tile < end; tile++) {
        if (!meet<R>(a, b, i0, tile * R))
            continue;
        __syncthreads(); /* the last piece has been used */
        load_tile<T, R, DMAX>(k, (const T *)a.k + k_start, a.k_lay.step, tile * R, a.num_keys,
                              a.width);
        load_tile<T, R, DMAX>(v, (const T *)a.v + v_start, a.v_lay.step, tile * R, a.num_keys,
                              a.v_width);
        __syncthreads();
        scores_grad<R, DMAX>(a, b, h, i0, tile * R, q, dout, k, v, nullptr, ds);
        __syncthreads();
        add_rows<true, R, DMAX>(dq, ds, k);
    }
    store_tile<T, R, DMAX>((T *)a.dq + tri_start(a.q_lay, b, h), a.q_lay.step, i0, a.num_queries,
                           a.width, dq, scale);
}

/* --- Launch --------------------------------------------------------------------------------- */

template <typename T, int R, int DMAX>
static void launch_forward(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t blocks = (int64_t)a->num_batch * a->heads * tri_tiles(a->num_queries, R);
    size_t bytes = (2 * R * (DMAX + 1) + R * (R + 1)) * sizeof(float);
    tri_attention_launch(forward<T, R, DMAX>, blocks, THREADS, bytes, stream, a);
}

template <typename T, int R, int DMAX>
static void launch_grad(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t key_blocks = (int64_t)a->num_batch * a->key_heads * tri_tiles(a->num_keys, R);
    int64_t query_blocks = (int64_t)a->num_batch * a->heads * tri_tiles(a->num_queries, R);
    size_t bytes = grad_layout<R, DMAX>::FLOATS * sizeof(float);
    tri_attention_launch(key_grad<T, R, DMAX>, key_blocks, THREADS, bytes, stream, a);
    tri_attention_launch(query_grad<T, R, DMAX>, query_blocks, THREADS, bytes, stream, a);
}

static int widest(const tri_attention_call *a)
{
    return a->width > a->v_width ? a->width : a->v_width;
}

template <typename T> static void forward_of(const tri_attention_call *a, cudaStream_t stream)
{
    if (widest(a) <= 64)
        a->ring > 0 ? launch_forward<T, 16, 64>(a, stream) : launch_forward<T, 64, 64>(a, stream);
    else if (widest(a) <= 128)
        a->ring > 0 ? launch_forward<T, 16, 128>(a, stream) : launch_forward<T, 32, 128>(a, stream);
    else
        launch_forward<T, 16, 256>(a, stream);
}

template <typename T> static void grad_of(const tri_attention_call *a, cudaStream_t stream)
{
    if (widest(a) <= 64)
        launch_grad<T, 64, 64>(a, stream);
    else if (widest(a) <= 128)
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
