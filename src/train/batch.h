/* The rows of a batch, into the inputs of a program: which row goes to which rank and micro-batch,
 * and what fills the places past the end of the batch. */
#ifndef TRI_TRAIN_BATCH_H
#define TRI_TRAIN_BATCH_H

#include "train/session.h"

/* Memory of a value, or NULL when the program has none of that name. */
void *tri_session_host(const tri_session *session, int program, tri_host_value name,
                       uint32_t microbatch);
bool tri_session_has_sequences(const tri_session *session);

/* This rank's rows of the session's next step, unless they are there already; tells who wants to
 * know which samples they are. */
void tri_fill_train_batch(tri_session *session);
/* The rows of this step once more, for whichever program steps; and those of another data-parallel
 * rank in their place. */
void tri_fill_again(tri_session *session);
void tri_fill_rows_of(tri_session *session, int dp_rank);
/* The numbers of the next step: its own, and the rows of `sched`. */
void tri_fill_step_inputs(tri_session *session, double lr);
/* For the executor, while the device is at a step: fills the rows of the one after it. context: the
 * session. */
void tri_fill_ahead(void *context);
/* This rank's rows of the run-th run of the evaluation program; false when all rows are done. The
 * rows together are the same in every layout. */
bool tri_fill_eval_batch(tri_session *session, int64_t run);
void tri_fill_prompt(tri_session *session, const tri_prompt *prompt);

/* Row sources: the session's data, and made-up vectors for models without tokens. */
void tri_data_session_row(void *context, tri_split split, uint64_t sample, const tri_row *row);
void tri_vector_row(void *context, tri_split split, uint64_t sample, const tri_row *row);

#endif
