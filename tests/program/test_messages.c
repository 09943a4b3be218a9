/* Messages as records: an all-to-all with blocks of different sizes, from the graph to the memory
 * of all ranks, element for element; and what the checker, the matcher and the simulator say of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm_internal.h"
#include "fake_gpu.h"
#include "fake_nccl.h"
#include "graph/emit.h"
#include "mesh/grid.h"
#include "program/match.h"
#include "program/messages.h"
#include "run/executor.h"
#include "sim/program_costs.h"
#include "train/ranks.h"

enum { MOST_RANKS = 5, D = 3 };

/* x [T, F, D] is cut along T over tp; it is to be cut along F. */
typedef struct exchange_case {
    int ranks;
    int64_t t, f;
} exchange_case;

static const exchange_case cases[] = {{2, 4, 6}, {3, 7, 5}, {4, 4, 4}, {5, 11, 13}};

static tri_cut cut_of(int dim, int ranks, int rank, int64_t size)
{
    return (tri_cut){.dim = (uint8_t)dim, .parts = ranks, .part = rank, .size = size, .unit = 1};
}

/* This rank's program: blocks along F, all_to_all, blocks along T back in their place. */
static void make_program(const exchange_case *c, int rank, tri_program *program)
{
    tr_error err = {0};
    tri_graph graph;
    tri_param_table params;
    tri_placed_params placed;
    const tri_mesh mesh = {.size = {[TRI_AXIS_TP] = c->ranks}};
    tri_cut along_t = cut_of(0, c->ranks, rank, c->t), along_f = cut_of(1, c->ranks, rank, c->f);
    tri_param_table_init(&params);
    assert_int_equal(tri_graph_init(&graph, &params, &err), TR_OK);
    assert_int_equal(tri_mesh_grid(&mesh, rank, &graph.grid, &err), TR_OK);
    tri_id x = tri_graph_input(&graph, "x", TRI_F32,
                               tri_shape_of(3, TRI_DIM_T, tri_cut_size(&along_t, rank), TRI_DIM_F,
                                            c->f, TRI_DIM_D, (int64_t)D),
                               true);
    tri_attr blocks = {.message = {.cut = along_f}};
    tri_id node = tri_graph_emit(&graph, TRI_OP_BLOCK, "blocks", &blocks, &x, 1, 1);
    tri_id in = graph.nodes[node].out[0];
    tri_attr exchange = {.message = {.axis = TRI_AXIS_TP, .cut = along_t, .scatter = along_f}};
    node = tri_graph_emit(&graph, TRI_OP_ALL_TO_ALL, "y", &exchange, &in, 1, 1);
    tri_mark_output(&graph, graph.nodes[node].out[0]);
    if (tri_graph_status(&graph, &err) != TR_OK)
        fail_msg("%s", err.message);
    const tri_action forward = {.kind = TRI_ACTION_F};
    const tri_build_config wanted = {.schedule = &forward, .num_actions = 1, .num_microbatches = 1};
    assert_int_equal(tri_placed_params_init(&placed, &params, &err), TR_OK);
    if (tri_program_build(&graph, &placed, &wanted, program, &err) != TR_OK ||
        tri_program_check(program, &err) != TR_OK)
        fail_msg("%d ranks, rank %d: %s", c->ranks, rank, err.message);
    tri_placed_params_fini(&placed);
    tri_graph_fini(&graph);
    tri_param_table_fini(&params);
}

static float element(const exchange_case *c, int64_t t, int64_t f, int64_t d)
{
    return (float)((t * c->f + f) * D + d + 1);
}

typedef struct job {
    const exchange_case *c;
    tri_program programs[MOST_RANKS];
} job;

static tr_status exchange(void *context, const tri_exchange_call *call, tr_error *err)
{
    tr_collective collective = tri_ranks_collective(call);
    assert_int_equal(collective.operation, TR_ALL_TO_ALL);
    return tr_collective_run(tr_comm_world(context), &collective, err);
}

