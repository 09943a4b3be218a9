/* Making and unmaking schedules: the shape, the homes of the chunks, and the call of the order. */
#include "schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fs.h"

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
}

/* A shape with empty lists: everything of the schedule but the actions. */
static tr_status init(tri_schedule *s, const tri_order *order, uint32_t num_ranks,
                      uint32_t num_chunks, uint32_t num_microbatches, uint32_t num_routes,
                      tr_error *err)
{
    *s = (tri_schedule){.order = order,
                        .num_ranks = num_ranks,
                        .num_chunks = num_chunks,
                        .num_microbatches = num_microbatches,
                        .num_routes = num_routes};
    s->chunks_per_rank = num_chunks > num_ranks ? num_chunks / num_ranks : 1;
    s->home = calloc((size_t)num_routes * num_chunks, sizeof *s->home);
    s->route = calloc(num_microbatches, sizeof *s->route);
    s->ranks = calloc(num_ranks, sizeof *s->ranks);
    if (s->home && s->route && s->ranks)
        return TR_OK;
    tri_schedule_fini(s);
    return no_memory(err);
}

void tri_schedule_fini(tri_schedule *s)
{
    for (uint32_t r = 0; s->ranks && r < s->num_ranks; r++)
        free(s->ranks[r].actions);
    free(s->ranks);
    free(s->route);
    free(s->home);
    *s = (tri_schedule){0};
}

tr_status tri_schedule_add(tri_schedule *s, uint32_t rank, tri_action action, tr_error *err)
{
    tri_action_list *list = &s->ranks[rank];
    tri_action *grown =
        tri_array_grow(list->actions, list->count, &list->capacity, sizeof *list->actions);
    if (!grown)
        return no_memory(err);
    list->actions = grown;
    list->actions[list->count++] = action;
    return TR_OK;
}

size_t tri_schedule_num_actions(const tri_schedule *s)
{
    size_t count = 0;
    for (uint32_t r = 0; r < s->num_ranks; r++)
        count += s->ranks[r].count;
    return count;
}

/* Chunks go around the ranks again and again, or down and up again (V); bidirectional orders have
 * them a second time, turned round. */
static void settle(tri_schedule *s, unsigned flags)
{
    uint32_t p = s->num_ranks;
    for (uint32_t c = 0; c < s->num_chunks; c++)
        s->home[c] = flags & TRI_ORDER_V && c >= p ? 2 * p - 1 - c : c % p;
    if (s->num_routes > 1)
        for (uint32_t c = 0; c < s->num_chunks; c++)
            s->home[s->num_chunks + c] = p - 1 - c;
}

tr_status tri_order_known(const char *name, tr_error *err)
{
    char names[400] = "";
    if (tri_order_find(name) || strncmp(name, "csv:", 4) == 0)
        return TR_OK;
    for (size_t i = 0, used = 0; tri_order_at(i) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", tri_order_at(i)->name);
    return tri_fail(err, TR_ERROR_INPUT,
                    "there is no schedule \"%.60s\"; choose one of %sor csv:FILE", name, names);
}

static tr_status build_order(const tri_schedule_config *config, tri_schedule *s, tr_error *err)
{
    TRI_TRY(tri_order_known(config->order, err));
    const tri_order *order = tri_order_find(config->order);
    uint32_t per_rank = config->chunks_per_rank ? config->chunks_per_rank : order->default_chunks;
    uint32_t p = config->num_ranks, m = config->num_microbatches;
    TRI_TRY(tri_order_check(order, p, m, per_rank, err));
    bool both_ways = order->flags & TRI_ORDER_BIDIRECTIONAL;
    TRI_TRY(init(s, order, p, both_ways ? p : p * per_rank, m, both_ways ? 2 : 1, err));
    settle(s, order->flags);
    tr_status status = order->emit(s, err);
    if (status != TR_OK)
        tri_schedule_fini(s);
    return status;
}

static tr_status agrees(const char *path, const char *what, uint32_t wanted, uint32_t found,
                        tr_error *err)
{
    if (wanted == 0 || wanted == found)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s has %u %s, but %u were asked for; leave the number out", path, found, what,
                    wanted);
}

static tr_status build_file(const tri_schedule_config *config, const char *path, tri_schedule *s,
                            tr_error *err)
{
    tri_mapping file;
    TRI_TRY(tri_mapping_open(&file, path, err));
    tr_status status = tri_schedule_parse((const char *)file.data, file.num_bytes, path, s, err);
    tri_mapping_close(&file);
    TRI_TRY(status);
    status = agrees(path, "ranks", config->num_ranks, s->num_ranks, err);
    if (status == TR_OK)
        status = agrees(path, "micro-batches", config->num_microbatches, s->num_microbatches, err);
    if (status == TR_OK)
        status = agrees(path, "chunks on a rank", config->chunks_per_rank, s->chunks_per_rank, err);
    if (status != TR_OK)
        tri_schedule_fini(s);
    return status;
}

tr_status tri_schedule_build(const tri_schedule_config *config, tri_schedule *schedule,
                             tr_error *err)
{
    *schedule = (tri_schedule){0};
    if (strncmp(config->order, "csv:", 4) == 0)
        return build_file(config, config->order + 4, schedule, err);
    return build_order(config, schedule, err);
}
