/* One row of the operator table. */
#ifndef TRI_GRAPH_OP_TABLE_H
#define TRI_GRAPH_OP_TABLE_H

#include "graph/graph.h"

typedef struct tri_cost {
    double flops;
    double bytes; /* read and written, each operand once */
} tri_cost;

/* A placement rule: from how the inputs lie over one factor of the grid, whole or cut, to how they
 * must lie, and how the outputs then do. `in` of absent inputs is whole. It may change `in` to what
 * it needs. Where terms pass through (linear, linear_in) no rule is asked. */
typedef void (*tri_place_rule)(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                               tri_spot *out);

/* A product of two tensors, as its placement sees it: where the contracted and the free dims of
 * each operand begin. The result has the free dims of a, then those of b. */
typedef struct tri_product {
    int contract_a, contract_b, num_contracted;
    int free_a, free_b, num_free_a;
    bool gather_b; /* free dims of both are cut over the axis: b is gathered then, otherwise a */
} tri_product;
/* The rule of every product, of the pass and of the calculator: in[2] as in a tri_place_rule. Each
 * factor is a call of its own. */
void tri_place_product(const tri_product *product, tri_spot *in, tri_spot *out);

typedef struct tri_op_def {
    const char *name;
    const char *inputs; /* for people: "x [...,D], gain [D], shift [D]" */
    const char *outputs;
    const char *suffix[TRI_MAX_OUT]; /* outputs are named "node" + "." + suffix; none for NULL */
    const char *meaning;             /* what it computes, in one or two lines */
    tri_attr_family family;          /* which of its attributes it reads */
    uint8_t min_in, max_in, min_out, max_out;
    /* Output k replaces input updates[k] - 1 in place: it is a state's new version (0: it is not).
     */
    uint8_t updates[TRI_MAX_OUT];
    uint16_t may_alias[TRI_MAX_OUT]; /* bit j: output k may take over the memory of input j */
    uint8_t can_accumulate;          /* bit k: output k may be an accumulator */
    uint16_t optional;               /* bit j: input j may be absent */
    /* It travels in a message: to other ranks, or to another place of memory. Neighbours in memory
     * may share one. */
    bool communicates;
    /* What stays f32 when activations are 16-bit: statistics, the gains of norms, states of update
     * rules. Bit j or k: that input or output is always f32. Every other output has the type of the
     * first float input that may be narrow; an accumulator has the type of its state. */
    uint16_t wide_in;
    uint8_t wide_out;
    uint8_t copies; /* bit k: output k is a weight's 16-bit copy: bf16 rounds as base/half.h says */
    bool moves; /* it only moves elements: outputs have the first input's type, whatever it is */

    /* Checks inputs and attributes and fills the outputs' shapes (and dtypes, preset by the rule
     * above). shapes of absent inputs have rank -1. */
    tr_status (*infer)(const tri_node *node, const tri_shape *in, tri_shape *out,
                       tri_dtype *out_dtype, tr_error *err);
    /* Emits the backward of a node. dout[k] is the gradient of output k or TRI_NONE; the rule fills
     * din[j] for the inputs that `wanted` asks for. NULL: no gradient passes. */
    void (*grad)(tri_graph *graph, tri_id node, const tri_id *dout, const bool *wanted,
                 tri_id *din);
    /* Arithmetic of one call. NULL: one operation per element of the outputs. Bytes are always the
     * sum of the operands unless the rule says otherwise. */
    double (*flops)(const tri_node *node, const tri_shape *in, const tri_shape *out);
    /* NULL: it needs whole inputs and makes whole outputs. */
    tri_place_rule place;
    bool linear; /* in all inputs together: sums pass through as terms when all of them are */
    /* Bit j: linear in input j, the others being whole and none of the optional ones there: terms
     * of that one give terms. */
    uint16_t linear_in;
    /* Bit j: linear in input j, and fewer bytes come out than go in: terms of that one pass in the
     * forward too, the others being whole. */
    uint16_t carries;
    /* Bit k: output k has the shape of input 0. Where the rule wanted that put together, it is cut
     * again as input 0 was. */
    uint8_t returns;
    uint8_t shape_in;    /* 1 + the input of which the shape alone is read; 0: there is none */
    tri_partial_how how; /* in which way terms that its rule makes are joined */
} tri_op_def;

const tri_op_def *tri_op_get(tri_op op);
/* The attributes of an operator: those that all have, and of its own family. */
tri_attr tri_attr_of(tri_op op, const tri_attr *attr);
/* Products and attention: what counts as work, since messages hide behind little else. */
bool tri_op_multiplies(tri_op op);
/* Whether nothing is set that belongs to another family (as far as these do not share memory). */
bool tri_attr_fits(tri_op op, const tri_attr *attr);
/* Of a product; NONE for any other operator. */
tri_epilogue tri_node_epilogue(const tri_node *node);
tri_cost tri_node_cost(const tri_graph *graph, const tri_node *node);
/* Of a norm and its gradients: how many of the last dims are a row. */
int tri_node_norm_dims(const tri_node *node);

