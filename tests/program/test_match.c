/* The programs of all ranks against each other: they meet as compiled, and a program that was
 * changed on one rank is found out, with both instructions named. */
#include "small_models.h"

#include <string.h>

#include "program/match.h"
#include "trireme/trireme.h"

enum { MOST_RANKS = 8 };

typedef struct world {
    tr_settings *settings;
    tr_session *sessions[MOST_RANKS];
    int num_ranks;
} world;

static void open_world(world *w, const char *const *assignments)
{
    tr_error err = {0};
    w->settings = settings_of(NULL, assignments);
    w->num_ranks = 1;
    for (int r = 0; r < w->num_ranks; r++) {
        if (tri_api_compile(w->settings, r, &w->sessions[r], &err) != TR_OK)
            fail_msg("%s", err.message);
        w->num_ranks = tri_mesh_ranks(&w->sessions[r]->session.config.compile.mesh);
        assert_in_range(w->num_ranks, 1, MOST_RANKS);
    }
}

static void close_world(world *w)
{
    for (int r = 0; r < w->num_ranks; r++)
        tr_session_destroy(w->sessions[r]);
    tr_settings_destroy(w->settings);
}

static tr_status match(const world *w, int program, tr_error *err)
{
    const tri_program *programs[MOST_RANKS];
    for (int r = 0; r < w->num_ranks; r++)
        programs[r] = &w->sessions[r]->session.programs[program];
    return tri_programs_match(programs, w->num_ranks, err);
}

/* The n-th message of a rank's training program, in the order of its instructions. */
static tri_message *message(const world *w, int rank, size_t n)
{
    tri_program *program = &w->sessions[rank]->session.programs[TRI_PROGRAM_TRAIN];
    assert_true(n < program->num_messages);
    return &program->messages[n];
}

#define SMALL                                                                                      \
    "run.device=null", "model.num_layers=2", "model.dim=60", "model.num_heads=5",                  \
        "model.vocab=301", "train.batch=8", "data.seq_len=24"

static void test_ranks_meet(void **state)
{
    (void)state;
    static const char *const layouts[][4] = {
        {"layout.dp=3", "layout.zero=0", "layout.tp=1", "layout.sp=false"},
        {"layout.dp=2", "layout.zero=1", "layout.tp=2", "layout.sp=true"},
        {"layout.dp=3", "layout.zero=2", "layout.tp=2", "layout.sp=false"},
        {"layout.dp=2", "layout.zero=3", "layout.tp=4", "layout.sp=true"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        world w;
        tr_error err = {0};
        open_world(&w, SET(SMALL, layouts[i][0], layouts[i][1], layouts[i][2], layouts[i][3]));
        for (int p = TRI_PROGRAM_TRAIN; p <= TRI_PROGRAM_EVAL; p++)
            if (match(&w, p, &err) != TR_OK)
                fail_msg("%s %s %s %s: %s", layouts[i][0], layouts[i][1], layouts[i][2],
                         layouts[i][3], err.message);
        close_world(&w);
    }
}

/* More ranks than key heads: groups of copies, and of different heads. */
static void test_ranks_meet_in_copies(void **state)
{
    (void)state;
    static const char *const layouts[][4] = {
        {"layout.dp=1", "layout.zero=0", "layout.tp=4", "optim.kind=muon"},
        {"layout.dp=2", "layout.zero=1", "layout.tp=4", "layout.sp=true"},
        {"layout.dp=2", "layout.zero=3", "layout.tp=4", "optim.kind=muon"},
        {"layout.dp=1", "layout.zero=0", "layout.tp=6", "layout.sp=true"},
    };
    for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
        world w;
        tr_error err = {0};
        const char *const *layout = layouts[i / 2];
        open_world(&w, SET(SMALL, "model.kind=llama", "model.num_heads=6", "model.dropout=0",
                           i % 2 ? "model.num_kv_heads=1" : "model.num_kv_heads=2", layout[0],
                           layout[1], layout[2], layout[3]));
        for (int p = TRI_PROGRAM_TRAIN; p <= TRI_PROGRAM_EVAL; p++)
            if (match(&w, p, &err) != TR_OK)
                fail_msg("%s %s %s %s: %s", layout[0], layout[1], layout[2], layout[3],
                         err.message);
        close_world(&w);
    }
}

