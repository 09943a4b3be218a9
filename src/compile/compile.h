/* The order of the passes, and their only caller: model description in, step program out. */
#ifndef TRI_COMPILE_COMPILE_H
#define TRI_COMPILE_COMPILE_H

#include "graph/passes.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "optim/optim.h"
#include "place/elsewhere/place_spaces.h"
#include "program/program.h"
#include "recompute/recompute.h"

typedef struct tri_compile_config {
    tri_model_config model;
    tri_optim_config optim;
    int64_t batch; /* rows of the global batch */
    int64_t seq_len;
    int64_t loss_tile;   /* tokens of a row that have logits at a time, at most; 0: all */
    bool mask_documents; /* attention stays within a document */
    int64_t num_microbatches;
    tri_precision precision;
    tri_head_config head; /* what training computes of logits besides their loss */
    tri_mesh mesh;
    int rank;                   /* whose program it is */
    int zero;                   /* 0 to 3: what is divided over dp */
    bool keep_gathered;         /* zero 3: gathered weights stay for the step */
    bool sp;                    /* between the blocks of tp, activations are cut along T */
    tri_attention_keys cp_keys; /* cp: how attention gets the keys of other ranks, over cp_ring */
    bool whole_experts;         /* tp does not cut experts */
    double ep_room;      /* ep: rows that pairs of ranks have room for, see expand_experts.h */
    double bucket_bytes; /* zero 0: gradients are summed over dp when so much is complete */
    bool overlap;        /* messages may be under way beside the computation */
    bool lanes;          /* of the device, which keeps them apart by itself: no flights */
    bool in_place;       /* receives are not started before their place */
    uint64_t overlap_min_bytes; /* smaller ones are waited for where they stand */
    int prefetch;        /* zero 3: buckets of weights that are gathered ahead of their use */
    bool pairs;          /* forwards and backwards that a schedule pairs run as one */
    bool split_backward; /* run the backward as I then W instead of B */
    tri_recompute_config recompute;
    tri_spaces_config spaces; /* states that rest elsewhere than on the device */
    tri_fusions fusions;      /* what the device offers */
    tri_memory_needs memory;  /* and what it asks for */
    const char *schedule;     /* of a pipeline: a name of schedule/table.c, or csv:FILE */
    /* The same, built and proven by tri_pipeline_init for another rank; NULL: it is built anew. */
    const struct tri_schedule *made_schedule;
    int64_t chunks;     /* on each rank of it; 0: what the schedule has by default */
    const char *stages; /* layers of each chunk, "4,4,3,5"; "" or NULL: divided by cost */
    /* The chunks of the layers, of tri_stages, found for another rank; NULL: they are found anew.
     */
    const int *made_chunks;
    bool unproven; /* neither graphs nor programs are proven: for sums about them, not to be run */
    bool extends;  /* the caller puts layers in (program/extend/extend.h), and then plans flights */
} tri_compile_config;

/* Rows of one micro-batch of one rank: the batch divided over dp and micro-batches, rounded up
 * (rows past the end of the batch have no targets). */
int64_t tri_microbatch_rows(const tri_compile_config *config);

/* The constant that the backward starts from. For a mean over targets it would be one over their
 * number, which is known only when the batch is; one over the number of places is a constant of the
 * same size. Dividing by the true count is part of the factor that FINISH computes. */
float tri_loss_seed(const tri_compile_config *config);

/* The program for one mode. Evaluation and prediction run one micro-batch at a time.
 * graph_text, when given, receives the graph as it stands after the last pass. */
tr_status tri_compile(const tri_compile_config *config, const tri_param_table *params,
                      tri_mode mode, const tri_batch_shape *batch, tri_program *program,
                      tri_text *graph_text, tr_error *err);

#endif
