/* Routers: which experts a token goes to, with which weights, and what keeps their loads equal.
 *
 * Everything is f32. Choices are whole numbers, through which no gradient passes; those of the
 * weights, of the balance loss and of the z-loss meet in the logits. The balance loss is of sums
 * over tokens: where tokens lie on several ranks the sums are partial, and placement completes them
 * before the loss, so the loss of a row is the same wherever its tokens are. */
#include "graph/op_table.h"

static double per_logit(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return 6.0 * (double)tri_shape_count(&in[0]);
}

static tr_status check_router(const tri_route_attr *attr, const tri_shape *logits, tr_error *err)
{
    int64_t experts = logits->rank == 3 ? logits->dim[2].size : 0;
    if (experts < 1 || experts > TRI_MAX_EXPERTS || attr->choices < 1 ||
        attr->choices > TRI_MAX_CHOICES || attr->choices > experts)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a token cannot choose %d of %lld experts; there may be %d, and %d chosen",
                        attr->choices, (long long)experts, TRI_MAX_EXPERTS, TRI_MAX_CHOICES);
    if (attr->groups > 1 &&
        (experts % attr->groups != 0 || attr->group_limit < 1 || attr->group_limit > attr->groups ||
         experts / attr->groups * attr->group_limit < attr->choices))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%lld experts in %d groups, of which %d may be chosen from, do not leave "
                        "%d choices",
                        (long long)experts, attr->groups, attr->group_limit, attr->choices);
    return TR_OK;
}

static tr_status infer_route(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    const tri_route_attr *attr = &node->attr.route;
    TRI_TRY(check_router(attr, &in[0], err));
    out[0] = in[0];
    out[0].dim[2] = (tri_dim){TRI_DIM_C, attr->choices};
    out[1] = out[0];
    out_dtype[1] = TRI_I32;
    return TR_OK;
}

