/* samples/rank-N.jsonl: which samples a rank trained on, one line a step.
 *
 *     {"step":3,"rank":1,"dp":1,"samples":[28,29,30,31],"windows":[903,17,442,61]}
 *
 * It shows that every sample came once, whatever the layout, and also across a change of it. */
#ifndef TRI_TRAIN_RECORD_H
#define TRI_TRAIN_RECORD_H

#include "train/session.h"

typedef struct tri_record tri_record;

/* dir is made when it is not there; a record of this rank from before is replaced. The session
 * tells the record what it fills, so it must not step after the record is closed. */
tr_status tri_record_open(const char *dir, int rank, tri_session *session, tri_record **record,
                          tr_error *err);
/* Takes away records of ranks from num_ranks on: they are of an earlier run. */
void tri_record_clean(const char *dir, int num_ranks);
/* Writes the line of a step. As with metrics, only the first failure is reported. */
tr_status tri_record_step(tri_record *record, int64_t step, tr_error *err);
void tri_record_close(tri_record *record); /* NULL is fine */

#endif
