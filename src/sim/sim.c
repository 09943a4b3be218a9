/* From the times of the actions to what people ask of a schedule: how long, how idle, how much. */
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/machine.h"

/* So many chunks in units of a rank's share of the layers. */
static double in_shares(const tri_schedule *s, uint32_t num_chunks)
{
    return (double)num_chunks * s->num_ranks / s->num_chunks;
}

/* Live activations, in the order of the rank's only compute lane: times do not matter. */
static uint32_t peak_live(const tri_action_list *list)
{
    uint32_t live = 0, peak = 0;
    for (size_t i = 0; i < list->count; i++) {
        tri_action_kind kind = list->actions[i].kind;
        live += kind == TRI_ACTION_F;
        peak = live > peak ? live : peak;
        live -= kind == TRI_ACTION_B || kind == TRI_ACTION_W;
    }
    return peak;
}

/* Messages between their receive and the end of the action that reads them. */
static uint32_t peak_inbox(const tri_schedule *s, uint32_t rank)
{
    const tri_action_list *list = &s->ranks[rank];
    uint32_t held = 0, peak = 0;
    for (size_t i = 0; i < list->count && s->has_messages; i++) {
        const tri_action *a = &list->actions[i];
        uint32_t c = a->chunk, m = a->microbatch;
        bool backward = a->kind == TRI_ACTION_I || a->kind == TRI_ACTION_B;
        held += a->kind == TRI_ACTION_RECV_F || a->kind == TRI_ACTION_RECV_B;
        peak = held > peak ? held : peak;
        if (a->kind == TRI_ACTION_F && c > 0)
            held -= tri_schedule_home(s, c - 1, m) != rank;
        else if (backward && c + 1 < s->num_chunks)
            held -= tri_schedule_home(s, c + 1, m) != rank;
    }
    return peak;
}

typedef struct version_count {
    uint32_t *of;    /* [micro-batch]: version its forward reads */
    uint32_t *reads; /* [version]: micro-batches that still have to use it */
    uint32_t peak, staleness;
} version_count;

/* Which version of its chunk's weights each micro-batch reads: the newest, or a fixed one. */
static void assign_versions(const tri_schedule *s, const tri_action_list *list, uint32_t chunk,
                            version_count *v)
{
    uint32_t newest = 0;
    memset(v->reads, 0, ((size_t)s->num_microbatches + 2) * sizeof *v->reads);
    for (size_t i = 0; i < list->count; i++) {
        const tri_action *a = &list->actions[i];
        if (a->chunk != chunk)
            continue;
        newest += a->kind == TRI_ACTION_U;
        if (a->kind != TRI_ACTION_F)
            continue;
        uint32_t group = a->microbatch / s->update_every;
        v->of[a->microbatch] = !s->delayed ? newest : group > 0 ? group - 1 : 0;
        v->reads[v->of[a->microbatch]]++;
    }
}

/* The newest version and the older ones that somebody still has to use. */
static void count_versions(const tri_schedule *s, const tri_action_list *list, uint32_t chunk,
                           version_count *v)
{
    uint32_t newest = 0, older = 0;
    assign_versions(s, list, chunk, v);
    for (size_t i = 0; i < list->count; i++) {
        const tri_action *a = &list->actions[i];
        if (a->chunk != chunk)
            continue;
        uint32_t version = v->of[a->microbatch];
        if (a->kind == TRI_ACTION_B || a->kind == TRI_ACTION_W) {
            older -= --v->reads[version] == 0 && version < newest;
        } else if (a->kind == TRI_ACTION_U) {
            v->staleness = newest - version > v->staleness ? newest - version : v->staleness;
            older += v->reads[newest] > 0;
            newest++;
        }
        v->peak = older + 1 > v->peak ? older + 1 : v->peak;
    }
}

static tr_status weights(const tri_schedule *s, tri_sim *sim, tr_error *err)
{
    version_count v = {0};
    v.of = calloc((size_t)s->num_microbatches + 2, sizeof *v.of);
    v.reads = calloc((size_t)s->num_microbatches + 2, sizeof *v.reads);
    for (uint32_t route = 0; v.of && v.reads && route < s->num_routes; route++)
        for (uint32_t c = 0; c < s->num_chunks; c++) {
            uint32_t rank = s->home[(size_t)route * s->num_chunks + c];
            if (route > 0 && rank == s->home[c])
                continue; /* the same copy serves both routes */
            tri_sim_rank *r = &sim->ranks[rank];
            v.peak = 1;
            v.staleness = 0;
            if (s->update_every)
                count_versions(s, &s->ranks[rank], c, &v);
            r->num_chunks++;
            r->peak_versions += v.peak;
            r->staleness = v.staleness > r->staleness ? v.staleness : r->staleness;
        }
    for (uint32_t r = 0; r < s->num_ranks; r++)
        sim->ranks[r].weight_copies = in_shares(s, sim->ranks[r].peak_versions);
    bool failed = !v.of || !v.reads;
    free(v.of);
    free(v.reads);
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the simulation") : TR_OK;
}

/* Sums of times that are no whole numbers do not come out even. */
static bool rounding(double difference, double time)
{
    return fabs(difference) < 1e-9 * time;
}

