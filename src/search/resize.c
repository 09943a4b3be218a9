#include "search/resize.h"

#include <stdlib.h>

#include "search/parallel.h"
#include "search/search_parts.h"

enum { MOST_BASES = 5, MOST_LOOKS = 64 };

typedef enum resized_axis { RESIZE_DP, RESIZE_PP, RESIZE_CP, NUM_RESIZED } resized_axis;

typedef struct resizing {
    const tri_search_case *c;
    const tri_space_facts *facts; /* of the search: with its own number of devices */
    tri_layout_result results[MOST_LOOKS];
    tr_status statuses[MOST_LOOKS];
    tr_error errors[MOST_LOOKS];
    size_t num;
} resizing;

static void put(resizing *r, const tri_layout_choice *choice)
{
    if (r->num < MOST_LOOKS)
        r->results[r->num++] = (tri_layout_result){.choice = *choice};
}

/* Micro-batches of so many rows, which fewer ranks may be able to keep if they compute more of them
 * again. */
static void put_rows(resizing *r, tri_layout_choice choice, uint32_t rows)
{
    uint32_t own = ((uint32_t)r->facts->batch + choice.dp - 1) / choice.dp;
    choice.rows = rows < own ? rows : own;
    choice.microbatches = (own + choice.rows - 1) / choice.rows;
    put(r, &choice);
    if (r->c->machine.devices >= r->facts->devices || choice.keeping == TRI_KEEP_INPUTS)
        return;
    choice.keeping = TRI_KEEP_INPUTS;
    put(r, &choice);
}

/* What goes with the axes. False: there is no such layout. */
static bool mend(const tri_space_facts *facts, tri_layout_choice *c)
{
    const tri_search_order *order = tri_search_order_at(c->schedule);
    uint32_t shards = c->dp * c->cp;
    if (c->dp > facts->batch || c->pp > facts->layers || (c->cp > 1 && !facts->can_cp) ||
        shards % c->ep != 0)
        return false;
    if (c->pp == 1) {
        c->schedule = c->chunks = 0;
    } else if (order->many_chunks) {
        while (c->chunks > 2 && c->chunks * c->pp > facts->layers)
            c->chunks /= 2;
    }
    c->zero = shards > 1 ? c->zero : 0;
    if (c->shard_group >= shards || (c->shard_group > 0 && shards % c->shard_group != 0))
        c->shard_group = 0;
    return true;
}

static void put_resized(resizing *r, tri_layout_choice choice, resized_axis axis)
{
    uint32_t *value = axis == RESIZE_DP ? &choice.dp : axis == RESIZE_PP ? &choice.pp : &choice.cp;
    uint64_t ranks = (uint64_t)*value * r->c->machine.devices;
    uint32_t rows = choice.rows;
    if (ranks % r->facts->devices != 0)
        return;
    *value = (uint32_t)(ranks / r->facts->devices);
    if (choice.keeping == TRI_KEEP_FITTING) /* which takes long to plan */
        choice.keeping = TRI_KEEP_INPUTS;
    choice.group_lanes = false;
    if (!mend(r->facts, &choice))
        return;
    put_rows(r, choice, rows);
    if (rows > 1)
        put_rows(r, choice, rows / 2);
}

static void look_item(void *context, size_t i)
{
    resizing *r = context;
    r->statuses[i] = tri_layout_look(&r->c->machine, r->c->settings, TRI_LOOK_ALL, &r->results[i],
                                     &r->errors[i]);
}

tr_status tri_search_resize(const tri_search_case *c, const tri_search *found,
                            tri_layout_result *best, tr_error *err)
{
    tr_status status = TR_OK;
    resizing *r = calloc(1, sizeof *r);
    *best = (tri_layout_result){0};
    if (!r)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the search");
    r->c = c;
    r->facts = &found->facts;
    for (size_t b = 0; b < found->num_best && b < MOST_BASES; b++)
        for (int axis = 0; axis < NUM_RESIZED; axis++)
            put_resized(r, found->results[found->best[b]].choice, (resized_axis)axis);
    tri_parallel_each(c->threads, r->num, look_item, r);
    for (size_t i = 0; i < r->num && status == TR_OK; i++) {
        status = r->statuses[i];
        if (status != TR_OK)
            *err = r->errors[i];
        else if (tri_result_better(&r->results[i], best))
            *best = r->results[i];
    }
    free(r);
    return status;
}
