/* What the parts of trireme sim FILE.yaml --device share. */
#ifndef TRI_CLI_VERBS_VERB_SIM_MODEL_H
#define TRI_CLI_VERBS_VERB_SIM_MODEL_H

#include <jansson.h>

#include "cli/sim/sim_machine.h"
#include "cli/sim/verb_sim.h"
#include "sim/step_sim.h"
#include "train/plan/stage_programs.h"

typedef struct tri_model_sim {
    const tri_cli *cli;
    tri_stage_programs stages;
    tri_sim_machine machine;
    /* With --profile, which then describes the machine, too. */
    bool is_measured;
    tri_measured profile;
    tri_measured_model measured;
    double pace[TRI_NUM_PACES], *brakes; /* run.pace; NULL: nobody is braked */
    tri_step_case of_step;
    tri_step_sim step;
    tri_sim_case schedule; /* the pipeline's actions in ms, where there is one */
    char title[320];
} tri_model_sim;

/* verb_sim_profile.c: the profile of --profile, and the device that it describes; the session's
 * settings on such a device; prices of the programs, once they are there. */
tr_status tri_model_sim_read_profile(tri_model_sim *m, tr_error *err);
tr_status tri_model_sim_describe_measured(tri_model_sim *m, tri_session_config *config,
                                          tr_error *err);
tr_status tri_model_sim_price(tri_model_sim *m, tr_error *err);
void tri_model_sim_profile_title(tri_model_sim *m, const char *order);
void tri_model_sim_profile_text(const tri_model_sim *m);
void tri_model_sim_profile_json(const tri_model_sim *m, json_t *doc);

/* verb_sim_show.c */
void tri_model_sim_title(tri_model_sim *m);
tr_status tri_model_sim_text(const tri_model_sim *m, tr_error *err);
tr_status tri_model_sim_json(const tri_model_sim *m, tr_error *err);

/* sim_draw.c: --draw. Whether its files may be written, before the work; then the work. */
tr_status tri_model_sim_may_draw(const tri_cli *cli, tr_error *err);
tr_status tri_model_sim_draw(const tri_model_sim *m, tr_error *err);

#endif
