#include "device/cpu/ref/ref.h"

const tri_kernel *tri_cpu_reference(tri_op op)
{
    static const tri_kernel *const table[TRI_NUM_OPS] = {
        [TRI_OP_MATMUL] = &tri_ref_matmul,
        [TRI_OP_ADD] = &tri_ref_add,
        [TRI_OP_BIAS_ADD] = &tri_ref_bias_add,
        [TRI_OP_BIAS_GRAD] = &tri_ref_bias_grad,
        [TRI_OP_ACT] = &tri_ref_act,
        [TRI_OP_ACT_GRAD] = &tri_ref_act_grad,
        [TRI_OP_DROPOUT] = &tri_ref_dropout,
        [TRI_OP_ACCUMULATE] = &tri_ref_accumulate,
        [TRI_OP_AXPBY] = &tri_ref_axpby,
        [TRI_OP_EMBED] = &tri_ref_embed,
        [TRI_OP_EMBED_GRAD] = &tri_ref_embed_grad,
        [TRI_OP_SELECT_ROW] = &tri_ref_select_row,
        [TRI_OP_LAYERNORM] = &tri_ref_layernorm,
        [TRI_OP_ADD_LAYERNORM] = &tri_ref_add_layernorm,
        [TRI_OP_LAYERNORM_GRAD] = &tri_ref_layernorm_grad,
        [TRI_OP_LAYERNORM_PARAM_GRAD] = &tri_ref_layernorm_param_grad,
        [TRI_OP_ATTENTION] = &tri_ref_attention,
        [TRI_OP_ATTENTION_GRAD] = &tri_ref_attention_grad,
        [TRI_OP_CE_STATS] = &tri_ref_ce_stats,
        [TRI_OP_CE_LOSS] = &tri_ref_ce_loss,
        [TRI_OP_CE_GRAD] = &tri_ref_ce_grad,
        [TRI_OP_OUT_LOSS] = &tri_ref_out_loss,
        [TRI_OP_OUT_LOSS_GRAD] = &tri_ref_out_loss_grad,
        [TRI_OP_SUM_SQUARES] = &tri_ref_sum_squares,
        [TRI_OP_FINISH] = &tri_ref_finish,
        [TRI_OP_SGD] = &tri_ref_sgd,
        [TRI_OP_ADAM] = &tri_ref_adam,
        [TRI_OP_MOMENTUM] = &tri_ref_momentum,
        [TRI_OP_UNIT_NORM] = &tri_ref_unit_norm,
        [TRI_OP_APPLY_UPDATE] = &tri_ref_apply_update,
    };
    return table[op];
}
