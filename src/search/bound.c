/* What a layout takes at least, from what its layers take.
 *
 * Time: a stage computes all micro-batches, and idles as its order does with equal stages; and the
 * lanes of messages have to carry them all. Bytes: what rests, and what is kept on the fullest
 * stage for the micro-batches that are under way there. */
#include <math.h>

#include "search/cells.h"

/* ---- messages of dp ---- */

static double over(const tri_search_machine *machine, uint32_t size, uint32_t stride, double bytes)
{
    tri_rank_group group = {.size = size, .num_levels = 1};
    group.level[0] = (tri_group_level){.size = size, .stride = stride};
    return machine->cluster && size > 1
               ? tri_link_collective(machine->cluster, &group, TRI_COLL_ALL_GATHER, bytes,
                                     &machine->terms)
               : 0;
}

/* Seconds to gather, or to scatter sums of, this many bytes over dp x cp: one message of all of
 * them, so no less than in parts. Experts go over the ranks that have the same ones, beside what
 * goes over all of them. How many of the bytes are theirs is not known; the two take least
 * where they take equally long. */
static double exchange(const tri_layout_choice *c, const tri_search_machine *machine, double bytes)
{
    uint32_t ranks = c->shard_group ? c->shard_group : c->dp * c->cp;
    double all = over(machine, ranks, c->tp, bytes);
    if (c->ep == 1)
        return all;
    double experts = over(machine, ranks / c->ep, c->tp * c->ep, bytes);
    return experts > 0 ? all * experts / (all + experts) : 0;
}

static double gathers(const tri_layer_cell *cell, const tri_layout_choice *c,
                      const tri_search_machine *machine, double layers)
{
    double bytes = cell->layer.copies > 0 ? cell->layer.copies : cell->layer.params;
    double times = c->zero < 3 || c->keep_gathered ? 1 : 2 * (double)c->microbatches;
    return times * exchange(c, machine, bytes * layers);
}

static double sums(const tri_layer_cell *cell, const tri_layout_choice *c,
                   const tri_search_machine *machine, double layers)
{
    double times = c->zero < 2 ? 1 : c->microbatches;
    return times * exchange(c, machine, cell->layer.grads * layers);
}

/* ---- bytes ---- */

static double resting(const tri_cell_part *part, const tri_layout_choice *c)
{
    double shard = c->shard_group > 0 ? c->shard_group : (double)c->dp * c->cp;
    double weights = part->params + part->copies, grads = c->microbatches > 1 ? part->grads : 0;
    double gathered = part->copies > 0 ? part->copies : part->params;
    if (part->copies > 0 && c->zero > 0) /* the 32-bit ones are this rank's share */
        weights = part->params / shard + part->copies;
    if (c->zero >= 3)
        weights = weights / shard + (c->keep_gathered ? gathered : 0);
    return weights + grads / (c->zero >= 2 ? shard : 1) +
           part->moments / (c->zero >= 1 ? shard : 1);
}

tri_bound tri_cell_bound(const tri_layer_cell *cell, const tri_pipe *pipe,
                         const tri_layout_choice *c, const tri_search_machine *machine,
                         uint32_t layers)
{
    /* For what rounding, packing and fusing may save; and for backwards that take more or less than
     * twice the forward, and recomputation that fits the gaps that unequal stages leave. */
    uint32_t own = tri_search_order_at(c->schedule)->chunks;
    uint32_t chunks = c->chunks > 0 ? c->chunks : own > 0 ? own : 1;
    bool uneven = layers % (c->pp * chunks) != 0;
    const double spare = c->pp == 1 ? 0.97 : uneven && cell->layer.redone > 0 ? 0.86 : 0.92;
    const double slack = 0.93;
    tri_cell_part all = tri_cell_whole(cell, layers);
    double m = c->microbatches, pp = c->pp, passes = all.first + (m - 1) * all.other;
    double mine = (double)layers / pp, waiting = pipe->stretch - 1; /* ranks recompute meanwhile */
    double busy = (passes + waiting * (passes - m * layers * cell->layer.redone)) / pp;
    double shard = c->shard_group ? c->shard_group : (double)c->dp * c->cp;
    double got = gathers(cell, c, machine, mine), summed = sums(cell, c, machine, mine);
    /* The layers of the fullest may keep little, and those that recompute to fit nothing. */
    double live = c->keeping == TRI_KEEP_FITTING ? 0 : cell->mean ? 1 : pipe->live;
    double exposed = c->zero < 2 ? fmax(0, got + summed - all.first / pp) : 0;
    double update = all.update / pp / (c->zero > 0 ? shard : 1);
    double seconds = fmax(busy + update + exposed, got + summed);
    return (tri_bound){.seconds = spare * seconds,
                       .bytes = slack * (resting(&all, c) / pp + live * cell->layer.kept * mine)};
}