/* A rank's device, memory and program. */
typedef struct runner {
    tri_device device;
    tri_store store;
    tri_executor executor;
    int rank;
} runner;

static tr_status make_ready(runner *r, const tri_program *program, int rank, bool on_gpu,
                            tr_error *err)
{
    const tri_device_config config = {.kind = "cpu", .num_threads = 1, .isa = "auto"};
    *r = (runner){.rank = rank};
    TRI_TRY(tri_device_open(&config, &r->device, err));
    if (on_gpu)
        r->device.def = &fake_gpu_def;
    tri_store_plan(&r->store, &r->device, &program, 1);
    TRI_TRY(tri_store_alloc(&r->store, err));
    return tri_executor_init(&r->executor, program, &r->store, 1, err);
}

static void clear_away(runner *r)
{
    tri_executor_fini(&r->executor);
    tri_store_free(&r->store);
    tri_device_close(&r->device);
}

/* A rank fills in its pieces along T, and looks for those along F. */
static tr_status run_and_look(runner *r, const exchange_case *c, float add, tr_error *err)
{
    const tri_program *program = r->executor.program;
    int rank = r->rank;
    tri_cut along_t = cut_of(0, c->ranks, rank, c->t), along_f = cut_of(1, c->ranks, rank, c->f);
    float *x = tri_executor_memory(&r->executor, tri_program_find(program, "x"), 0);
    const float *y = tri_executor_memory(&r->executor, tri_program_find(program, "y"), 0);
    int64_t t0 = tri_cut_begin(&along_t, rank), f0 = tri_cut_begin(&along_f, rank);
    int64_t num_f = tri_cut_size(&along_f, rank);
    for (int64_t t = 0; t < tri_cut_size(&along_t, rank); t++)
        for (int64_t i = 0; i < c->f * D; i++)
            x[t * c->f * D + i] = element(c, t0 + t, i / D, i % D) + add;
    TRI_TRY(tri_executor_run(&r->executor, err));
    for (int64_t i = 0; i < c->t * num_f * D; i++) {
        float is = y[i], wanted = element(c, i / (num_f * D), f0 + i / D % num_f, i % D) + add;
        if (is != wanted)
            return tri_fail(err, TR_ERROR_INTERNAL, "rank %d has %g at %lld, not %g", rank,
                            (double)is, (long long)i, (double)wanted);
    }
    return TR_OK;
}

static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    job *j = context;
    runner r;
    const tri_exchange ways = {.context = comm, .run = exchange};
    tr_status status =
        make_ready(&r, &j->programs[tr_comm_rank(comm)], tr_comm_rank(comm), false, err);
    r.executor.exchange = &ways;
    if (status == TR_OK)
        status = run_and_look(&r, j->c, 0, err);
    clear_away(&r);
    return status;
}

/* ---- on GPUs that are none ---- */

static tr_status enqueue(void *context, const tri_exchange_call *call, void *handle, tr_error *err)
{
    tr_collective collective = tri_ranks_collective(call);
    return tri_nccl_run(context, 0, &collective, handle, err);
}

static tr_status look(void *context, double waited_s, tr_error *err)
{
    return tri_nccl_look(context, waited_s, err);
}

/* Run once, recorded, and replayed with other numbers. */
static tr_status run_on_gpu(tr_comm *comm, void *context, tr_error *err)
{
    static const tri_lane_exchange lanes = {.records = true, .enqueue = enqueue, .look = look};
    job *j = context;
    runner r;
    tri_nccl *nccl = NULL;
    int rank = tr_comm_rank(comm);
    const tri_program *program = &j->programs[rank];
    fake_gpu *gpu = fake_gpu_create();
    tr_status status = make_ready(&r, program, rank, true, err);
    if (status == TR_OK)
        status = tri_nccl_create(&comm->boot, &fake_nccl_api, &nccl, err);
    int *members = tri_ranks_members(&program->groups[0]);
    if (status == TR_OK)
        status = tri_nccl_join(nccl, 0, "tp", members, j->c->ranks, err);
    const tri_exchange ways = {.context = nccl, .lanes = &lanes};
    r.executor.exchange = &ways;
    for (int step = 0; step < 3 && status == TR_OK; step++)
        status = run_and_look(&r, j->c, 1000.0f * (float)step, err);
    if (status == TR_OK && fake_gpu_fault(gpu))
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s", fake_gpu_fault(gpu));
    free(members);
    clear_away(&r);
    tri_nccl_destroy(nccl);
    fake_gpu_destroy(gpu);
    return status;
}

