/* Attention by cuDNN, which is opened at run time. Without it, and for what it does not take, the
 * kernels of attention.cu do the work. */
#ifndef TRI_DEVICE_CUDA_DNN_DNN_H
#define TRI_DEVICE_CUDA_DNN_DNN_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention, or its gradient, over the whole of each batch row. Every head and position is dense;
 * steps are the elements from one position to the next. */
typedef struct tri_cuda_sdpa {
    bool grad, causal;
    bool any_order; /* the gradient may add in any order, and differ in its last bits */
    tri_dtype dtype;
    int64_t num_batch, num_pos, heads, key_heads, width;
    int64_t q_step, k_step, o_step; /* of q and dq; of k, v, dk and dv; of o and do */
    float alpha;
    const void *q, *k, *v;
    void *o, *lse; /* written by the forward, read by the gradient; lse is [B, H, T] in f32 */
    const void *dout;
    void *dq, *dk, *dv;
} tri_cuda_sdpa;

/* False when cuDNN is not here or has nothing for this call within the scratch. */
bool tri_cuda_dnn_attention(tri_cuda *cuda, const tri_cuda_sdpa *call);

/* Scratch that a call may use; 0 for calls that are not given to cuDNN, whose sizes alone (not the
 * addresses) decide. */
size_t tri_cuda_dnn_scratch(const tri_cuda_sdpa *call);

/* NULL when there is no cuDNN of version 9.10 or newer: nothing is wrong then. stream NULL: not to
 * run, but to plan for the device that `properties` describes in cuDNN's JSON. */
tri_cuda_dnn *tri_cuda_dnn_open(void *stream, const char *properties);
void tri_cuda_dnn_close(tri_cuda_dnn *dnn);
/* 91400 for 9.14.0; 0 when there is none. */
size_t tri_cuda_dnn_version(void);

/* Workspace of the plan for a call, or -1 when there is none. */
int64_t tri_cuda_dnn_plan(tri_cuda_dnn *dnn, const tri_cuda_sdpa *call);

#ifdef __cplusplus
}
#endif

#endif
