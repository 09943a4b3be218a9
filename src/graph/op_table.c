/* The rows, in the order of tri_op. */
#include "graph/op_table.h"

static const tri_op_def *const table[TRI_NUM_OPS] = {
    [TRI_OP_MATMUL] = &tri_def_matmul,
    [TRI_OP_ADD] = &tri_def_add,
    [TRI_OP_BIAS_ADD] = &tri_def_bias_add,
    [TRI_OP_BIAS_GRAD] = &tri_def_bias_grad,
    [TRI_OP_ACT] = &tri_def_act,
    [TRI_OP_ACT_GRAD] = &tri_def_act_grad,
    [TRI_OP_DROPOUT] = &tri_def_dropout,
    [TRI_OP_JITTER] = &tri_def_jitter,
    [TRI_OP_ACCUMULATE] = &tri_def_accumulate,
    [TRI_OP_AXPBY] = &tri_def_axpby,
    [TRI_OP_CAST] = &tri_def_cast,
    [TRI_OP_AMAX] = &tri_def_amax,
    [TRI_OP_QUANTISE] = &tri_def_quantise,
    [TRI_OP_SLICE] = &tri_def_slice,
    [TRI_OP_UNSLICE] = &tri_def_unslice,
    [TRI_OP_BLOCK] = &tri_def_block,
    [TRI_OP_UNBLOCK] = &tri_def_unblock,
    [TRI_OP_FIT_ROOMS] = &tri_def_fit_rooms,
    [TRI_OP_SWIGLU] = &tri_def_swiglu,
    [TRI_OP_SWIGLU_GRAD] = &tri_def_swiglu_grad,
    [TRI_OP_GATE_ROWS] = &tri_def_gate_rows,
    [TRI_OP_GATE_ROWS_GRAD] = &tri_def_gate_rows_grad,
    [TRI_OP_ROUTE] = &tri_def_route,
    [TRI_OP_ROUTE_GRAD] = &tri_def_route_grad,
    [TRI_OP_ROUTE_SUMS] = &tri_def_route_sums,
    [TRI_OP_ROUTE_SUMS_GRAD] = &tri_def_route_sums_grad,
    [TRI_OP_ROUTE_LOAD] = &tri_def_route_load,
    [TRI_OP_BALANCE] = &tri_def_balance,
    [TRI_OP_BALANCE_GRAD] = &tri_def_balance_grad,
    [TRI_OP_MOVE_BIAS] = &tri_def_move_bias,
    [TRI_OP_DROP_ROWS] = &tri_def_drop_rows,
    [TRI_OP_COUNT_DROPPED] = &tri_def_count_dropped,
    [TRI_OP_LARGEST] = &tri_def_largest,
    [TRI_OP_SORT_ROWS] = &tri_def_sort_rows,
    [TRI_OP_GROUPED] = &tri_def_grouped,
    [TRI_OP_GROUPED_GRAD] = &tri_def_grouped_grad,
    [TRI_OP_GROUPED8] = &tri_def_grouped8,
    [TRI_OP_GROUPED8_GRAD] = &tri_def_grouped8_grad,
    [TRI_OP_ROOMS] = &tri_def_rooms,
    [TRI_OP_DISPATCH] = &tri_def_dispatch,
    [TRI_OP_COLLECT] = &tri_def_collect,
    [TRI_OP_PACK_ROOMS] = &tri_def_pack_rooms,
    [TRI_OP_MASK_ROWS] = &tri_def_mask_rows,
    [TRI_OP_SWIGLU_ROWS] = &tri_def_swiglu_rows,
    [TRI_OP_SWIGLU_ROWS_GRAD] = &tri_def_swiglu_rows_grad,
    [TRI_OP_GROUPED_SWIGLU] = &tri_def_grouped_swiglu,
    [TRI_OP_GROUPED_SWIGLU_GRAD] = &tri_def_grouped_swiglu_grad,
    [TRI_OP_GROUPED_SUM] = &tri_def_grouped_sum,
    [TRI_OP_EMBED] = &tri_def_embed,
    [TRI_OP_EMBED_GRAD] = &tri_def_embed_grad,
    [TRI_OP_SELECT_ROW] = &tri_def_select_row,
    [TRI_OP_SELECT_ROW_GRAD] = &tri_def_select_row_grad,
    [TRI_OP_GATHER_ROWS] = &tri_def_gather_rows,
    [TRI_OP_LAYERNORM] = &tri_def_layernorm,
    [TRI_OP_ADD_LAYERNORM] = &tri_def_add_layernorm,
    [TRI_OP_LAYERNORM_GRAD] = &tri_def_layernorm_grad,
    [TRI_OP_LAYERNORM_PARAM_GRAD] = &tri_def_layernorm_param_grad,
    [TRI_OP_RMSNORM] = &tri_def_rmsnorm,
    [TRI_OP_ADD_RMSNORM] = &tri_def_add_rmsnorm,
    [TRI_OP_RMSNORM_GRAD] = &tri_def_rmsnorm_grad,
    [TRI_OP_RMSNORM_PARAM_GRAD] = &tri_def_rmsnorm_param_grad,
    [TRI_OP_LAYERNORM_GRADS] = &tri_def_layernorm_grads,
    [TRI_OP_RMSNORM_GRADS] = &tri_def_rmsnorm_grads,
    [TRI_OP_ROPE] = &tri_def_rope,
    [TRI_OP_SPLIT_QKV] = &tri_def_split_qkv,
    [TRI_OP_JOIN_QKV] = &tri_def_join_qkv,
    [TRI_OP_ATTENTION] = &tri_def_attention,
    [TRI_OP_ATTENTION_GRAD] = &tri_def_attention_grad,
    [TRI_OP_ATTENTION_MERGE] = &tri_def_attention_merge,
    [TRI_OP_CACHE_WRITE] = &tri_def_cache_write,
    [TRI_OP_CE_STATS] = &tri_def_ce_stats,
    [TRI_OP_CE_COMBINE] = &tri_def_ce_combine,
    [TRI_OP_CE_LOSS] = &tri_def_ce_loss,
    [TRI_OP_CE_GRAD] = &tri_def_ce_grad,
    [TRI_OP_CROSS_ENTROPY] = &tri_def_cross_entropy,
    [TRI_OP_OUT_LOSS] = &tri_def_out_loss,
    [TRI_OP_OUT_LOSS_GRAD] = &tri_def_out_loss_grad,
    [TRI_OP_SUM_SQUARES] = &tri_def_sum_squares,
    [TRI_OP_FILL] = &tri_def_fill,
    [TRI_OP_FINISH] = &tri_def_finish,
    [TRI_OP_SGD] = &tri_def_sgd,
    [TRI_OP_ADAM] = &tri_def_adam,
    [TRI_OP_ADAM8] = &tri_def_adam8,
    [TRI_OP_LION] = &tri_def_lion,
    [TRI_OP_MOMENTUM] = &tri_def_momentum,
    [TRI_OP_UNIT_NORM] = &tri_def_unit_norm,
    [TRI_OP_APPLY_UPDATE] = &tri_def_apply_update,
    [TRI_OP_NARROW] = &tri_def_narrow,
    [TRI_OP_ALL_REDUCE] = &tri_def_all_reduce,
    [TRI_OP_ALL_GATHER] = &tri_def_all_gather,
    [TRI_OP_REDUCE_SCATTER] = &tri_def_reduce_scatter,
    [TRI_OP_ALL_TO_ALL] = &tri_def_all_to_all,
    [TRI_OP_ALL_TO_ALL_ROWS] = &tri_def_all_to_all_rows,
    [TRI_OP_SHIFT] = &tri_def_shift,
    [TRI_OP_SHARD_SUM] = &tri_def_shard_sum,
    [TRI_OP_SHARD_GATHER] = &tri_def_shard_gather,
    [TRI_OP_UNSHARD] = &tri_def_unshard,
    [TRI_OP_BROADCAST] = &tri_def_broadcast,
    [TRI_OP_SEND] = &tri_def_send,
    [TRI_OP_RECV] = &tri_def_recv,
    [TRI_OP_FETCH] = &tri_def_fetch,
    [TRI_OP_STASH] = &tri_def_stash,
};

