#include "message_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "comm/comm_internal.h"
#include "fake_nccl.h"
#include "mesh/grid.h"
#include "program/match.h"
#include "program/overlap.h"

/* The program is made by the test itself: what is wrong with it is no result. */
static void need(const message_graph *m, tr_status status, const tr_error *err)
{
    if (status == TR_OK)
        return;
    fprintf(stderr, "%d ranks, rank %d: %s\n", m->ranks, m->rank, err->message);
    abort();
}

static tr_status open_device(message_run *run, message_way way, tr_error *err)
{
    const tri_device_config config = {.kind = "cpu", .num_threads = 1, .isa = "auto"};
    TRI_TRY(tri_device_open(&config, &run->session->device, err));
    if (way == BY_CPU)
        return TR_OK;
    run->gpu = fake_gpu_create();
    run->session->device.def = &fake_gpu_def;
    return TR_OK;
}

tr_status message_run_open(message_run *run, tr_comm *comm, const tri_program *program,
                           message_way way, tr_error *err)
{
    *run = (message_run){.rank = tr_comm_rank(comm)};
    tri_session *session = run->session = calloc(1, sizeof *session);
    if (!session)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the test");
    session->config.programs = 1 << TRI_PROGRAM_TRAIN;
    session->config.compile.overlap = true;
    session->programs[TRI_PROGRAM_TRAIN] = *program;
    TRI_TRY(open_device(run, way, err));
    TRI_TRY(tri_ranks_use(&run->ranks, comm, session, err));
    if (way == BY_NCCL)
        TRI_TRY(tri_ranks_use_nccl(&run->ranks, &comm->boot, &fake_nccl_api, session, err));
    tri_store_plan(&run->store, &session->device, &program, 1);
    run->store.peers = session->peers;
    TRI_TRY(tri_store_alloc(&run->store, err));
    TRI_TRY(tri_executor_init(&run->executor, program, &run->store, 1, err));
    run->executor.exchange = &session->exchange;
    return TR_OK;
}

tr_status message_run_close(message_run *run, tr_status status, tr_error *err)
{
    if (!run->session)
        return status;
    if (status == TR_OK && run->gpu && fake_gpu_fault(run->gpu))
        status = tri_fail(err, TR_ERROR_INTERNAL, "%s", fake_gpu_fault(run->gpu));
    tri_executor_fini(&run->executor);
    tri_store_free(&run->store);
    tri_ranks_leave(&run->ranks);
    if (run->session->device.def)
        tri_device_close(&run->session->device);
    if (run->gpu)
        fake_gpu_destroy(run->gpu);
    free(run->session);
    return status;
}

void *message_run_memory(const message_run *run, const char *name)
{
    tri_id value = tri_program_find(run->executor.program, name);
    return value == TRI_NONE ? NULL : tri_executor_memory(&run->executor, value, 0);
}

void message_graph_begin(message_graph *m, int rank, const tri_mesh *mesh, int64_t num_weights)
{
    tr_error err = {0};
    *m = (message_graph){.rank = rank, .ranks = tri_mesh_ranks(mesh)};
    tri_param_table_init(&m->params);
    if (num_weights > 0)
        tri_param_add(&m->params, (tri_param){.name = "w",
                                              .shape = tri_shape_of(1, TRI_DIM_D, num_weights),
                                              .role = TRI_ROLE_MATRIX});
    need(m, tri_graph_init(&m->graph, &m->params, &err), &err);
    need(m, tri_mesh_grid(mesh, rank, &m->graph.grid, &err), &err);
}

tri_id message_graph_emit(message_graph *m, tri_op op, const char *name, const tri_attr *attr,
                          const tri_id *in, int num_in)
{
    tr_error err = {0};
    tri_id node = tri_graph_emit(&m->graph, op, name, attr, in, num_in, 1);
    need(m, tri_graph_status(&m->graph, &err), &err);
    return m->graph.nodes[node].out[0];
}

tr_status message_graph_try(message_graph *m, bool overlap, tri_program *program, tr_error *err)
{
    tri_placed_params placed;
    const tri_action actions[] = {{.kind = TRI_ACTION_F}, {.kind = TRI_ACTION_U}};
    size_t num = 1;
    for (size_t n = 0; n < m->graph.num_nodes; n++)
        num = m->graph.nodes[n].phase == TRI_PHASE_UPDATE ? 2 : num;
    const tri_build_config wanted = {
        .schedule = actions, .num_actions = num, .num_microbatches = 1};
    need(m, tri_graph_status(&m->graph, err), err);
    need(m, tri_placed_params_init(&placed, &m->params, err), err);
    need(m, tri_program_build(&m->graph, &placed, &wanted, program, err), err);
    if (overlap)
        need(m, tri_plan_overlap(program, &(tri_overlap){0}, err), err);
    tri_placed_params_fini(&placed);
    tri_graph_fini(&m->graph);
    tri_param_table_fini(&m->params);
    return tri_program_check(program, err);
}

void message_graph_end(message_graph *m, bool overlap, tri_program *program)
{
    tr_error err = {0};
    need(m, message_graph_try(m, overlap, program, &err), &err);
}

tr_status message_match(const tri_program *programs, int num, tr_error *err)
{
    const tri_program **list = calloc((size_t)num, sizeof *list);
    for (int r = 0; r < num; r++)
        list[r] = &programs[r];
    tr_status status = tri_programs_match(list, num, err);
    free(list);
    return status;
}
