/* Attention in the words of cuDNN's graph API. */
#ifndef TRI_DEVICE_CUDA_DNN_DNN_GRAPH_H
#define TRI_DEVICE_CUDA_DNN_DNN_GRAPH_H

#include <cudnn_graph.h>

#include "device/cuda/dnn/dnn.h"

/* The entry points in use, all of cudnn_graph.h. */
typedef struct tri_dnn_api {
    __typeof__(&cudnnBackendCreateDescriptor) create;
    __typeof__(&cudnnBackendDestroyDescriptor) destroy;
    __typeof__(&cudnnBackendSetAttribute) set;
    __typeof__(&cudnnBackendGetAttribute) get;
    __typeof__(&cudnnBackendFinalize) finalize;
    __typeof__(&cudnnBackendExecute) execute;
} tri_dnn_api;

/* Names of the tensors that a call brings along. */
enum {
    TRI_DNN_Q = 1,
    TRI_DNN_K,
    TRI_DNN_V,
    TRI_DNN_O,
    TRI_DNN_LSE,
    TRI_DNN_ALPHA,  /* these three are numbers of the host */
    TRI_DNN_MASKED, /* the score of a pair that the mask hides */
    TRI_DNN_ONE,
    TRI_DNN_DOUT,
    TRI_DNN_DQ,
    TRI_DNN_DK,
    TRI_DNN_DV,
    TRI_DNN_DELTA,  /* [B, H, T] in f32, scratch of the gradient */
    TRI_DNN_DQ_SUM, /* dq in f32, likewise, where it is summed in any order */
    TRI_DNN_INNER   /* from here on: what never leaves the kernel */
};

enum { TRI_DNN_MOST_MADE = 128, TRI_DNN_MOST_OPS = 32 };

/* A graph while it is described. Descriptors are kept so that they can be dropped together; after
 * a failure nothing more is made. */
typedef struct tri_dnn_graph {
    const tri_dnn_api *api;
    bool good;
    int64_t next_name;
    cudnnBackendDescriptor_t made[TRI_DNN_MOST_MADE], ops[TRI_DNN_MOST_OPS];
    int num_made, num_ops;
} tri_dnn_graph;

void tri_dnn_describe(tri_dnn_graph *graph, const tri_cuda_sdpa *call);

/* Also of use to what is built on a graph. */
cudnnBackendDescriptor_t tri_dnn_make(tri_dnn_graph *graph, cudnnBackendDescriptorType_t type);
void tri_dnn_set(tri_dnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                 cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                 const void *values);
void tri_dnn_finish(tri_dnn_graph *graph, cudnnBackendDescriptor_t descriptor);
void tri_dnn_drop(tri_dnn_graph *graph);

#endif
