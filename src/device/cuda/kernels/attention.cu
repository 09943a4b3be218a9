/* Attention on the GPU: reads the operands and chooses the kernels. Those of cuDNN are taken where
 * it has some (dnn.h), which is without dropout, documents and windows; ours do the rest.
 *
 * Our backward is deterministic without atomics: one kernel owns the keys and sums over queries (of
 * all heads that share them), another owns the queries and sums over keys. Both compute the scores
 * again, so there are seven products instead of the five of a single kernel that adds its shares
 * of dq with atomics; but no share of dq goes through memory, and nothing waits for its turn. */
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/kernels/attention.cuh"

#include "base/rng.h"

/* in: q, k, v of the operator; more: rows, step, docs. */
static tri_attention_call read_operands(const tri_kernel_args *args, const tri_tensor *in,
                                        const tri_tensor *more)
{
    const tri_attention_attr *attr = &args->attr->attention;
    bool packed = in[0].rank == 5;
    int rank = in[0].rank;
    tri_attention_call a = {};
    a.num_batch = (int)in[0].size[0];
    a.num_pos = (int)in[0].size[1];
    a.heads = (int)in[0].size[rank - 2];
    a.key_heads = packed ? a.heads : (int)in[1].size[2];
    a.width = (int)in[0].size[rank - 1];
    a.group = a.key_heads > 0 ? a.heads / a.key_heads : 0;
    a.o_step = (int64_t)a.heads * a.width;
    a.q_step = packed ? 3 * a.o_step : a.o_step;
    a.k_step = packed ? a.q_step : (int64_t)a.key_heads * a.width;
    int64_t part = a.o_step * (int64_t)tri_dtype_bytes(in[0].dtype);
    a.q = in[0].data;
    a.k = packed ? (const char *)in[0].data + part : in[1].data;
    a.v = packed ? (const char *)in[0].data + 2 * part : in[2].data;
    a.rows = (const int32_t *)more[0].data;
    a.step = (const int32_t *)more[1].data;
    a.docs = (const int32_t *)more[2].data;
    a.alpha = attr->alpha;
    a.alpha2 = (float)((double)attr->alpha * 1.4426950408889634);
    a.causal = attr->causal;
    a.window = attr->window < a.num_pos ? attr->window : 0; /* all of them */
    a.dropout = attr->dropout > 0 ? attr->dropout : 0;
    a.keep_scale = (float)(1.0 / (1.0 - (double)a.dropout));
    a.threshold = tri_dropout_threshold(a.dropout);
    a.stream = attr->stream;
    a.seed = args->seed;
    a.head_origin = in[0].origin[rank - 2];
    a.head_global = in[0].global[rank - 2];
    return a;
}

/* Copies of 16 bytes need their alignment; a scale that is not positive would turn the order of
 * the scores, which the tensor-core kernels take before they scale. */
static bool suits_mma(const tri_attention_call *a, tri_dtype dtype)
{
    uintptr_t address = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->o |
                        (uintptr_t)a->dout | (uintptr_t)a->out | (uintptr_t)a->dq |
                        (uintptr_t)a->dk | (uintptr_t)a->dv;
    return (dtype == TRI_BF16 || dtype == TRI_F16) && (a->width == 64 || a->width == 128) &&
           a->alpha > 0 && address % 16 == 0;
}

/* The same call for cuDNN; its dtype is f32, which cuDNN does not take, when a mask is in the way.
 */
