/* samples/rank-N.jsonl: which samples a rank trained on, one line a step.
 *
 *     {"step":3,"rank":1,"dp":1,"samples":[28,29,30,31],"windows":[903,17,442,61],
 *      "time":1790000000.123}
 *
 * It shows that every sample came once, whatever the layout, and also across a change of it. */
#ifndef TRI_TRAIN_LOG_RECORD_H
#define TRI_TRAIN_LOG_RECORD_H

#include "train/session.h"

typedef struct tri_record tri_record;

typedef struct tri_record_config {
    const char *dir; /* is made when it is not there */
    int rank, num_ranks;
    bool resumed; /* lines of the first `step` steps stay, also of ranks that are no more */
    int64_t step;
} tri_record_config;

/* A record from before is replaced, or continued when the run is. The session tells the record what
 * it fills, so it must not step after the record is closed. */
tr_status tri_record_open(const tri_record_config *config, tri_session *session,
                          tri_record **record, tr_error *err);
/* Writes the line of a step, from 1. As with metrics, only the first failure is reported. */
tr_status tri_record_step(tri_record *record, int64_t step, tr_error *err);
void tri_record_close(tri_record *record); /* NULL is fine */

#endif
