/* The matrix product, in all its transpositions, over tensors of any rank. */
#include "graph/op_table.h"

/* Where the contracted and the free dims of an operand lie. For a, the free dims are the rows of
 * op(a); for b, they are the columns of op(b). */
typedef struct dim_range {
    int from, to;
} dim_range;

static dim_range contracted_a(const tri_matmul_attr *attr, int rank)
{
    return attr->trans_a ? (dim_range){0, attr->split_a} : (dim_range){attr->split_a, rank};
}

static dim_range free_a(const tri_matmul_attr *attr, int rank)
{
    return attr->trans_a ? (dim_range){attr->split_a, rank} : (dim_range){0, attr->split_a};
}

static dim_range contracted_b(const tri_matmul_attr *attr, int rank)
{
    return attr->trans_b ? (dim_range){attr->split_b, rank} : (dim_range){0, attr->split_b};
}

static dim_range free_b(const tri_matmul_attr *attr, int rank)
{
    return attr->trans_b ? (dim_range){0, attr->split_b} : (dim_range){attr->split_b, rank};
}

static tr_status infer(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err)
{
    const tri_shape *a = &in[0], *b = &in[1];
    dim_range ca = contracted_a(&node->attr.matmul, a->rank),
              cb = contracted_b(&node->attr.matmul, b->rank);
    dim_range fa = free_a(&node->attr.matmul, a->rank), fb = free_b(&node->attr.matmul, b->rank);
    char text_a[128], text_b[128];
    bool fits = ca.to - ca.from == cb.to - cb.from;
    for (int i = 0; fits && i < ca.to - ca.from; i++) {
        const tri_dim *da = &a->dim[ca.from + i], *db = &b->dim[cb.from + i];
        fits = da->name == db->name && da->size == db->size;
    }
    if (!fits)
        return tri_fail(err, TR_ERROR_INPUT, "the contracted dims of %s and %s differ",
                        tri_shape_text(a, text_a, sizeof text_a),
                        tri_shape_text(b, text_b, sizeof text_b));
    int rank = fa.to - fa.from + fb.to - fb.from;
    if (rank > TRI_MAX_RANK)
        return tri_fail(err, TR_ERROR_INPUT, "the product of %s and %s has %d dims, %d at most",
                        tri_shape_text(a, text_a, sizeof text_a),
                        tri_shape_text(b, text_b, sizeof text_b), rank, TRI_MAX_RANK);
    out[0].rank = rank;
    int n = 0;
    for (int i = fa.from; i < fa.to; i++)
        out[0].dim[n++] = a->dim[i];
    for (int i = fb.from; i < fb.to; i++)
        out[0].dim[n++] = b->dim[i];
    for (int k = 1; k < node->num_out; k++)
        out[k] = out[0];
    bool wants_third = node->attr.matmul.epilogue != TRI_EPILOGUE_NONE;
    if (wants_third != (node->num_in > 2 && in[2].rank >= 0))
        return tri_fail(err, TR_ERROR_INPUT, "its epilogue does not fit its inputs");
    if ((node->attr.matmul.epilogue == TRI_EPILOGUE_BIAS_GELU) != (node->num_out == 2))
        return tri_fail(err, TR_ERROR_INPUT, "its epilogue does not fit its outputs");
    bool narrow = tri_dtype_is_float8(out_dtype[0]) || node->num_in > 3;
    if (narrow && (node->num_in != 5 || in[3].rank < 0 || in[4].rank < 0))
        return tri_fail(err, TR_ERROR_INPUT, "8-bit operands come with their scales");
    for (int k = 0; k < node->num_out; k++)
        if (tri_dtype_is_float8(out_dtype[k]))
            out_dtype[k] = node->attr.matmul.dtype;
    return TR_OK;
}

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    dim_range c = contracted_a(&node->attr.matmul, in[0].rank);
    double count = (double)tri_shape_count(&out[0]);
    double product = 2.0 * count * (double)tri_shape_span(&in[0], c.from, c.to);
    switch (node->attr.matmul.epilogue) {
    case TRI_EPILOGUE_NONE:
        return product;
    case TRI_EPILOGUE_BIAS:
    case TRI_EPILOGUE_ADD:
        return product + count;
    case TRI_EPILOGUE_BIAS_GELU:
        return product + 10 * count;
    case TRI_EPILOGUE_GELU_GRAD:
        return product + 16 * count;
    }
    return product;
}

static tri_id product(tri_graph *graph, const char *name, tri_id a, tri_id b, tri_matmul_attr how)
{
    tri_attr attr = {.matmul = how};
    tri_id node = tri_graph_emit(graph, TRI_OP_MATMUL, name, &attr, (tri_id[]){a, b}, 2, 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

/* C = alpha op(A) op(B). With C seen as a matrix [m, n]:
 *   dA = dC op(B)^T, transposed again when A is stored transposed; dB = op(A)^T dC likewise. */
static void grad(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted, tri_id *din)
{
    const tri_node node = graph->nodes[id];
    const tri_matmul_attr *attr = &node.attr.matmul;
    tri_id a = node.in[0], b = node.in[1], dc = dout[0];
    const tri_shape *shape_a = &graph->values[a].shape;
    dim_range fa = free_a(attr, shape_a->rank);
    uint8_t split_c = (uint8_t)(fa.to - fa.from);
    if (wanted[0]) {
        const char *da = tri_arena_printf(&graph->arena, "d.%s", graph->values[a].name);
        if (!attr->trans_a)
            din[0] = product(graph, da, dc, b,
                             (tri_matmul_attr){.alpha = attr->alpha,
                                               .split_a = split_c,
                                               .split_b = attr->split_b,
                                               .trans_b = !attr->trans_b});
        else
            din[0] = product(graph, da, b, dc,
                             (tri_matmul_attr){.alpha = attr->alpha,
                                               .split_a = attr->split_b,
                                               .trans_a = attr->trans_b,
                                               .split_b = split_c,
                                               .trans_b = true});
    }
    if (wanted[1]) {
        const char *db = tri_arena_printf(&graph->arena, "d.%s", graph->values[b].name);
        if (!attr->trans_b)
            din[1] = product(graph, db, a, dc,
                             (tri_matmul_attr){.alpha = attr->alpha,
                                               .split_a = attr->split_a,
                                               .trans_a = !attr->trans_a,
                                               .split_b = split_c});
        else
            din[1] = product(graph, db, dc, a,
                             (tri_matmul_attr){.alpha = attr->alpha,
                                               .split_a = split_c,
                                               .trans_a = true,
                                               .split_b = attr->split_a,
                                               .trans_b = attr->trans_a});
    }
}

const tri_op_def tri_def_matmul = {
    .name = "matmul",
    .inputs = "a, b (each seen as a matrix), [bias, kept or other], [scale of a, scale of b]",
    .outputs = "c, [kept]",
    .suffix = {NULL, "pre"},
    .meaning =
        "c = alpha * op(a) op(b), op transposing where marked ^T; contracts dims of equal "
        "name. Epilogues: +bias; +bias then gelu (keeping the sum); times gelu'(kept); +other. "
        "8-bit operands are multiplied by their scales.",
    .family = TRI_ATTR_MATMUL,
    .min_in = 2,
    .max_in = 5,
    .optional = 1 << 2,
    .wide_in = 1 << 3 | 1 << 4,
    .min_out = 1,
    .max_out = 2,
    .can_accumulate = 1,
    .linear_in = 1 << 0 | 1 << 1,
    .infer = infer,
    .place = tri_place_matmul,
    .grad = grad,
    .flops = flops,
};
