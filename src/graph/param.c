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
    tri_arena_fini(&table->arena);
    *table = (tri_param_table){0};
}

void tri_param_add(tri_param_table *table, tri_param param)
{
    tri_param *items = tri_array_grow(table->items, table->count, &table->capacity, sizeof *items);
    if (!items) {
        table->failed = true;
        return;
    }
    table->items = items;
    param.name = tri_arena_printf(&table->arena, "%s", param.name);
    items[table->count++] = param;
    table->failed |= table->arena.failed;
}

tri_id tri_param_find(const tri_param_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->items[i].name, name) == 0)
            return (tri_id)i;
    return TRI_NONE;
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
    return compute != TRI_F32 && param->role != TRI_ROLE_NORM;
}
