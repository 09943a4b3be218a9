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

#include "graph/emit.h"
#include "message_run.h"
#include "program/messages.h"
#include "sim/roofline.h"

enum { MOST_RANKS = 5, D = 3 };

/* x [T, F, D] is cut along T over tp; it is to be cut along F. Sizes that are no multiples, and
 * fewer rows than ranks. */
typedef struct exchange_case {
    int ranks;
    int64_t t, f;
} exchange_case;

static const exchange_case cases[] = {{2, 4, 6}, {3, 7, 5}, {4, 4, 4}, {5, 11, 13}, {4, 2, 3}};

static tri_cut cut_of(int dim, int ranks, int rank, int64_t size)
{
    return (tri_cut){.dim = (uint8_t)dim, .parts = ranks, .part = rank, .size = size, .unit = 1};
}

/* This rank's program: blocks along F, all_to_all, blocks along T back in their place; and before
 * it blocks of one size, of whole numbers. */
static void make_program(const exchange_case *c, int rank, tri_program *program)
{
    message_graph m;
    tri_cut along_t = cut_of(0, c->ranks, rank, c->t), along_f = cut_of(1, c->ranks, rank, c->f);
    tri_cut even = cut_of(TRI_NO_DIM, c->ranks, rank, c->ranks);
    const tri_mesh mesh = {.size = {[TRI_AXIS_TP] = c->ranks}};
    message_graph_begin(&m, rank, &mesh, 0);
    tri_id x = tri_graph_input(&m.graph, "x", TRI_F32,
                               tri_shape_of(3, TRI_DIM_T, tri_cut_size(&along_t, rank), TRI_DIM_F,
                                            c->f, TRI_DIM_D, (int64_t)D),
                               true);
    tri_id n =
        tri_graph_input(&m.graph, "n", TRI_I32,
                        tri_shape_of(2, TRI_DIM_N, (int64_t)c->ranks, TRI_DIM_D, (int64_t)2), true);
    tri_attr numbers = {.message = {.axis = TRI_AXIS_TP, .cut = even, .scatter = even}};
    tri_mark_output(&m.graph,
                    message_graph_emit(&m, TRI_OP_ALL_TO_ALL, "numbers", &numbers, &n, 1));
    tri_attr blocks = {.message = {.cut = along_f}};
    tri_id in = message_graph_emit(&m, TRI_OP_BLOCK, "blocks", &blocks, &x, 1);
    tri_attr exchange = {.message = {.axis = TRI_AXIS_TP, .cut = along_t, .scatter = along_f}};
    tri_mark_output(&m.graph, message_graph_emit(&m, TRI_OP_ALL_TO_ALL, "y", &exchange, &in, 1));
    message_graph_end(&m, false, program);
}

static float element(const exchange_case *c, int64_t t, int64_t f, int64_t d)
{
    return (float)((t * c->f + f) * D + d + 1);
}

typedef struct job {
    const exchange_case *c;
    message_way way;
    tri_program programs[MOST_RANKS];
} job;

static int32_t number(int from, int to, int i, int step)
{
    return from * 100 + to * 10 + i + 1000 * step;
}

/* A rank fills in its pieces along T, and looks for those along F. */
static tr_status run_and_look(message_run *r, const exchange_case *c, int step, tr_error *err)
{
    int rank = r->rank;
    float add = 1000.0f * (float)step;
    tri_cut along_t = cut_of(0, c->ranks, rank, c->t), along_f = cut_of(1, c->ranks, rank, c->f);
    float *x = message_run_memory(r, "x");
    int32_t *n = message_run_memory(r, "n");
    const float *y = message_run_memory(r, "y");
    const int32_t *numbers = message_run_memory(r, "numbers");
    int64_t t0 = tri_cut_begin(&along_t, rank), f0 = tri_cut_begin(&along_f, rank);
    int64_t num_f = tri_cut_size(&along_f, rank);
    for (int64_t t = 0; t < tri_cut_size(&along_t, rank); t++)
        for (int64_t i = 0; i < c->f * D; i++)
            x[t * c->f * D + i] = element(c, t0 + t, i / D, i % D) + add;
    for (int i = 0; i < 2 * c->ranks; i++)
        n[i] = number(rank, i / 2, i % 2, step);
    TRI_TRY(tri_executor_run(&r->executor, err));
    for (int64_t i = 0; i < c->t * num_f * D; i++) {
        float is = y[i], wanted = element(c, i / (num_f * D), f0 + i / D % num_f, i % D) + add;
        if (is != wanted)
            return tri_fail(err, TR_ERROR_INTERNAL, "rank %d has %g at %lld, not %g", rank,
                            (double)is, (long long)i, (double)wanted);
    }
    for (int i = 0; i < 2 * c->ranks; i++)
        if (numbers[i] != number(i / 2, rank, i % 2, step))
            return tri_fail(err, TR_ERROR_INTERNAL, "rank %d has number %d at %d", rank, numbers[i],
                            i);
    return TR_OK;
}

/* On a GPU: run once, recorded, and replayed with other numbers. */
static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    message_run r;
    tr_status status = message_run_open(&r, comm, &j->programs[tr_comm_rank(comm)], j->way, err);
    for (int step = 0; step < 3 && status == TR_OK; step++)
        status = run_and_look(&r, j->c, step, err);
    return message_run_close(&r, status, err);
}

static void open_job(job *j, const exchange_case *c)
{
    *j = (job){.c = c};
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
    return message_match(j->programs, j->c->ranks, err);
}

/* Over threads, processes and sockets; on GPUs that are none, through the host and by themselves.
 */
static tr_status run_everywhere(job *j, tr_error *err)
{
    static const tr_comm_options tcp = {.transport = "tcp"};
    TRI_TRY(tr_comm_spawn(j->c->ranks, NULL, run_rank, j, err));
    TRI_TRY(tr_comm_spawn(j->c->ranks, &tcp, run_rank, j, err));
    for (j->way = 0; j->way < NUM_MESSAGE_WAYS; j->way++)
        TRI_TRY(tr_comm_run_threads(j->c->ranks, NULL, run_rank, j, err));
    return TR_OK;
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
            assert_int_equal(m->send_parts.kind, TRI_DIVISION_EVEN);
            assert_int_equal(m->elements, cases[i].ranks * cases[i].ranks * 2);
            assert_int_equal(m[1].kind, TRI_MESSAGE_ALL_TO_ALL);
            assert_int_equal(m[1].elements, cases[i].t * cases[i].f * D);
        }
        if (match(&j, &err) != TR_OK || run_everywhere(&j, &err) != TR_OK)
            fail_msg("%d ranks, T %d, F %d, way %d: %s", cases[i].ranks, (int)cases[i].t,
                     (int)cases[i].f, (int)j.way, err.message);
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
    tri_message *m = &j.programs[2].messages[1];
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
    double seconds = tri_instr_seconds(&j.programs[0], j.programs[0].messages[1].first, &model);
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
