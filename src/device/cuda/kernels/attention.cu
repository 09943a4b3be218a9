/* Attention on the GPU: reads the operands and chooses the kernels. Those of cuDNN are taken where
 * it has some (dnn.h), which is for the plain batch: causal or not, and nothing else; ours do the
 * rest.
 *
 * Our backward is deterministic without atomics: one kernel owns the keys and sums over queries (of
 * all heads that share them), another owns the queries and sums over keys. Both compute the scores
 * again, so there are seven products instead of the five of a single kernel that adds its shares
 * of dq with atomics; but no share of dq goes through memory, and nothing waits for its turn. */
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/kernels/attention.cuh"

#include "base/rng.h"

/* Inputs of the operator from `rows` on. In the plain batch there are only the first of them. */
enum { MORE_ROWS, MORE_STEP, MORE_DOCS, MORE_SPAN, MORE_Q_PLACES, MORE_K_PLACES, MORE_SINK };

/* Sizes alone decide what is there: scratch is asked for without data. */
static const tri_tensor &more_of(const tri_kernel_args *args, bool grad, int which)
{
    int first = grad ? (int)TRI_ATTENTION_GRAD_ROWS : (int)TRI_ATTENTION_ROWS;
    return args->in[first + which];
}

/* Sizes, and where things lie. */
static void read_shapes(tri_attention_call *a, const tri_tensor *in, bool cached)
{
    bool packed = in[0].rank == 5 && !cached;
    int rank = in[0].rank;
    a->num_batch = (int)in[0].size[0];
    a->num_queries = (int)in[0].size[1];
    a->heads = (int)in[0].size[rank - 2];
    a->width = (int)in[0].size[rank - 1];
    a->num_keys = packed ? a->num_queries : (int)in[1].size[cached ? 2 : 1];
    a->key_heads = packed ? a->heads : (int)in[1].size[cached ? 1 : 2];
    a->v_width = packed ? a->width : (int)in[2].size[3];
    a->group = a->key_heads > 0 ? a->heads / a->key_heads : 0;
    a->cache_rows = cached ? (int)in[1].size[0] : 0;
    a->ring = cached ? a->num_keys : 0;
    int64_t one = (int64_t)a->heads * a->width, q_step = rank == 5 ? 3 * one : one;
    int64_t k_step = packed ? q_step : (int64_t)a->key_heads * a->width;
    int64_t v_step = packed ? q_step : (int64_t)a->key_heads * a->v_width;
    int64_t o_step = (int64_t)a->heads * a->v_width;
    a->q_lay = {a->num_queries * q_step, a->width, q_step};
    a->o_lay = {a->num_queries * o_step, a->v_width, o_step};
    a->k_lay = {a->num_keys * k_step, a->width, k_step};
    a->v_lay = {a->num_keys * v_step, a->v_width, v_step};
    if (cached) { /* heads before places */
        a->k_lay = {a->num_keys * k_step, (int64_t)a->num_keys * a->width, a->width};
        a->v_lay = {a->num_keys * v_step, (int64_t)a->num_keys * a->v_width, a->v_width};
    }
    int64_t part = one * (int64_t)tri_dtype_bytes(in[0].dtype);
    a->q = in[0].data;
    a->k = packed ? (const char *)in[0].data + part : in[1].data;
    a->v = packed ? (const char *)in[0].data + 2 * part : in[2].data;
    a->head_origin = in[0].origin[rank - 2];
    a->head_global = in[0].global[rank - 2];
    a->query_global = in[0].global[1];
    a->key_global = packed ? a->query_global : in[1].global[cached ? 2 : 1];
}

