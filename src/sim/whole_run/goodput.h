/* A whole run on a cluster that stops now and then: how long it really takes, how often it should
 * save, and where the time goes.
 *
 * The model. Stops come at random, at the sum of the devices' rates, also during saves and
 * restarts. After one, the run restarts and goes on from the newest save that is whole. A save
 * stands in the way of steps for a part of its time and is written beside them for the rest; a stop
 * before it is whole loses it. The next save begins when the last one is whole. A step ends with
 * the slowest device. What follows is the exact mean of the time under these rules, not an
 * approximation for rare stops. */
#ifndef TRI_SIM_WHOLE_RUN_GOODPUT_H
#define TRI_SIM_WHOLE_RUN_GOODPUT_H

#include <stdint.h>

#include "base/error.h"
#include "sim/whole_run/slowest.h"

/* Times are seconds. */
typedef struct tri_goodput_case {
    double num_devices;   /* that take part in a step */
    double device_mtbf_s; /* from a stop that one device causes to the next */
    double step_s;        /* of a device that waits for no other */
    double num_steps;     /* fractions and all */
    double save_s;        /* from the begin of a save until it is whole */
    double blocking;      /* the share of it in which steps stand still, 0 to 1 */
    double restart_s;     /* to notice, start again and load */
    double interval_s;    /* of steps between saves; 0: the best */
    tri_jitter jitter;
    double num_spares; /* each stop takes out one place of the cluster, which a spare fills */
    double repair_s;   /* until it is a spare again, in the mean; 0: there is always a spare */
} tri_goodput_case;

typedef struct tri_goodput {
    double num_devices;    /* of the case */
    double mtbf_s;         /* of all devices together */
    double slowest;        /* a step takes so many times step_s */
    double interval_s;     /* steps between saves, with waiting for the slowest */
    double interval_steps; /* whole when it was not given */
    double young_s;        /* what the formulas of Young (1974) and Daly (2006) say, for the */
    double daly_s;         /* part of a save that blocks */
    double ideal_s;        /* num_steps * step_s */
    double wall_s;         /* the run: ideal_s and the next five */
    double jitter_s;       /* waiting for the slowest */
    double saves_s;        /* steps stand still */
    double lost_s;         /* work, and saves, that a stop undid */
    double restarts_s;
    double waiting_s; /* for a repair, without a spare */
    double num_saves; /* that the run went on from, or ended with */
    double num_stops;
    double stop_s;    /* what one costs: lost work, restart, waiting */
    double effective; /* the share of wall_s in which steps ran that count */
    double goodput;   /* the share that is ideal_s */
} tri_goodput;

/* Wrong input for a case that has no sense, or in which the run hardly ever gets from a save to the
 * next. */
tr_status tri_goodput_of(const tri_goodput_case *c, tri_goodput *g, tr_error *err);

/* The same work on another number of devices: as many device hours, in steps as long. With the best
 * interval. */
tri_goodput_case tri_goodput_resized(const tri_goodput_case *c, double num_devices);

/* What a simulation of a run came to. */
typedef struct tri_goodput_trial {
    double wall_s;
    int64_t num_stops, num_saves;
    int64_t num_steps; /* begun, those that were lost among them */
} tri_goodput_trial;

/* Runs once, device by device: every device has its own times to the next stop, and its own time in
 * each step. From the 129th step on, which adds nothing, a step takes the mean of those before.
 * Needs 9 bytes a device. run: a number for each run of a seed. */
tr_status tri_goodput_simulate(const tri_goodput_case *c, uint64_t seed, uint32_t run,
                               tri_goodput_trial *trial, tr_error *err);

#endif
