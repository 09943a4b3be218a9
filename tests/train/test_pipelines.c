/* Pipelines train to the losses of one rank: every schedule with one update a step, alone and with
 * tensor, data and sharded-data parallelism, for layers that do not divide evenly.
 *
 * `make test` runs a pairwise cover, TRIREME_TEST_FULL=1 one of all triples, =whole every cell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout_matrix.h"
#include "schedule/schedule.h"
#include "small_models.h"

enum { COVER_STEPS = 4 };

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define ALL_SCHEDULES                                                                              \
    {                                                                                              \
        NUM_SCHEDULES,                                                                             \
        {                                                                                          \
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12                                               \
        }                                                                                          \
    }

static const levels cover_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {5, {MODEL_GPT2, MODEL_LLAMA, MODEL_ONE_KEY, MODEL_MLM, MODEL_MLP}},
    [CELL_PRECISION] = {2, {FP32, BF16}},
    [CELL_OPTIM] = {2, {ADAMW, MUON}},
    [CELL_DP] = {2, {1, 2}},
    [CELL_TP] = {2, {1, 2}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_MICRO] = {4, {2, 3, 4, 8}},
    [CELL_PP] = {3, {2, 3, 4}},
    [CELL_SCHEDULE] = ALL_SCHEDULES,
    [CELL_CHUNKS] = {2, {0, 3}},
    [CELL_LAYERS] = {2, {7, 10}},
    [CELL_KEEP] = {2, {0, 1}},
};

static void test_pairwise_cover(void **state)
{
    (void)state;
    assert_int_equal(check_covers(cover_levels, 1, COVER_STEPS), 0);
}

/* By sgd, whose steps follow the gradients: so deep and narrow, the models make 2e-4 of a rounding
 * in the gradient's norm within 20 steps of adamw, whatever the layout (micro-batches alone do). */
static const levels full_levels[NUM_FACTORS] = {
    [CELL_OPTIM] = {1, {SGD}},
    [CELL_MODEL] = {2, {MODEL_GPT2, MODEL_LLAMA}}, /* a head that shares the table, and one not */
    [CELL_DP] = {2, {1, 2}},
    [CELL_TP] = {2, {1, 2}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_MICRO] = {7, {1, 2, 3, 4, 6, 8, 12}},
    [CELL_PP] = {3, {2, 3, 4}},
    [CELL_SCHEDULE] = ALL_SCHEDULES,
    [CELL_CHUNKS] = {2, {0, 3}},
    [CELL_LAYERS] = {2, {7, 10}},
    [CELL_KEEP] = {2, {0, 1}},
};

static void test_matrix(void **state)
{
    (void)state;
    if (!getenv("TRIREME_TEST_FULL")) {
        print_message("skipped: only in make test-full\n");
        skip();
    }
    bool fine = matrix_check("pipelines", full_levels, CELL_MAX_STEPS, NULL);
    fine &= matrix_check("pipelines-and-more", cover_levels, COVER_STEPS, NULL);
    assert_true(fine);
}

/* One cell with a schedule, beside one rank. */
static void check_by_itself(cell c, const char *schedule)
{
    alone_runs *alone = calloc(1, sizeof *alone);
    cell_distance d;
    assert_non_null(alone);
    while (strcmp(cell_schedules[c.is[CELL_SCHEDULE]], schedule) != 0)
        c.is[CELL_SCHEDULE]++;
    assert_true(cell_valid(&c));
    assert_true(check_cell(alone, &c, COVER_STEPS, &d));
    alone_fini(alone);
    free(alone);
}

/* A row of the table that is in no cell would be trained by nobody. */
static void test_no_schedule_is_left_out(void **state)
{
    (void)state;
    size_t num = 0;
    for (size_t o = 0; tri_order_at(o); o++) {
        const tri_order *order = tri_order_at(o);
        if (order->flags & TRI_ORDER_ASYNCHRONOUS)
            continue; /* other mathematics: tests/train/test_stale.c */
        bool found = false;
        for (int i = 0; i < cover_levels[CELL_SCHEDULE].num; i++)
            found |= strcmp(cell_schedules[cover_levels[CELL_SCHEDULE].value[i]], order->name) == 0;
        if (!found)
            fail_msg("%s is not among the cells", order->name);
        num++;
    }
    assert_int_equal(num, NUM_SCHEDULES);
}

