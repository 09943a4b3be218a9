/* Attention as a graph of cuDNN's small operations. cuDNN looks for patterns: the operations and
 * their order are those that its attention engines know, and every tensor between them is virtual,
 * so that it never reaches memory.
 *
 * The gradient knows two forms. One keeps dS in scratch and makes dQ of it in a product of its own.
 * The other, faster one lets all blocks add to a dQ in f32 as they come, so that its last bits
 * differ from run to run. */
#include "device/cuda/dnn/dnn_graph.h"

#include <string.h>

typedef cudnnBackendDescriptor_t tensor;

cudnnBackendDescriptor_t tri_dnn_make(tri_dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    g->good = g->good && g->num_made < TRI_DNN_MOST_MADE &&
              g->api->create(type, &made) == CUDNN_STATUS_SUCCESS;
    if (!g->good)
        return NULL;
    g->made[g->num_made++] = made;
    return made;
}

void tri_dnn_set(tri_dnn_graph *g, cudnnBackendDescriptor_t descriptor,
                 cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                 const void *values)
{
    g->good = g->good && g->api->set(descriptor, name, type, count, values) == CUDNN_STATUS_SUCCESS;
}

void tri_dnn_finish(tri_dnn_graph *g, cudnnBackendDescriptor_t descriptor)
{
    g->good = g->good && g->api->finalize(descriptor) == CUDNN_STATUS_SUCCESS;
}

void tri_dnn_drop(tri_dnn_graph *g)
{
    while (g->num_made > 0)
        g->api->destroy(g->made[--g->num_made]);
}

/* ---- tensors ---- */

typedef struct tensor_dims {
    int64_t size[4], step[4]; /* batch, head, row, column */
} tensor_dims;

static tensor_dims swapped(tensor_dims d)
{
    return (tensor_dims){{d.size[0], d.size[1], d.size[3], d.size[2]},
                         {d.step[0], d.step[1], d.step[3], d.step[2]}};
}

static tensor_dims dense(int64_t batch, int64_t heads, int64_t rows, int64_t cols)
{
    return (tensor_dims){{batch, heads, rows, cols}, {heads * rows * cols, rows * cols, cols, 1}};
}

static tensor make_tensor(tri_dnn_graph *g, int64_t name, cudnnDataType_t type, tensor_dims d)
{
    bool virtual = name >= TRI_DNN_INNER;
    bool by_value = name == TRI_DNN_ALPHA || name == TRI_DNN_MASKED || name == TRI_DNN_ONE;
    int64_t alignment = 16;
    tensor t = tri_dnn_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, d.size);
    tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, d.step);
    tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &virtual);
    if (by_value)
        tri_dnn_set(g, t, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    tri_dnn_finish(g, t);
    return t;
}

static tensor inner(tri_dnn_graph *g, cudnnDataType_t type, tensor_dims d)
{
    return make_tensor(g, g->next_name++, type, d);
}

static tensor number(tri_dnn_graph *g, int64_t name)
{
    return make_tensor(g, name, CUDNN_DATA_FLOAT, dense(1, 1, 1, 1));
}

/* ---- operations ---- */

static void set_tensor(tri_dnn_graph *g, cudnnBackendDescriptor_t op,
                       cudnnBackendAttributeName_t name, tensor t)
{
    tri_dnn_set(g, op, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t);
}

static void add_op(tri_dnn_graph *g, cudnnBackendDescriptor_t op)
{
    tri_dnn_finish(g, op);
    g->good = g->good && g->num_ops < TRI_DNN_MOST_OPS;
    if (g->good)
        g->ops[g->num_ops++] = op;
}

static void multiply(tri_dnn_graph *g, tensor a, tensor b, tensor c)
{
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = tri_dnn_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    tri_dnn_set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    tri_dnn_finish(g, how);
    cudnnBackendDescriptor_t op = tri_dnn_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add_op(g, op);
}

/* y = mode(x, b); b and choice may be NULL. axis: of GEN_INDEX, or -1. */
static void pointwise(tri_dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                      int64_t axis, tensor x, tensor b, tensor choice, tensor y)
{
    cudnnBackendDescriptor_t how = tri_dnn_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    tri_dnn_set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    tri_dnn_set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0)
        tri_dnn_set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    tri_dnn_finish(g, how);
    cudnnBackendDescriptor_t op = tri_dnn_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (choice)
        set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, choice);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add_op(g, op);
}

