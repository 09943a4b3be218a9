/* What one device does: it takes its pieces, carries out the moves with the devices that they are
 * with, and multiplies. */
#include "sim/values_parts.h"

#include <stdlib.h>
#include <string.h>

static tri_value_box common(const tri_value_box *a, const tri_value_box *b)
{
    tri_value_box both = {.rank = a->rank};
    for (int d = 0; d < a->rank; d++) {
        int64_t begin = a->begin[d] > b->begin[d] ? a->begin[d] : b->begin[d];
        int64_t end_a = a->begin[d] + a->size[d], end_b = b->begin[d] + b->size[d];
        int64_t end = end_a < end_b ? end_a : end_b;
        both.begin[d] = begin;
        both.size[d] = end > begin ? end - begin : 0;
    }
    return both;
}

typedef struct values_device {
    const tri_values_plan *plan;
    tr_comm *comm;
    int rank, step; /* step: the next to be filled */
} values_device;

static tr_status keep_step(values_device *v, const int64_t *local, int64_t count, tr_error *err)
{
    int64_t *copy = malloc((size_t)(count > 0 ? count : 1) * sizeof *copy);
    if (!copy)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for numbers");
    memcpy(copy, local, (size_t)count * sizeof *copy);
    v->plan->run->steps[v->step++].local[v->rank] = copy;
    return TR_OK;
}

/* The devices that differ from this one along some axes only, by their numbers. */
static int members_of(const values_device *v, unsigned axes, int ranks[TRI_VALUES_RANKS])
{
    const tri_calc *calc = v->plan->calc;
    int num = 0;
    for (int r = 0; r < v->plan->run->num_ranks; r++) {
        bool same = true;
        for (int a = 0; a < calc->num_axes; a++)
            same &= axes >> a & 1 ||
                    tri_value_coordinate(calc, r, a) == tri_value_coordinate(calc, v->rank, a);
        if (same)
            ranks[num++] = r;
    }
    return num;
}

/* A move, with its blocks one for each member: what leaves this piece for theirs, and comes from
 * theirs for its own. */
typedef struct values_exchange {
    int ranks[TRI_VALUES_RANKS], num;
    tri_value_box before, after, out[TRI_VALUES_RANKS], in[TRI_VALUES_RANKS];
    uint64_t out_counts[TRI_VALUES_RANKS], in_counts[TRI_VALUES_RANKS];
    int64_t send[TRI_VALUES_ELEMENTS], recv[TRI_VALUES_ELEMENTS];
} values_exchange;

static void plan_exchange(const values_device *v, const tri_calc_move *move, values_exchange *x)
{
    const tri_calc *calc = v->plan->calc;
    x->num = members_of(v, move->axes, x->ranks);
    x->before = tri_value_box_of(calc, &move->before, v->rank);
    x->after = tri_value_box_of(calc, &move->after, v->rank);
    for (int i = 0; i < x->num; i++) {
        tri_value_box theirs = tri_value_box_of(calc, &move->after, x->ranks[i]);
        tri_value_box had = tri_value_box_of(calc, &move->before, x->ranks[i]);
        x->out[i] = common(&x->before, &theirs);
        x->in[i] = common(&had, &x->after);
        x->out_counts[i] = (uint64_t)tri_value_count(&x->out[i]);
        x->in_counts[i] = (uint64_t)tri_value_count(&x->in[i]);
    }
}

static void pack(values_exchange *x, const int64_t *local)
{
    int64_t at = 0;
    for (int i = 0; i < x->num; i++)
        for (int64_t k = 0; k < (int64_t)x->out_counts[i]; k++)
            x->send[at++] = local[tri_value_place(&x->before, &x->out[i], k)];
}

static void unpack(const values_exchange *x, int64_t *local)
{
    int64_t at = 0;
    for (int i = 0; i < x->num; i++)
        for (int64_t k = 0; k < (int64_t)x->in_counts[i]; k++)
            local[tri_value_place(&x->after, &x->in[i], k)] = x->recv[at++];
}

