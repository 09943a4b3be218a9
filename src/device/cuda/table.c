/* The kernels of the GPU, in the order of tri_op. */
#include "device/cuda/cuda.h"

static const tri_kernel *const table[TRI_NUM_OPS] = {
    [TRI_OP_MATMUL] = &tri_cuda_matmul,
    [TRI_OP_ADD] = &tri_cuda_add,
    [TRI_OP_BIAS_ADD] = &tri_cuda_bias_add,
    [TRI_OP_BIAS_GRAD] = &tri_cuda_bias_grad,
    [TRI_OP_ACT] = &tri_cuda_act,
    [TRI_OP_ACT_GRAD] = &tri_cuda_act_grad,
    [TRI_OP_DROPOUT] = &tri_cuda_dropout,
    [TRI_OP_JITTER] = &tri_cuda_jitter,
    [TRI_OP_ACCUMULATE] = &tri_cuda_accumulate,
    [TRI_OP_AXPBY] = &tri_cuda_axpby,
    [TRI_OP_CAST] = &tri_cuda_cast,
    [TRI_OP_AMAX] = &tri_cuda_amax,
    [TRI_OP_QUANTISE] = &tri_cuda_quantise,
    [TRI_OP_SLICE] = &tri_cuda_slice,
    [TRI_OP_UNSLICE] = &tri_cuda_unslice,
    [TRI_OP_BLOCK] = &tri_cuda_block,
    [TRI_OP_UNBLOCK] = &tri_cuda_unblock,
    [TRI_OP_SWIGLU] = &tri_cuda_swiglu,
    [TRI_OP_SWIGLU_GRAD] = &tri_cuda_swiglu_grad,
    [TRI_OP_GATE_ROWS] = &tri_cuda_gate_rows,
    [TRI_OP_GATE_ROWS_GRAD] = &tri_cuda_gate_rows_grad,
    [TRI_OP_ROUTE] = &tri_cuda_route,
    [TRI_OP_ROUTE_GRAD] = &tri_cuda_route_grad,
    [TRI_OP_ROUTE_LOAD] = &tri_cuda_route_load,
    [TRI_OP_PACK_ROOMS] = &tri_cuda_pack_rooms,
    [TRI_OP_MASK_ROWS] = &tri_cuda_mask_rows,
    [TRI_OP_ROUTE_SUMS] = &tri_cuda_route_sums,
    [TRI_OP_ROUTE_SUMS_GRAD] = &tri_cuda_route_sums_grad,
    [TRI_OP_BALANCE] = &tri_cuda_balance,
    [TRI_OP_BALANCE_GRAD] = &tri_cuda_balance_grad,
    [TRI_OP_MOVE_BIAS] = &tri_cuda_move_bias,
    [TRI_OP_DROP_ROWS] = &tri_cuda_drop_rows,
    [TRI_OP_COUNT_DROPPED] = &tri_cuda_count_dropped,
    [TRI_OP_LARGEST] = &tri_cuda_largest,
    [TRI_OP_SORT_ROWS] = &tri_cuda_sort_rows,
    [TRI_OP_GROUPED] = &tri_cuda_grouped,
    [TRI_OP_GROUPED_GRAD] = &tri_cuda_grouped_grad,
    [TRI_OP_SWIGLU_ROWS] = &tri_cuda_swiglu_rows,
    [TRI_OP_SWIGLU_ROWS_GRAD] = &tri_cuda_swiglu_rows_grad,
    [TRI_OP_GROUPED_SWIGLU] = &tri_cuda_grouped_swiglu,
    [TRI_OP_GROUPED_SWIGLU_GRAD] = &tri_cuda_grouped_swiglu_grad,
    [TRI_OP_GROUPED_SUM] = &tri_cuda_grouped_sum,
    [TRI_OP_EMBED] = &tri_cuda_embed,
    [TRI_OP_EMBED_GRAD] = &tri_cuda_embed_grad,
    [TRI_OP_SELECT_ROW] = &tri_cuda_select_row,
    [TRI_OP_SELECT_ROW_GRAD] = &tri_cuda_select_row_grad,
    [TRI_OP_GATHER_ROWS] = &tri_cuda_gather_rows,
    [TRI_OP_LAYERNORM] = &tri_cuda_layernorm,
    [TRI_OP_ADD_LAYERNORM] = &tri_cuda_add_layernorm,
    [TRI_OP_LAYERNORM_GRAD] = &tri_cuda_layernorm_grad,
    [TRI_OP_LAYERNORM_PARAM_GRAD] = &tri_cuda_layernorm_param_grad,
    [TRI_OP_RMSNORM] = &tri_cuda_rmsnorm,
    [TRI_OP_ADD_RMSNORM] = &tri_cuda_add_rmsnorm,
    [TRI_OP_RMSNORM_GRAD] = &tri_cuda_rmsnorm_grad,
    [TRI_OP_RMSNORM_PARAM_GRAD] = &tri_cuda_rmsnorm_param_grad,
    [TRI_OP_LAYERNORM_GRADS] = &tri_cuda_layernorm_grads,
    [TRI_OP_RMSNORM_GRADS] = &tri_cuda_rmsnorm_grads,
    [TRI_OP_ROPE] = &tri_cuda_rope,
    [TRI_OP_SPLIT_QKV] = &tri_cuda_split_qkv,
    [TRI_OP_JOIN_QKV] = &tri_cuda_join_qkv,
    [TRI_OP_ATTENTION] = &tri_cuda_attention,
    [TRI_OP_ATTENTION_GRAD] = &tri_cuda_attention_grad,
    [TRI_OP_ATTENTION_MERGE] = &tri_cuda_attention_merge,
    [TRI_OP_CACHE_WRITE] = &tri_cuda_cache_write,
    [TRI_OP_CE_STATS] = &tri_cuda_ce_stats,
    [TRI_OP_CE_COMBINE] = &tri_cuda_ce_combine,
    [TRI_OP_CE_LOSS] = &tri_cuda_ce_loss,
    [TRI_OP_CE_GRAD] = &tri_cuda_ce_grad,
    [TRI_OP_CROSS_ENTROPY] = &tri_cuda_cross_entropy,
    [TRI_OP_OUT_LOSS] = &tri_cuda_out_loss,
    [TRI_OP_OUT_LOSS_GRAD] = &tri_cuda_out_loss_grad,
    [TRI_OP_SUM_SQUARES] = &tri_cuda_sum_squares,
    [TRI_OP_FILL] = &tri_cuda_fill,
    [TRI_OP_FIT_ROOMS] = &tri_cuda_fit_rooms,
    [TRI_OP_FINISH] = &tri_cuda_finish,
    [TRI_OP_SGD] = &tri_cuda_sgd,
    [TRI_OP_ADAM] = &tri_cuda_adam,
    [TRI_OP_ADAM8] = &tri_cuda_adam8,
    [TRI_OP_LION] = &tri_cuda_lion,
    [TRI_OP_MOMENTUM] = &tri_cuda_momentum,
    [TRI_OP_UNIT_NORM] = &tri_cuda_unit_norm,
    [TRI_OP_APPLY_UPDATE] = &tri_cuda_apply_update,
    [TRI_OP_NARROW] = &tri_cuda_narrow,
};

const tri_kernel *tri_cuda_kernel(tri_op op)
{
    return table[op];
}

bool tri_cuda_takes(tri_op op, const tri_kernel_args *args)
{
    const tri_cuda *cuda = args->device;
    if (op == TRI_OP_ATTENTION || op == TRI_OP_ATTENTION_GRAD)
        return tri_cuda_attention_takes(op, args);
    if (op == TRI_OP_MATMUL && cuda && cuda->blas && cuda->tune) /* started, with its scratch */
        tri_cuda_matmul_prepare(args);
    return true;
}
