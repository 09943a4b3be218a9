#include "device/cpu/fast/fast.h"

const tri_kernel *TRI_ISA_NAME(tri_cpu_fast)(tri_op op);

/* FINISH is a handful of numbers: it has only the reference. */
const tri_kernel *TRI_ISA_NAME(tri_cpu_fast)(tri_op op)
{
    static const tri_kernel *const table[TRI_NUM_OPS] = {
        [TRI_OP_MATMUL] = &TRI_ISA_NAME(tri_fast_matmul),
        [TRI_OP_ADD] = &TRI_ISA_NAME(tri_fast_add),
        [TRI_OP_BIAS_ADD] = &TRI_ISA_NAME(tri_fast_bias_add),
        [TRI_OP_BIAS_GRAD] = &TRI_ISA_NAME(tri_fast_bias_grad),
        [TRI_OP_ACT] = &TRI_ISA_NAME(tri_fast_act),
        [TRI_OP_ACT_GRAD] = &TRI_ISA_NAME(tri_fast_act_grad),
        [TRI_OP_DROPOUT] = &TRI_ISA_NAME(tri_fast_dropout),
        [TRI_OP_ACCUMULATE] = &TRI_ISA_NAME(tri_fast_accumulate),
        [TRI_OP_AXPBY] = &TRI_ISA_NAME(tri_fast_axpby),
        [TRI_OP_AMAX] = &TRI_ISA_NAME(tri_fast_amax),
        [TRI_OP_QUANTISE] = &TRI_ISA_NAME(tri_fast_quantise),
        [TRI_OP_SWIGLU] = &TRI_ISA_NAME(tri_fast_swiglu),
        [TRI_OP_SWIGLU_GRAD] = &TRI_ISA_NAME(tri_fast_swiglu_grad),
        [TRI_OP_EMBED] = &TRI_ISA_NAME(tri_fast_embed),
        [TRI_OP_EMBED_GRAD] = &TRI_ISA_NAME(tri_fast_embed_grad),
        [TRI_OP_SELECT_ROW] = &TRI_ISA_NAME(tri_fast_select_row),
        [TRI_OP_SELECT_ROW_GRAD] = &TRI_ISA_NAME(tri_fast_select_row_grad),
        [TRI_OP_GATHER_ROWS] = &TRI_ISA_NAME(tri_fast_gather_rows),
        [TRI_OP_LAYERNORM] = &TRI_ISA_NAME(tri_fast_layernorm),
        [TRI_OP_ADD_LAYERNORM] = &TRI_ISA_NAME(tri_fast_add_layernorm),
        [TRI_OP_LAYERNORM_GRAD] = &TRI_ISA_NAME(tri_fast_layernorm_grad),
        [TRI_OP_LAYERNORM_PARAM_GRAD] = &TRI_ISA_NAME(tri_fast_layernorm_param_grad),
        [TRI_OP_RMSNORM] = &TRI_ISA_NAME(tri_fast_rmsnorm),
        [TRI_OP_ADD_RMSNORM] = &TRI_ISA_NAME(tri_fast_add_rmsnorm),
        [TRI_OP_RMSNORM_GRAD] = &TRI_ISA_NAME(tri_fast_rmsnorm_grad),
        [TRI_OP_RMSNORM_PARAM_GRAD] = &TRI_ISA_NAME(tri_fast_rmsnorm_param_grad),
        [TRI_OP_ROPE] = &TRI_ISA_NAME(tri_fast_rope),
        [TRI_OP_SPLIT_QKV] = &TRI_ISA_NAME(tri_fast_split_qkv),
        [TRI_OP_JOIN_QKV] = &TRI_ISA_NAME(tri_fast_join_qkv),
        [TRI_OP_ATTENTION] = &TRI_ISA_NAME(tri_fast_attention),
        [TRI_OP_ATTENTION_GRAD] = &TRI_ISA_NAME(tri_fast_attention_grad),
        [TRI_OP_ATTENTION_MERGE] = &TRI_ISA_NAME(tri_fast_attention_merge),
        [TRI_OP_CACHE_WRITE] = &TRI_ISA_NAME(tri_fast_cache_write),
        [TRI_OP_CE_STATS] = &TRI_ISA_NAME(tri_fast_ce_stats),
        [TRI_OP_CE_LOSS] = &TRI_ISA_NAME(tri_fast_ce_loss),
        [TRI_OP_CE_GRAD] = &TRI_ISA_NAME(tri_fast_ce_grad),
        [TRI_OP_OUT_LOSS] = &TRI_ISA_NAME(tri_fast_out_loss),
        [TRI_OP_OUT_LOSS_GRAD] = &TRI_ISA_NAME(tri_fast_out_loss_grad),
        [TRI_OP_SUM_SQUARES] = &TRI_ISA_NAME(tri_fast_sum_squares),
        [TRI_OP_SGD] = &TRI_ISA_NAME(tri_fast_sgd),
        [TRI_OP_ADAM] = &TRI_ISA_NAME(tri_fast_adam),
        [TRI_OP_ADAM8] = &TRI_ISA_NAME(tri_fast_adam8),
        [TRI_OP_LION] = &TRI_ISA_NAME(tri_fast_lion),
        [TRI_OP_MOMENTUM] = &TRI_ISA_NAME(tri_fast_momentum),
        [TRI_OP_UNIT_NORM] = &TRI_ISA_NAME(tri_fast_unit_norm),
        [TRI_OP_APPLY_UPDATE] = &TRI_ISA_NAME(tri_fast_apply_update),
    };
    return table[op];
}
