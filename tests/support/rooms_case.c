#include "rooms_case.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "graph/emit.h"
#include "graph/step_rows.h"

/* ---- the program ---- */

static tri_id input(message_graph *m, const char *name, int64_t count)
{
    return tri_graph_input(&m->graph, name, TRI_F32, tri_shape_scalar(count), false);
}

/* Sums the statistic over the ranks of an axis, in place. */
static void join(message_graph *m, tri_id state, tri_axis axis)
{
    const tri_attr attr = {.message = {.axis = (uint8_t)axis}};
    tri_id flag = m->graph.states[state].latest;
    tri_graph_emit(&m->graph, TRI_OP_ALL_REDUCE, "overflow", &attr, &flag, 1, 1);
}

static void emit_update(message_graph *m, const rooms_case *c, tri_id overflow)
{
    m->graph.phase = TRI_PHASE_UPDATE;
    join(m, overflow, TRI_AXIS_TP);
    if (c->replicas > 1 && c->joins_all)
        join(m, overflow, TRI_AXIS_DP);
    const tri_attr finish = {.finish = {.alpha = 1, .stops = 1}}, sgd = {.update = {.lr_scale = 1}};
    tri_id in[5] = {input(m, "loss", 1), input(m, "count", 1), input(m, "squares", 1), TRI_NONE,
                    m->graph.states[overflow].latest};
    tri_id result = message_graph_emit(m, TRI_OP_FINISH, "result", &finish, in, 5);
    tri_mark_output(&m->graph, result);
    tri_id g = tri_graph_input(&m->graph, "g", TRI_F32,
                               tri_shape_of(1, TRI_DIM_D, (int64_t)ROOM_WEIGHTS), false);
    tri_id step[5] = {tri_graph_param(&m->graph, 0), TRI_NONE, g,
                      input(m, "sched", TRI_STEP_LR + 1), result};
    message_graph_emit(m, TRI_OP_SGD, "w", &sgd, step, 5);
}

tr_status rooms_program(const rooms_case *c, int rank, bool overlap, tri_program *program,
                        tr_error *err)
{
    message_graph m;
    const tri_mesh mesh = {.size = {[TRI_AXIS_TP] = c->ranks, [TRI_AXIS_DP] = c->replicas}};
    message_graph_begin(&m, rank, &mesh, ROOM_WEIGHTS);
    const tri_cut even = {
        .dim = TRI_NO_DIM, .parts = c->ranks, .part = rank % c->ranks, .size = c->ranks, .unit = 1};
    const tri_attr fit = {.message = {.room = {.rows = c->room}}};
    const tri_attr equal = {.message = {.axis = TRI_AXIS_TP, .cut = even, .scatter = even}};
    const tri_attr rows = {.message = {.axis = TRI_AXIS_TP}}, relu = {.act = {TRI_ACT_RELU}};
    tri_id x = tri_graph_input(&m.graph, "x", TRI_F32,
                               tri_shape_of(3, TRI_DIM_N, (int64_t)c->ranks, TRI_DIM_T, c->room,
                                            TRI_DIM_D, (int64_t)ROOM_WIDTH),
                               true);
    tri_id counts = tri_graph_input(&m.graph, "counts", TRI_I32, tri_shape_scalar(c->ranks), true);
    tri_id overflow = tri_graph_state(&m.graph, TRI_STATE_STAT, "overflow", TRI_F32,
                                      tri_shape_scalar(1), TRI_NONE);
    tri_id node = tri_graph_emit(&m.graph, TRI_OP_FIT_ROOMS, "sent", &fit, &counts, 1, 2);
    tri_id sent = m.graph.nodes[node].out[0];
    tri_graph_write_state(&m.graph, node, 1, overflow, TRI_WRITE_START);
    tri_id got = message_graph_emit(&m, TRI_OP_ALL_TO_ALL, "got", &equal, &sent, 1);
    tri_id beside = message_graph_emit(&m, TRI_OP_ACT, "beside", &relu, &x, 1);
    tri_id y =
        message_graph_emit(&m, TRI_OP_ALL_TO_ALL_ROWS, "y", &rows, (tri_id[]){x, sent, got}, 3);
    tri_mark_output(&m.graph, message_graph_emit(&m, TRI_OP_ACT, "after", &relu, &beside, 1));
    tri_mark_output(&m.graph, y);
    tri_mark_output(&m.graph, got);
    tri_mark_output(&m.graph, message_graph_emit(&m, TRI_OP_ALL_TO_ALL_ROWS, "z", &rows,
                                                 (tri_id[]){y, got, sent}, 3));
    emit_update(&m, c, overflow);
    return message_graph_try(&m, overlap, program, err);
}

