#include "train/plan/stage_programs.h"

#include <stdlib.h>

#include "program/extend/extend.h"
#include "program/retime.h"
#include "train/plan/stage_cut_down.h"
#include "train/plan/stage_kinds.h"

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the programs of the stages");
}

/* ---- one that is compiled ---- */

/* The programs of a stage's rank, from which so many steps of layers are left out. */
static tr_status compile_session(const tri_session_config *config, const tri_stage_programs *stages,
                                 uint32_t s, uint32_t steps, tri_session **made, tr_error *err)
{
    tri_session_config own = *config;
    int *chunks = NULL;
    own.compile.rank = (int)(s * stages->stride);
    own.compile.made_schedule = stages->pipeline.exists ? &stages->pipeline.schedule : NULL;
    own.compile.made_chunks = stages->pipeline.stages.chunk_of;
    own.compile.extends = steps > 0;
    own.compile.unproven = stages->sketch;
    if (stages->sketch)
        TRI_TRY(tri_stage_cut_down(&stages->pipeline, s, steps, &own.compile, &chunks, err));
    tri_session *session = *made = calloc(1, sizeof *session);
    tr_status status = session ? tri_session_compile(session, &own, err) : no_memory(err);
    free(chunks);
    if (session && status == TR_OK) {
        session->config.compile.model.num_layers = config->compile.model.num_layers;
        session->config.compile.made_chunks = NULL;
    }
    return status;
}

static void free_session(tri_session *session)
{
    if (session)
        tri_session_fini(session);
    free(session);
}

static tr_status compile_stage(const tri_session_config *config, tri_stage_programs *stages,
                               uint32_t s, tr_error *err)
{
    TRI_TRY(compile_session(config, stages, s, 0, &stages->sessions[s], err));
    const tri_session *session = stages->sessions[s];
    stages->programs[s] = &session->programs[TRI_PROGRAM_TRAIN];
    stages->planned_bytes[s] = tri_session_planned_bytes(session);
    stages->num_compiled++;
    return TR_OK;
}

/* All memory but that of the training program's frames is that of the stage it is like. */
static void plan_retimed(tri_stage_programs *stages, uint32_t s)
{
    uint32_t kind = stages->like[s];
    tri_session *like = stages->sessions[stages->base[kind]];
    const tri_program *whole = stages->steps[kind] ? stages->extended[kind] : like->programs;
    tri_program of[TRI_NUM_PROGRAMS];
    const tri_program *programs[TRI_NUM_PROGRAMS];
    tri_store store;
    size_t num = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS; p++) {
        if (!tri_session_has(like, p))
            continue;
        of[p] = p == TRI_PROGRAM_TRAIN ? *stages->programs[s] : whole[p];
        of[p].num_instrs = 0; /* their scratch is known */
        programs[num++] = &of[p];
    }
    tri_store_plan(&store, &like->device, programs, num);
    store.scratch_bytes = like->store.scratch_bytes;
    store.sums = like->store.sums;
    stages->planned_bytes[s] = tri_store_total(&store);
}

/* ---- timelines ---- */

/* Without a pipeline, those of the program that was compiled. */
static tri_action *plain_actions(const tri_program *program, size_t *num)
{
    tri_action *actions = calloc(program->num_calls + 1, sizeof *actions);
    *num = program->num_calls;
    for (size_t c = 0; actions && c < *num; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        actions[c] = (tri_action){.kind = segment->action,
                                  .chunk = (uint32_t)segment->chunk,
                                  .microbatch = program->calls[c].microbatch};
    }
    return actions;
}

/* The schedule's actions and the update behind them, as the program of a rank has them. */
static tri_action *actions_of(const tri_schedule *schedule, uint32_t stage, size_t *num)
{
    const tri_action_list *list = &schedule->ranks[stage];
    tri_action *actions = calloc(list->count + 1, sizeof *actions);
    for (size_t i = 0; actions && i < list->count; i++) {
        actions[i] = list->actions[i];
        actions[i].overlap = false;
    }
    if (actions)
        actions[list->count] = (tri_action){.kind = TRI_ACTION_U, .chunk = TRI_UPDATE_ALL};
    *num = list->count + 1;
    return actions;
}

