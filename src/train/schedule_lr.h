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

typedef enum tri_lr_kind {
    TRI_LR_CONSTANT,
    TRI_LR_LINEAR,
    TRI_LR_COSINE,
    TRI_LR_WSD,
    TRI_NUM_LR_KINDS
} tri_lr_kind;

typedef struct tri_lr_schedule {
    tri_lr_kind kind;
    double lr;        /* the highest */
    double min_ratio; /* of the last step's rate to lr */
    int64_t steps;    /* of the whole run */
    int64_t warmup_steps;
    int64_t decay_steps; /* wsd only; 0: a fifth of the steps */
} tri_lr_schedule;

double tri_lr_at(const tri_lr_schedule *schedule, int64_t step);

const char *tri_lr_kind_name(tri_lr_kind kind); /* "constant", "linear", "cosine", "wsd" */
bool tri_lr_kind_parse(const char *name, tri_lr_kind *kind);

#endif