/* ---- the numbers ---- */

static const rooms_kind steps[] = {NO_ROWS,   SOME_ROWS,     FULL_ROOMS, ONE_TOO_MANY,
                                   SOME_ROWS, MANY_TOO_MANY, SOME_ROWS};

int rooms_num_steps(void)
{
    return (int)(sizeof steps / sizeof *steps);
}

/* Rows that a rank has for another; places are within the group, replica 0 is the one that may have
 * too many. */
static int32_t count_of(const rooms_case *c, int replica, int from, int to, int step)
{
    uint32_t word =
        tri_random_word(1, (uint64_t)step, (uint32_t)replica, (uint32_t)(from * MOST_ROOMS + to));
    switch (steps[step]) {
    case NO_ROWS:
        return 0;
    case FULL_ROOMS:
        return (int32_t)c->room;
    case ONE_TOO_MANY:
        return (int32_t)c->room + (replica == 0 && from == c->ranks - 1 && to == 0);
    case MANY_TOO_MANY:
        return (int32_t)(word % (uint32_t)(3 * c->room));
    default:
        return word % 3 == 0 ? 0 : (int32_t)(word / 3 % (uint32_t)(c->room + 1));
    }
}

static int64_t fits(const rooms_case *c, int replica, int from, int to, int step)
{
    int64_t count = count_of(c, replica, from, to, step);
    return count < c->room ? count : c->room;
}

static float lost_rows(const rooms_case *c, int step)
{
    float lost = 0;
    for (int replica = 0; replica < c->replicas; replica++)
        for (int from = 0; from < c->ranks; from++)
            for (int to = 0; to < c->ranks; to++)
                lost += (float)(count_of(c, replica, from, to, step) -
                                fits(c, replica, from, to, step));
    return lost;
}

static float element(int from, int to, int64_t row, int64_t d, int step)
{
    return (float)((((step * MOST_ROOMS + from) * MOST_ROOMS + to) * 64 + row) * ROOM_WIDTH + d) +
           1;
}

static const float nothing = -7;

typedef struct view {
    const rooms_case *c;
    message_run *run;
    message_way way;
    int replica, place;
} view;

static tr_status wrong(const view *v, int step, const char *what, int64_t at, double is,
                       double wanted, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INTERNAL, "rank %d, step %d: %s has %g at %lld, not %g",
                    v->run->rank, step, what, is, (long long)at, wanted);
}

static void fill(const view *v, int step)
{
    const rooms_case *c = v->c;
    float *x = message_run_memory(v->run, "x");
    int32_t *counts = message_run_memory(v->run, "counts");
    int64_t block = c->room * ROOM_WIDTH;
    for (int to = 0; to < c->ranks; to++) {
        counts[to] = count_of(c, v->replica, v->place, to, step);
        for (int64_t i = 0; i < block; i++)
            x[to * block + i] = i / ROOM_WIDTH < fits(c, v->replica, v->place, to, step)
                                    ? element(v->place, to, i / ROOM_WIDTH, i % ROOM_WIDTH, step)
                                    : nothing - (float)v->place;
    }
    *(float *)message_run_memory(v->run, "loss") = 2;
    *(float *)message_run_memory(v->run, "count") = 1;
    *(float *)message_run_memory(v->run, "squares") = 1;
    ((float *)message_run_memory(v->run, "sched"))[TRI_STEP_LR] = 0.5f;
    for (int i = 0; i < ROOM_WEIGHTS; i++)
        ((float *)message_run_memory(v->run, "g"))[i] = (float)(2 * i);
}

/* On a device that works in the host's memory, so that what nobody writes can be seen. */
static void spoil(const view *v, const char *name)
{
    float *data = message_run_memory(v->run, name);
    for (int64_t i = 0; v->way == BY_CPU && i < v->c->ranks * v->c->room * ROOM_WIDTH; i++)
        data[i] = nothing;
}

/* What element i of y is to be; NULL room: it may hold anything. */
static bool wanted_y(const view *v, int step, int64_t i, float *wanted)
{
    int64_t block = v->c->room * ROOM_WIDTH;
    int from = (int)(i / block);
    int64_t row = i % block / ROOM_WIDTH;
    *wanted = nothing;
    if (row < fits(v->c, v->replica, from, v->place, step))
        *wanted = element(from, v->place, row, i % ROOM_WIDTH, step);
    else if (v->way == BY_NCCL)
        *wanted = nothing - (float)from; /* the whole room came */
    else if (v->way == BY_HOST)
        return false;
    return true;
}

