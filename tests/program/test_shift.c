/* Shift as a message of a program: a ring in which every rank computes on one piece while the next
 * is under way, over every transport; and what the checker, the matcher, the simulator and the
 * printer say of it. tests/helpers/mpi_messages.c runs the same over MPI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "program/messages.h"
#include "ring_case.h"
#include "sim/roofline.h"

/* Even, uneven, with ranks that have nothing; there and back; two at a time. */
static const ring_case cases[] = {{2, 4, 1, 1}, {3, 7, 1, 2},  {4, 2, 3, 3}, {5, 11, 2, 4},
                                  {8, 8, 1, 7}, {6, 20, 4, 3}, {1, 3, 1, 2}, {4, 0, 1, 3}};

typedef struct job {
    const ring_case *c;
    message_way way;
    tri_program programs[MOST_RING];
} job;

static void open_job(job *j, const ring_case *c, message_way way)
{
    *j = (job){.c = c, .way = way};
    for (int r = 0; r < c->ranks; r++)
        ring_program(c, r, way == BY_CPU, &j->programs[r]);
}

static void close_job(job *j)
{
    for (int r = 0; r < j->c->ranks; r++)
        tri_program_fini(&j->programs[r]);
}

static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    return ring_run(comm, j->c, &j->programs[tr_comm_rank(comm)], j->way, err);
}

static void check(const job *j, tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%d ranks, %d tokens, %d on, way %d: %s", j->c->ranks, (int)j->c->tokens,
                 j->c->distance, (int)j->way, err->message);
}

static void test_rings(void **state)
{
    (void)state;
    static const tr_comm_options tcp = {.transport = "tcp"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (message_way way = 0; way < NUM_MESSAGE_WAYS; way++) {
            job j;
            tr_error err = {0};
            open_job(&j, &cases[i], way);
            check(&j, message_match(j.programs, cases[i].ranks, &err), &err);
            if (way == BY_CPU) { /* ranks that are processes, before there are threads */
                check(&j, tr_comm_spawn(cases[i].ranks, NULL, run_rank, &j, &err), &err);
                check(&j, tr_comm_spawn(cases[i].ranks, &tcp, run_rank, &j, &err), &err);
            }
            check(&j, tr_comm_run_threads(cases[i].ranks, NULL, run_rank, &j, &err), &err);
            close_job(&j);
        }
}

/* While a piece is computed on, the next one comes. */
static void test_pieces_travel_beside_the_computation(void **state)
{
    (void)state;
    job j;
    open_job(&j, &cases[1], BY_CPU);
    const tri_program *program = &j.programs[0];
    assert_int_equal(program->num_messages, cases[1].steps);
    assert_int_equal(program->num_flights, cases[1].steps);
    for (size_t f = 0; f < program->num_flights; f++)
        assert_true(program->flights[f].wait_instr > program->flights[f].instr + 1);
    close_job(&j);
}

/* Another distance than the instruction's, to another member, of other bytes; and what two ranks
 * see differently. */
static void test_wrong_shifts_are_found(void **state)
{
    (void)state;
    job j;
    tr_error err = {0};
    open_job(&j, &cases[3], BY_CPU);
    tri_program *program = &j.programs[1];
    tri_message *m = &program->messages[0];
    const tri_message kept = *m;
    m->peer = 3;
    assert_int_equal(tri_program_check(program, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "another peer"));
    *m = kept;
    m->recv_parts.place = m->send_parts.place;
    assert_int_equal(tri_program_check(program, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "comes from, another rank"));
    assert_int_equal(message_match(j.programs, 5, &err), TR_ERROR_INTERNAL);
    *m = kept;
    m->send_parts.scale++;
    assert_int_equal(tri_program_check(program, &err), TR_ERROR_INPUT);
    assert_int_equal(message_match(j.programs, 5, &err), TR_ERROR_INTERNAL);
    assert_non_null(strstr(err.message, "shift of y1 over tp"));
    *m = kept;
    program->instrs[m->first].attr.message.peer = m->peer = 3; /* consistent on this rank alone */
    m->send_parts.place = tri_shift_place(program, m, true);
    m->recv_parts.place = tri_shift_place(program, m, false);
    assert_int_equal(message_match(j.programs, 5, &err), TR_ERROR_INTERNAL);
    close_job(&j);
}

static void test_text_and_time(void **state)
{
    (void)state;
    job j;
    open_job(&j, &cases[4], BY_CPU);
    const tri_program *program = &j.programs[3];
    tri_text text;
    tri_text_init(&text);
    tri_program_explain(program, &(tri_explain_options){.all = true}, &text);
    assert_non_null(strstr(text.chars, "(1 on, over tp"));
    assert_non_null(strstr(text.chars, "over tp: 7 shift messages"));
    tri_text_fini(&text);
    const tri_device_model model = {.device = tri_device_spec_find("h100"),
                                    .link = tri_link_spec_find("nvlink4"),
                                    .rate = TRI_RATE_F32,
                                    .efficiency = 1};
    double seconds = tri_instr_seconds(program, program->messages[0].first, &model);
    double moved = RING_WIDTH * sizeof(float); /* one token a rank */
    assert_true(fabs(seconds * model.link->bytes_per_s / moved - 1) < 1e-9);
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_pieces_travel_beside_the_computation),
        cmocka_unit_test(test_wrong_shifts_are_found),
        cmocka_unit_test(test_text_and_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
