/* What language models share: their inputs, and what follows the last layer. */
#ifndef TRI_MODEL_SEQUENCE_H
#define TRI_MODEL_SEQUENCE_H

#include "model/model.h"

/* tokens, positions, rows, step, and docs where the batch has them; targets and index are added by
 * the head. */
tri_batch_inputs tri_sequence_inputs(tri_graph *graph, const tri_batch_shape *batch);

/* Logits of x by the table `weight`: of all positions, with the cross-entropy against the targets;
 * or, when predicting or generating, of one position per row, for the host. */
void tri_language_head(tri_graph *graph, tri_mode mode, const tri_batch_shape *batch,
                       const char *weight, tri_id x);

/* The end of a model with logits: the cross-entropy against targets of this shape, which in
 * evaluation also counts right answers; or, when predicting, the logits for the host. */
void tri_finish_logits(tri_graph *graph, tri_mode mode, tri_id logits, tri_shape targets);

/* The heads must divide the width, and sequences must not be longer than the model knows. */
tr_status tri_check_heads(const tri_model_config *config, tr_error *err);
tr_status tri_check_positions(const tri_model_config *config, const tri_batch_shape *batch,
                              tr_error *err);

#endif