static tri_cuda_sdpa sdpa_of(const tri_attention_call *a, const tri_kernel_args *args, bool grad)
{
    tri_dtype dtype = args->in[grad].dtype;
    const tri_cuda *device = (const tri_cuda *)args->device;
    tri_cuda_sdpa c = {};
    bool with_docs = args->in[grad ? 8 : 5].count > 0;
    bool plain = !with_docs && a->window == 0 && a->dropout == 0;
    c.grad = grad;
    c.causal = a->causal;
    c.any_order = device && device->any_order;
    c.dtype = plain ? dtype : TRI_F32;
    c.num_batch = a->num_batch;
    c.num_pos = a->num_pos;
    c.heads = a->heads;
    c.key_heads = a->key_heads;
    c.width = a->width;
    c.q_step = a->q_step;
    c.k_step = a->k_step;
    c.o_step = a->o_step;
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

static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    tri_attention_call a = read_operands(args, args->in, args->in + 3);
    tri_cuda_sdpa call = sdpa_of(&a, args, false);
    return tri_cuda_dnn_scratch(&call);
}

static void attention(const tri_kernel_args *args)
{
    tri_attention_call a = read_operands(args, args->in, args->in + 3);
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

/* lse2 and delta, or what cuDNN wants. */
static size_t attention_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    tri_attention_call a = read_operands(args, args->in + 1, args->in + 6);
    tri_cuda_sdpa call = piece_of(sdpa_of(&a, args, true));
    size_t theirs = tri_cuda_dnn_scratch(&call);
    size_t ours = 2 * (size_t)args->in[5].count * sizeof(float);
    return theirs > ours ? theirs : ours;
}

static void attention_grad(const tri_kernel_args *args)
{
    tri_attention_call a = read_operands(args, args->in + 1, args->in + 6);
    tri_cuda *cuda = (tri_cuda *)args->device;
    cudaStream_t stream = (cudaStream_t)cuda->stream;
    tri_dtype dtype = args->in[1].dtype;
    bool packed = args->num_out == 1;
    int64_t part = a.o_step * (int64_t)tri_dtype_bytes(dtype);
    a.dout = args->in[0].data;
    a.o = args->in[4].data;
    a.lse = (float *)args->in[5].data;
    a.lse2 = (float *)cuda->scratch;
    a.delta = a.lse2 + args->in[5].count;
    a.dq = args->out[0].data;
    a.dk = packed ? (char *)a.dq + part : args->out[1].data;
    a.dv = packed ? (char *)a.dq + 2 * part : args->out[2].data;
    if (args->out[0].count == 0)
        return;
    tri_cuda_sdpa call = sdpa_of(&a, args, true);
    if (dnn_gradient(cuda, &call))
        return;
    tri_attention_stats(&a, dtype, stream);
    if (suits_mma(&a, dtype))
        tri_attention_mma_grad(&a, dtype, stream);
    else
        tri_attention_any_grad(&a, dtype, stream);
}

/* Attention by places, to keys of another number or width, runs on the host. */
static bool is_plain(const tri_kernel_args *args, bool grad)
{
    const tri_tensor *in = args->in + grad;
    bool extra = args->attr->attention.soft_cap > 0 || args->attr->attention.cached;
    for (int j = TRI_ATTENTION_SPAN; j <= TRI_ATTENTION_SINK; j++)
        extra |= args->in[grad ? j + 3 : j].count > 0;
    return !extra &&
           (in[1].count == 0 || (in[1].size[1] == in[0].size[1] && in[2].size[3] == in[1].size[3]));
}

bool tri_cuda_attention_takes(tri_op op, const tri_kernel_args *args)
{
    bool grad = op == TRI_OP_ATTENTION_GRAD;
    tri_cuda *cuda = (tri_cuda *)args->device;
    if (!is_plain(args, grad))
        return false;
    tri_attention_call a = read_operands(args, args->in + grad, args->in + (grad ? 6 : 3));
    if (cuda && cuda->dnn) { /* its plan is better made now than while a step is recorded */
        tri_cuda_sdpa call = sdpa_of(&a, args, grad);
        call = grad ? piece_of(call) : call;
        tri_cuda_dnn_plan(cuda->dnn, &call);
    }
    return a.width <= TRI_ATTENTION_MAX_WIDTH;
}

const tri_kernel tri_cuda_attention = {attention, attention_scratch, nullptr};
const tri_kernel tri_cuda_attention_grad = {attention_grad, attention_grad_scratch, nullptr};