static void apply(tri_dnn_graph *g, cudnnPointwiseMode_t mode, tensor x, tensor b, tensor y)
{
    pointwise(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
}

static void reduce(tri_dnn_graph *g, cudnnReduceTensorOp_t by, tensor x, tensor y)
{
    cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = tri_dnn_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    tri_dnn_set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &by);
    tri_dnn_set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    tri_dnn_finish(g, how);
    cudnnBackendDescriptor_t op = tri_dnn_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add_op(g, op);
}

static tensor reshape(tri_dnn_graph *g, tensor x, cudnnDataType_t type, tensor_dims d)
{
    tensor y = inner(g, type, d);
    cudnnBackendDescriptor_t op = tri_dnn_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op);
    return y;
}

/* ---- attention ---- */

/* The shapes that both directions speak of. */
typedef struct shapes {
    cudnnDataType_t type;
    tensor_dims q, k, o, scores, rows;
} shapes;

static tensor_dims heads_of(const tri_cuda_sdpa *c, int64_t heads, int64_t step)
{
    return (tensor_dims){{c->num_batch, heads, c->num_pos, c->width},
                         {c->num_pos * step, c->width, step, 1}};
}

static shapes shapes_of(const tri_cuda_sdpa *c)
{
    return (shapes){
        .type = c->dtype == TRI_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
        .q = heads_of(c, c->heads, c->q_step),
        .k = heads_of(c, c->key_heads, c->k_step),
        .o = heads_of(c, c->heads, c->o_step),
        .scores = dense(c->num_batch, c->heads, c->num_pos, c->num_pos),
        .rows = dense(c->num_batch, c->heads, c->num_pos, 1),
    };
}

/* The scores of pairs whose key lies after the query become what MASKED holds. */
static tensor mask(tri_dnn_graph *g, const shapes *s, tensor scores)
{
    tensor row = inner(g, CUDNN_DATA_INT32, s->scores);
    tensor col = inner(g, CUDNN_DATA_INT32, s->scores);
    tensor seen = inner(g, CUDNN_DATA_BOOLEAN, s->scores);
    tensor masked = inner(g, CUDNN_DATA_FLOAT, s->scores);
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, scores, NULL, NULL, row);
    pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, scores, NULL, NULL, col);
    pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, col, NULL, seen);
    pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores,
              number(g, TRI_DNN_MASKED), seen, masked);
    return masked;
}

/* alpha q k^T; k is given transposed. */
static tensor scores_of(tri_dnn_graph *g, const shapes *s, tensor q, tensor k, tensor alpha)
{
    tensor product = inner(g, CUDNN_DATA_FLOAT, s->scores);
    tensor scaled = inner(g, CUDNN_DATA_FLOAT, s->scores);
    multiply(g, q, k, product);
    apply(g, CUDNN_POINTWISE_MUL, product, alpha, scaled);
    return scaled;
}

/* p = softmax(scores), o = p v, lse = max + log of the sum. */
static void describe_forward(tri_dnn_graph *g, const tri_cuda_sdpa *c)
{
    shapes s = shapes_of(c);
    tensor q = make_tensor(g, TRI_DNN_Q, s.type, s.q);
    tensor k = make_tensor(g, TRI_DNN_K, s.type, swapped(s.k));
    tensor v = make_tensor(g, TRI_DNN_V, s.type, s.k);
    tensor o = make_tensor(g, TRI_DNN_O, s.type, s.o);
    tensor lse = make_tensor(g, TRI_DNN_LSE, CUDNN_DATA_FLOAT, s.rows);
    tensor scores = scores_of(g, &s, q, k, number(g, TRI_DNN_ALPHA));
    if (c->causal)
        scores = mask(g, &s, scores);
    tensor most = inner(g, CUDNN_DATA_FLOAT, s.rows);
    tensor below = inner(g, CUDNN_DATA_FLOAT, s.scores);
    tensor power = inner(g, CUDNN_DATA_FLOAT, s.scores);
    tensor sum = inner(g, CUDNN_DATA_FLOAT, s.rows);
    tensor log = inner(g, CUDNN_DATA_FLOAT, s.rows);
    tensor p = inner(g, s.type, s.scores);
    reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, most);
    apply(g, CUDNN_POINTWISE_SUB, scores, most, below);
    apply(g, CUDNN_POINTWISE_EXP, below, NULL, power);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, power, sum);
    apply(g, CUDNN_POINTWISE_LOG, sum, NULL, log);
    apply(g, CUDNN_POINTWISE_ADD, most, log, lse);
    apply(g, CUDNN_POINTWISE_DIV, power, sum, p);
    multiply(g, p, v, o);
}

