/* Numbers that differ from step to step: the rows of the input `sched`, f32 [rows].
 *
 * A schedule or an update rule adds the rows that it reads, each with the function that the host
 * fills it by; operators know them by their number (tri_update_attr). Whoever fills the input goes
 * by the table and knows none of the rows. */
#ifndef TRI_GRAPH_STEP_ROWS_H
#define TRI_GRAPH_STEP_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* What rows are made of. */
typedef struct tri_step_now {
    int64_t step; /* from 0 */
    double lr;    /* what the schedule of the learning rate has for it */
    double nth; /* this update, among those that write something, from 1: moments know no others */
    double loss_limit; /* above which a loss is a spike, and its step writes nothing */
} tri_step_now;

typedef struct tri_step_row {
    const char *name; /* a literal: "lr", "adam.bias1" */
    double (*value)(const tri_step_now *now, double constant);
    double constant;
} tri_step_row;

enum { TRI_MAX_STEP_ROWS = 16 };

typedef struct tri_step_rows {
    tri_step_row row[TRI_MAX_STEP_ROWS];
    size_t num;
} tri_step_rows;

/* The learning rate, which optim.c adds first. */
enum { TRI_STEP_LR = 0 };

#endif
