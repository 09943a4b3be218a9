/* What the parts of trireme sim share. */
#ifndef TRI_CLI_VERBS_VERB_SIM_H
#define TRI_CLI_VERBS_VERB_SIM_H

#include "cli/cli.h"
#include "sim/sim.h"

/* A schedule that is built, proven and timed; with its messages. */
typedef struct tri_sim_case {
    tri_schedule schedule;
    tri_sim sim;
    size_t num_computing; /* actions before messages were added */
} tri_sim_case;

tr_status tri_sim_case_init(tri_sim_case *c, const tri_schedule_config *config,
                            const tri_action_costs *costs, tr_error *err);
/* The second half of it: of a schedule that is built, and is freed on failure. */
tr_status tri_sim_case_time(tri_sim_case *c, const tri_action_costs *costs, tr_error *err);
void tri_sim_case_fini(tri_sim_case *c);

/* Tables and the picture in letters. The unit is that of times: "ms". */
tr_status tri_sim_show_times(const tri_sim_case *c, const char *unit, tr_error *err);
/* With --json where the file was written goes to standard error. */
tr_status tri_sim_write_svg(const tri_cli *cli, const tri_sim_case *c, const char *title,
                            tr_error *err);

/* verb_sim_model.c: the pipeline of a layout, with the times of its programs on --device. */
tr_status tri_sim_model(const tri_cli *cli, tr_error *err);

/* sim_like.c: the step of another software. */
tr_status tri_sim_like(const tri_cli *cli, tr_error *err);

/* verb_sim_trace.c: the pipeline of a run, from its traces. */
tr_status tri_sim_trace(const tri_cli *cli, tr_error *err);

/* Every schedule of the table side by side; costs are those of all layers of a rank. */
tr_status tri_sim_compare(const tri_cli *cli, const tri_schedule_config *sizes,
                          const tri_action_costs *costs, tr_error *err);

#endif
