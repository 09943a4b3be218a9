/* From one placement to another. Over each axis an array is whole, cut along a dim or terms of a
 * sum, so over each axis there is one thing to do; axes with the same thing to do share a
 * collective.
 *
 * Pieces of a dim that is cut over x and y are numbered x first. Cutting further and gathering the
 * last axis leave such pieces; anything else would leave pieces that do not lie together. Hence
 * what a dim keeps is the longest common beginning of its two lists of axes: the rest is gathered,
 * and what is new is cut off after that. */
#include "collective/collective.h"
#include "place/calc.h"

#include <string.h>

typedef struct change {
    int removed, added; /* dims, or -1 */
    bool sums;
} change;

typedef struct array_mover {
    tri_calc *calc;
    const tri_calc_array *to;
    tri_calc_array now;
    int to_dim[TRI_CALC_DIMS];     /* where the dim stands in `to` */
    bool loses[TRI_CALC_DIMS];     /* the dim has an axis to be gathered */
    change changes[TRI_CALC_AXES]; /* by axis */
    tri_calc_moves *moves;
} array_mover;

/* In this order, so that vectors are small when they travel. */
typedef enum stage {
    SLICE_FIRST,
    SCATTER_FIRST,
    REDUCE,
    EXCHANGE,
    GATHER,
    SCATTER_LAST, /* into a dim that had to be gathered before */
    SLICE_LAST,
    NUM_STAGES
} stage;

static const tri_calc_move_kind kind_of_stage[NUM_STAGES] = {
    [SLICE_FIRST] = TRI_CALC_SLICE, [SCATTER_FIRST] = TRI_CALC_REDUCE_SCATTER,
    [REDUCE] = TRI_CALC_ALL_REDUCE, [EXCHANGE] = TRI_CALC_ALL_TO_ALL,
    [GATHER] = TRI_CALC_ALL_GATHER, [SCATTER_LAST] = TRI_CALC_REDUCE_SCATTER,
    [SLICE_LAST] = TRI_CALC_SLICE,
};

static bool takes_part(const array_mover *m, const change *c, stage stage)
{
    bool clean = c->added >= 0 && !m->loses[c->added];
    bool exchange = c->removed >= 0 && clean && c->removed != c->added;
    switch (stage) {
    case SLICE_FIRST:
        return !c->sums && c->removed < 0 && clean;
    case SCATTER_FIRST:
        return c->sums && clean;
    case REDUCE:
        return c->sums && c->added < 0;
    case EXCHANGE:
        return exchange;
    case GATHER:
        return c->removed >= 0 && !exchange;
    case SCATTER_LAST:
        return c->sums && c->added >= 0 && !clean;
    default:
        return !c->sums && c->added >= 0 && !clean;
    }
}

static void remove_axes(tri_calc_dim *dim, unsigned axes)
{
    int kept = 0;
    for (int i = 0; i < dim->num_cuts; i++)
        if (!(axes & 1u << dim->cuts[i]))
            dim->cuts[kept++] = dim->cuts[i];
    dim->num_cuts = kept;
}

/* In the order of the target. */
static void add_axes(tri_calc_dim *dim, const tri_calc_dim *target, unsigned axes)
{
    for (int i = 0; i < target->num_cuts; i++)
        if (axes & 1u << target->cuts[i])
            dim->cuts[dim->num_cuts++] = target->cuts[i];
}

static tri_coll coll_of(tri_calc_move_kind kind)
{
    static const tri_coll colls[] = {[TRI_CALC_REDUCE_SCATTER] = TRI_COLL_REDUCE_SCATTER,
                                     [TRI_CALC_ALL_REDUCE] = TRI_COLL_ALL_REDUCE,
                                     [TRI_CALC_ALL_TO_ALL] = TRI_COLL_ALL_TO_ALL,
                                     [TRI_CALC_ALL_GATHER] = TRI_COLL_ALL_GATHER};
    return colls[kind];
}

/* Around a ring of N, both ways, a byte for another device travels N/4 links on average. */
static double exchange_seconds(const tri_calc *calc, const tri_calc_move *move, double bytes)
{
    int longest = 1;
    for (int a = 0; a < calc->num_axes; a++)
        if (move->axes & 1u << a && calc->axes[a].size > longest)
            longest = calc->axes[a].size;
    return bytes * longest / 4 / tri_link_ring_bytes_per_s(calc->link, 1);
}

static void price(const tri_calc *calc, tri_calc_move *move)
{
    move->seconds = move->kind == TRI_CALC_SLICE ? 0 : -1;
    move->vector = tri_calc_bytes(
        calc, move->kind == TRI_CALC_ALL_GATHER ? &move->after : &move->before, false);
    move->sent = tri_amount_of(0);
    if (move->kind == TRI_CALC_SLICE)
        return;
    int devices = tri_calc_devices(calc, move->axes);
    tri_coll coll = coll_of(move->kind);
    /* The formulas of algorithms take an exchange's blocks of all ranks together. */
    double blocks = coll == TRI_COLL_ALL_TO_ALL ? devices : 1, square = (double)devices * devices;
    tri_coll_shape ring = {.size = devices};
    tri_coll_cost share = tri_algorithm_ring.cost(coll, &ring, blocks * square);
    move->sent = tri_amount_scaled(move->vector, share.beta_bytes, square);
    double vector, sent;
    if (!calc->link || !tri_amount_known(&move->vector, &vector) ||
        !tri_amount_known(&move->sent, &sent))
        return;
    move->seconds = share.alpha_count * calc->latency_s;
    if (coll == TRI_COLL_ALL_TO_ALL && calc->link->torus_axes > 0)
        move->seconds += exchange_seconds(calc, move, vector);
    else
        move->seconds +=
            sent / tri_link_ring_bytes_per_s(calc->link, tri_calc_num_axes(move->axes));
}

