/* From one placement to another: the plan of the pass (moves.h), with its prices. */
#include "collective/collective.h"
#include "place/calc/calc.h"

tri_placement tri_calc_placement(const tri_calc_array *array, const int *dims)
{
    tri_placement at = {.partial = (tri_factor_set)array->terms};
    for (int d = 0; d < array->rank; d++) {
        const tri_calc_dim *dim = &array->dims[dims ? dims[d] : d];
        at.dim[d].num = (uint8_t)dim->num_cuts;
        for (int i = 0; i < dim->num_cuts; i++)
            at.dim[d].set[i] = tri_factor_bit(dim->cuts[i]);
    }
    return at;
}

/* The array as a placement of its dims says. */
static void put(tri_calc_array *array, const tri_placement *at)
{
    array->terms = at->partial;
    for (int d = 0; d < array->rank; d++) {
        tri_calc_dim *dim = &array->dims[d];
        dim->num_cuts = at->dim[d].num;
        for (int i = 0; i < dim->num_cuts; i++)
            dim->cuts[i] = (uint8_t)__builtin_ctz(at->dim[d].set[i]);
    }
}

static tri_coll coll_of(tri_move_kind kind)
{
    static const tri_coll colls[] = {[TRI_MOVE_REDUCE_SCATTER] = TRI_COLL_REDUCE_SCATTER,
                                     [TRI_MOVE_ALL_REDUCE] = TRI_COLL_ALL_REDUCE,
                                     [TRI_MOVE_ALL_TO_ALL] = TRI_COLL_ALL_TO_ALL,
                                     [TRI_MOVE_ALL_GATHER] = TRI_COLL_ALL_GATHER};
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
    move->seconds = move->kind == TRI_MOVE_SLICE ? 0 : -1;
    move->vector = tri_calc_bytes(
        calc, move->kind == TRI_MOVE_ALL_GATHER ? &move->after : &move->before, false);
    move->sent = tri_amount_of(0);
    if (move->kind == TRI_MOVE_SLICE)
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

int tri_calc_find_dim(const tri_calc_array *array, int letter)
{
    for (int d = 0; d < array->rank; d++)
        if (array->dims[d].letter == letter)
            return d;
    return -1;
}

/* Where each dim stands in what it becomes. */
static tr_status match_dims(tri_calc *calc, const tri_calc_array *from, const tri_calc_array *to,
                            int *dims, tr_error *err)
{
    bool fits = from->rank == to->rank;
    for (int d = 0; d < from->rank && fits; d++) {
        dims[d] = tri_calc_find_dim(to, from->dims[d].letter);
        fits = dims[d] >= 0;
    }
    if (fits)
        return TR_OK;
    calc->error_at = to->at;
    return tri_fail(err, TR_ERROR_INPUT,
                    "character %d: %s does not have the dims of what becomes it; the letters on "
                    "both sides of -> must be the same",
                    to->at + 1, to->name);
}

static tr_status check_terms(tri_calc *calc, const tri_calc_array *from, const tri_calc_array *to,
                             tr_error *err)
{
    unsigned born = to->terms & ~from->terms;
    if (!born)
        return TR_OK;
    calc->error_at = to->at;
    return tri_fail(err, TR_ERROR_INPUT,
                    "character %d: %s is to be terms of a sum over %s, but what becomes it is not; "
                    "only a product makes terms",
                    to->at + 1, to->name, calc->axes[__builtin_ctz(born)].name);
}

tr_status tri_calc_move_to(tri_calc *calc, const tri_calc_array *from, const tri_calc_array *to,
                           tri_calc_moves *moves, tr_error *err)
{
    int target[TRI_CALC_DIMS];
    tri_moves plan;
    TRI_TRY(match_dims(calc, from, to, target, err));
    TRI_TRY(check_terms(calc, from, to, err));
    tri_placement before = tri_calc_placement(from, NULL), after = tri_calc_placement(to, target);
    TRI_TRY(tri_plan_moves(from->rank, &before, &after, &plan, err));
    for (int i = 0; i < plan.num; i++) {
        tri_calc_move move = {.kind = plan.move[i].kind, .axes = plan.move[i].over};
        if (tri_calc_devices(calc, move.axes) == 1)
            continue;
        if (moves->num == TRI_CALC_MOVES)
            return tri_fail(err, TR_ERROR_INTERNAL, "more moves than there can be");
        move.before = move.after = *from;
        put(&move.before, &plan.move[i].before);
        put(&move.after, &plan.move[i].after);
        price(calc, &move);
        moves->items[moves->num++] = move;
    }
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
