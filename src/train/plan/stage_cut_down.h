/* A model of fewer layers, of which a stage has the same program, or one that is extended to it. */
#ifndef TRI_TRAIN_STAGE_CUT_DOWN_H
#define TRI_TRAIN_STAGE_CUT_DOWN_H

#include "compile/pipeline.h"

/* How many layers can be taken out of each chunk of a stage, so that enough are left to
 * see which of them repeat; 0: its layers may differ. */
uint32_t tri_stage_most_steps(const tri_pipeline *pipeline, uint32_t stage,
                              const tri_compile_config *config);

/* Whether sums of gradients repeat with the layers. They are summed over dp when so many bytes are
 * complete: never before the end, or in every layer. params: of a model that was cut down. */
bool tri_stage_buckets_repeat(const tri_compile_config *config, const tri_param_table *params);

/* Takes so many layers out of each chunk of a stage, and those layers of other stages that are not
 * its neighbours' only ones. *chunks: what config then points at; the caller frees it. Models whose
 * layers differ stay as they are. */
tr_status tri_stage_cut_down(const tri_pipeline *pipeline, uint32_t stage, uint32_t steps,
                             tri_compile_config *config, int **chunks, tr_error *err);

#endif
