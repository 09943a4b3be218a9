#include "comm/rounds/rounds_plan.h"
#include "comm/layout.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PLANS = 16 };

struct tri_plans {
    tri_plan at[MOST_PLANS];
    int num, oldest;
    void *scratch;
    size_t scratch_bytes;
};

static void free_plan(tri_plan *plan)
{
    free(plan->first);
    free(plan->steps);
    free(plan->runs);
    free(plan->messages);
    *plan = (tri_plan){0};
}

void tri_rounds_forget(tr_group *group)
{
    struct tri_plans *plans = group->plans;
    if (plans == NULL)
        return;
    for (int i = 0; i < plans->num; i++)
        free_plan(&plans->at[i]);
    if (plans->scratch != NULL)
        group->comm->transport->free(group->comm->state, plans->scratch);
    free(plans);
    group->plans = NULL;
}

static struct tri_plans *plans_of(tr_group *group)
{
    if (group->plans == NULL)
        group->plans = calloc(1, sizeof *group->plans);
    return group->plans;
}

tr_status tri_plan_scratch(tr_group *group, size_t num_bytes, char **memory, tr_error *err)
{
    struct tri_plans *plans = plans_of(group);
    tr_comm *comm = group->comm;
    if (plans == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for group %s", group->name);
    if (plans->scratch_bytes < num_bytes) {
        size_t bytes = num_bytes + num_bytes / 2;
        if (plans->scratch != NULL)
            comm->transport->free(comm->state, plans->scratch);
        plans->scratch = NULL;
        plans->scratch_bytes = 0;
        TRI_TRY(comm->transport->alloc(comm->state, bytes, &plans->scratch, err));
        plans->scratch_bytes = bytes;
    }
    *memory = plans->scratch;
    return TR_OK;
}

/* Pieces of an all_to_all have a place each only where they come from and where they go. */
static int32_t relay_place(tri_plan *plan, int32_t *place_of, uint32_t piece, int me, int size)
{
    if (place_of == NULL || (int)(piece / (uint32_t)size) == me ||
        (int)(piece % (uint32_t)size) == me)
        return -1;
    if (place_of[piece] < 0)
        place_of[piece] = (int32_t)plan->num_relays++;
    return place_of[piece];
}

static bool overlap(const tri_transfer *a, const tri_transfer *b)
{
    return a->first_piece < b->first_piece + b->num_pieces &&
           b->first_piece < a->first_piece + a->num_pieces;
}

static bool written_too(const tri_rounds *rounds, size_t round, const tri_transfer *send)
{
    for (size_t i = rounds->first[round]; i < rounds->first[round + 1]; i++)
        if (rounds->transfers[i].to == send->from && overlap(send, &rounds->transfers[i]))
            return true;
    return false;
}

/* The messages of one direction in one round. */
static void add_steps(tri_plan *plan, const tri_rounds *rounds, size_t round, int me, int size,
                      bool sends, int32_t *place_of, size_t *num_steps, uint32_t *num_runs)
{
    tri_plan_step *step = NULL;
    for (size_t i = rounds->first[round]; i < rounds->first[round + 1]; i++) {
        const tri_transfer *t = &rounds->transfers[i];
        int own = sends ? t->from : t->to, peer = sends ? t->to : t->from;
        if (own != me)
            continue;
        if (step == NULL || step->peer != peer) {
            step = &plan->steps[(*num_steps)++];
            *step = (tri_plan_step){
                .peer = peer, .is_send = sends, .combine = t->combine, .first_run = *num_runs};
        }
        bool single = plan->operation == TR_ALL_TO_ALL; /* each piece lies somewhere else */
        step->overlaps |= sends && !single && written_too(rounds, round, t);
        for (uint32_t p = 0; p < (single ? t->num_pieces : 1); p++, step->num_runs++)
            plan->runs[(*num_runs)++] = (tri_plan_run){
                .first_piece = t->first_piece + p,
                .num_pieces = single ? 1 : t->num_pieces,
                .relay = single ? relay_place(plan, place_of, t->first_piece + p, me, size) : -1,
            };
    }
}

/* How many transfers touch this member, and how many runs they can become. */
static void count_own(const tri_rounds *rounds, int me, size_t *num_steps, size_t *num_runs)
{
    *num_steps = *num_runs = 0;
    for (size_t i = 0; i < rounds->first[rounds->num_rounds]; i++) {
        const tri_transfer *t = &rounds->transfers[i];
        if (t->from != me && t->to != me)
            continue;
        (*num_steps)++;
        *num_runs += t->num_pieces > 1 ? t->num_pieces : 1;
    }
}

static tr_status fill_plan(tri_plan *plan, const tri_rounds *rounds, int me, int size,
                           tr_error *err)
{
    size_t most_steps, most_runs, num_steps = 0;
    uint32_t num_runs = 0;
    count_own(rounds, me, &most_steps, &most_runs);
    plan->num_pieces = rounds->num_pieces;
    plan->num_rounds = rounds->num_rounds;
    plan->relays = rounds->relays;
    plan->first = malloc((rounds->num_rounds + 1) * sizeof *plan->first);
    plan->steps = malloc((most_steps + 1) * sizeof *plan->steps);
    plan->runs = malloc((most_runs + 1) * sizeof *plan->runs);
    int32_t *place_of = NULL;
    if (plan->relays) {
        place_of = malloc((size_t)rounds->num_pieces * sizeof *place_of);
        for (uint32_t p = 0; place_of != NULL && p < rounds->num_pieces; p++)
            place_of[p] = -1;
    }
    if (!plan->first || !plan->steps || !plan->runs || (plan->relays && !place_of)) {
        free(place_of);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the rounds of %s",
                        plan->algorithm->name);
    }
    for (size_t r = 0; r < rounds->num_rounds; r++) {
        plan->first[r] = num_steps;
        add_steps(plan, rounds, r, me, size, true, place_of, &num_steps, &num_runs);
        add_steps(plan, rounds, r, me, size, false, place_of, &num_steps, &num_runs);
        size_t here = num_steps - plan->first[r];
        plan->most_steps = here > plan->most_steps ? here : plan->most_steps;
    }
    plan->first[rounds->num_rounds] = num_steps;
    free(place_of);
    plan->messages = calloc(plan->most_steps + 1, sizeof *plan->messages);
    return plan->messages ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for messages");
}

