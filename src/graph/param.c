#include "graph/param.h"

#include <stdlib.h>
#include <string.h>

void tri_param_table_init(tri_param_table *table)
{
    *table = (tri_param_table){0};
    tri_arena_init(&table->arena);
}

void tri_param_table_fini(tri_param_table *table)
{
    free(table->items);
    free(table->slots);
    tri_arena_fini(&table->arena);
    *table = (tri_param_table){0};
}

/* Where a name is, or the free slot where it would be. */
static size_t slot_of(const tri_param_table *table, const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = name; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    size_t slot = (size_t)(hash ^ hash >> 32) & (table->num_slots - 1);
    while (table->slots[slot] != TRI_NONE &&
           strcmp(table->items[table->slots[slot]].name, name) != 0)
        slot = (slot + 1) & (table->num_slots - 1);
    return slot;
}

/* Models look up every parameter they use, and a deep one has thousands: found by hash. */
static bool index_names(tri_param_table *table)
{
    size_t num = table->num_slots ? 2 * table->num_slots : 64;
    tri_id *slots = malloc(num * sizeof *slots);
    if (!slots)
        return false;
    free(table->slots);
    table->slots = slots;
    table->num_slots = num;
    for (size_t s = 0; s < num; s++)
        slots[s] = TRI_NONE;
    for (size_t i = table->count; i-- > 0;) /* of equal names the first is found */
        slots[slot_of(table, table->items[i].name)] = (tri_id)i;
    return true;
}

void tri_param_add(tri_param_table *table, tri_param param)
{
    tri_param *items = tri_array_grow(table->items, table->count, &table->capacity, sizeof *items);
    if (items)
        table->items = items;
    param.name = tri_arena_text(&table->arena, param.name);
    if (!items || table->arena.failed ||
        (2 * (table->count + 1) > table->num_slots && !index_names(table))) {
        table->failed = true;
        return;
    }
    size_t slot = slot_of(table, param.name);
    if (table->slots[slot] == TRI_NONE)
        table->slots[slot] = (tri_id)table->count;
    items[table->count++] = param;
}

tri_id tri_param_find(const tri_param_table *table, const char *name)
{
    return table->num_slots ? table->slots[slot_of(table, name)] : TRI_NONE;
}

int64_t tri_param_total(const tri_param_table *table)
{
    int64_t total = 0;
    for (size_t i = 0; i < table->count; i++)
        total += tri_shape_count(&table->items[i].shape);
    return total;
}

bool tri_param_has_copy(const tri_param *param, tri_dtype compute)
{
    return compute != TRI_F32 && param->role != TRI_ROLE_NORM && param->role != TRI_ROLE_ROUTER &&
           param->role != TRI_ROLE_STEERED;
}
