#include "search/exact.h"

#include <string.h>

#include "api/api.h"
#include "config/settings_internal.h"

tr_status tri_layout_settings(const tr_settings *base, const tri_layout_choice *choice,
                              uint64_t budget_bytes, tr_settings **settings, tr_error *err)
{
    TRI_TRY(tri_settings_clone(base, settings, err));
    tr_status status = tri_choice_apply(choice, budget_bytes, *settings, err);
    if (status == TR_OK)
        status = tr_settings_set(*settings, "run.memory_limit=", err);
    if (status == TR_OK)
        return TR_OK;
    tr_settings_destroy(*settings);
    *settings = NULL;
    return status;
}

static tr_status describe_host(tr_settings *settings, tri_session_config *config, tr_error *err)
{
    TRI_TRY(tr_settings_set(settings, "run.device=cpu", err));
    TRI_TRY(tri_settings_complete(settings, err));
    return tri_session_config_from(settings, config, err);
}

tr_status tri_layout_compile(const tri_search_machine *machine, tr_settings *settings,
                             unsigned programs, bool prove, tri_stage_programs *stages,
                             tr_error *err)
{
    tri_session_config config;
    TRI_TRY(machine->host ? describe_host(settings, &config, err)
                          : tri_api_describe(settings, &config, err));
    config.programs = programs;
    return prove ? tri_stage_programs_compile(&config, false, stages, err)
                 : tri_stage_programs_sketch(&config, stages, err);
}

/* The ranks of a table of the profile: of these programs', with the threads that each rank of all
 * devices has; where such were not measured alone, of all. */
static int table_ranks(const tri_search_machine *machine, int ranks, int threads)
{
    return tri_measured_find(machine->measured, ranks, threads) ? ranks : (int)machine->devices;
}

tr_status tri_layout_step_case(const tri_search_machine *machine, const tri_stage_programs *stages,
                               bool group_lanes, tri_measured_model *model, tri_step_case *step,
                               tr_error *err)
{
    *step = (tri_step_case){.programs = stages->programs,
                            .planned_bytes = stages->planned_bytes,
                            .num_stages = stages->num_stages,
                            .stride = stages->stride,
                            .one_lane = !group_lanes && !stages->by_group && !machine->host,
                            .in_place = !machine->host,
                            .costs = machine->costs,
                            .brief = true,
                            .peak_flops = machine->peak_flops};
    *model = (tri_measured_model){0};
    if (machine->measured) {
        int share = machine->host ? machine->cores / (int)machine->devices : 1;
        int threads = share > 1 ? share : 1;
        int ranks = table_ranks(machine, (int)(stages->num_stages * stages->stride), threads);
        TRI_TRY(tri_measured_model_init(model, machine->measured, stages->programs,
                                        stages->num_stages, ranks, threads, err));
        model->wire = machine->wire;
        step->measured = model;
    }
    return TR_OK;
}

tr_status tri_layout_time(const tri_search_machine *machine, const tri_stage_programs *stages,
                          bool group_lanes, tri_measured_model *model, tri_step_sim *step,
                          tr_error *err)
{
    tri_step_case c;
    TRI_TRY(tri_layout_step_case(machine, stages, group_lanes, model, &c, err));
    return tri_step_sim_run(&c, step, err);
}

static void keep_plan(const tri_search_machine *machine, const tri_stage_programs *stages,
                      tri_layout_result *result)
{
    result->fullest = 0;
    for (uint32_t s = 1; s < stages->num_stages; s++)
        if (stages->planned_bytes[s] > stages->planned_bytes[result->fullest])
            result->fullest = s;
    result->bytes = stages->planned_bytes[result->fullest];
    result->fits = result->bytes <= machine->memory_bytes;
}