static void expect_refusal(const world *w, const char *what, const char *says, const char *also)
{
    tr_error err = {0};
    if (match(w, TRI_PROGRAM_TRAIN, &err) == TR_OK)
        fail_msg("%s was not noticed", what);
    if (!strstr(err.message, says) || !strstr(err.message, also))
        fail_msg("%s: \"%s\" does not say \"%s\" and \"%s\"", what, err.message, says, also);
}

static void test_changed_programs_do_not_meet(void **state)
{
    (void)state;
    world w;
    open_world(&w, SET(SMALL, "layout.dp=2", "layout.zero=1", "layout.tp=2"));
    tri_program *program = &w.sessions[1]->session.programs[TRI_PROGRAM_TRAIN];
    tri_message *first = message(&w, 1, 0), *later = message(&w, 1, 2);
    const tri_message kept = *first, other = *later;

    first->kind = TRI_MESSAGE_REDUCE_SCATTER;
    expect_refusal(&w, "another operation", "disagree", "reduce_scatter");
    *first = kept;

    tri_rank_group tp = program->groups[first->group];
    program->groups[first->group] = tri_grid_group(&program->grid, TRI_AXIS_DP);
    expect_refusal(&w, "another axis", "disagree",
                   "rank 1 is at instruction 2, all_reduce of wte.sum over dp");
    program->groups[first->group] = tp;

    first->elements++;
    expect_refusal(&w, "another size", "disagree", "rank 1");
    *first = kept;

    size_t n = 0; /* a bucket that zero divides */
    while (message(&w, 1, n)->send_parts.kind != TRI_DIVISION_FLAT)
        n++;
    message(&w, 1, n)->send_parts.flat.total += 4 * TRI_FLAT_UNIT;
    expect_refusal(&w, "other counts", "disagree", "reduce_scatter");
    message(&w, 1, n)->send_parts.flat.total -= 4 * TRI_FLAT_UNIT;

    first->first++; /* never sent: every message after it meets the one before */
    expect_refusal(&w, "a message left out", "rank 0", "rank 1");
    *first = kept;

    first->value = other.value;
    expect_refusal(&w, "another message in its place", "rank 0", "rank 1");
    *first = kept;
    assert_int_equal(match(&w, TRI_PROGRAM_TRAIN, NULL), TR_OK);
    close_world(&w);
}

/* The place of two neighbours of different groups in a program. */
static size_t neighbours(const tri_program *program)
{
    for (size_t i = 0; i + 1 < program->num_messages; i++) {
        const tri_message *a = &program->messages[i], *b = a + 1;
        if (a->group != b->group && a->last_only == b->last_only && a->first_only == b->first_only)
            return i;
    }
    fail_msg("no neighbours over different groups");
    return 0;
}

/* A rank has these two in the other order. */
static void swap_neighbours(const world *w, int rank)
{
    tri_program *program = &w->sessions[rank]->session.programs[TRI_PROGRAM_TRAIN];
    tri_message *a = &program->messages[neighbours(program)], *b = a + 1;
    const tri_message x = *a, y = *b;
    *a = y;
    *b = x;
    a->first = x.first, a->count = x.count;
    b->first = y.first, b->count = y.count;
}

/* Two messages over different groups in another order: with a lane for each group they go by each
 * other, one at a time they wait for ever. */
static void test_messages_that_cross(void **state)
{
    (void)state;
    world w;
    open_world(&w, SET(SMALL, "layout.dp=2", "layout.zero=1", "layout.tp=2"));
    swap_neighbours(&w, 1);
    assert_int_equal(match(&w, TRI_PROGRAM_TRAIN, NULL), TR_OK); /* a later one comes in between */
    swap_neighbours(&w, 2);
    expect_refusal(&w, "a crossing", "wait for each other, with messages one at a time", "rank 2");
    swap_neighbours(&w, 1);
    swap_neighbours(&w, 2);
    assert_int_equal(match(&w, TRI_PROGRAM_TRAIN, NULL), TR_OK);

    tri_program *program = &w.sessions[1]->session.programs[TRI_PROGRAM_TRAIN];
    program->num_calls--;
    expect_refusal(&w, "messages that are left out", "with a lane for each group",
                   "rank 1 has ended");
    program->num_calls++;
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_meet),
        cmocka_unit_test(test_ranks_meet_in_copies),
        cmocka_unit_test(test_changed_programs_do_not_meet),
        cmocka_unit_test(test_messages_that_cross),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