const tri_op_def *tri_op_get(tri_op op)
{
    return table[op];
}

bool tri_op_multiplies(tri_op op)
{
    switch (op) {
    case TRI_OP_MATMUL:
    case TRI_OP_GROUPED:
    case TRI_OP_GROUPED_GRAD:
    case TRI_OP_GROUPED8:
    case TRI_OP_GROUPED8_GRAD:
    case TRI_OP_GROUPED_SWIGLU:
    case TRI_OP_GROUPED_SWIGLU_GRAD:
    case TRI_OP_GROUPED_SUM:
    case TRI_OP_ATTENTION:
    case TRI_OP_ATTENTION_GRAD:
        return true;
    default:
        return false;
    }
}

tri_shape tri_flat_shape(const tri_flat *flat)
{
    int64_t first;
    return tri_shape_scalar(tri_flat_slice(flat, flat->part, &first));
}

tri_shape tri_shape_scalar(int64_t count)
{
    return tri_shape_of(1, TRI_DIM_N, count);
}

void tri_infer_dtypes(tri_op op, const tri_attr *attr, const tri_value *const *in, int num_in,
                      tri_dtype *out, int num_out)
{
    const tri_op_def *def = tri_op_get(op);
    tri_dtype lead = TRI_F32;
    for (int j = num_in - 1; j >= 0; j--)
        if (in[j] && !(def->wide_in >> j & 1) && tri_dtype_is_float(in[j]->dtype))
            lead = in[j]->dtype;
    if ((def->communicates || def->moves) && num_in > 0 && in[0])
        lead = in[0]->dtype; /* whole numbers travel, too */
    for (int k = 0; k < num_out; k++)
        out[k] = (def->wide_out | attr->wide_out) >> k & 1 ? TRI_F32 : lead;
    for (int k = 0; k < num_out; k++) /* copies of weights keep their type */
        if ((def->copies >> k & 1) && def->updates[k] <= num_in && in[def->updates[k] - 1])
            out[k] = in[def->updates[k] - 1]->dtype;
}