static void open_job(job *j, const exchange_case *c)
{
    j->c = c;
    for (int r = 0; r < c->ranks; r++)
        make_program(c, r, &j->programs[r]);
}

static void close_job(job *j)
{
    for (int r = 0; r < j->c->ranks; r++)
        tri_program_fini(&j->programs[r]);
}

static tr_status match(const job *j, tr_error *err)
{
    const tri_program *programs[MOST_RANKS];
    for (int r = 0; r < j->c->ranks; r++)
        programs[r] = &j->programs[r];
    return tri_programs_match(programs, j->c->ranks, err);
}

static void test_all_to_all_moves_every_element(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j;
        tr_error err = {0};
        open_job(&j, &cases[i]);
        for (int r = 0; r < cases[i].ranks; r++) {
            const tri_message *m = &j.programs[r].messages[0];
            assert_int_equal(m->kind, TRI_MESSAGE_ALL_TO_ALL);
            assert_int_equal(m->elements, cases[i].t * cases[i].f * D);
        }
        if (match(&j, &err) != TR_OK ||
            tr_comm_run_threads(cases[i].ranks, NULL, run_rank, &j, &err) != TR_OK ||
            tr_comm_run_threads(cases[i].ranks, NULL, run_on_gpu, &j, &err) != TR_OK)
            fail_msg("%d ranks, T %d, F %d: %s", cases[i].ranks, (int)cases[i].t, (int)cases[i].f,
                     err.message);
        close_job(&j);
    }
}

/* Counts that two ranks see differently; and those that are not the instruction's. */
static void test_wrong_counts_are_found(void **state)
{
    (void)state;
    job j;
    tr_error err = {0};
    open_job(&j, &cases[1]);
    tri_message *m = &j.programs[2].messages[0];
    const tri_message kept = *m;
    m->send_parts.cut.size += 3;
    assert_int_equal(match(&j, &err), TR_ERROR_INTERNAL);
    assert_non_null(strstr(err.message, "all_to_all of y over tp"));
    assert_int_equal(tri_program_check(&j.programs[2], &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "its counts are not those"));
    *m = kept;
    m->recv_parts.scale++;
    assert_int_equal(match(&j, &err), TR_ERROR_INTERNAL);
    assert_int_equal(tri_program_check(&j.programs[2], &err), TR_ERROR_INPUT);
    *m = kept;
    assert_int_equal(match(&j, &err), TR_OK);
    close_job(&j);
}

/* A rank begins with a part, of which it keeps its own block. */
static void test_simulated_time_of_an_all_to_all(void **state)
{
    (void)state;
    job j;
    open_job(&j, &cases[2]);
    const tri_device_model model = {.device = tri_device_spec_find("h100"),
                                    .link = tri_link_spec_find("nvlink4"),
                                    .rate = TRI_RATE_F32,
                                    .efficiency = 1};
    double moved = 3.0 / 4 * (4 * 4 * D * 4) / 4;
    double seconds = tri_instr_seconds(&j.programs[0], j.programs[0].messages[0].first, &model);
    assert_true(fabs(seconds * model.link->bytes_per_s / moved - 1) < 1e-9);
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_to_all_moves_every_element),
        cmocka_unit_test(test_wrong_counts_are_found),
        cmocka_unit_test(test_simulated_time_of_an_all_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
