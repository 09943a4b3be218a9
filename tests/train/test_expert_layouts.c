/* Mixtures of experts train to the losses of one rank: every way to route and to keep loads equal,
 * with experts on one rank or divided over several (layout.ep), beside all that divides tokens,
 * weights and layers. Nothing divides the sizes, and 13 rows lie on up to 8 ranks.
 *
 * `make test` runs pairwise covers of the tables below, TRIREME_TEST_FULL=1 covers of all triples,
 * =whole every cell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/resolve.h"
#include "layout_matrix.h"
#include "small_models.h"

enum { COVER_STEPS = 4 };

#define ROUTERS_OF_ROWS SOFTMAX, RENORM, SIGMOID, CHOSEN, SOME, BIASED, CAPPED

/* What divides tokens and weights. By sgd, whose weights are held to little more than rounding. */
static const levels cover_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {1, {MODEL_LLAMA}},
    [CELL_OPTIM] = {1, {SGD_LONG}},
    [CELL_DP] = {3, {1, 2, 4}},
    [CELL_TP] = {2, {1, 2}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_GROUP] = {2, {0, 2}},
    [CELL_MICRO] = {2, {1, 3}},
    [CELL_KEEP] = {2, {0, 1}},
    [CELL_CP] = {2, {0, 2}},
    [CELL_CP_KIND] = {3, {RING, GATHER, ULYSSES}},
    [CELL_ROUTER] = {9, {ROUTERS_OF_ROWS, MICROBATCH, JOINT}},
    [CELL_EP] = {3, {1, 2, 4}},
    [CELL_ETP] = {2, {0, 1}},
    [CELL_RECOMPUTE] = {2, {0, 1}},
};

/* What rows and steps are like. */
static const levels step_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {2, {MODEL_TIED, MODEL_ONE_KEY}},
    [CELL_OPTIM] = {2, {ADAMW, MUON}},
    [CELL_DP] = {2, {1, 2}},
    [CELL_TP] = {1, {1}},
    [CELL_ZERO] = {2, {0, 3}},
    [CELL_MICRO] = {2, {1, 2}},
    [CELL_SPLIT] = {2, {0, 1}},
    [CELL_TILE] = {2, {0, 7}},
    [CELL_CP] = {2, {0, 4}},
    [CELL_CP_KIND] = {2, {RING, GATHER_HEADS}},
    [CELL_CP_DEAL] = {2, {PLAIN, BALANCED}},
    [CELL_ROWS] = {3, {ROWS_ODD, ROWS_PACKED, ROWS_WINDOW}},
    [CELL_ROUTER] = {8, {ROUTERS_OF_ROWS, MICROBATCH}},
    [CELL_EP] = {3, {1, 2, 4}},
    [CELL_RECOMPUTE] = {2, {0, 1}},
};

/* Stages: schedules by their place in cell_schedules. */
enum { ONE_F_ONE_B = 0, GPIPE = 1, INTERLEAVED = 2, ZB_V = 5 };
static const levels stage_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {1, {MODEL_LLAMA}},
    [CELL_OPTIM] = {1, {SGD_LONG}},
    [CELL_DP] = {3, {1, 2, 4}},
    [CELL_TP] = {2, {1, 2}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_MICRO] = {2, {2, 4}},
    [CELL_PP] = {1, {2}},
    [CELL_SCHEDULE] = {4, {ONE_F_ONE_B, GPIPE, INTERLEAVED, ZB_V}},
    [CELL_LAYERS] = {1, {4}},
    [CELL_CP] = {2, {0, 2}},
    [CELL_ROUTER] = {7, {ROUTERS_OF_ROWS}},
    [CELL_EP] = {3, {1, 2, 4}},
    [CELL_ETP] = {2, {0, 1}},
    [CELL_RECOMPUTE] = {2, {0, 1}},
};

static void test_pairwise_cover(void **state)
{
    (void)state;
    assert_int_equal(check_covers(cover_levels, 1, COVER_STEPS), 0);
}

static void test_pairwise_cover_of_steps(void **state)
{
    (void)state;
    assert_int_equal(check_covers(step_levels, 1, COVER_STEPS), 0);
}

static void test_pairwise_cover_of_stages(void **state)
{
    (void)state;
    assert_string_equal(cell_schedules[GPIPE], "gpipe");
    assert_string_equal(cell_schedules[INTERLEAVED], "interleaved");
    assert_string_equal(cell_schedules[ZB_V], "zb-v");
    assert_int_equal(check_covers(stage_levels, 1, COVER_STEPS), 0);
}

static void test_matrix(void **state)
{
    (void)state;
    if (!getenv("TRIREME_TEST_FULL")) {
        print_message("skipped: only in make test-full\n");
        skip();
    }
    bool fine = matrix_check("experts", cover_levels, COVER_STEPS, NULL);
    fine &= matrix_check("experts-steps", step_levels, COVER_STEPS, NULL);
    fine &= matrix_check("experts-stages", stage_levels, COVER_STEPS, NULL);
    assert_true(fine);
}

