/* The time of a training step of a decoder in closed form: from its sizes and layout, without a
 * program. The operators of a layer, the schedule's formula, the messages. */
#ifndef TRI_SIM_STEP_ESTIMATE_H
#define TRI_SIM_STEP_ESTIMATE_H

#include "mesh/cluster.h"
#include "sim/like/software.h"

typedef enum tri_run_recompute {
    TRI_RUN_NONE,
    TRI_RUN_SELECTIVE, /* the core of attention */
    TRI_RUN_FULL
} tri_run_recompute;

typedef struct tri_run_sizes {
    double layers, hidden, heads, kv_heads, ffn, vocab, seq;
    bool gated; /* SwiGLU, RMSNorm, no biases, no dropout */
    bool bits8; /* products of layers have operands of 8 bits */
    double tp, pp, vpp, dp, cp;
    bool sequence_parallel;
    double micro_batch, micro_batches; /* rows; of a rank of dp */
    double zero;                       /* 0 to 3 */
    tri_run_recompute recompute;
} tri_run_sizes;

/* Seconds; of a layer and of one micro-batch unless it says otherwise. */
typedef struct tri_step_estimate {
    double forward, backward; /* with messages that show, and what is computed again */
    double head;              /* and the loss, forward and backward */
    double compute;           /* of a step, without the bubble */
    double bubble;
    double gradients; /* of a step: their sums, as far as they show */
    double update;
    double step;
} tri_step_estimate;

tri_step_estimate tri_estimate_step(const tri_run_sizes *run, const tri_software *software,
                                    const tri_device_profile *profile, const tri_cluster *cluster);

#endif
