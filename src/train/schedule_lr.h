/* The learning rate of each step.
 *
 *     warm-up      steps 0 .. warmup_steps - 1: lr * (step + 1) / warmup_steps
 *     constant     lr from then on
 *     linear       from lr at step warmup_steps down to lr * min_ratio at the last step
 *     cosine       the same along half a cosine
 *     wsd          lr, then over the last decay_steps steps a straight line to lr * min_ratio
 *
 * Steps after the last keep its rate. Where there is no room for what was asked for, warm-up comes
 * first; a run of one step without warm-up takes lr. */
#ifndef TRI_TRAIN_SCHEDULE_LR_H
#define TRI_TRAIN_SCHEDULE_LR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/settings/row.h"
#include "trireme/settings.h"

typedef struct tri_lr_def tri_lr_def;

typedef struct tri_lr_schedule {
    const tri_lr_def *def; /* NULL: constant */
    double lr;             /* the highest */
    double min_ratio;      /* of the last step's rate to lr */
    int64_t steps;         /* of the whole run */
    int64_t warmup_steps;
    int64_t decay_steps;         /* wsd only; 0: a fifth of the steps */
    const tr_settings *settings; /* where one from outside the tree finds its own */
} tri_lr_schedule;

struct tri_lr_def {
    const char *kind;
    bool falls; /* to lr * min_ratio */
    /* That of a step after the warm-up. */
    double (*rate)(const tri_lr_schedule *schedule, int64_t step);
    tri_owned own;
    /* Its own members; the others are filled in. NULL: it has none. */
    void (*read)(const tr_settings *settings, tri_lr_schedule *schedule);
};

extern const tri_setting tri_lr_kind_row;            /* optim.schedule */
const tri_lr_def *tri_lr_def_at(size_t i);           /* or NULL past the end */
const tri_lr_def *tri_lr_def_find(const char *kind); /* or NULL */

double tri_lr_at(const tri_lr_schedule *schedule, int64_t step);

#endif