static tri_attention_call read_operands(const tri_kernel_args *args, bool grad)
{
    const tri_attention_attr *attr = &args->attr->attention;
    tri_attention_call a = {};
    read_shapes(&a, args->in + grad, attr->cached);
    a.rows = (const int32_t *)more_of(args, grad, MORE_ROWS).data;
    a.step = (const int32_t *)more_of(args, grad, MORE_STEP).data;
    a.docs = (const int32_t *)more_of(args, grad, MORE_DOCS).data;
    a.span = (const int32_t *)more_of(args, grad, MORE_SPAN).data;
    a.q_places = (const int32_t *)more_of(args, grad, MORE_Q_PLACES).data;
    a.k_places = (const int32_t *)more_of(args, grad, MORE_K_PLACES).data;
    a.sink = (const float *)more_of(args, grad, MORE_SINK).data;
    bool has_q_places = more_of(args, grad, MORE_Q_PLACES).count > 0;
    a.alpha = attr->alpha;
    a.cap_in = attr->soft_cap > 0 ? attr->alpha / attr->soft_cap : 0;
    a.cap_out = attr->soft_cap > 0 ? attr->soft_cap * TRI_LOG2_E : 0;
    a.alpha2 = attr->soft_cap > 0 ? 1 : (float)((double)attr->alpha * 1.4426950408889634);
    a.lse_scale = attr->soft_cap > 0 ? TRI_LN_2 : attr->alpha;
    a.causal = attr->causal;
    a.window = has_q_places || attr->window < a.num_queries ? attr->window : 0; /* 0: all */
    a.dropout = attr->dropout > 0 ? attr->dropout : 0;
    a.keep_scale = (float)(1.0 / (1.0 - (double)a.dropout));
    a.threshold = tri_dropout_threshold(a.dropout);
    a.stream = attr->stream;
    a.seed = args->seed;
    bool places = has_q_places || attr->cached || more_of(args, grad, MORE_DOCS).count > 0 ||
                  more_of(args, grad, MORE_SPAN).count > 0 ||
                  more_of(args, grad, MORE_K_PLACES).count > 0;
    a.mode = a.dropout > 0 || attr->soft_cap > 0 ? TRI_EXTRA : places ? TRI_PLACES : TRI_PLAIN;
    return a;
}

/* Groups of this many positions, in whole tiles. */
static int groups_of(int num_pos)
{
    return tri_tiles(num_pos, TRI_GROUP * TRI_GROUPS_OF_TILE) * TRI_GROUPS_OF_TILE;
}

/* Gives intervals and bounds their place in the scratch from `at` on; returns the bytes. */
static size_t bind_places(tri_attention_call *a, const tri_tensor *docs, void *at)
{
    if (a->mode == TRI_PLAIN)
        return 0;
    a->q_groups = groups_of(a->num_queries);
    a->k_groups = groups_of(a->num_keys);
    size_t num_q = (size_t)a->num_batch * (size_t)a->q_groups;
    size_t num_k = (size_t)a->num_batch * (size_t)a->k_groups;
    size_t num_docs = docs->count > 0 ? num_k : 0;
    size_t num_queries = (size_t)a->num_batch * (size_t)a->num_queries;
    a->query_bounds = (int4 *)at;
    a->key_bounds = (int2 *)(a->query_bounds + num_q);
    a->doc_bounds = num_docs > 0 ? a->key_bounds + num_k : nullptr;
    a->intervals = a->key_bounds + num_k + num_docs;
    return num_q * sizeof(int4) + (num_k + num_docs + num_queries) * sizeof(int2);
}

/* Copies of 16 bytes need their alignment; a scale that is not positive would turn the order of
 * the scores, which the tensor-core kernels take before they scale. */
static bool suits_mma(const tri_attention_call *a, tri_dtype dtype)
{
    uintptr_t address = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->o |
                        (uintptr_t)a->dout | (uintptr_t)a->out | (uintptr_t)a->dq |
                        (uintptr_t)a->dk | (uintptr_t)a->dv;
    return (dtype == TRI_BF16 || dtype == TRI_F16) && (a->width == 64 || a->width == 128) &&
           a->v_width == a->width && a->ring == 0 && a->alpha > 0 && address % 16 == 0;
}

/* The same call for cuDNN; its dtype is f32, which cuDNN does not take, when it is more than the
 * plain batch. */