/* A timeline of the stage's own for the program of the one it is like. */
static tr_status retime_stage(const tri_session_config *config, tri_stage_programs *stages,
                              uint32_t s, const tri_program *from, uint32_t from_stage,
                              tr_error *err)
{
    const bool piped = stages->pipeline.exists;
    const tri_schedule *schedule = &stages->pipeline.schedule;
    const tri_overlap overlap = {.min_bytes = config->compile.overlap_min_bytes,
                                 .in_place = config->compile.in_place};
    size_t num;
    tri_action *actions = piped ? actions_of(schedule, s, &num) : plain_actions(from, &num);
    if (!actions)
        return no_memory(err);
    const uint32_t made = stages->base[stages->like[s]]; /* whose rank it was compiled for */
    const tri_retime how = {.schedule = piped ? schedule : NULL,
                            .from = from_stage,
                            .to = s,
                            .stride = stages->stride,
                            .actions = actions,
                            .num_actions = num,
                            .overlap =
                                stages->sessions[made]->config.compile.overlap ? &overlap : NULL};
    tr_status status = tri_program_retime(from, &how, &stages->retimed[s], err);
    free(actions);
    TRI_TRY(status);
    stages->programs[s] = &stages->retimed[s];
    plan_retimed(stages, s);
    return TR_OK;
}

/* ---- one that is extended ---- */

/* Whether the programs of a stage without some layers tell what the whole ones are. */
static tr_status extend(tri_stage_programs *stages, uint32_t s, bool *fits, tr_error *err)
{
    const tri_session *more = stages->sessions[stages->base[s]];
    const tri_session *less = stages->less[stages->base[s]];
    *fits = true;
    for (int p = 0; p < TRI_NUM_PROGRAMS && *fits; p++)
        if (tri_session_has(more, p))
            TRI_TRY(tri_program_extend(&less->programs[p], &more->programs[p], stages->steps[s] - 1,
                                       &stages->extended[s][p], fits, err));
    return TR_OK;
}

static void forget_stage(tri_stage_programs *stages, uint32_t s)
{
    free_session(stages->sessions[s]);
    free_session(stages->less[s]);
    stages->sessions[s] = stages->less[s] = NULL;
}

/* The two lengths that a stage is compiled in; *fits is false where they cannot tell of a third. */
static tr_status compile_lengths(const tri_session_config *config, tri_stage_programs *stages,
                                 uint32_t s, bool *fits, tr_error *err)
{
    TRI_TRY(compile_session(config, stages, s, stages->steps[s] - 1, &stages->sessions[s], err));
    *fits = tri_stage_buckets_repeat(&config->compile, &stages->sessions[s]->params);
    return *fits ? compile_session(config, stages, s, stages->steps[s], &stages->less[s], err)
                 : TR_OK;
}

static tr_status extend_stage(const tri_session_config *config, tri_stage_programs *stages,
                              uint32_t s, bool *fits, tr_error *err)
{
    uint32_t base = stages->base[s];
    *fits = true;
    if (!stages->less[base]) {
        base = stages->base[s] = s; /* the first did not fit */
        TRI_TRY(compile_lengths(config, stages, s, fits, err));
    }
    if (*fits)
        TRI_TRY(extend(stages, s, fits, err));
    if (!*fits && base == s)
        forget_stage(stages, s);
    if (!*fits)
        return TR_OK;
    stages->num_extended++;
    return retime_stage(config, stages, s, &stages->extended[s][TRI_PROGRAM_TRAIN], base, err);
}

/* ---- all ---- */

static tr_status make_stage(const tri_session_config *config, tri_stage_programs *stages,
                            uint32_t s, tr_error *err)
{
    uint32_t like = stages->like[s];
    bool fits = false;
    if (like != s)
        return retime_stage(config, stages, s, stages->programs[like], like, err);
    if (stages->steps[s] > 0)
        TRI_TRY(extend_stage(config, stages, s, &fits, err));
    if (fits)
        return TR_OK;
    stages->steps[s] = 0;
    stages->base[s] = s;
    return compile_stage(config, stages, s, err);
}

/* Which stages are alike, whole and without the layers that can be put in. */
static tr_status find_kinds(const tri_session_config *config, bool whole,
                            tri_stage_programs *stages, tr_error *err)
{
    const tri_pipeline *pipeline = &stages->pipeline;
    for (uint32_t s = 0; s < stages->num_stages; s++)
        stages->like[s] = stages->base[s] = s;
    if (whole)
        return TR_OK;
    TRI_TRY(tri_stage_kinds(config, pipeline, NULL, stages->like, err));
    if (!stages->sketch)
        return TR_OK;
    for (uint32_t s = 0; s < stages->num_stages; s++)
        stages->steps[s] = tri_stage_most_steps(pipeline, s, &config->compile);
    return tri_stage_kinds(config, pipeline, stages->steps, stages->base, err);
}