/* --- Rooms ------------------------------------------------------------------------------------
 */

/* Room that is enough changes no bit. Where rows find none, the step is done again on all ranks,
 * with room for all: that changes none either. Evaluation always has room for all. */
static void test_rooms(void **state)
{
    (void)state;
    static const cell cells[] = {
        {{[CELL_MODEL] = MODEL_LLAMA,
          [CELL_DP] = 2,
          [CELL_TP] = 1,
          [CELL_MICRO] = 2,
          [CELL_ROUTER] = SOFTMAX,
          [CELL_EP] = 2}},
        {{[CELL_MODEL] = MODEL_LLAMA,
          [CELL_DP] = 2,
          [CELL_TP] = 2,
          [CELL_MICRO] = 2,
          [CELL_SP] = 1,
          [CELL_PP] = 2,
          [CELL_LAYERS] = 4,
          [CELL_ZERO] = 3,
          [CELL_ROUTER] = SIGMOID,
          [CELL_EP] = 2,
          [CELL_ETP] = 1}},
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        cell_run all, enough, few;
        tr_error err = {0};
        assert_true(cell_valid(&cells[i]));
        if (cell_run_with(&all, &cells[i], NULL, 2, &err) != TR_OK ||
            cell_run_with(&enough, &cells[i], "layout.ep_room=1.9", 2, &err) != TR_OK ||
            cell_run_with(&few, &cells[i], "layout.ep_room=0.2", 2, &err) != TR_OK)
            fail_msg("%s", err.message);
        assert_true(cell_same_bits(&all, &enough));
        assert_true(cell_same_bits(&all, &few));
        cell_run_fini(&few);
        if (cell_run_with(&few, &cells[i], "layout.ep_room=0.2", 0, &err) != TR_OK)
            fail_msg("%s", err.message);
        cell_run_fini(&enough);
        if (cell_run_with(&enough, &cells[i], NULL, 0, &err) != TR_OK)
            fail_msg("%s", err.message);
        assert_true(few.ranks[0].eval_loss == enough.ranks[0].eval_loss);
        cell_run_fini(&few);
        cell_run_fini(&enough);
        cell_run_fini(&all);
    }
}

/* --- What cannot be ----------------------------------------------------------------------------
 */

/* Settings that are refused, and words of the message: the setting, and what to do. */
typedef struct refusal {
    const char *set[16], *words[4];
} refusal;

static void expect_refused(const refusal *r)
{
    tr_settings *settings = settings_of(NULL, r->set);
    tr_error err = {0};
    tr_session *session = NULL;
    if (tri_api_compile(settings, 0, &session, &err) != TR_ERROR_INPUT)
        fail_msg("%s, %s is not refused: %s", r->set[0], r->set[1], err.message);
    assert_null(session);
    for (int w = 0; w < 4 && r->words[w]; w++)
        if (!strstr(err.message, r->words[w]))
            fail_msg("expected \"%s\" in: %s", r->words[w], err.message);
    tr_settings_destroy(settings);
}

#define LLAMA_OF(...)                                                                              \
    {                                                                                              \
        __VA_ARGS__, "model.kind=llama", "model.dim=24", "model.num_heads=4", "model.dropout=0",   \
            "train.batch=8"                                                                        \
    }