static tri_cuda_sdpa sdpa_of(const tri_attention_call *a, const tri_kernel_args *args, bool grad)
{
    tri_dtype dtype = args->in[grad].dtype;
    const tri_cuda *device = (const tri_cuda *)args->device;
    tri_cuda_sdpa c = {};
    bool plain = a->mode == TRI_PLAIN && a->window == 0 && a->num_queries == a->num_keys &&
                 a->width == a->v_width && more_of(args, grad, MORE_SINK).count == 0;
    c.grad = grad;
    c.causal = a->causal;
    c.any_order = device && device->any_order;
    c.dtype = plain ? dtype : TRI_F32;
    c.num_batch = a->num_batch;
    c.num_pos = a->num_queries;
    c.heads = a->heads;
    c.key_heads = a->key_heads;
    c.width = a->width;
    c.q_step = a->q_lay.step;
    c.k_step = a->k_lay.step;
    c.o_step = a->o_lay.step;
    c.alpha = a->alpha;
    c.q = a->q;
    c.k = a->k;
    c.v = a->v;
    c.lse = a->lse;
    c.o = grad ? (void *)a->o : a->out;
    c.dout = a->dout;
    c.dq = a->dq;
    c.dk = a->dk;
    c.dv = a->dv;
    return c;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Intervals and bounds, or what cuDNN wants. */
static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    tri_attention_call a = read_operands(args, false);
    tri_cuda_sdpa call = sdpa_of(&a, args, false);
    return larger(tri_cuda_dnn_scratch(&call),
                  bind_places(&a, &more_of(args, false, MORE_DOCS), nullptr));
}

static void attention(const tri_kernel_args *args)
{
    tri_attention_call a = read_operands(args, false);
    tri_cuda *cuda = (tri_cuda *)args->device;
    cudaStream_t stream = (cudaStream_t)cuda->stream;
    tri_dtype dtype = args->in[0].dtype;
    a.out = args->out[0].data;
    a.lse = (float *)args->out[1].data;
    if (args->out[0].count == 0)
        return;
    tri_cuda_sdpa call = sdpa_of(&a, args, false);
    if (tri_cuda_dnn_attention(cuda, &call))
        return;
    if (bind_places(&a, &more_of(args, false, MORE_DOCS), cuda->scratch) > 0)
        tri_attention_places(&a, stream);
    if (suits_mma(&a, dtype))
        tri_attention_mma_forward(&a, dtype, stream);
    else
        tri_attention_any_forward(&a, dtype, stream);
}

/* The gradient's scratch grows with the batch, to gigabytes: more than it uses at a time, and more
 * than activations have left free when the backward comes to the last layer. So the batch is cut
 * into equal pieces, by shape alone, until a piece needs no more than this. */
constexpr size_t PIECE_BYTES = (size_t)5 << 29; /* 2.5 GiB */

static tri_cuda_sdpa piece_of(tri_cuda_sdpa call)
{
    int64_t batch = call.num_batch, pieces = 1;
    for (; pieces < batch; call.num_batch = batch / pieces) {
        size_t bytes = tri_cuda_dnn_scratch(&call); /* 0 for too much, among others */
        if (bytes > 0 && bytes <= PIECE_BYTES)
            break;
        do
            pieces++;
        while (batch % pieces != 0);
    }
    return call;
}

/* Moves on to the next piece. */
static void advance(tri_cuda_sdpa *c)
{
    int64_t rows = c->num_batch * c->num_pos, bytes = (int64_t)tri_dtype_bytes(c->dtype);
    int64_t q = rows * c->q_step * bytes, k = rows * c->k_step * bytes,
            o = rows * c->o_step * bytes;
    c->q = (const char *)c->q + q;
    c->k = (const char *)c->k + k;
    c->v = (const char *)c->v + k;
    c->o = (char *)c->o + o;
    c->lse = (float *)c->lse + rows * c->heads;
    c->dout = (const char *)c->dout + o;
    c->dq = (char *)c->dq + q;
    c->dk = (char *)c->dk + k;
    c->dv = (char *)c->dv + k;
}

