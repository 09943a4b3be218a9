#include "sim/step_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tri_faster_name(tri_faster part)
{
    static const char *const names[TRI_NUM_FASTER] = {"products", "memory", "links"};
    return names[part];
}

static double seconds_of_computing(const tri_rank_timing *rank)
{
    double seconds = 0;
    for (int k = 0; k < TRI_NUM_TIME_KINDS; k++)
        seconds += rank->time[k];
    return seconds;
}

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to simulate the step");
}

/* What a rank takes depends on how often others compute beside it, and that on what they take. */
enum { MOST_ROUNDS = 5 };

static tr_status watch_timing(const tri_step_case *c, const tri_cost_table *costs, bool one_lane,
                              const tri_timing_watch *watch, tri_timing *timing, tr_error *err)
{
    tri_timing_case t = {.programs = c->programs,
                         .num_classes = c->num_stages,
                         .stride = c->stride,
                         .one_lane = one_lane,
                         .in_place = c->in_place,
                         .pace = c->pace,
                         .costs = *costs};
    if (c->measured) {
        t.costs = tri_measured_costs(c->measured);
        t.host_s = c->measured->busy->step_s;
        for (int round = 1; round < MOST_ROUNDS; round++) {
            TRI_TRY(tri_timing_run(&t, timing, err));
            bool changed = tri_measured_crowd(c->measured, timing, c->stride);
            tri_timing_fini(timing);
            if (!changed)
                break;
        }
    }
    t.watch = *watch;
    return tri_timing_run(&t, timing, err);
}

static tr_status run_timing(const tri_step_case *c, const tri_cost_table *costs, bool one_lane,
                            tri_timing *timing, tr_error *err)
{
    return watch_timing(c, costs, one_lane, &(tri_timing_watch){0}, timing, err);
}

tr_status tri_step_sim_watch(const tri_step_case *c, const tri_timing_watch *watch, tr_error *err)
{
    tri_timing timing;
    TRI_TRY(watch_timing(c, &c->costs, c->one_lane, watch, &timing, err));
    tri_timing_fini(&timing);
    return TR_OK;
}

/* ---- axes ---- */

static uint32_t axis_number(tri_step_sim *sim, const char *name)
{
    uint32_t a = 0;
    while (a < sim->num_axes && strcmp(sim->axis[a], name) != 0)
        a++;
    if (a == TRI_STEP_MAX_AXES)
        return a - 1;
    if (a == sim->num_axes)
        snprintf(sim->axis[sim->num_axes++], TRI_STEP_AXIS_NAME, "%s", name);
    return a;
}

static const char *axis_name(const tri_program *program, uint32_t group)
{
    if (group >= program->num_groups)
        return "carry";
    return program->groups[group].num_listed ? "pp" : program->groups[group].name;
}

uint32_t tri_step_axis(const tri_step_sim *sim, const tri_program *program, uint32_t message)
{
    const char *name = axis_name(program, program->messages[message].group);
    uint32_t a = 0;
    while (a < sim->num_axes && strcmp(sim->axis[a], name) != 0)
        a++;
    return a;
}

static tr_status add_up_axes(const tri_step_case *c, tri_step_sim *sim, tr_error *err)
{
    sim->exposed = calloc(c->num_stages + 1, sizeof *sim->exposed);
    sim->hidden = calloc(c->num_stages + 1, sizeof *sim->hidden);
    if (!sim->exposed || !sim->hidden)
        return no_memory(err);
    for (uint32_t s = 0; s < c->num_stages; s++) {
        const tri_program *program = c->programs[s];
        const tri_rank_timing *rank = &sim->timing.ranks[s];
        for (size_t g = 0; g <= program->num_groups; g++) {
            if (rank->exposed[g] + rank->hidden[g] <= 0)
                continue;
            uint32_t a = axis_number(sim, axis_name(program, (uint32_t)g));
            sim->exposed[s][a] += rank->exposed[g];
            sim->hidden[s][a] += rank->hidden[g];
        }
    }
    return TR_OK;
}

/* ---- totals ---- */

static void add_up_flops(const tri_step_case *c, tri_step_sim *sim)
{
    double all = 0;
    for (uint32_t s = 0; s < c->num_stages; s++) {
        double redone = tri_program_redone(c->programs[s]).flops;
        all += tri_program_cost(c->programs[s]).flops * c->stride;
        sim->redone_flops += redone * c->stride;
    }
    sim->flops = all - sim->redone_flops;
    double peak = c->peak_flops * c->num_stages * c->stride;
    if (sim->timing.seconds > 0 && peak > 0) {
        sim->mfu = sim->flops / (sim->timing.seconds * peak);
        sim->hfu = all / (sim->timing.seconds * peak);
    }
}

static void find_extremes(const tri_step_case *c, tri_step_sim *sim)
{
    for (uint32_t s = 1; s < c->num_stages; s++) {
        const tri_rank_timing *ranks = sim->timing.ranks;
        if (seconds_of_computing(&ranks[s]) > seconds_of_computing(&ranks[sim->slowest]))
            sim->slowest = s;
        if (c->planned_bytes[s] > c->planned_bytes[sim->fullest])
            sim->fullest = s;
    }
}

static tr_status try_lanes(const tri_step_case *c, tri_step_sim *sim, tr_error *err)
{
    tri_timing timing;
    sim->by_group = sim->timing.seconds;
    if (!c->one_lane) /* that is how it was timed */
        return TR_OK;
    TRI_TRY(run_timing(c, &c->costs, false, &timing, err));
    sim->by_group = timing.seconds;
    tri_timing_fini(&timing);
    return TR_OK;
}

static tr_status try_faster(const tri_step_case *c, tri_step_sim *sim, tr_error *err)
{
    const double more = 1.1;
    for (int part = 0; part < TRI_NUM_FASTER; part++) {
        tri_timing timing;
        if (c->measured)
            c->measured->faster[part] = more;
        tr_status status = run_timing(c, &c->faster[part], c->one_lane, &timing, err);
        if (c->measured)
            c->measured->faster[part] = 1;
        TRI_TRY(status);
        sim->faster[part] = timing.seconds;
        tri_timing_fini(&timing);
    }
    return TR_OK;
}

tr_status tri_step_sim_run(const tri_step_case *c, tri_step_sim *sim, tr_error *err)
{
    *sim = (tri_step_sim){0};
    TRI_TRY(run_timing(c, &c->costs, c->one_lane, &sim->timing, err));
    tr_status status = add_up_axes(c, sim, err);
    if (status == TR_OK) {
        add_up_flops(c, sim);
        find_extremes(c, sim);
        status = c->brief ? TR_OK : try_lanes(c, sim, err);
    }
    if (status == TR_OK && !c->brief)
        status = try_faster(c, sim, err);
    if (status != TR_OK)
        tri_step_sim_fini(sim);
    return status;
}

void tri_step_sim_fini(tri_step_sim *sim)
{
    tri_timing_fini(&sim->timing);
    free(sim->exposed);
    free(sim->hidden);
    *sim = (tri_step_sim){0};
}