static tr_status look(const view *v, int step, tr_error *err)
{
    const rooms_case *c = v->c;
    const float *x = message_run_memory(v->run, "x"), *y = message_run_memory(v->run, "y");
    const float *z = message_run_memory(v->run, "z");
    const int32_t *got = message_run_memory(v->run, "got");
    for (int from = 0; from < c->ranks; from++)
        if (got[from] != fits(c, v->replica, from, v->place, step))
            return wrong(v, step, "got", from, got[from],
                         (double)fits(c, v->replica, from, v->place, step), err);
    for (int64_t i = 0; i < c->ranks * c->room * ROOM_WIDTH; i++) {
        float wanted;
        if (wanted_y(v, step, i, &wanted) && y[i] != wanted)
            return wrong(v, step, "y", i, (double)y[i], (double)wanted, err);
        int to = (int)(i / (c->room * ROOM_WIDTH));
        int64_t row = i / ROOM_WIDTH % c->room;
        wanted = row < fits(c, v->replica, v->place, to, step) ? x[i] : nothing;
        if (z[i] != wanted && (v->way == BY_CPU || wanted != nothing))
            return wrong(v, step, "z", i, (double)z[i], (double)wanted, err);
    }
    float lost = *(const float *)message_run_memory(v->run, "overflow");
    if (lost != lost_rows(c, step))
        return wrong(v, step, "overflow", 0, (double)lost, (double)lost_rows(c, step), err);
    return TR_OK;
}

/* w -= 0.5 g where all rows of all ranks found room, and nothing otherwise. */
static tr_status look_at_weights(const view *v, int step, float *wanted, tr_error *err)
{
    float w[ROOM_WEIGHTS];
    tri_id value = tri_program_find(v->run->executor.program, "w");
    TRI_TRY(tri_executor_read(&v->run->executor, value, w, err));
    for (int i = 0; i < ROOM_WEIGHTS; i++) {
        wanted[i] -= lost_rows(v->c, step) > 0 ? 0 : (float)i;
        if (w[i] != wanted[i])
            return wrong(v, step, "w", i, (double)w[i], (double)wanted[i], err);
    }
    return TR_OK;
}

/* Bytes of rows that leave this rank, there and back. */
static uint64_t row_bytes(const view *v, int step)
{
    int64_t rows = 0;
    for (int other = 0; other < v->c->ranks; other++)
        if (other != v->place)
            rows += fits(v->c, v->replica, v->place, other, step) +
                    fits(v->c, v->replica, other, v->place, step);
    return v->way == BY_NCCL ? 0 : (uint64_t)rows * ROOM_WIDTH * sizeof(float);
}

static tr_status run_steps(const view *v, tr_comm *comm, tr_error *err)
{
    float weights[ROOM_WEIGHTS] = {0};
    uint64_t without = 0; /* what the counts and the flag take: the first step has no rows */
    tri_id w = tri_program_find(v->run->executor.program, "w");
    TRI_TRY(tri_executor_write(&v->run->executor, w, weights, err));
    for (int step = 0; step < rooms_num_steps(); step++) {
        fill(v, step);
        spoil(v, "y");
        spoil(v, "z");
        uint64_t before = tr_comm_read_counters(comm).bytes_sent;
        TRI_TRY(tri_executor_run(&v->run->executor, err));
        uint64_t sent = tr_comm_read_counters(comm).bytes_sent - before;
        without = step == 0 ? sent : without;
        if (sent != without + row_bytes(v, step))
            return wrong(v, step, "the counter", 0, (double)sent,
                         (double)(without + row_bytes(v, step)), err);
        TRI_TRY(look(v, step, err));
        TRI_TRY(look_at_weights(v, step, weights, err));
    }
    return TR_OK;
}

tr_status rooms_run(tr_comm *comm, const rooms_case *c, const tri_program *program, message_way way,
                    tr_error *err)
{
    message_run run;
    int rank = tr_comm_rank(comm);
    tr_status status = message_run_open(&run, comm, program, way, err);
    const view v = {c, &run, way, rank / c->ranks, rank % c->ranks};
    if (status == TR_OK)
        status = run_steps(&v, comm, err);
    return message_run_close(&run, status, err);
}
