/* Tokens that are sorted by expert. Rows of several ranks cannot be put together once each has
 * sorted its own: so where ranks of tp each have a part of every expert's width, and with sp a part
 * of the tokens, the choices of all tokens are gathered before they are sorted, and the tokens with
 * them, as they are before any feed-forward. And loads, which are sums over all of them. */
#include "place/placer.h"

tr_status tri_placer_sort(tri_placer *p, tri_node *node, tr_error *err)
{
    if (node->op != TRI_OP_SORT_ROWS || p->layout->whole_experts)
        return TR_OK;
    const tri_factor_set tp = tri_placer_axis(p, TRI_AXIS_TP);
    const tri_placed *v = &p->values[node->in[0]];
    tri_spot spots[TRI_MAX_FACTORS];
    for (int f = 0; f < p->layout->grid.num_factors; f++)
        spots[f] = tp >> f & 1 ? (tri_spot){TRI_SPOT_WHOLE, 0} : tri_placement_spot(&v->at, f);
    tri_placement want = tri_placement_of(&p->layout->grid, &v->global, spots);
    return tri_placer_convert(p, node->in[0], &want, &node->in[0], err);
}

/* Loads that biases are moved by are summed one after the other, before the first bias is moved.
 * Ranks of a pipeline move the biases of other layers: with these in between, other sums would lie
 * side by side on each rank and travel together. */
tr_status tri_placer_sum_loads(tri_placer *p, const tri_node *node, tr_error *err)
{
    for (size_t i = 0; node->op == TRI_OP_MOVE_BIAS && i < p->graph->num_steered; i++)
        TRI_TRY(tri_placer_complete_state(p, p->graph->steered[i].load, err));
    return TR_OK;
}
