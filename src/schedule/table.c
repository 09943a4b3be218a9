/* The table of orders: one row for each. */
#include <string.h>

#include "schedule/orders.h"

static const tri_order *const orders[] = {
    &tri_order_gpipe, &tri_order_1f1b,      &tri_order_interleaved,   &tri_order_1f1b_v,
    &tri_order_zb_h1, &tri_order_zb_h2,     &tri_order_zb_v,          &tri_order_v_half,
    &tri_order_v_min, &tri_order_chimera,   &tri_order_dualpipe,      &tri_order_dualpipev,
    &tri_order_gems,  &tri_order_pipedream, &tri_order_pipedream_2bw,
};

const tri_order *tri_order_at(size_t i)
{
    return i < sizeof orders / sizeof *orders ? orders[i] : NULL;
}

const tri_order *tri_order_find(const char *name)
{
    for (size_t i = 0; tri_order_at(i); i++)
        if (strcmp(orders[i]->name, name) == 0)
            return orders[i];
    return NULL;
}