static void grad_route(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                       tri_id *din)
{
    const tri_node node = graph->nodes[id];
    if (dout[0] == TRI_NONE || !wanted[0])
        return;
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id grad = tri_graph_emit(graph, TRI_OP_ROUTE_GRAD, name, &node.attr,
                                 (tri_id[]){node.in[0], node.out[1], dout[0]}, 3, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

const tri_op_def tri_def_route = {
    .name = "route",
    .inputs = "logits [B, T, E], bias [E] (optional)",
    .outputs = "weights [B, T, C], choice i32 [B, T, C]",
    .suffix = {"weights", "choice"},
    .meaning = "choice: the experts with the largest score + bias, the largest first, of equal "
               "ones the first; in the best groups alone where there are groups (a group is as "
               "good as its two best experts together). weights: the scores of the choices, "
               "divided by their sum where the router says so, times scale.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .optional = 1 << 1,
    .wide_in = 3,
    .wide_out = 1,
    .infer = infer_route,
    .place = tri_place_rows,
    .grad = grad_route,
    .flops = per_logit,
};

const tri_op_def tri_def_route_grad = {
    .name = "route_grad",
    .inputs = "logits [B, T, E], choice i32 [B, T, C], dweights [B, T, C]",
    .outputs = "dlogits [B, T, E]",
    .meaning = "The gradient of the weights of route, choices being what they are.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .wide_in = 7,
    .wide_out = 1,
    .infer = tri_infer_same,
    .place = tri_place_rows,
    .flops = per_logit,
};

static tr_status infer_sums(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    if (in[0].rank != 3 || in[1].rank != 3 || in[2].rank != 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "needs logits [B, T, E], choices [B, T, C] and targets [B, T]");
    const tri_dim sums = {TRI_DIM_STAT, TRI_NUM_ROUTE_SUMS}, e = in[0].dim[2];
    out[0] = node->attr.route.whole ? (tri_shape){.rank = 2, .dim = {e, sums}}
                                    : (tri_shape){.rank = 3, .dim = {in[0].dim[0], e, sums}};
    out[1] = out[2] = tri_shape_scalar(1);
    return TR_OK;
}

/* Tokens anywhere: what is summed over them is terms. */
static void place_sums(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    const tri_spot whole = {TRI_SPOT_WHOLE, 0}, terms = {TRI_SPOT_TERMS, 0};
    bool tokens = in[0].kind == TRI_SPOT_CUT && in[0].dim < 2;
    in[0] = tokens ? in[0] : whole;
    in[1] = in[0];
    in[2] = shapes[2].rank == 2 ? in[0] : whole;
    for (int k = 0; k < node->num_out; k++)
        out[k] = tokens ? terms : whole;
    if (tokens && in[0].dim == 0 && !node->attr.route.whole)
        out[0] = in[0];
}

/* What the seed of the backward is multiplied by on the device, or TRI_NONE. */
static tri_id loss_scale(const tri_graph *graph)
{
    return graph->scaler == TRI_NONE ? TRI_NONE : graph->states[graph->scaler].latest;
}

static void grad_sums(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                      tri_id *din)
{
    const tri_node node = graph->nodes[id];
    const tri_loss *z = tri_graph_loss_of(graph, node.out[1]);
    if ((dout[0] == TRI_NONE && !z) || !wanted[0])
        return;
    tri_attr attr = node.attr;
    attr.route.z = z ? graph->loss_seed * z->weight * node.attr.route.alpha : 0;
    tri_id in[] = {node.in[0], node.in[2], dout[0], loss_scale(graph)};
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id grad = tri_graph_emit(graph, TRI_OP_ROUTE_SUMS_GRAD, name, &attr, in,
                                 in[3] == TRI_NONE ? 3 : 4, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

const tri_op_def tri_def_route_sums = {
    .name = "route_sums",
    .inputs = "logits [B, T, E], choice i32 [B, T, C], targets i32 [B, T]",
    .outputs = "sums [B, E, 3] or [E, 3], z [1], entropy [1]",
    .suffix = {"sums", "z", "entropy"},
    .meaning = "Over the tokens whose target is not negative, of each row or of all: how often "
               "each expert was chosen, the sum of its score (as a part of all scores of the "
               "token), and the number of tokens. z += alpha lse^2, entropy += alpha times that of "
               "the scores.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 3,
    .max_in = 3,
    .min_out = 3,
    .max_out = 3,
    .can_accumulate = 6,
    .wide_in = 7,
    .wide_out = 7,
    .infer = infer_sums,
    .place = place_sums,
    .grad = grad_sums,
    .flops = per_logit,
};

static void place_sums_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                            tri_spot *out)
{
    const tri_spot whole = {TRI_SPOT_WHOLE, 0};
    bool tokens = in[0].kind == TRI_SPOT_CUT && in[0].dim < 2;
    in[0] = in[1] = out[0] = tokens ? in[0] : whole;
    in[2] = tokens && in[0].dim == 0 && shapes[2].rank == 3 ? in[0] : whole;
    for (int j = 3; j < node->num_in; j++)
        in[j] = whole;
}

const tri_op_def tri_def_route_sums_grad = {
    .name = "route_sums_grad",
    .inputs = "logits [B, T, E], targets i32 [B, T], dsums [B, E, 3] or [E, 3] or none, scaler [2] "
              "(optional)",
    .outputs = "dlogits [B, T, E]",
    .meaning = "What the sums of scores and z give to the logits, 0 for tokens without a target.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 3,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 2 | 1 << 3,
    .wide_in = 0xf,
    .wide_out = 1,
    .infer = tri_infer_same,
    .place = place_sums_grad,
    .flops = per_logit,
};

static tr_status infer_balance(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (in[0].rank < 2 || in[0].dim[in[0].rank - 1].size != TRI_NUM_ROUTE_SUMS)
        return tri_fail(err, TR_ERROR_INPUT, "needs the sums of a router");
    out[0] = tri_shape_scalar(1);
    return TR_OK;
}

static tri_spot rows_alone(const tri_shape *sums, tri_spot spot)
{
    bool rows = spot.kind == TRI_SPOT_CUT && sums->rank == 3 && spot.dim == 0;
    return rows ? spot : (tri_spot){TRI_SPOT_WHOLE, 0};
}

static void place_balance(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                          tri_spot *out)
{
    (void)node;
    in[0] = rows_alone(&shapes[0], in[0]);
    out[0] = in[0].kind == TRI_SPOT_CUT ? (tri_spot){TRI_SPOT_TERMS, 0} : in[0];
}

static tr_status infer_load(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    TRI_TRY(infer_balance(node, in, out, out_dtype, err));
    out[0] = tri_shape_scalar(in[0].dim[in[0].rank - 2].size);
    return TR_OK;
}

const tri_op_def tri_def_route_load = {
    .name = "route_load",
    .inputs = "sums [B, E, 3] or [E, 3]",
    .outputs = "load [n]",
    .meaning = "load += how often each expert was chosen, over all rows.",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_in = 1,
    .wide_out = 1,
    .infer = infer_load,
    .place = place_balance,
};

static void grad_balance(tri_graph *graph, tri_id id, const tri_id *dout, const bool *wanted,
                         tri_id *din)
{
    (void)wanted;
    (void)dout;
    const tri_node node = graph->nodes[id];
    tri_attr attr = node.attr;
    attr.route.alpha *= graph->loss_seed * tri_graph_loss_of(graph, node.out[0])->weight;
    tri_id in[] = {node.in[0], loss_scale(graph)};
    const char *name = tri_arena_printf(&graph->arena, "d.%s", graph->values[node.in[0]].name);
    tri_id grad =
        tri_graph_emit(graph, TRI_OP_BALANCE_GRAD, name, &attr, in, in[1] == TRI_NONE ? 1 : 2, 1);
    din[0] = grad == TRI_NONE ? TRI_NONE : graph->nodes[grad].out[0];
}

const tri_op_def tri_def_balance = {
    .name = "balance",
    .inputs = "sums [B, E, 3] or [E, 3]",
    .outputs = "loss [1]",
    .meaning = "loss += alpha * (the sum over experts of chose * mass) / tokens, of each row. With "
               "alpha = E / k that is the number of tokens where all loads are equal.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .wide_in = 1,
    .wide_out = 1,
    .infer = infer_balance,
    .place = place_balance,
    .grad = grad_balance,
};

static void place_balance_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                               tri_spot *out)
{
    in[0] = out[0] = rows_alone(&shapes[0], in[0]);
    for (int j = 1; j < node->num_in; j++)
        in[j] = (tri_spot){TRI_SPOT_WHOLE, 0};
}

const tri_op_def tri_def_balance_grad = {
    .name = "balance_grad",
    .inputs = "sums [B, E, 3] or [E, 3], scaler [2] (optional)",
    .outputs = "dsums, of the shape of sums",
    .meaning = "dsums of the mass = alpha * scale * chose / tokens; 0 of the counts, which no "
               "gradient passes through.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 1,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .optional = 1 << 1,
    .wide_in = 3,
    .wide_out = 1,
    .infer = tri_infer_same,
    .place = place_balance_grad,
};

static tr_status infer_move_bias(const tri_node *node, const tri_shape *in, tri_shape *out,
                                 tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    if (tri_shape_count(&in[0]) != tri_shape_count(&in[1]))
        return tri_fail(err, TR_ERROR_INPUT, "bias and loads differ in shape");
    out[0] = in[0];
    return TR_OK;
}

const tri_op_def tri_def_move_bias = {
    .name = "move_bias",
    .inputs = "bias [E], load [n], result",
    .outputs = "bias [E]",
    .meaning = "bias += alpha * sign(mean load - load): an expert that is chosen more often than "
               "the others is chosen less. Unchanged when OK is 0.",
    .family = TRI_ATTR_ROUTE,
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .updates = {1},
    .wide_in = 7,
    .wide_out = 1,
    .infer = infer_move_bias,
};
