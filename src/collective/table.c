/* The table of algorithms: one row for each file. */
#include "collective/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tri_algorithm *const algorithms[] = {
    &tri_algorithm_direct,     &tri_algorithm_ring,         &tri_algorithm_tree,
    &tri_algorithm_doubling,   &tri_algorithm_rabenseifner, &tri_algorithm_double_tree,
    &tri_algorithm_bruck,      &tri_algorithm_pairwise,     &tri_algorithm_hierarchical,
    &tri_algorithm_torus2d,    &tri_algorithm_torus3d,      &tri_algorithm_mesh2d,
    &tri_algorithm_sharded_ps,
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

int tri_algorithm_number(const tri_algorithm *algorithm)
{
    for (size_t i = 0; tri_algorithm_at(i); i++)
        if (algorithms[i] == algorithm)
            return (int)i;
    return 255;
}

/* "8x4" into dims; false when it is not that, or not for so many ranks. */
static bool read_dims(const char *text, tri_coll_shape *shape)
{
    int64_t product = 1;
    int num = 0;
    for (const char *at = text; num < TRI_COLL_MAX_DIMS; at++) {
        char *end;
        long dim = strtol(at, &end, 10);
        if (end == at || dim < 1 || dim > 65535)
            return false;
        shape->dim[num++] = (int)dim;
        product *= dim;
        at = end;
        if (*at == '\0')
            break;
        if (*at != 'x')
            return false;
    }
    shape->num_dims = num;
    return product == shape->size;
}

static tr_status fail_unknown(const char *text, tr_error *err)
{
    char names[300] = "";
    for (size_t i = 0, at = 0; tri_algorithm_at(i) && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, ", %s", tri_algorithm_at(i)->name);
    return tri_fail(err, TR_ERROR_INPUT, "there is no algorithm \"%.60s\"; there are auto%s", text,
                    names);
}

tr_status tri_algorithm_parse(const char *text, const tri_algorithm **algorithm,
                              tri_coll_shape *shape, tr_error *err)
{
    char name[40];
    size_t length = strcspn(text, ":");
    if (length < sizeof name) {
        memcpy(name, text, length);
        name[length] = '\0';
        *algorithm = tri_algorithm_find(name);
    } else {
        *algorithm = NULL;
    }
    if (!*algorithm)
        return fail_unknown(text, err);
    if (text[length] == '\0')
        return TR_OK;
    tri_coll_shape given = tri_shape_flat(shape->size);
    if (!read_dims(text + length + 1, &given))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%.60s: what follows the colon must be up to %d numbers whose product is "
                        "the %d ranks, such as 2x%d",
                        text, TRI_COLL_MAX_DIMS, shape->size, (shape->size + 1) / 2);
    *shape = given;
    return TR_OK;
}
