/* Costs as people type them: F=1,I=1,W=1,B=2,FB=3,U=0,comm=0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"

tri_action_costs tri_sim_unit_costs(void)
{
    tri_action_costs costs = {0};
    costs.kind[TRI_ACTION_F] = costs.kind[TRI_ACTION_I] = costs.kind[TRI_ACTION_W] = 1;
    costs.kind[TRI_ACTION_B] = 2;
    return costs;
}

static double *cost_of(tri_action_costs *costs, const char *name, size_t length)
{
    for (int k = 0; k < TRI_NUM_ACTIONS; k++) {
        const char *own = tri_action_name((tri_action_kind)k);
        if (strlen(own) == length && memcmp(own, name, length) == 0)
            return &costs->kind[k];
    }
    if (length == 2 && memcmp(name, "FB", 2) == 0)
        return &costs->overlap;
    if (length == 4 && memcmp(name, "comm", 4) == 0)
        return &costs->message;
    return NULL;
}

tr_status tri_sim_parse_costs(const char *text, tri_action_costs *costs, tr_error *err)
{
    bool has_b = false;
    const char *at = text;
    while (*at) {
        size_t length = strcspn(at, ",");
        size_t name = strcspn(at, "=,");
        double *cost = name < length ? cost_of(costs, at, name) : NULL;
        char *end = NULL;
        double value = cost ? strtod(at + name + 1, &end) : 0;
        if (!cost || end != at + length || end == at + name + 1)
            return tri_fail(
                err, TR_ERROR_INPUT,
                "the cost \"%.*s\" is not one of F=, I=, W=, B=, FB=, U= and comm= with "
                "a number, as in F=1,I=1,W=1,comm=0.2",
                (int)(length > 40 ? 40 : length), at);
        if (!(value >= 0) || value > 1e9)
            return tri_fail(err, TR_ERROR_INPUT, "the cost %.*s must be from 0 to 1e9",
                            (int)(length > 40 ? 40 : length), at);
        *cost = value;
        has_b = has_b || cost == &costs->kind[TRI_ACTION_B];
        at += length + (at[length] == ',');
    }
    if (!has_b)
        costs->kind[TRI_ACTION_B] = costs->kind[TRI_ACTION_I] + costs->kind[TRI_ACTION_W];
    return TR_OK;
}
