/* The machine that proves schedules, and times them.
 *
 * A rank issues its actions in order to lanes and does not wait. Everything that computes shares
 * one lane; messages have one lane for each neighbour and direction, or, merged, one for them all.
 * An action starts when those before it in its lane have ended and what it needs is there. A send
 * and its receive are one transfer: it starts when both stand at the head of their lanes, and
 * occupies both. There is no hidden buffering, so what finishes here finishes on any transport. */
#ifndef TRI_SCHEDULE_MACHINE_H
#define TRI_SCHEDULE_MACHINE_H

#include "schedule/index.h"

typedef struct tri_machine_options {
    bool merged; /* all messages of a rank in one lane */
    /* An overlapped pair starts when both halves can, and ends as one. Otherwise F, then B. */
    bool pairs;
    tri_action_costs costs;
} tri_machine_options;

/* Start and end of every action, by the index's numbers. Schedules without messages run as well:
 * what crosses ranks then arrives costs.message after it was made. The error of a schedule that
 * gets stuck names the actions that wait for each other. start and end may be NULL. */
tr_status tri_machine_run(const tri_schedule_index *index, const tri_machine_options *options,
                          double *start, double *end, tr_error *err);

#endif