/* Which layers are where: once for all stages. */
static tr_status divide(const tri_session_config *config, tri_stage_programs *stages, tr_error *err)
{
    const tri_compile_config *compile = &config->compile;
    TRI_TRY(tri_pipeline_init(&stages->pipeline, compile, err));
    if (!stages->pipeline.exists)
        return TR_OK;
    tri_batch_shape batch = {.rows = tri_microbatch_rows(compile), .seq_len = compile->seq_len};
    tri_param_table params;
    tri_param_table_init(&params);
    tr_status status = tri_model_params(&compile->model, &batch, &params, err);
    if (status == TR_OK)
        status = tri_pipeline_divide(&stages->pipeline, compile, &params, err);
    tri_param_table_fini(&params);
    return status;
}

static tr_status make_programs(const tri_session_config *config, bool whole,
                               tri_stage_programs *stages, tr_error *err)
{
    uint32_t num = stages->num_stages;
    stages->programs = calloc(num, sizeof *stages->programs);
    stages->planned_bytes = calloc(num, sizeof *stages->planned_bytes);
    stages->like = calloc(num, sizeof *stages->like);
    stages->sessions = calloc(num, sizeof *stages->sessions);
    stages->retimed = calloc(num, sizeof *stages->retimed);
    stages->extended = calloc(num, sizeof *stages->extended);
    stages->steps = calloc(num, sizeof *stages->steps);
    stages->base = calloc(num, sizeof *stages->base);
    stages->less = calloc(num, sizeof *stages->less);
    if (!stages->programs || !stages->planned_bytes || !stages->like || !stages->sessions ||
        !stages->retimed || !stages->extended || !stages->steps || !stages->base || !stages->less)
        return no_memory(err);
    TRI_TRY(divide(config, stages, err));
    TRI_TRY(find_kinds(config, whole, stages, err));
    for (uint32_t s = 0; s < num; s++)
        TRI_TRY(make_stage(config, stages, s, err));
    stages->config = &stages->sessions[0]->config.compile;
    stages->by_group = config->group_lanes;
    return TR_OK;
}

static tr_status compile(const tri_session_config *config, bool whole, bool sketch,
                         tri_stage_programs *stages, tr_error *err)
{
    int pp = tri_mesh_size(&config->compile.mesh, TRI_AXIS_PP);
    *stages = (tri_stage_programs){.num_stages = (uint32_t)pp,
                                   .stride = (uint32_t)(tri_mesh_ranks(&config->compile.mesh) / pp),
                                   .sketch = sketch};
    tr_status status = make_programs(config, whole, stages, err);
    if (status != TR_OK)
        tri_stage_programs_fini(stages);
    return status;
}

tr_status tri_stage_programs_compile(const tri_session_config *config, bool whole,
                                     tri_stage_programs *stages, tr_error *err)
{
    return compile(config, whole, false, stages, err);
}

tr_status tri_stage_programs_sketch(const tri_session_config *config, tri_stage_programs *stages,
                                    tr_error *err)
{
    return compile(config, false, true, stages, err);
}

void tri_stage_programs_fini(tri_stage_programs *stages)
{
    for (uint32_t s = 0; s < stages->num_stages; s++) {
        if (stages->retimed && stages->programs[s] == &stages->retimed[s])
            tri_program_retime_fini(&stages->retimed[s]);
        for (int p = 0; p < TRI_NUM_PROGRAMS && stages->extended; p++)
            tri_program_extend_fini(&stages->extended[s][p]);
        if (stages->sessions)
            free_session(stages->sessions[s]);
        if (stages->less)
            free_session(stages->less[s]);
    }
    tri_pipeline_fini(&stages->pipeline);
    free(stages->programs);
    free(stages->planned_bytes);
    free(stages->like);
    free(stages->sessions);
    free(stages->retimed);
    free(stages->extended);
    free(stages->steps);
    free(stages->base);
    free(stages->less);
    *stages = (tri_stage_programs){0};
}