/* Used by rules. */
tr_status tri_infer_same(const tri_node *node, const tri_shape *in, tri_shape *out,
                         tri_dtype *out_dtype, tr_error *err);
/* From the attributes: some ranks have no input to tell by. */
tr_status tri_infer_given(const tri_node *node, const tri_shape *in, tri_shape *out,
                          tri_dtype *out_dtype, tr_error *err);
/* That an optional input of places [B, P], of rank -1 where it is absent, fits x [B, T, ...]. */
tr_status tri_check_places(const tri_shape *x, const tri_shape *places, tr_error *err);
tri_shape tri_shape_scalar(int64_t count);      /* [n count] */
tri_shape tri_flat_shape(const tri_flat *flat); /* of this rank's slice */
/* Types of a node's outputs, as the masks of its row and of its attributes say; in[j] is NULL for
 * an absent input. */
void tri_infer_dtypes(tri_op op, const tri_attr *attr, const tri_value *const *in, int num_in,
                      tri_dtype *out, int num_out);

/* Placement rules that several operators share (place_rules.c). */
void tri_place_batch(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_sum(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_ce_loss(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_same(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_elementwise(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_rows(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_columns(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_bias(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_matmul(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_embed(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_embed_grad(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_heads(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_heads_grad(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_merge(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_cache_write(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_ce_stats(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_ce_combine(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_all_gather(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_ce_grad(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_total(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_by_index(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);
void tri_place_state(const tri_node *, const tri_shape *, tri_spot *, tri_spot *);

extern const tri_op_def tri_def_matmul;
extern const tri_op_def tri_def_amax, tri_def_quantise;
extern const tri_op_def tri_def_layernorm_grads, tri_def_rmsnorm_grads, tri_def_cross_entropy;
extern const tri_op_def tri_def_add, tri_def_bias_add, tri_def_bias_grad, tri_def_act,
    tri_def_act_grad, tri_def_dropout, tri_def_jitter, tri_def_accumulate, tri_def_axpby,
    tri_def_cast, tri_def_swiglu, tri_def_swiglu_grad;
extern const tri_op_def tri_def_embed, tri_def_embed_grad, tri_def_select_row,
    tri_def_select_row_grad, tri_def_gather_rows;
extern const tri_op_def tri_def_layernorm, tri_def_add_layernorm, tri_def_layernorm_grad,
    tri_def_layernorm_param_grad;
extern const tri_op_def tri_def_rmsnorm, tri_def_add_rmsnorm, tri_def_rmsnorm_grad,
    tri_def_rmsnorm_param_grad;
extern const tri_op_def tri_def_rope, tri_def_split_qkv, tri_def_join_qkv, tri_def_attention,
    tri_def_attention_grad, tri_def_attention_merge, tri_def_cache_write;
extern const tri_op_def tri_def_ce_stats, tri_def_ce_loss, tri_def_ce_grad, tri_def_out_loss,
    tri_def_out_loss_grad;
extern const tri_op_def tri_def_gate_rows, tri_def_gate_rows_grad, tri_def_route,
    tri_def_route_grad, tri_def_route_sums, tri_def_route_sums_grad, tri_def_route_load,
    tri_def_balance, tri_def_balance_grad, tri_def_move_bias, tri_def_drop_rows,
    tri_def_count_dropped, tri_def_largest, tri_def_sort_rows, tri_def_grouped,
    tri_def_grouped_grad, tri_def_grouped8, tri_def_grouped8_grad, tri_def_rooms, tri_def_dispatch,
    tri_def_collect, tri_def_pack_rooms, tri_def_mask_rows, tri_def_swiglu_rows,
    tri_def_swiglu_rows_grad, tri_def_grouped_swiglu, tri_def_grouped_swiglu_grad,
    tri_def_grouped_sum;
extern const tri_op_def tri_def_sum_squares, tri_def_fill, tri_def_finish, tri_def_sgd,
    tri_def_adam, tri_def_adam8, tri_def_lion, tri_def_momentum, tri_def_unit_norm,
    tri_def_apply_update, tri_def_narrow;
extern const tri_op_def tri_def_ce_combine, tri_def_slice, tri_def_block, tri_def_unblock,
    tri_def_fit_rooms;
extern const tri_op_def tri_def_unslice;
extern const tri_op_def tri_def_all_reduce, tri_def_all_gather, tri_def_reduce_scatter,
    tri_def_all_to_all, tri_def_all_to_all_rows, tri_def_shift, tri_def_shard_sum,
    tri_def_shard_gather, tri_def_unshard, tri_def_broadcast, tri_def_send, tri_def_recv,
    tri_def_fetch, tri_def_stash;

#endif