static bool is_plan(const tri_plan *plan, const tri_algorithm *algorithm, tr_operation operation,
                    int root, const tri_coll_shape *shape)
{
    return plan->algorithm == algorithm && plan->operation == operation && plan->root == root &&
           memcmp(&plan->shape, shape, sizeof *shape) == 0;
}

tr_status tri_plan_find(tr_group *group, const tr_collective *call, const tri_algorithm *algorithm,
                        const tri_coll_shape *shape, const tri_plan **out, tr_error *err)
{
    int root = tri_coll_rooted(call->operation) ? call->root : 0;
    struct tri_plans *plans = plans_of(group);
    if (plans == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for group %s", group->name);
    for (int i = 0; i < plans->num; i++)
        if (is_plan(&plans->at[i], algorithm, call->operation, root, shape)) {
            *out = &plans->at[i];
            return TR_OK;
        }
    tri_rounds rounds;
    TRI_TRY(tri_algorithm_rounds(algorithm, (tri_coll)call->operation, shape, root, &rounds, err));
    tri_plan plan = {
        .algorithm = algorithm, .shape = *shape, .operation = call->operation, .root = root};
    tr_status status = fill_plan(&plan, &rounds, group->rank, group->size, err);
    tri_rounds_free(&rounds);
    if (status != TR_OK) {
        free_plan(&plan);
        return status;
    }
    int slot = plans->num < MOST_PLANS ? plans->num++ : plans->oldest++ % MOST_PLANS;
    free_plan(&plans->at[slot]);
    plans->at[slot] = plan;
    *out = &plans->at[slot];
    return TR_OK;
}
