/* The schedule of one rank: which actions it runs, in which order, and which layers are its own. A
 * rank without a pipeline has a schedule too: one chunk, and no messages. */
#ifndef TRI_COMPILE_PIPELINE_H
#define TRI_COMPILE_PIPELINE_H

#include "compile/compile.h"
#include "place/stages.h"
#include "schedule/schedule.h"

typedef struct tri_pipeline {
    bool exists;           /* layout.pp > 1 */
    tri_schedule schedule; /* of all ranks of the pipeline, with messages */
    tri_stages stages;
    tri_action_list actions; /* of this rank */
    uint32_t num_updates;    /* in a step, of an asynchronous schedule; 0: one, at its end */
    double *layer_costs;     /* [layers + 2]: of each one's forward, once they are divided */
    bool *splits;            /* [chunk]: its backward is run as I and W */
    bool borrowed;           /* the schedule is another's (config->made_schedule) */
} tri_pipeline;

/* Builds, completes and proves the schedule of the pipeline, if there is one. */
tr_status tri_pipeline_init(tri_pipeline *pipeline, const tri_compile_config *config,
                            tr_error *err);
/* Whether there can be such a pipeline, before anything is compiled: the error names the setting.
 */
tr_status tri_pipeline_check(const tri_compile_config *config, tr_error *err);
/* Divides the layers of the model over the chunks, alike for the programs of all modes. */
tr_status tri_pipeline_divide(tri_pipeline *pipeline, const tri_compile_config *config,
                              const tri_param_table *params, tr_error *err);
/* Refuses parameters that several ranks hold where those update by themselves. */
tr_status tri_pipeline_check_homes(const tri_pipeline *pipeline, const tri_param_table *params,
                                   const tri_homes *homes, tr_error *err);
/* The factor by which the backward starts larger. The gradients of an asynchronous schedule are
 * means over the micro-batches of one update, not over the whole batch. */
float tri_pipeline_seed(const tri_pipeline *pipeline, const tri_compile_config *config);
/* Whether the backward of a chunk is run as I and W. */
bool tri_pipeline_splits(const tri_pipeline *pipeline, const tri_compile_config *config, int chunk);
/* What this rank does for a program of this mode. */
tr_status tri_pipeline_actions(tri_pipeline *pipeline, const tri_compile_config *config,
                               tri_mode mode, const tri_graph *graph, tr_error *err);
void tri_pipeline_fini(tri_pipeline *pipeline);

#endif
