#include "ring_case.h"

#include <stdio.h>

#include "graph/emit.h"

static tri_cut cut_of(const ring_case *c, int piece)
{
    return (tri_cut){.dim = 0, .parts = c->ranks, .part = piece, .size = c->tokens, .unit = 1};
}

/* The piece that a rank has after so many steps. */
static int piece_at(const ring_case *c, int rank, int step)
{
    return ((rank - c->distance * step) % c->ranks + c->ranks) % c->ranks;
}

void ring_program(const ring_case *c, int rank, bool overlap, tri_program *program)
{
    message_graph m;
    char name[16];
    tri_cut own = cut_of(c, rank);
    const tri_attr relu = {.act = {.kind = TRI_ACT_RELU}};
    const tri_mesh mesh = {.size = {[TRI_AXIS_TP] = c->ranks}};
    message_graph_begin(&m, rank, &mesh, 0);
    tri_id piece = tri_graph_input(
        &m.graph, "x", TRI_F32,
        tri_shape_of(2, TRI_DIM_T, tri_cut_size(&own, rank), TRI_DIM_D, (int64_t)RING_WIDTH), true);
    for (int s = 0; s <= c->steps; s++) {
        tri_id next = TRI_NONE;
        const tri_attr shift = {.message = {.axis = TRI_AXIS_TP,
                                            .peer = (uint32_t)c->distance,
                                            .cut = cut_of(c, piece_at(c, rank, s))}};
        snprintf(name, sizeof name, "y%d", s + 1);
        if (s < c->steps)
            next = message_graph_emit(&m, TRI_OP_SHIFT, name, &shift, &piece, 1);
        snprintf(name, sizeof name, "z%d", s);
        tri_mark_output(&m.graph, message_graph_emit(&m, TRI_OP_ACT, name, &relu, &piece, 1));
        piece = next;
    }
    message_graph_end(&m, overlap, program);
}

static float element(int64_t token, int64_t d, int run)
{
    return (float)(token * RING_WIDTH + d + 1000 * run + 1);
}

static tr_status look(const ring_case *c, const message_run *run, int number, tr_error *err)
{
    char name[16];
    for (int s = 0; s <= c->steps; s++) {
        int piece = piece_at(c, run->rank, s);
        tri_cut cut = cut_of(c, piece);
        snprintf(name, sizeof name, "z%d", s);
        const float *z = message_run_memory(run, name);
        for (int64_t i = 0; i < tri_cut_size(&cut, piece) * RING_WIDTH; i++) {
            float wanted =
                element(tri_cut_begin(&cut, piece) + i / RING_WIDTH, i % RING_WIDTH, number);
            if (z[i] != wanted)
                return tri_fail(err, TR_ERROR_INTERNAL,
                                "rank %d, run %d: %s has %g at %lld, not %g", run->rank, number,
                                name, (double)z[i], (long long)i, (double)wanted);
        }
    }
    return TR_OK;
}

static tr_status steps(const ring_case *c, message_run *run, tr_comm *comm, message_way way,
                       tr_error *err)
{
    tri_cut own = cut_of(c, run->rank);
    uint64_t moved = 0;
    for (int s = 0; s < c->steps && c->distance % c->ranks; s++)
        moved += (uint64_t)tri_cut_size(&own, piece_at(c, run->rank, s)) * RING_WIDTH * 4;
    for (int number = 0; number < 3; number++) {
        float *x = message_run_memory(run, "x");
        for (int64_t i = 0; i < tri_cut_size(&own, run->rank) * RING_WIDTH; i++)
            x[i] = element(tri_cut_begin(&own, run->rank) + i / RING_WIDTH, i % RING_WIDTH, number);
        uint64_t before = tr_comm_read_counters(comm).bytes_sent;
        TRI_TRY(tri_executor_run(&run->executor, err));
        uint64_t sent = tr_comm_read_counters(comm).bytes_sent - before;
        if (sent != (way == BY_NCCL ? 0 : moved))
            return tri_fail(err, TR_ERROR_INTERNAL, "rank %d sent %llu bytes, not %llu", run->rank,
                            (unsigned long long)sent, (unsigned long long)moved);
        TRI_TRY(look(c, run, number, err));
    }
    return TR_OK;
}

tr_status ring_run(tr_comm *comm, const ring_case *c, const tri_program *program, message_way way,
                   tr_error *err)
{
    message_run run;
    tr_status status = message_run_open(&run, comm, program, way, err);
    if (status == TR_OK)
        status = steps(c, &run, comm, way, err);
    return message_run_close(&run, status, err);
}