tr_status tri_infer_same(const tri_node *node, const tri_shape *in, tri_shape *out,
                         tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    (void)err;
    for (int k = 0; k < node->num_out; k++)
        out[k] = in[0];
    return TR_OK;
}

tr_status tri_infer_given(const tri_node *node, const tri_shape *in, tri_shape *out,
                          tri_dtype *out_dtype, tr_error *err)
{
    (void)in;
    (void)err;
    out[0] = node->attr.message.made.shape;
    out_dtype[0] = node->attr.message.made.dtype;
    return TR_OK;
}

tr_status tri_check_places(const tri_shape *x, const tri_shape *places, tr_error *err)
{
    char a[128], b[128];
    if (places->rank < 0 ||
        (places->rank == 2 && x->rank >= 2 && places->dim[0].size == x->dim[0].size &&
         places->dim[1].size == x->dim[1].size))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "places %s do not fit the tokens of %s",
                    tri_shape_text(places, a, sizeof a), tri_shape_text(x, b, sizeof b));
}

static double operand_bytes(const tri_value *value)
{
    return (double)tri_dtype_size(value->dtype, tri_shape_count(&value->shape));
}

/* A node may work on this rank's slice of tensors that it has whole: the share of those that it
 * touches. */
static double slice_share(const tri_node *node)
{
    const tri_flat *flat = &node->attr.flat;
    int64_t first;
    if (flat->parts == 0 || flat->count == 0 || tri_op_get(node->op)->communicates)
        return 1;
    return (double)tri_flat_slice(flat, flat->part, &first) / (double)flat->count;
}

static bool is_sliced(const tri_node *node, const tri_value *value)
{
    return slice_share(node) < 1 && (value->state != TRI_NONE || value->bucket != 0) &&
           tri_shape_count(&value->shape) == node->attr.flat.count;
}

static double touched_bytes(const tri_node *node, const tri_value *value)
{
    return operand_bytes(value) * (is_sliced(node, value) ? slice_share(node) : 1);
}

tri_cost tri_node_cost(const tri_graph *graph, const tri_node *node)
{
    tri_cost cost = {0};
    const tri_op_def *def = tri_op_get(node->op);
    double share = 1;
    tri_shape in[TRI_MAX_IN] = {0}, out[TRI_MAX_OUT];
    for (int j = 0; j < node->num_in; j++) {
        in[j].rank = -1;
        if (node->in[j] == TRI_NONE)
            continue;
        in[j] = graph->values[node->in[j]].shape;
        bool replaced = def->communicates && j > 0 && def->updates[0] == j + 1;
        if (!replaced) /* the version whose place fetch and stash write to is not read */
            cost.bytes += touched_bytes(node, &graph->values[node->in[j]]);
    }
    for (int k = 0; k < node->num_out; k++) {
        const tri_value *value = &graph->values[node->out[k]];
        out[k] = value->shape;
        bool adds = node->write[k] == TRI_WRITE_START || node->write[k] == TRI_WRITE_ADD;
        cost.bytes += touched_bytes(node, value) * (adds ? 2 : 1);
        share = is_sliced(node, value) ? slice_share(node) : share;
        cost.flops += (double)tri_shape_count(&out[k]);
    }
    if (def->flops)
        cost.flops = def->flops(node, in, out);
    cost.flops *= share;
    return cost;
}
