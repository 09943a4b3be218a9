/* The GPU as a device: what its kernels share. Read by C and by nvcc.
 *
 * A kernel's run function only enqueues work on the stream: it never waits, allocates or copies to
 * the host, so that a whole step can be captured as a CUDA graph and replayed. Operands are device
 * addresses; what differs from step to step (the step number, the learning rate) is read on the
 * device. Results do not depend on the order in which blocks happen to run: no floating-point
 * atomics.
 *
 * Types: every operator takes f32, and bf16 and f16 for all operands that the operator table does
 * not call wide (tri_op_def.wide_in, wide_out); an output that accumulates has the type of its
 * state, so it may be f32 while the inputs are 16-bit. Arithmetic is in f32 throughout. */
#ifndef TRI_DEVICE_CUDA_CUDA_H
#define TRI_DEVICE_CUDA_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "device/kernel.h"

typedef struct tri_cuda_blas tri_cuda_blas;   /* cuBLASLt, opened at run time */
typedef struct tri_cuda_dnn tri_cuda_dnn;     /* cuDNN, likewise; attention does without it */
typedef struct tri_cuda_lanes tri_cuda_lanes; /* streams beside the stream, lanes.h */

/* Which kernels do products with the matrices of experts: what comes first takes what it can, the
 * next ones the rest. */
typedef enum tri_cuda_products {
    TRI_PRODUCTS_TMA,   /* Hopper's warpgroups and its copy engine */
    TRI_PRODUCTS_MMA,   /* tensor cores of any GPU */
    TRI_PRODUCTS_PLAIN, /* any operands */
} tri_cuda_products;

/* Reached from a kernel as args->device. */
typedef struct tri_cuda {
    void *stream;  /* cudaStream_t */
    void *scratch; /* device memory, as large as the kernel that is called asked for */
    size_t scratch_bytes;
    int num_sms;
    bool tf32;                  /* products of f32 operands may round them to tf32 */
    bool any_order;             /* sums need not run in a fixed order */
    bool tune;                  /* how large products are done is measured first */
    tri_cuda_products products; /* the first that may be used */
    tri_cuda_blas *blas;
    tri_cuda_dnn *dnn;     /* NULL when it is not here */
    tri_cuda_lanes *lanes; /* NULL until there is one */
} tri_cuda;

/* The kernel of an operator, or NULL where there is none. */
const tri_kernel *tri_cuda_kernel(tri_op op);

/* False for operands that the kernel of an operator is not made for. */
bool tri_cuda_takes(tri_op op, const tri_kernel_args *args);
/* The same for attention, whose plans are made here. */
bool tri_cuda_attention_takes(tri_op op, const tri_kernel_args *args);
/* Measures how a large product is done best. */
void tri_cuda_matmul_prepare(const tri_kernel_args *args);

/* One row each, by the .cu file of its family. */
extern const tri_kernel tri_cuda_matmul;
extern const tri_kernel tri_cuda_amax, tri_cuda_quantise, tri_cuda_add, tri_cuda_bias_add,
    tri_cuda_bias_grad, tri_cuda_act, tri_cuda_act_grad, tri_cuda_dropout, tri_cuda_jitter,
    tri_cuda_accumulate, tri_cuda_axpby, tri_cuda_cast, tri_cuda_swiglu, tri_cuda_swiglu_grad;
extern const tri_kernel tri_cuda_embed, tri_cuda_embed_grad, tri_cuda_select_row,
    tri_cuda_select_row_grad, tri_cuda_gather_rows;
extern const tri_kernel tri_cuda_layernorm, tri_cuda_add_layernorm, tri_cuda_layernorm_grad,
    tri_cuda_layernorm_param_grad;
extern const tri_kernel tri_cuda_rmsnorm, tri_cuda_add_rmsnorm, tri_cuda_rmsnorm_grad,
    tri_cuda_rmsnorm_param_grad;
extern const tri_kernel tri_cuda_layernorm_grads, tri_cuda_rmsnorm_grads, tri_cuda_cross_entropy;
extern const tri_kernel tri_cuda_fit_rooms;
extern const tri_kernel tri_cuda_slice, tri_cuda_block, tri_cuda_unblock, tri_cuda_ce_combine;
extern const tri_kernel tri_cuda_unslice;
extern const tri_kernel tri_cuda_rope, tri_cuda_split_qkv, tri_cuda_join_qkv, tri_cuda_attention,
    tri_cuda_attention_grad, tri_cuda_attention_merge, tri_cuda_cache_write;
extern const tri_kernel tri_cuda_ce_stats, tri_cuda_ce_loss, tri_cuda_ce_grad, tri_cuda_out_loss,
    tri_cuda_out_loss_grad;
extern const tri_kernel tri_cuda_pack_rooms, tri_cuda_mask_rows;
extern const tri_kernel tri_cuda_drop_rows, tri_cuda_count_dropped, tri_cuda_largest;
extern const tri_kernel tri_cuda_route, tri_cuda_route_grad, tri_cuda_route_sums,
    tri_cuda_route_sums_grad, tri_cuda_route_load, tri_cuda_balance, tri_cuda_balance_grad,
    tri_cuda_move_bias;
extern const tri_kernel tri_cuda_gate_rows, tri_cuda_gate_rows_grad, tri_cuda_sort_rows,
    tri_cuda_grouped, tri_cuda_grouped_grad, tri_cuda_grouped8, tri_cuda_grouped8_grad,
    tri_cuda_swiglu_rows, tri_cuda_swiglu_rows_grad, tri_cuda_grouped_swiglu,
    tri_cuda_grouped_swiglu_grad, tri_cuda_grouped_sum;
extern const tri_kernel tri_cuda_sum_squares, tri_cuda_fill, tri_cuda_finish, tri_cuda_sgd,
    tri_cuda_adam, tri_cuda_adam8, tri_cuda_lion, tri_cuda_momentum, tri_cuda_unit_norm,
    tri_cuda_apply_update, tri_cuda_narrow;

#ifdef __cplusplus
}
#endif

#endif
