/* Where the time of traced steps went, from trace.json: of each rank, each operator, each axis.
 *
 * A rank's time is what the row of its computation shows. It computes; or it is at a message, where
 * the time until the last rank has begun it counts as waiting; or it waits for a message beside the
 * computation; or none of these. The four add up to the step. The first step warms caches up and is
 * left out where there are others. Times are means of a step. */
#ifndef TRI_RUN_PROFILE_H
#define TRI_RUN_PROFILE_H

#include <stddef.h>

#include "run/trace/trace_read.h"

enum { TRI_PROFILE_NAME = 40, TRI_PROFILE_MOST_OPS = 128, TRI_PROFILE_MOST_AXES = 64 };

typedef struct tri_profile_rank {
    bool present;
    double step_s, compute_s, message_s, wait_s, idle_s;
    int waits_for; /* the rank that it waits longest for; -1: for none */
    double waits_for_s;
} tri_profile_rank;

/* Of all ranks together, until it is shown. */
typedef struct tri_profile_op {
    char name[TRI_PROFILE_NAME];
    int64_t calls;
    double seconds, flops, bytes;
    double limit_s; /* at the peaks of the device; 0: they are not known */
} tri_profile_op;

typedef struct tri_profile_axis {
    char name[TRI_PROFILE_NAME];      /* of the group: "dp" */
    char operation[TRI_PROFILE_NAME]; /* "all_reduce" */
    int64_t calls;
    double seconds, bytes;
    double late_s;    /* of the time, until the last rank had begun it: the rest is transfer */
    double hidden_s;  /* of the time, while the rank computed */
    double exposed_s; /* of the transfer, while the rank waited */
} tri_profile_axis;

typedef struct tri_profile {
    tri_trace_head head;
    int64_t first_step, num_steps;            /* that were looked at */
    int num_present;                          /* ranks with events */
    tri_profile_rank *ranks;                  /* [head.num_ranks] */
    tri_profile_op ops[TRI_PROFILE_MOST_OPS]; /* those that take longest first */
    size_t num_ops;
    tri_profile_axis axes[TRI_PROFILE_MOST_AXES];
    size_t num_axes;
} tri_profile;

tr_status tri_profile_read(tri_profile *profile, const char *path, tr_error *err);
void tri_profile_free(tri_profile *profile); /* also one of zeros */

#endif