/* Length of an action as it ran; both halves of an overlapped pair share one interval. */
static void span_of(const tri_sim *sim, uint32_t rank, tri_sim_rank *r)
{
    const tri_action_list *list = &sim->index.schedule->ranks[rank];
    const double *start = sim->start + sim->index.first[rank];
    const double *end = sim->end + sim->index.first[rank];
    double covered = -INFINITY;
    r->start = INFINITY;
    for (size_t i = 0; i < list->count; i++) {
        if (!tri_action_computes(list->actions[i].kind)) {
            tri_action_kind kind = list->actions[i].kind;
            r->num_messages += kind == TRI_ACTION_SEND_F || kind == TRI_ACTION_SEND_B;
            continue;
        }
        double from = start[i] > covered ? start[i] : covered;
        if (end[i] > from)
            r->busy += end[i] - from;
        covered = end[i] > covered ? end[i] : covered;
        r->start = start[i] < r->start ? start[i] : r->start;
        r->end = end[i] > r->end ? end[i] : r->end;
    }
    if (!isfinite(r->start))
        r->start = r->end = 0;
    if (rounding(r->end - r->start - r->busy, r->end))
        r->busy = r->end - r->start;
}

/* Between the first backward and the last forward neither fill nor drain is seen. */
static void steady_of(const tri_sim *sim, uint32_t rank, tri_sim_rank *r)
{
    const tri_action_list *list = &sim->index.schedule->ranks[rank];
    const double *start = sim->start + sim->index.first[rank];
    const double *end = sim->end + sim->index.first[rank];
    double from = -1, to = -1, busy = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->actions[i].kind == TRI_ACTION_B && from < 0)
            from = start[i];
        if (list->actions[i].kind == TRI_ACTION_F)
            to = end[i];
    }
    for (size_t i = 0; i < list->count; i++)
        if (tri_action_computes(list->actions[i].kind) && start[i] >= from && end[i] <= to)
            busy += end[i] - start[i];
    if (from < 0 || to <= from)
        return;
    r->steady_span = to - from;
    r->steady_idle = rounding(to - from - busy, to) ? 0 : to - from - busy;
}

static void total(const tri_schedule *s, const tri_action_costs *costs, tri_sim *sim)
{
    bool listed = s->update_every > 0;
    for (uint32_t i = 0; i < s->num_ranks; i++) {
        tri_sim_rank *r = &sim->ranks[i];
        r->update = listed                  ? 0
                    : costs->update_by_rank ? costs->update_by_rank[i]
                                            : costs->kind[TRI_ACTION_U];
        double span = listed ? r->steady_span : r->end - r->start;
        double idle = listed ? r->steady_idle : span - r->busy;
        double live = in_shares(s, r->peak_live);
        sim->makespan = fmax(sim->makespan, r->end + r->update);
        sim->work = fmax(sim->work, r->busy);
        sim->span = fmax(sim->span, r->end - r->start);
        sim->activations = fmax(sim->activations, live);
        sim->weight_copies = fmax(sim->weight_copies, r->weight_copies);
        sim->staleness = r->staleness > sim->staleness ? r->staleness : sim->staleness;
        if (idle > sim->idle) {
            sim->idle = idle;
            sim->bubble = span > 0 ? idle / span : 0;
        }
    }
}

tr_status tri_sim_finish(tri_sim *sim, const tri_action_costs *costs, tr_error *err)
{
    const tri_schedule *s = sim->index.schedule;
    for (uint32_t r = 0; r < s->num_ranks; r++) {
        span_of(sim, r, &sim->ranks[r]);
        steady_of(sim, r, &sim->ranks[r]);
        sim->ranks[r].peak_live = peak_live(&s->ranks[r]);
        sim->ranks[r].peak_inbox = peak_inbox(s, r);
    }
    TRI_TRY(weights(s, sim, err));
    total(s, costs, sim);
    return TR_OK;
}

tr_status tri_sim_begin(const tri_schedule *schedule, tri_sim *sim, tr_error *err)
{
    *sim = (tri_sim){0};
    TRI_TRY(tri_schedule_index_init(&sim->index, schedule, err));
    size_t num = (size_t)sim->index.num_actions + 1;
    sim->start = calloc(num, sizeof *sim->start);
    sim->end = calloc(num, sizeof *sim->end);
    sim->ranks = calloc(schedule->num_ranks, sizeof *sim->ranks);
    if (sim->start && sim->end && sim->ranks)
        return TR_OK;
    tri_sim_fini(sim);
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the simulation");
}

tr_status tri_sim_run(const tri_schedule *schedule, const tri_action_costs *costs, tri_sim *sim,
                      tr_error *err)
{
    TRI_TRY(tri_sim_begin(schedule, sim, err));
    tri_machine_options options = {.pairs = costs->overlap > 0 || costs->by_pair, .costs = *costs};
    tr_status status = tri_machine_run(&sim->index, &options, sim->start, sim->end, err);
    if (status == TR_OK)
        status = tri_sim_finish(sim, costs, err);
    if (status != TR_OK)
        tri_sim_fini(sim);
    return status;
}

void tri_sim_fini(tri_sim *sim)
{
    tri_schedule_index_fini(&sim->index);
    free(sim->start);
    free(sim->end);
    free(sim->ranks);
    *sim = (tri_sim){0};
}
