#include "mesh/rank_group.h"

#include <stdio.h>
#include <string.h>

int tri_rank_group_member(const tri_rank_group *group, uint32_t place)
{
    uint32_t rank = group->first;
    if (group->num_listed > 0)
        return (int)(rank + group->listed[place] * group->level[0].stride);
    for (uint32_t l = 0; l < group->num_levels; l++) {
        rank += place % group->level[l].size * group->level[l].stride;
        place /= group->level[l].size;
    }
    return (int)rank;
}

static int order_of(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

int tri_rank_group_compare(const void *a, const void *b)
{
    const tri_rank_group *x = a, *y = b;
    int order = order_of(x->num_listed, y->num_listed);
    order = order ? order : order_of(x->num_levels, y->num_levels);
    for (uint32_t l = 0; !order && l < x->num_levels; l++) {
        order = order_of(x->level[l].stride, y->level[l].stride);
        order = order ? order : order_of(x->level[l].size, y->level[l].size);
    }
    for (uint32_t i = 0; !order && i < x->num_listed; i++)
        order = order_of(x->listed[i], y->listed[i]);
    order = order ? order : order_of(x->first, y->first);
    return order ? order : strcmp(x->name, y->name);
}

bool tri_rank_group_equal(const tri_rank_group *a, const tri_rank_group *b)
{
    return a->size == b->size && tri_rank_group_compare(a, b) == 0;
}

char *tri_rank_group_text(const tri_rank_group *group, char *text, size_t text_size)
{
    int used = snprintf(text, text_size, "%s", group->num_listed ? "pp" : group->name);
    for (uint32_t i = 0; i < group->num_listed && (size_t)used < text_size; i++)
        used += snprintf(text + used, text_size - (size_t)used, "%s%u", i ? ", " : " ",
                         group->listed[i]);
    return text;
}