/* One micro-batch takes one of two routes: nobody holds layers of the other. */
static void test_one_route(void **state)
{
    (void)state;
    cell c = {.is = {[CELL_DP] = 1, [CELL_TP] = 1, [CELL_MICRO] = 1, [CELL_PP] = 2}};
    c.is[CELL_LAYERS] = 5;
    check_by_itself(c, "gems");
}

/* In a V the first rank has the first chunk and the last one. Those of a short mlp are without
 * parameters, and the other rank has all of them. */
static void test_one_rank_has_all(void **state)
{
    (void)state;
    cell c = {.is = {[CELL_MODEL] = MODEL_MLP,
                     [CELL_DP] = 1,
                     [CELL_TP] = 1,
                     [CELL_MICRO] = 2,
                     [CELL_PP] = 2,
                     [CELL_LAYERS] = 2}};
    check_by_itself(c, "zb-v");
}

static void refused(const char *const *set, const char *const *words)
{
    tr_settings *settings = settings_of(TINY, set);
    tr_error err = {0};
    tr_session *session = NULL;
    assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
    assert_null(session);
    for (; *words; words++)
        if (!strstr(err.message, *words))
            fail_msg("expected \"%s\" in: %s", *words, err.message);
    tr_settings_destroy(settings);
}

static void test_refusals(void **state)
{
    (void)state;
    refused(SET("layout.pp=8"), WORDS("4 layers", "8 chunks", "6 at most"));
    refused(SET("layout.pp=2", "layout.schedule=dualpipe", "layout.microbatches=3"),
            WORDS("layout.schedule", "dualpipe", "use 4 micro-batches"));
    refused(SET("layout.pp=2", "layout.schedule=1f2b"), WORDS("layout.schedule", "1f2b", "1f1b"));
    refused(SET("layout.pp=2", "layout.stages=1,2"),
            WORDS("layout.stages", "3 layers", "4 layers"));
    refused(SET("layout.pp=2", "layout.stages=a"), WORDS("layout.stages", "such as"));
    refused(SET("layout.pp=3", "layout.stages=2,0,2"), WORDS("layout.stages", "chunk 1"));
}

/* Layers of each chunk that a rank has. */
static void check_layers(const char *stages, int rank, int first, int last)
{
    char words[64];
    snprintf(words, sizeof words, "layout.stages=%s", stages);
    tr_settings *settings = settings_of(TINY, SET("layout.pp=3", "layout.microbatches=3", words));
    tr_error err = {0};
    tr_session *session = NULL;
    if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
    for (size_t s = 0; s < program->num_segments; s++)
        for (uint32_t i = 0; i < program->segments[s].count; i++) {
            int layer = program->instrs[program->segments[s].first + i].layer;
            if (program->segments[s].action != TRI_ACTION_U && (layer < first || layer > last))
                fail_msg("rank %d runs layer %d, not only %d to %d", rank, layer, first, last);
        }
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

static void test_stages(void **state)
{
    (void)state;
    check_layers("1,2,1", 0, -1, 0);
    check_layers("1,2,1", 1, 1, 2);
    check_layers("1,2,1", 2, 3, 4);
    check_layers("0,4,0", 0, -1, -1); /* the embedding alone */
    check_layers("0,4,0", 1, 0, 3);
    check_layers("0,4,0", 2, 4, 4); /* the head alone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix), /* first: it forks, and others start threads */
        cmocka_unit_test(test_no_schedule_is_left_out),
        cmocka_unit_test(test_pairwise_cover),
        cmocka_unit_test(test_one_route),
        cmocka_unit_test(test_one_rank_has_all),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