/* x^T y for every query head; where several share a key head, their sum. */
static void multiply_by_key(tri_dnn_graph *g, const tri_cuda_sdpa *c, const shapes *s, tensor x,
                            tensor y, tensor out)
{
    tensor turned = reshape(g, x, s->type, swapped(s->scores));
    if (c->heads == c->key_heads) {
        multiply(g, turned, y, out);
        return;
    }
    tensor each = inner(g, s->type, dense(c->num_batch, c->heads, c->num_pos, c->width));
    multiply(g, turned, y, each);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, each, out);
}

/* delta = sum of do o; p = exp(scores - lse); dv = p^T do; ds = alpha p (do v^T - delta);
 * dk = ds^T q; dq = ds k. */
static void describe_gradient(tri_dnn_graph *g, const tri_cuda_sdpa *c)
{
    shapes s = shapes_of(c);
    tensor q = make_tensor(g, TRI_DNN_Q, s.type, s.q);
    tensor k = make_tensor(g, TRI_DNN_K, s.type, swapped(s.k));
    tensor v = make_tensor(g, TRI_DNN_V, s.type, swapped(s.k));
    tensor o = make_tensor(g, TRI_DNN_O, s.type, s.o);
    tensor dout = make_tensor(g, TRI_DNN_DOUT, s.type, s.o);
    tensor lse = make_tensor(g, TRI_DNN_LSE, CUDNN_DATA_FLOAT, s.rows);
    tensor delta = make_tensor(g, TRI_DNN_DELTA, CUDNN_DATA_FLOAT, s.rows);
    tensor alpha = number(g, TRI_DNN_ALPHA);
    tensor dq = make_tensor(g, TRI_DNN_DQ, s.type, s.q);
    tensor dk = make_tensor(g, TRI_DNN_DK, s.type, s.k);
    tensor dv = make_tensor(g, TRI_DNN_DV, s.type, s.k);

    tensor shares = inner(g, CUDNN_DATA_FLOAT, dense(c->num_batch, c->heads, c->num_pos, c->width));
    tensor sum = inner(g, CUDNN_DATA_FLOAT, s.rows);
    apply(g, CUDNN_POINTWISE_MUL, dout, o, shares);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, shares, sum);
    apply(g, CUDNN_POINTWISE_MUL, sum, number(g, TRI_DNN_ONE), delta);

    tensor scores = scores_of(g, &s, q, k, alpha);
    tensor below = inner(g, CUDNN_DATA_FLOAT, s.scores);
    tensor p = inner(g, CUDNN_DATA_FLOAT, s.scores);
    apply(g, CUDNN_POINTWISE_SUB, scores, lse, below);
    if (c->causal)
        below = mask(g, &s, below);
    apply(g, CUDNN_POINTWISE_EXP, below, NULL, p);
    multiply_by_key(g, c, &s, p, dout, dv);

    tensor dp = inner(g, CUDNN_DATA_FLOAT, s.scores);
    tensor centred = inner(g, CUDNN_DATA_FLOAT, s.scores);
    tensor unscaled = inner(g, CUDNN_DATA_FLOAT, s.scores);
    tensor ds = inner(g, CUDNN_DATA_FLOAT, s.scores);
    multiply(g, dout, v, dp);
    apply(g, CUDNN_POINTWISE_SUB, dp, delta, centred);
    apply(g, CUDNN_POINTWISE_MUL, centred, p, unscaled);
    apply(g, CUDNN_POINTWISE_MUL, unscaled, alpha, ds);
    multiply_by_key(g, c, &s, ds, q, dk);
    tensor keys = reshape(g, k, s.type, s.k);
    if (!c->any_order) {
        multiply(g, ds, keys, dq);
        return;
    }
    tensor_dims each = dense(c->num_batch, c->heads, c->num_pos, c->width);
    tensor dq_sum = make_tensor(g, TRI_DNN_DQ_SUM, CUDNN_DATA_FLOAT, each);
    multiply(g, ds, keys, dq_sum);
    apply(g, CUDNN_POINTWISE_IDENTITY, dq_sum, NULL, dq);
}

void tri_dnn_describe(tri_dnn_graph *g, const tri_cuda_sdpa *call)
{
    g->next_name = TRI_DNN_INNER;
    if (call->grad)
        describe_gradient(g, call);
    else
        describe_forward(g, call);
}
