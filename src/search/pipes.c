#include "search/pipes.h"

#include <stdlib.h>

#include "base/arena.h"
#include "sim/sim.h"

/* Beyond so many micro-batches for each stage, more of them only make the middle longer. */
enum { STEADY = 3 };

static tr_status time_order(const tri_schedule_config *config, tri_sim *sim, tri_schedule *schedule,
                            tr_error *err)
{
    tri_action_costs costs = tri_sim_unit_costs();
    TRI_TRY(tri_schedule_build(config, schedule, err));
    tr_status status = tri_schedule_lower(schedule, err);
    if (status == TR_OK)
        status = tri_schedule_check(schedule, err);
    if (status == TR_OK)
        status = tri_sim_run(schedule, &costs, sim, err);
    if (status != TR_OK)
        tri_schedule_fini(schedule);
    return status;
}

static void time_pipe(tri_pipe *pipe)
{
    uint32_t few = STEADY * pipe->pp < pipe->microbatches ? STEADY * pipe->pp : pipe->microbatches;
    const tri_schedule_config config = {.order = tri_search_order_at(pipe->schedule)->name,
                                        .num_ranks = pipe->pp,
                                        .num_microbatches = few,
                                        .chunks_per_rank = pipe->chunks};
    tri_schedule schedule;
    tri_sim sim;
    if (time_order(&config, &sim, &schedule, NULL) != TR_OK)
        return;
    double more = (double)pipe->microbatches / few - 1;
    pipe->known = true;
    pipe->stretch = (sim.makespan + more * sim.work) / (sim.work * (1 + more));
    pipe->live = sim.activations;
    tri_sim_fini(&sim);
    tri_schedule_fini(&schedule);
}

size_t tri_pipe_of(tri_pipes *pipes, const tri_layout_choice *c)
{
    for (size_t i = pipes->count; i-- > 0;)
        if (pipes->items[i].pp == c->pp && pipes->items[i].microbatches == c->microbatches &&
            pipes->items[i].schedule == c->schedule && pipes->items[i].chunks == c->chunks)
            return i;
    tri_pipe *items = tri_array_grow(pipes->items, pipes->count, &pipes->capacity, sizeof *items);
    pipes->failed |= !items;
    if (!items)
        return 0;
    pipes->items = items;
    tri_pipe *pipe = &items[pipes->count];
    *pipe = (tri_pipe){.pp = c->pp,
                       .microbatches = c->microbatches,
                       .schedule = c->schedule,
                       .chunks = c->chunks,
                       .known = c->pp == 1,
                       .stretch = 1,
                       .live = 1};
    if (c->pp > 1)
        time_pipe(pipe);
    return pipes->count++;
}

void tri_pipes_fini(tri_pipes *pipes)
{
    free(pipes->items);
    *pipes = (tri_pipes){0};
}
