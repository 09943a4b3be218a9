/* How a rank is doing: what each step took of its own time, told to the others and shown in its
 * status. Rank 0 judges all of them. */
#ifndef TRI_TRAIN_HEALTH_HEALTH_H
#define TRI_TRAIN_HEALTH_HEALTH_H

#include "train/health/slow.h"

typedef struct tri_health {
    const tri_session *session;
    float work;          /* of the training program: arithmetic */
    tri_own_time begin;  /* when the clock was last set going */
    uint64_t begin_ns;   /* 0: it stands */
    tri_own_time passed; /* before that, since the last word */
    int64_t passed_ns;
    tri_slow *slow; /* on rank 0 of several, otherwise NULL */
} tri_health;

/* Before the first step. */
tr_status tri_health_open(tri_health *health, const tri_session *session, const tri_ranks *ranks,
                          tr_error *err);
void tri_health_close(tri_health *health);
/* What happens between the two is no part of a step: evaluation, checkpoints. */
void tri_health_pause(tri_health *health);
void tri_health_resume(tri_health *health);
/* What went by since the last word; the clock goes on. wishes: for tri_ranks_meet. */
tri_rank_word tri_health_word(tri_health *health, unsigned wishes);

#endif
