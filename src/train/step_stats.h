/* Statistics of programs, as the host reads them. */
#ifndef TRI_TRAIN_STEP_STATS_H
#define TRI_TRAIN_STEP_STATS_H

#include "train/session.h"

/* Of several runs of the evaluation program together; one for each of the program's. */
typedef struct tri_eval_stats {
    const tri_program *program;
    double joined[TRI_MAX_STATS];
} tri_eval_stats;

tri_eval_stats tri_eval_stats_begin(const tri_session *session);
/* One more run, which is done. */
void tri_eval_stats_join(tri_eval_stats *stats, const tri_session *session);
/* By its row of the table; NAN: the program has no such statistic. */
double tri_eval_stats_of(const tri_eval_stats *stats, size_t row);

/* What a step shows beside its loss. */
typedef struct tri_shown {
    const char *name;
    int digits; /* in lines of progress; 0: it is in metrics.jsonl alone */
    double value;
} tri_shown;

/* At most: what a program shows, and what the host makes of the loads of experts. */
enum { TRI_MAX_STEP_SHOWN = TRI_MAX_SHOWN + 1 };

size_t tri_session_num_shown(const tri_session *session);
/* Of the step that was done last. */
tri_shown tri_session_shown(const tri_session *session, size_t i);

#endif
