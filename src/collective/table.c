/* The table of algorithms: one row for each file. */
#include "collective/collective.h"

#include <string.h>

static const tri_algorithm *const algorithms[] = {
    &tri_algorithm_direct,
    &tri_algorithm_ring,
    &tri_algorithm_tree,
};

const tri_algorithm *tri_algorithm_at(size_t i)
{
    return i < sizeof algorithms / sizeof *algorithms ? algorithms[i] : NULL;
}

const tri_algorithm *tri_algorithm_find(const char *name)
{
    for (size_t i = 0; tri_algorithm_at(i); i++)
        if (strcmp(algorithms[i]->name, name) == 0)
            return algorithms[i];
    return NULL;
}