static tr_status emit(array_mover *m, stage stage, unsigned axes, int removed, int added,
                      tr_error *err)
{
    tri_calc_move move = {.kind = kind_of_stage[stage], .axes = axes, .before = m->now};
    if (move.kind == TRI_CALC_ALL_GATHER || move.kind == TRI_CALC_ALL_TO_ALL)
        remove_axes(&m->now.dims[removed], axes);
    else if (move.kind != TRI_CALC_SLICE)
        m->now.terms &= ~axes;
    if (move.kind != TRI_CALC_ALL_GATHER && move.kind != TRI_CALC_ALL_REDUCE)
        add_axes(&m->now.dims[added], &m->to->dims[m->to_dim[added]], axes);
    move.after = m->now;
    if (tri_calc_devices(m->calc, axes) == 1)
        return TR_OK;
    if (m->moves->num == TRI_CALC_MOVES)
        return tri_fail(err, TR_ERROR_INTERNAL, "more moves than there can be");
    price(m->calc, &move);
    m->moves->items[m->moves->num++] = move;
    return TR_OK;
}

static tr_status run_stage(array_mover *m, stage stage, tr_error *err)
{
    unsigned done = 0;
    for (int a = 0; a < m->calc->num_axes; a++) {
        const change *first = &m->changes[a];
        unsigned axes = 0;
        if (done & 1u << a || !takes_part(m, first, stage))
            continue;
        for (int other = a; other < m->calc->num_axes; other++) {
            const change *c = &m->changes[other];
            bool same_from = stage == SLICE_LAST || c->removed == first->removed;
            bool same_to = stage == GATHER || c->added == first->added;
            if (takes_part(m, c, stage) && same_from && same_to)
                axes |= 1u << other;
        }
        done |= axes;
        TRI_TRY(emit(m, stage, axes, first->removed, first->added, err));
    }
    return TR_OK;
}

static int dim_of_letter(const tri_calc_array *array, int letter)
{
    for (int d = 0; d < array->rank; d++)
        if (array->dims[d].letter == letter)
            return d;
    return -1;
}

static tr_status match_dims(array_mover *m, const tri_calc_array *from, tr_error *err)
{
    bool fits = from->rank == m->to->rank;
    for (int d = 0; d < from->rank && fits; d++) {
        m->to_dim[d] = dim_of_letter(m->to, from->dims[d].letter);
        fits = m->to_dim[d] >= 0;
    }
    if (fits)
        return TR_OK;
    m->calc->error_at = m->to->at;
    return tri_fail(err, TR_ERROR_INPUT,
                    "character %d: %s does not have the dims of what becomes it; the letters on "
                    "both sides of -> must be the same",
                    m->to->at + 1, m->to->name);
}

static tr_status find_changes(array_mover *m, const tri_calc_array *from, tr_error *err)
{
    for (int a = 0; a < TRI_CALC_AXES; a++)
        m->changes[a] = (change){-1, -1, from->terms & ~m->to->terms & 1u << a};
    for (int d = 0; d < from->rank; d++) {
        const tri_calc_dim *old = &from->dims[d], *new = &m->to->dims[m->to_dim[d]];
        int same = 0;
        while (same < old->num_cuts && same < new->num_cuts && old->cuts[same] == new->cuts[same])
            same++;
        for (int i = same; i < old->num_cuts; i++) {
            m->changes[old->cuts[i]].removed = d;
            m->loses[d] = true;
        }
        for (int i = same; i < new->num_cuts; i++)
            m->changes[new->cuts[i]].added = d;
    }
    unsigned born = m->to->terms & ~from->terms;
    if (!born)
        return TR_OK;
    m->calc->error_at = m->to->at;
    return tri_fail(err, TR_ERROR_INPUT,
                    "character %d: %s is to be terms of a sum over %s, but what becomes it is not; "
                    "only a product makes terms",
                    m->to->at + 1, m->to->name, m->calc->axes[__builtin_ctz(born)].name);
}

tr_status tri_calc_move_to(tri_calc *calc, const tri_calc_array *from, const tri_calc_array *to,
                           tri_calc_moves *moves, tr_error *err)
{
    array_mover m = {.calc = calc, .to = to, .now = *from, .moves = moves};
    TRI_TRY(match_dims(&m, from, err));
    TRI_TRY(find_changes(&m, from, err));
    for (stage stage = 0; stage < NUM_STAGES; stage++)
        TRI_TRY(run_stage(&m, stage, err));
    return TR_OK;
}

double tri_calc_move_seconds(const tri_calc_moves *moves)
{
    double sum = 0;
    for (int i = 0; i < moves->num; i++) {
        if (moves->items[i].seconds < 0)
            return -1;
        sum += moves->items[i].seconds;
    }
    return sum;
}