static void test_refusals(void **state)
{
    (void)state;
    static const refusal refused[] = {
        {LLAMA_OF("layout.ep=2", "layout.dp=2"),
         {"layout.ep is 2", "no experts", "leave it out", "model.num_experts"}},
        {{"layout.ep=2", "layout.dp=2", "model.kind=gpt2"}, {"layout.ep is 2", "no experts"}},
        {LLAMA_OF("layout.ep=4", "layout.dp=4", "model.num_experts=6"),
         {"layout.ep is 4", "divide the 6 experts", "nearest below that does is 2"}},
        {LLAMA_OF("layout.ep=4", "layout.dp=2", "model.num_experts=8"),
         {"layout.ep is 4", "divisor of layout.dp=2", "nearest below that does is 2"}},
        {LLAMA_OF("layout.ep=2", "model.num_experts=8"),
         {"layout.ep is 2", "divisor of layout.dp=1", "nearest below that does is 1"}},
        {LLAMA_OF("layout.ep=3", "layout.cp=2", "layout.dp=3", "model.num_experts=6"),
         {"layout.ep is 3", "layout.cp=2", "nearest below that does is 2"}},
        {LLAMA_OF("layout.ep=4", "layout.dp=12", "layout.zero=1", "layout.shard_group=6",
                  "model.num_experts=12"),
         {"layout.ep is 4", "layout.shard_group", "nearest below that does is 3"}},
        {LLAMA_OF("layout.etp=1", "layout.tp=2", "model.num_experts=8"),
         {"layout.etp is 1", "layout.tp=2", "layout.sp=true"}},
        {LLAMA_OF("layout.etp=2", "layout.tp=4", "layout.sp=true", "model.num_experts=8"),
         {"layout.etp is 2", "layout.tp=4", "layout.etp=1"}},
        {LLAMA_OF("layout.tp=4", "model.num_experts=8", "model.expert_dim=3"),
         {"layout.tp is 4", "model.expert_dim is 3", "layout.tp=3 at most", "layout.etp=1"}},
        {LLAMA_OF("layout.tp=2", "model.num_experts=8", "model.shared_dim=1"),
         {"layout.tp is 2", "model.shared_dim is 1", "layout.tp=1 at most"}},
        {LLAMA_OF("model.balance_over=joint", "layout.pp=2", "layout.microbatches=2",
                  "model.num_experts=8"),
         {"model.balance_over is joint", "layout.pp=2", "use sequence or microbatch"}},
        {LLAMA_OF("layout.schedule=pipedream-2bw", "layout.pp=2", "layout.dp=2", "layout.ep=2",
                  "layout.microbatches=4", "train.clip=0", "model.num_experts=8"),
         {"layout.schedule is pipedream-2bw", "layout.ep=1", "such as 1f1b"}},
        {LLAMA_OF("layout.schedule=pipedream", "layout.pp=2", "layout.microbatches=4",
                  "train.clip=0", "model.num_experts=8", "model.router_bias=0.01"),
         {"layout.schedule is pipedream", "model.router_bias=0", "such as 1f1b"}},
        {LLAMA_OF("model.num_experts=2", "model.experts_per_token=3"),
         {"model.experts_per_token is 3", "2 experts", "raise model.num_experts"}},
        {LLAMA_OF("model.num_experts=8", "model.router_groups=3"),
         {"model.router_groups is 3", "model.num_experts 8"}},
        {LLAMA_OF("model.num_experts=8", "model.router_groups=4", "model.experts_per_token=3"),
         {"model.router_group_limit is 1 of 4", "3 experts", "raise it"}},
        {LLAMA_OF("model.num_experts=8", "model.num_layers=3", "model.expert_layers=1..3"),
         {"model.expert_layers is \"1..3\"", "from 0 to 2", "1..2"}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_refused(&refused[i]);
}

/* What cell_valid says of ep, etp and groups is what settings are refused for. */
static void test_every_cell_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 6, 8};
    enum { NUM_SIZES = sizeof sizes / sizeof *sizes };
    size_t num = 0;
    for (int dp = 0; dp < NUM_SIZES; dp++)
        for (int cp = 0; cp < NUM_SIZES && sizes[dp] * sizes[cp] <= CELL_MAX_RANKS; cp++)
            for (int ep = 0; ep < NUM_SIZES; ep++)
                for (int group = 0; group < NUM_SIZES; group++)
                    for (int router = RENORM; router <= SIGMOID; router++) {
                        int data = sizes[dp] * sizes[cp];
                        cell c = {{[CELL_MODEL] = MODEL_LLAMA,
                                   [CELL_DP] = sizes[dp],
                                   [CELL_TP] = 1,
                                   [CELL_ZERO] = data > 1,
                                   [CELL_MICRO] = 1,
                                   [CELL_CP] = sizes[cp],
                                   [CELL_EP] = sizes[ep],
                                   [CELL_ROUTER] = router}};
                        if (sizes[group] > 1 && sizes[group] < data)
                            c.is[CELL_GROUP] = sizes[group];
                        char words[CELL_MAX_WORDS][CELL_WORD], name[CELL_NAME];
                        const char *set[CELL_MAX_WORDS + 1] = {0};
                        for (int w = cell_words(&c, words); w-- > 0;)
                            set[w] = words[w];
                        tr_settings *settings = settings_of(NULL, set);
                        tri_session_config config;
                        tr_error err = {0};
                        tr_status status = tri_session_config_from(settings, &config, &err);
                        if ((status == TR_OK) != cell_valid(&c)) {
                            cell_name(&c, name, sizeof name);
                            fail_msg("%s: %s", name, status == TR_OK ? "accepted" : err.message);
                        }
                        tr_settings_destroy(settings);
                        num++;
                    }
    print_message("%zu layouts are accepted or refused as cells say\n", num);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix), /* first: it forks, and others start threads */
        cmocka_unit_test(test_pairwise_cover),
        cmocka_unit_test(test_pairwise_cover_of_steps),
        cmocka_unit_test(test_pairwise_cover_of_stages),
        cmocka_unit_test(test_rooms),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_cell_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
