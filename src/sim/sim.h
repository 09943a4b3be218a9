/* Timing a schedule: the machine that proves it (schedule/machine.h), with costs. */
#ifndef TRI_SIM_SIM_H
#define TRI_SIM_SIM_H

#include "schedule/index.h"

typedef struct tri_sim_rank {
    double start, end; /* of the first and the last action that computes */
    double busy;       /* within that span; the rest is bubble */
    double update;     /* of a synchronous step: begins at end; 0 length when updates are listed */
    /* Of an asynchronous schedule: idle time between the first backward and the last forward. */
    double steady_idle, steady_span;
    uint32_t peak_live;     /* chunks whose activations are held; freed at W or B */
    uint32_t num_chunks;    /* on this rank, all routes */
    uint32_t peak_versions; /* of the weights, summed over its chunks */
    double weight_copies;   /* the same in units of a rank's share of the layers */
    uint32_t staleness;     /* most updates that a gradient is behind the weights it changes */
    uint32_t num_messages;  /* sent */
    uint32_t peak_inbox;    /* most messages received, in issue order, and not used up: buffers */
} tri_sim_rank;

typedef struct tri_sim {
    tri_schedule_index index;
    double *start, *end; /* of every action, by the index's numbers */
    tri_sim_rank *ranks;
    double makespan;      /* from the first start to the last end, update included */
    double work;          /* of the busiest rank */
    double span;          /* longest of a rank, without the update */
    double bubble;        /* idle share of the rank with the longest idle time in its span */
    double idle;          /* that time */
    double activations;   /* of the rank with most, in units of a rank's layers x 1 micro-batch */
    double weight_copies; /* of the rank with most */
    uint32_t staleness;   /* likewise */
} tri_sim;

/* F = I = W = 1, B = I + W, the rest free. */
tri_action_costs tri_sim_unit_costs(void);
/* "F=1,I=1,W=1,B=2,comm=0,U=0,FB=3" over what is in *costs; B is I + W unless it is given. */
tr_status tri_sim_parse_costs(const char *text, tri_action_costs *costs, tr_error *err);

/* Runs the schedule, which must have passed tri_schedule_check and outlive the result. */
tr_status tri_sim_run(const tri_schedule *schedule, const tri_action_costs *costs, tri_sim *sim,
                      tr_error *err);
void tri_sim_fini(tri_sim *sim);

/* The same from times that come from elsewhere: begin, fill in start and end, finish. Of the costs
 * only those of the update are looked at. */
tr_status tri_sim_begin(const tri_schedule *schedule, tri_sim *sim, tr_error *err);
tr_status tri_sim_finish(tri_sim *sim, const tri_action_costs *costs, tr_error *err);

/* draw_text.c: one line for each rank, cells of the least time; false when it does not fit into
 * the columns (nothing is added then, and *needed says how many it takes). */
bool tri_sim_draw_text(const tri_sim *sim, uint32_t columns, tri_text *text, uint32_t *needed);
/* draw_svg.c */
tr_status tri_sim_draw_svg(const tri_sim *sim, const char *title, tri_text *text, tr_error *err);

#endif
