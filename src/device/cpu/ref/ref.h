/* The portable kernels: what every other kernel is compared with.
 *
 * Plain loops in the order of the formula, one thread. Sums run in double, so that the reference is
 * an oracle and not just another rounding. Each operator is one static function beside one
 * tri_kernel; table.c lists them. */
#ifndef TRI_DEVICE_CPU_REF_H
#define TRI_DEVICE_CPU_REF_H

#include "device/cpu/cpu.h"

extern const tri_kernel tri_ref_matmul;
extern const tri_kernel tri_ref_add;
extern const tri_kernel tri_ref_bias_add;
extern const tri_kernel tri_ref_bias_grad;
extern const tri_kernel tri_ref_act;
extern const tri_kernel tri_ref_act_grad;
extern const tri_kernel tri_ref_dropout, tri_ref_jitter;
extern const tri_kernel tri_ref_accumulate;
extern const tri_kernel tri_ref_axpby;
extern const tri_kernel tri_ref_copy; /* cast */
extern const tri_kernel tri_ref_amax, tri_ref_quantise;
/* The largest elements of a tensor, as of amax. */
void tri_ref_amax_of(const tri_tensor *of, float *out);
extern const tri_kernel tri_ref_fit_rooms;
extern const tri_kernel tri_ref_slice, tri_ref_block, tri_ref_unblock, tri_ref_ce_combine;
extern const tri_kernel tri_ref_unslice;
extern const tri_kernel tri_ref_swiglu;
extern const tri_kernel tri_ref_swiglu_grad;
extern const tri_kernel tri_ref_gate_rows, tri_ref_gate_rows_grad, tri_ref_route,
    tri_ref_route_grad, tri_ref_route_sums, tri_ref_route_sums_grad, tri_ref_route_load,
    tri_ref_balance, tri_ref_balance_grad, tri_ref_move_bias, tri_ref_sort_rows, tri_ref_grouped,
    tri_ref_grouped_grad, tri_ref_grouped8, tri_ref_grouped8_grad, tri_ref_swiglu_rows,
    tri_ref_swiglu_rows_grad, tri_ref_grouped_swiglu, tri_ref_grouped_swiglu_grad,
    tri_ref_grouped_sum;
extern const tri_kernel tri_ref_rooms, tri_ref_dispatch, tri_ref_collect, tri_ref_pack_rooms,
    tri_ref_mask_rows, tri_ref_drop_rows, tri_ref_count_dropped, tri_ref_largest;
extern const tri_kernel tri_ref_embed;
extern const tri_kernel tri_ref_embed_grad;
extern const tri_kernel tri_ref_select_row;
extern const tri_kernel tri_ref_select_row_grad;
extern const tri_kernel tri_ref_gather_rows;
extern const tri_kernel tri_ref_layernorm;
extern const tri_kernel tri_ref_add_layernorm;
extern const tri_kernel tri_ref_layernorm_grad;
extern const tri_kernel tri_ref_layernorm_param_grad;
extern const tri_kernel tri_ref_rmsnorm;
extern const tri_kernel tri_ref_add_rmsnorm;
extern const tri_kernel tri_ref_rmsnorm_grad;
extern const tri_kernel tri_ref_rmsnorm_param_grad;
extern const tri_kernel tri_ref_layernorm_grads, tri_ref_rmsnorm_grads;
extern const tri_kernel tri_ref_rope;
extern const tri_kernel tri_ref_split_qkv, tri_ref_join_qkv;
extern const tri_kernel tri_ref_attention;
extern const tri_kernel tri_ref_attention_grad;
extern const tri_kernel tri_ref_attention_merge;
extern const tri_kernel tri_ref_cache_write;
extern const tri_kernel tri_ref_ce_stats;
extern const tri_kernel tri_ref_ce_loss;
extern const tri_kernel tri_ref_ce_grad;
extern const tri_kernel tri_ref_cross_entropy;
extern const tri_kernel tri_ref_out_loss;
extern const tri_kernel tri_ref_out_loss_grad;
extern const tri_kernel tri_ref_sum_squares;
extern const tri_kernel tri_ref_fill;
extern const tri_kernel tri_ref_finish;
extern const tri_kernel tri_ref_sgd;
extern const tri_kernel tri_ref_adam;
extern const tri_kernel tri_ref_narrow;
extern const tri_kernel tri_ref_adam8;
extern const tri_kernel tri_ref_lion;
extern const tri_kernel tri_ref_momentum;
extern const tri_kernel tri_ref_unit_norm;
extern const tri_kernel tri_ref_apply_update;

/* An output that accumulates: the first contribution of a step overwrites. */
static inline void tri_ref_store(float *out, double value, bool overwrite)
{
    *out = overwrite ? (float)value : (float)(*out + value);
}

static inline int64_t tri_ref_last(const tri_tensor *t)
{
    return t->size[t->rank - 1];
}

/* GELU in its tanh form, and its slope. */
double tri_ref_gelu(double x);
double tri_ref_gelu_grad(double x);

#endif
