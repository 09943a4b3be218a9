/* Which stages of a pipeline run the same program, but for its timeline. */
#ifndef TRI_TRAIN_STAGE_KINDS_H
#define TRI_TRAIN_STAGE_KINDS_H

#include "compile/pipeline.h"
#include "train/session.h"

/* like: of each stage the first of its kind, where that is not the stage itself, as the caller has
 * filled in. With steps, those are alike too that are without so many layers of each of their
 * chunks. */
tr_status tri_stage_kinds(const tri_session_config *config, const tri_pipeline *pipeline,
                          const uint32_t *steps, uint32_t *like, tr_error *err);

#endif