static void keep_timing(const tri_step_sim *step, tri_layout_result *result)
{
    const tri_rank_timing *rank = &step->timing.ranks[step->slowest];
    result->seconds = step->timing.seconds;
    memcpy(result->time, rank->time, sizeof result->time);
    result->redone = rank->redone;
    memcpy(result->redone_of, rank->redone_of, sizeof result->redone_of);
    result->idle = step->timing.seconds - rank->end + rank->idle;
    result->num_axes = step->num_axes;
    memcpy(result->axis, step->axis, sizeof result->axis);
    memcpy(result->exposed, step->exposed[step->slowest], sizeof result->exposed);
    result->mfu = step->mfu;
}

/* Whether messages of different groups may wait for each other on this machine. */
static bool may_wait(const tri_search_machine *machine, const tri_stage_programs *stages)
{
    uint32_t groups = 0;
    for (uint32_t s = 0; s < stages->num_stages; s++)
        groups = stages->programs[s]->num_groups > groups
                     ? (uint32_t)stages->programs[s]->num_groups
                     : groups;
    return !machine->host && !stages->by_group && groups > 1;
}

static tr_status time_with(const tri_search_machine *machine, const tri_stage_programs *stages,
                           bool group_lanes, tri_layout_result *result, tr_error *err)
{
    tri_measured_model model;
    tri_step_sim step;
    tr_status status = tri_layout_time(machine, stages, group_lanes, &model, &step, err);
    if (status == TR_OK) {
        keep_timing(&step, result);
        tri_step_sim_fini(&step);
    }
    tri_measured_model_fini(&model);
    result->choice.group_lanes = group_lanes;
    return status;
}

/* With a lane for each group, and where that is hardly quicker, with one lane for all messages. */
static tr_status time_lanes(const tri_search_machine *machine, const tri_stage_programs *stages,
                            tri_layout_result *result, tr_error *err)
{
    const double hardly = 0.995;
    tri_layout_result plain = *result;
    if (!may_wait(machine, stages))
        return time_with(machine, stages, false, result, err);
    TRI_TRY(time_with(machine, stages, true, result, err));
    if (result->slow_s > 0 && result->seconds >= result->slow_s)
        return TR_OK;
    TRI_TRY(time_with(machine, stages, false, &plain, err));
    if (result->seconds >= hardly * plain.seconds)
        *result = plain;
    return TR_OK;
}

static tr_status look(const tri_search_machine *machine, tr_settings *settings, tri_look how,
                      tri_layout_result *result, tr_error *err)
{
    tri_stage_programs stages;
    unsigned programs = how == TRI_LOOK_TIMES ? 1 << TRI_PROGRAM_TRAIN : TRI_PROGRAMS_TRAIN;
    TRI_TRY(tri_layout_compile(machine, settings, programs, how == TRI_LOOK_PROOF, &stages, err));
    tr_status status = how == TRI_LOOK_PLAN || how == TRI_LOOK_PROOF
                           ? TR_OK
                           : time_lanes(machine, &stages, result, err);
    result->known = status == TR_OK;
    result->planned = how != TRI_LOOK_TIMES;
    keep_plan(machine, &stages, result);
    tri_stage_programs_fini(&stages);
    return status;
}

tr_status tri_layout_look(const tri_search_machine *machine, const tr_settings *base, tri_look how,
                          tri_layout_result *result, tr_error *err)
{
    tr_settings *settings;
    tr_error own = {0};
    if (how == TRI_LOOK_TIMES || how == TRI_LOOK_ALL)
        result->choice.group_lanes = false; /* which lanes are quicker is part of the look */
    tr_status status =
        tri_layout_settings(base, &result->choice, tri_fit_budget(machine), &settings, &own);
    if (status == TR_OK) {
        status = look(machine, settings, how, result, &own);
        tr_settings_destroy(settings);
    }
    if (status == TR_OK)
        return TR_OK;
    if (status != TR_ERROR_INPUT) {
        *err = own;
        return status;
    }
    snprintf(result->why, sizeof result->why, "%.190s", own.message);
    return TR_OK;
}
