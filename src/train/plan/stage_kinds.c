#include "train/plan/stage_kinds.h"

#include <stdlib.h>

#include "program/retime.h"

typedef struct kinds {
    const tri_pipeline *pipeline;
    const uint32_t *steps; /* layers that may be taken out of each chunk of a stage, or NULL */
    int64_t every;         /* layers from one that recomputes to the next; 1: all do alike */
    uint32_t most;         /* actions of chunks, on any stage */
    uint32_t *orders;      /* [stage][most] */
    uint32_t *nums;
} kinds;

/* The layers of a chunk: the first, and how many. */
static int layers_of(const tri_stages *stages, uint32_t chunk, int *first)
{
    int count = 0;
    for (int l = 0; l < stages->num_layers; l++) {
        if (stages->chunk_of[l + 1] != (int)chunk)
            continue;
        *first = count == 0 ? l : *first;
        count++;
    }
    return count;
}

/* more: layers that chunk a has more of, and may have. */
static bool same_layers(const kinds *k, uint32_t a, uint32_t b, int more)
{
    const tri_pipeline *pipeline = k->pipeline;
    int first_a = 0, first_b = 0, num = layers_of(&pipeline->stages, b, &first_b);
    int num_a = layers_of(&pipeline->stages, a, &first_a);
    if (num_a != num + more || (first_b - first_a) % k->every != 0)
        return false;
    num = num_a < num ? num_a : num;
    for (int l = 0; l < num; l++)
        if (pipeline->layer_costs[first_a + l + 1] != pipeline->layer_costs[first_b + l + 1])
            return false;
    return true;
}

/* Chunks with equal layers, of which neither has the embedding or the head, and whose neighbours
 * lie on this stage or on others alike. */
static bool same_chunks(const kinds *k, uint32_t stage_a, uint32_t a, uint32_t stage_b, uint32_t b,
                        int more)
{
    const tri_schedule *s = &k->pipeline->schedule;
    uint32_t last = s->num_chunks - 1;
    if (a == TRI_NONE || b == TRI_NONE)
        return a == b;
    if (a == 0 || b == 0 || a == last || b == last)
        return false;
    bool before = (s->home[a - 1] == stage_a) == (s->home[b - 1] == stage_b);
    bool after = (s->home[a + 1] == stage_a) == (s->home[b + 1] == stage_b);
    return before && after && same_layers(k, a, b, more);
}

/* Which actions of which of its chunks a stage begins with, one after the other. number: room for
 * one of each chunk. */
static uint32_t first_actions(const tri_schedule *s, uint32_t stage, uint32_t *number,
                              uint32_t *order)
{
    const tri_action_list *list = &s->ranks[stage];
    uint32_t num = 0, chunk;
    for (uint32_t n = 0; (chunk = tri_stage_chunk(s, stage, n)) != TRI_NONE; n++)
        number[chunk] = n;
    for (size_t i = 0; i < list->count; i++) {
        uint32_t k = 0;
        uint32_t code =
            number[list->actions[i].chunk] * TRI_NUM_ALL_ACTIONS + list->actions[i].kind;
        while (k < num && order[k] != code)
            k++;
        if (k == num)
            order[num++] = code;
    }
    return num;
}

static bool same_kind(const kinds *k, uint32_t a, uint32_t b)
{
    const tri_schedule *s = &k->pipeline->schedule;
    int more = k->steps ? (int)k->steps[a] - (int)k->steps[b] : 0;
    if (k->nums[a] != k->nums[b] || (k->steps && (k->steps[a] == 0) != (k->steps[b] == 0)))
        return false;
    for (uint32_t i = 0; i < k->nums[a]; i++)
        if (k->orders[a * k->most + i] != k->orders[b * k->most + i])
            return false;
    for (uint32_t n = 0; n <= s->num_chunks; n++) {
        uint32_t x = tri_stage_chunk(s, a, n), y = tri_stage_chunk(s, b, n);
        if (!same_chunks(k, a, x, b, y, more))
            return false;
        if (x == TRI_NONE)
            break;
    }
    return true;
}

/* Timelines of one micro-batch decide where values lie; two routes, pairs, several updates and
 * steps that are done again are compiled stage by stage, and so are layers of which each may
 * recompute as much as a budget asks for. */
static bool may_fold(const tri_session_config *config, const tri_pipeline *pipeline)
{
    return pipeline->exists && pipeline->stages.num_routes == 1 && pipeline->num_updates == 0 &&
           !config->compile.pairs && config->compile.num_microbatches > 1 &&
           config->compile.recompute.kind != TRI_RECOMPUTE_BUDGET &&
           !(tri_mesh_size(&config->compile.mesh, TRI_AXIS_EP) > 1 && config->compile.ep_room > 0);
}

tr_status tri_stage_kinds(const tri_session_config *config, const tri_pipeline *pipeline,
                          const uint32_t *steps, uint32_t *like, tr_error *err)
{
    const uint32_t num_stages = pipeline->schedule.num_ranks;
    if (!may_fold(config, pipeline))
        return TR_OK;
    const tri_recompute_config *recompute = &config->compile.recompute;
    kinds k = {.pipeline = pipeline,
               .every = recompute->kind == TRI_RECOMPUTE_EVERY ? recompute->every : 1,
               .steps = steps,
               .most = pipeline->schedule.num_chunks * TRI_NUM_ALL_ACTIONS};
    k.orders = calloc((size_t)num_stages * k.most, sizeof *k.orders);
    k.nums = calloc(num_stages, sizeof *k.nums);
    uint32_t *number = calloc(pipeline->schedule.num_chunks, sizeof *number);
    for (uint32_t s = 0; s < num_stages && k.orders && k.nums && number; s++) {
        k.nums[s] = first_actions(&pipeline->schedule, s, number, k.orders + s * k.most);
        for (uint32_t before = 0; before < s && like[s] == s; before++)
            if (like[before] == before && same_kind(&k, before, s))
                like[s] = before;
    }
    bool failed = !k.orders || !k.nums || !number;
    free(number);
    free(k.orders);
    free(k.nums);
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the kinds of the stages")
                  : TR_OK;
}