/* False where cuDNN has nothing for it; what was written by then will be written again. */
static bool dnn_gradient(tri_cuda *cuda, const tri_cuda_sdpa *call)
{
    tri_cuda_sdpa piece = piece_of(*call);
    for (int64_t b = 0; b < call->num_batch; b += piece.num_batch, advance(&piece))
        if (!tri_cuda_dnn_attention(cuda, &piece))
            return false;
    return true;
}

/* Where our kernels have lse2 and delta in the scratch, then intervals and bounds; the bytes. */
static size_t bind_scratch(tri_attention_call *a, const tri_kernel_args *args, void *at)
{
    size_t rows = (size_t)args->in[TRI_ATTENTION_GRAD_LSE].count;
    size_t stats = (2 * rows * sizeof(float) + 15) / 16 * 16;
    a->lse2 = (float *)at;
    a->delta = a->lse2 + rows;
    return stats + bind_places(a, &more_of(args, true, MORE_DOCS), (char *)at + stats);
}

static size_t attention_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    tri_attention_call a = read_operands(args, true);
    tri_cuda_sdpa call = piece_of(sdpa_of(&a, args, true));
    return larger(tri_cuda_dnn_scratch(&call), bind_scratch(&a, args, nullptr));
}

static void attention_grad(const tri_kernel_args *args)
{
    tri_attention_call a = read_operands(args, true);
    tri_cuda *cuda = (tri_cuda *)args->device;
    cudaStream_t stream = (cudaStream_t)cuda->stream;
    tri_dtype dtype = args->in[TRI_ATTENTION_GRAD_Q].dtype;
    bool packed = args->in[TRI_ATTENTION_GRAD_Q].rank == 5;
    int64_t part = (int64_t)a.heads * a.width * (int64_t)tri_dtype_bytes(dtype);
    a.dout = args->in[TRI_ATTENTION_GRAD_DO].data;
    a.o = args->in[TRI_ATTENTION_GRAD_O].data;
    a.lse = (float *)args->in[TRI_ATTENTION_GRAD_LSE].data;
    a.dq = args->out[0].data;
    a.dk = packed ? (char *)a.dq + part : args->out[1].data;
    a.dv = packed ? (char *)a.dq + 2 * part : args->out[2].data;
    if (a.sink)
        a.dsink = (float *)args->out[args->num_out - 1].data;
    if (args->out[0].count == 0)
        return;
    tri_cuda_sdpa call = sdpa_of(&a, args, true);
    if (dnn_gradient(cuda, &call))
        return;
    bind_scratch(&a, args, cuda->scratch);
    if (a.mode != TRI_PLAIN)
        tri_attention_places(&a, stream);
    tri_attention_stats(&a, dtype, stream);
    if (suits_mma(&a, dtype))
        tri_attention_mma_grad(&a, dtype, stream);
    else
        tri_attention_any_grad(&a, dtype, stream);
}

bool tri_cuda_attention_takes(tri_op op, const tri_kernel_args *args)
{
    bool grad = op == TRI_OP_ATTENTION_GRAD;
    tri_cuda *cuda = (tri_cuda *)args->device;
    tri_attention_call a = read_operands(args, grad);
    if (cuda && cuda->dnn) { /* its plan is better made now than while a step is recorded */
        tri_cuda_sdpa call = sdpa_of(&a, args, grad);
        call = grad ? piece_of(call) : call;
        tri_cuda_dnn_plan(cuda->dnn, &call);
    }
    return a.width <= TRI_ATTENTION_MAX_WIDTH && a.v_width <= TRI_ATTENTION_MAX_WIDTH;
}

const tri_kernel tri_cuda_attention = {attention, attention_scratch, nullptr};
const tri_kernel tri_cuda_attention_grad = {attention_grad, attention_grad_scratch, nullptr};
