/* all_to_all of varying counts, as a message of a program: random counts, no rows, full rooms and
 * more rows than there is room for, on 2 to 8 ranks, over every transport; what the checker proves
 * of it, and what the printer says. tests/helpers/mpi_cases.c runs the same over MPI. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "fake_nccl.h"
#include "program/messages.h"
#include "program/overlap.h"
#include "rooms_case.h"

typedef struct job {
    const rooms_case *c;
    message_way way;
    tri_program programs[MOST_ROOMS];
} job;

static int num_ranks(const rooms_case *c)
{
    return c->ranks * c->replicas;
}

static void check(const job *j, tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%d ranks, %d replicas, way %d: %s", j->c->ranks, j->c->replicas, (int)j->way,
                 err->message);
}

static void open_job(job *j, const rooms_case *c, message_way way)
{
    tr_error err = {0};
    *j = (job){.c = c, .way = way};
    for (int r = 0; r < num_ranks(c); r++)
        check(j, rooms_program(c, r, way == BY_CPU, &j->programs[r], &err), &err);
    check(j, message_match(j->programs, num_ranks(c), &err), &err);
}

static void close_job(job *j)
{
    for (int r = 0; r < num_ranks(j->c); r++)
        tri_program_fini(&j->programs[r]);
}

static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    const job *j = context;
    return rooms_run(comm, j->c, &j->programs[tr_comm_rank(comm)], j->way, err);
}

static void run_everywhere(const rooms_case *c)
{
    static const tr_comm_options tcp = {.transport = "tcp"};
    int ranks = num_ranks(c);
    for (message_way way = 0; way < NUM_MESSAGE_WAYS; way++) {
        job j;
        tr_error err = {0};
        open_job(&j, c, way);
        if (way == BY_CPU) { /* ranks that are processes, before there are threads */
            check(&j, tr_comm_spawn(ranks, NULL, run_rank, &j, &err), &err);
            check(&j, tr_comm_spawn(ranks, &tcp, run_rank, &j, &err), &err);
        }
        fake_nccl_sent();
        check(&j, tr_comm_run_threads(ranks, NULL, run_rank, &j, &err), &err);
        /* Twice all rooms, and the counts. */
        size_t room = (size_t)c->room * ROOM_WIDTH * sizeof(float);
        size_t pairs = (size_t)(c->ranks * c->ranks * c->replicas);
        size_t wanted = pairs * (2 * room + sizeof(int32_t)) * (size_t)rooms_num_steps();
        assert_int_equal(fake_nccl_sent(), way == BY_NCCL ? wanted : 0);
        close_job(&j);
    }
}

static void test_rows_find_their_rooms(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_ROOMS; ranks++)
        run_everywhere(&(rooms_case){ranks, 1, 1 + 5 * (ranks % 3), true});
    run_everywhere(&(rooms_case){2, 2, 4, true});
}

/* The counts are waited for before the rows go, though one lane has both; the rows are not. */
static void test_counts_come_before_rows(void **state)
{
    (void)state;
    static const rooms_case c = {3, 1, 4, true};
    job j;
    tr_error err = {0};
    open_job(&j, &c, BY_CPU);
    tri_program *program = &j.programs[1];
    assert_true(program->num_flights >= 2);
    const tri_flight *counts = &program->flights[0], *rows = &program->flights[1];
    assert_int_equal(program->instrs[counts->instr].op, TRI_OP_ALL_TO_ALL);
    assert_int_equal(program->instrs[rows->instr].op, TRI_OP_ALL_TO_ALL_ROWS);
    assert_int_equal(counts->wait_instr, rows->instr);
    assert_int_equal(rows->wait_call, program->num_calls);
    for (size_t n = 0; n < program->num_flights; n++)
        if (program->landings[n].flight == 0)
            program->landings[n] = (tri_landing){.call = (uint32_t)program->num_calls};
    tri_sort_landings(program);
    assert_int_equal(tri_program_check(program, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "reads its counts from the all_to_all of got"));
    close_job(&j);
}

/* A flag that the other replicas do not learn of: they would update while these do not. */
static void test_flag_reaches_all_ranks(void **state)
{
    (void)state;
    tri_program program;
    tr_error err = {0};
    static const rooms_case c = {2, 2, 4, false};
    assert_int_equal(rooms_program(&c, 1, false, &program, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "no finish reads whether all rows of all ranks"));
    tri_program_fini(&program);
}

static void test_wrong_rooms_are_found(void **state)
{
    (void)state;
    static const rooms_case c = {3, 1, 4, true};
    job j;
    tr_error err = {0};
    open_job(&j, &c, BY_CPU);
    tri_message *m = &j.programs[2].messages[1];
    const tri_message kept = *m;
    assert_true(tri_message_varies(m));
    m->recv_parts.scale -= ROOM_WIDTH; /* it would take less than another sends */
    assert_int_equal(message_match(j.programs, 3, &err), TR_ERROR_INTERNAL);
    assert_int_equal(tri_program_check(&j.programs[2], &err), TR_ERROR_INPUT);
    *m = kept;
    m->counts[0] = m->counts[1];
    assert_int_equal(tri_program_check(&j.programs[2], &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "reads its counts elsewhere"));
    *m = kept;
    m->send_parts.kind = TRI_DIVISION_EVEN; /* a rank that sends all of it, whatever the counts */
    assert_int_equal(message_match(j.programs, 3, &err), TR_ERROR_INTERNAL);
    *m = kept;
    tri_program *program = &j.programs[0];
    for (size_t i = 0; i < program->num_instrs; i++)
        if (program->instrs[i].op == TRI_OP_SGD) /* by another number than finish says */
            program->instrs[i].in[4] = program->instrs[i].in[3];
    tri_check_rooms(program, &err);
    assert_non_null(strstr(err.message, "an update does not read"));
    close_job(&j);
}

static void test_text(void **state)
{
    (void)state;
    static const rooms_case c = {4, 1, 6, true};
    job j;
    tri_text text;
    open_job(&j, &c, BY_CPU);
    tri_text_init(&text);
    tri_program_explain(&j.programs[0], &(tri_explain_options){.all = true}, &text);
    assert_non_null(strstr(text.chars, "room for 6 rows from each to each"));
    tri_text_fini(&text);
    close_job(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_find_their_rooms),
        cmocka_unit_test(test_counts_come_before_rows),
        cmocka_unit_test(test_flag_reaches_all_ranks),
        cmocka_unit_test(test_wrong_rooms_are_found),
        cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