static tr_status communicate(values_exchange *x, tr_group *group, tri_move_kind kind,
                             int64_t *local, tr_error *err)
{
    tr_collective call = {.dtype = TR_I64, .send = x->send, .recv = x->recv};
    switch (kind) {
    case TRI_MOVE_ALL_REDUCE:
        return tr_all_reduce(group, local, local, (uint64_t)tri_value_count(&x->before), TR_I64,
                             TR_SUM, err);
    case TRI_MOVE_REDUCE_SCATTER:
        call.operation = TR_REDUCE_SCATTER;
        call.reduction = TR_SUM;
        call.send_counts = x->out_counts;
        pack(x, local);
        TRI_TRY(tr_collective_run(group, &call, err));
        memcpy(local, x->recv, (size_t)tri_value_count(&x->after) * sizeof *local);
        return TR_OK;
    case TRI_MOVE_ALL_GATHER:
        call.operation = TR_ALL_GATHER;
        call.send = local;
        call.recv_counts = x->in_counts;
        TRI_TRY(tr_collective_run(group, &call, err));
        break;
    default:
        call.operation = TR_ALL_TO_ALL;
        call.send_counts = x->out_counts;
        call.recv_counts = x->in_counts;
        pack(x, local);
        TRI_TRY(tr_collective_run(group, &call, err));
    }
    unpack(x, local);
    return TR_OK;
}

static tr_status do_move(values_device *v, const tri_calc_move *move, int64_t *local, tr_error *err)
{
    values_exchange *x = malloc(sizeof *x);
    tr_group *group = NULL;
    if (!x)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a move");
    plan_exchange(v, move, x);
    tr_status status = TR_OK;
    if (move->kind == TRI_MOVE_SLICE) {
        int64_t count = tri_value_count(&x->after);
        for (int64_t i = 0; i < count; i++)
            x->send[i] = local[tri_value_place(&x->before, &x->after, i)];
        memcpy(local, x->send, (size_t)count * sizeof *local);
    } else {
        status = tr_group_create(v->comm, "values", x->ranks, x->num, &group, err);
        if (status == TR_OK)
            status = communicate(x, group, move->kind, local, err);
        tr_group_destroy(group);
    }
    if (status == TR_OK)
        status = keep_step(v, local, tri_value_count(&x->after), err);
    free(x);
    return status;
}

static tr_status do_moves(values_device *v, const tri_calc_moves *moves, int64_t *local,
                          tr_error *err)
{
    for (int i = 0; i < moves->num; i++)
        TRI_TRY(do_move(v, &moves->items[i], local, err));
    return TR_OK;
}

static tr_status take_operand(values_device *v, int which, const tri_calc_array *array,
                              int64_t *local, tr_error *err)
{
    const tri_calc *calc = v->plan->calc;
    tri_value_box all = tri_value_box_all(calc, array),
                  box = tri_value_box_of(calc, array, v->rank);
    int64_t term = 0, terms = 1, others = 0;
    for (int a = 0; a < calc->num_axes; a++)
        if (array->terms >> a & 1) {
            term = term * calc->axes[a].size + tri_value_coordinate(calc, v->rank, a);
            terms *= calc->axes[a].size;
        }
    for (int64_t k = 1; k < terms; k++)
        others += k;
    for (int64_t i = 0; i < tri_value_count(&box); i++)
        local[i] = term > 0 ? term : v->plan->whole[which][tri_value_place(&all, &box, i)] - others;
    return keep_step(v, local, tri_value_count(&box), err);
}

static tr_status run_product(values_device *v, int64_t *a, int64_t *b, int64_t *c, tr_error *err)
{
    const tri_values_plan *plan = v->plan;
    const tri_calc_product *p = &plan->product;
    const tri_calc_array *arrays[3] = {&p->a, &p->b, &p->c};
    tri_value_box boxes[3];
    TRI_TRY(take_operand(v, 0, &p->from_a, a, err));
    TRI_TRY(take_operand(v, 1, &p->from_b, b, err));
    TRI_TRY(do_moves(v, &plan->moves[0], a, err));
    TRI_TRY(do_moves(v, &plan->moves[1], b, err));
    for (int i = 0; i < 3; i++)
        boxes[i] = tri_value_box_of(plan->calc, arrays[i], v->rank);
    tri_value_multiply(arrays, boxes, a, b, c);
    TRI_TRY(keep_step(v, c, tri_value_count(&boxes[2]), err));
    return do_moves(v, &p->after, c, err);
}

tr_status tri_values_device_run(tr_comm *comm, void *context, tr_error *err)
{
    values_device v = {.plan = context, .comm = comm, .rank = tr_comm_rank(comm)};
    int64_t *room = calloc(3 * TRI_VALUES_ELEMENTS, sizeof *room);
    if (!room)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for numbers");
    tr_status status;
    if (v.plan->line->kind == TRI_CALC_PRODUCT) {
        status =
            run_product(&v, room, room + TRI_VALUES_ELEMENTS, room + 2 * TRI_VALUES_ELEMENTS, err);
    } else {
        status = take_operand(&v, 0, &v.plan->line->a, room, err);
        if (status == TR_OK)
            status = do_moves(&v, &v.plan->moves[0], room, err);
    }
    free(room);
    return status;
}
