/* trireme sim FILE.yaml --device NAME: a step of a layout on a machine that is not here, timed on
 * the very programs that its ranks would run. */
#include "cli/sim/verb_sim_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "cli/doc/docs.h"

/* The times of the calls, for the actions of the schedule that they are. */
static void place_actions(const tri_model_sim *m, tri_sim *sim, double *update)
{
    const tri_schedule *schedule = &m->stages.pipeline.schedule;
    for (uint32_t s = 0; s < m->stages.num_stages; s++) {
        const tri_program *program = m->stages.programs[s];
        const tri_rank_timing *rank = &m->step.timing.ranks[s];
        for (size_t c = 0; c < program->num_calls; c++) {
            const tri_call *call = &program->calls[c];
            const tri_segment *segment = &program->segments[call->segment];
            double start = 1e3 * rank->call_start[c], end = 1e3 * rank->call_end[c];
            if (segment->action == TRI_ACTION_U && schedule->update_every == 0) {
                update[s] += end - start;
                continue;
            }
            if (segment->action == TRI_ACTION_U && segment->chunk == TRI_UPDATE_END)
                continue;
            uint32_t id = tri_index_find(&sim->index, segment->action, (uint32_t)segment->chunk,
                                         call->microbatch);
            if (id == TRI_NO_ACTION || !tri_action_computes(segment->action))
                continue;
            sim->start[id] = start;
            sim->end[id] = end;
        }
    }
}

static tr_status time_schedule(tri_model_sim *m, tr_error *err)
{
    if (!m->stages.pipeline.exists)
        return TR_OK;
    double *update = calloc(m->stages.num_stages + 1, sizeof *update);
    if (!update)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the simulation");
    m->schedule.schedule = m->stages.pipeline.schedule;
    tr_status status = tri_sim_begin(&m->stages.pipeline.schedule, &m->schedule.sim, err);
    if (status == TR_OK) {
        tri_action_costs costs = {.update_by_rank = update};
        place_actions(m, &m->schedule.sim, update);
        status = tri_sim_finish(&m->schedule.sim, &costs, err);
    }
    free(update);
    return status;
}

static tr_status show(tri_model_sim *m, tr_error *err)
{
    const tri_cli *cli = m->cli;
    TRI_TRY(tri_cli_flag(cli, "json") ? tri_model_sim_json(m, err) : tri_model_sim_text(m, err));
    return tri_cli_flag(cli, "draw") ? tri_model_sim_draw(m, err) : TR_OK;
}

static tr_status describe(tri_model_sim *m, tri_session_config *config, tr_error *err)
{
    if (m->is_measured) {
        TRI_TRY(tri_model_sim_read_profile(m, err));
        return tri_model_sim_describe_measured(m, config, err);
    }
    TRI_TRY(tri_sim_machine_read(m->cli, (uint32_t)tri_cli_num_ranks(m->cli), &m->machine, err));
    return tri_api_describe(m->cli->settings, config, err);
}

/* All ranks of a stage wait for the slowest among them, so it is braked as that one is. */
static tr_status read_pace(tri_model_sim *m, const tri_session_config *config, tr_error *err)
{
    if (config->keep_pace) {
        memcpy(m->pace, config->pace, sizeof m->pace);
        m->of_step.pace.least = m->pace;
    }
    if (config->num_brakes == 0)
        return TR_OK;
    m->of_step.pace.brake = m->brakes = calloc(m->stages.num_stages, sizeof *m->brakes);
    if (!m->brakes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the simulation");
    for (uint32_t s = 0; s < m->stages.num_stages; s++)
        m->brakes[s] = 1;
    for (int b = 0; b < config->num_brakes; b++) {
        uint32_t stage = (uint32_t)config->brakes[b].rank / m->stages.stride;
        if (stage < m->stages.num_stages)
            m->brakes[stage] = fmax(m->brakes[stage], config->brakes[b].factor);
    }
    return TR_OK;
}

static tr_status simulate(tri_model_sim *m, tr_error *err)
{
    tri_session_config config;
    TRI_TRY(tri_model_sim_may_draw(m->cli, err));
    TRI_TRY(describe(m, &config, err));
    TRI_TRY(tri_stage_programs_compile(&config, false, &m->stages, err));
    if (m->is_measured)
        TRI_TRY(tri_model_sim_price(m, err));
    /* Ranks on a host have a lane for each group, and start receives early. */
    bool host = m->is_measured && strcmp(m->profile.kind, "cpu") == 0;
    m->of_step = (tri_step_case){.programs = m->stages.programs,
                                 .planned_bytes = m->stages.planned_bytes,
                                 .num_stages = m->stages.num_stages,
                                 .stride = m->stages.stride,
                                 .one_lane = !m->stages.by_group && !host,
                                 .in_place = !host,
                                 .measured = m->is_measured ? &m->measured : NULL};
    TRI_TRY(read_pace(m, &config, err));
    tri_sim_machine_costs(&m->machine, &m->of_step);
    TRI_TRY(tri_step_sim_run(&m->of_step, &m->step, err));
    TRI_TRY(time_schedule(m, err));
    tri_model_sim_title(m);
    return show(m, err);
}

tr_status tri_sim_model(const tri_cli *cli, tr_error *err)
{
    tri_model_sim m = {.cli = cli, .is_measured = tri_cli_flag(cli, "profile") != NULL};
    tr_status status = simulate(&m, err);
    tri_measured_model_fini(&m.measured);
    tri_measured_fini(&m.profile);
    tri_sim_fini(&m.schedule.sim);
    tri_step_sim_fini(&m.step);
    tri_stage_programs_fini(&m.stages);
    free(m.brakes);
    return status;
}
