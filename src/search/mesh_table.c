#include "search/mesh_table.h"

#include <math.h>
#include <stdlib.h>

#include "search/search_parts.h"

/* Where the value is among those so far, or is put; TRI_MESH_VALUES: there is no room. */
static size_t place_of(uint32_t *values, size_t *num, uint32_t value)
{
    size_t at = 0;
    while (at < *num && values[at] < value)
        at++;
    if (at < *num && values[at] == value)
        return at;
    if (*num == TRI_MESH_VALUES)
        return TRI_MESH_VALUES;
    for (size_t i = *num; i > at; i--)
        values[i] = values[i - 1];
    values[at] = value;
    (*num)++;
    return at;
}

static tri_mesh_cell *cell_of(tri_mesh_table *table, const tri_layout_choice *choice)
{
    size_t tp = 0, pp = 0;
    while (tp < table->num_tp && table->tp[tp] != choice->tp)
        tp++;
    while (pp < table->num_pp && table->pp[pp] != choice->pp)
        pp++;
    return tp < table->num_tp && pp < table->num_pp ? &table->cell[pp][tp] : NULL;
}

/* Lanes are no part of the space: each layout is timed with both. */
static bool same_choice(const tri_layout_choice *a, const tri_layout_choice *b)
{
    return tri_choice_same_mesh(a, b) && a->zero == b->zero && a->shard_group == b->shard_group &&
           a->rows == b->rows && a->microbatches == b->microbatches && a->schedule == b->schedule &&
           a->chunks == b->chunks && a->keeping == b->keeping && a->prefetch == b->prefetch &&
           a->sp == b->sp && a->keep_gathered == b->keep_gathered &&
           a->whole_experts == b->whole_experts && a->linear8 == b->linear8;
}

static bool was_looked_at(const tri_search *search, const tri_layout_choice *choice)
{
    for (size_t i = 0; i < search->num_results; i++)
        if (same_choice(&search->results[i].choice, choice))
            return true;
    return false;
}

static void raise_to(tri_mesh_cell *cell, tri_mesh_state state)
{
    if (cell->state < state)
        cell->state = state;
}

static void add_bytes(tri_mesh_cell *cell, double bytes, bool at_least)
{
    if (cell->bytes > 0 && cell->bytes <= bytes)
        return;
    cell->bytes = bytes;
    cell->at_least = at_least;
}

static void add_result(tri_mesh_table *table, const tri_layout_result *r)
{
    tri_mesh_cell *cell = cell_of(table, &r->choice);
    if (!cell || !r->known)
        return;
    raise_to(cell, r->fits ? TRI_MESH_LOOKED : TRI_MESH_TOO_LARGE);
    add_bytes(cell, (double)r->bytes, false);
    cell->looked++;
    if (r->fits && (!cell->best || tri_result_better(r, cell->best)))
        cell->best = r;
}

/* A layout of the space: its bounds, unless it was looked at, which is asked only where it would
 * change something. */
static void add_choice(tri_mesh_table *table, tri_search *search, const tri_search_machine *machine,
                       const tri_layout_choice *choice)
{
    tri_mesh_cell *to = cell_of(table, choice);
    if (!to)
        return;
    raise_to(to, TRI_MESH_REFUSED);
    const tri_layer_cell *cell = &search->cells.items[tri_cell_of(&search->cells, choice)];
    if (!cell->known || cell->repeats)
        return;
    const tri_pipe *pipe = &search->pipes.items[tri_pipe_of(&search->pipes, choice)];
    if (!pipe->known)
        return;
    tri_bound bound = tri_cell_bound(cell, pipe, choice, machine, search->facts.layers);
    bool may_fit = bound.bytes <= (double)machine->memory_bytes;
    bool faster = may_fit && (to->bound <= 0 || bound.seconds < to->bound);
    bool smaller = to->bytes <= 0 || bound.bytes < to->bytes;
    if ((!faster && !smaller) || was_looked_at(search, choice))
        return;
    raise_to(to, may_fit ? TRI_MESH_BOUNDED : TRI_MESH_TOO_LARGE);
    if (faster)
        to->bound = bound.seconds;
    if (smaller)
        add_bytes(to, bound.bytes, true);
}

tri_mesh_table *tri_mesh_table_make(tri_search *search, const tri_search_machine *machine)
{
    tri_mesh_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    for (size_t i = 0; i < search->space.count; i++) {
        const tri_layout_choice *choice = &search->space.items[i];
        table->cut |= place_of(table->tp, &table->num_tp, choice->tp) == TRI_MESH_VALUES;
        table->cut |= place_of(table->pp, &table->num_pp, choice->pp) == TRI_MESH_VALUES;
    }
    for (size_t i = 0; i < search->num_results; i++)
        add_result(table, &search->results[i]);
    for (size_t i = 0; i < search->space.count; i++)
        add_choice(table, search, machine, &search->space.items[i]);
    return table;
}
