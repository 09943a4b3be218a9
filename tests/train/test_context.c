/* Context parallelism trains to the losses of one rank: every way in which attention meets the
 * keys of other ranks, every way to deal out tokens, with all that they stand beside. Rows have
 * lengths that nothing divides.
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

enum { COVER_STEPS = 3 };

#define ALL_KINDS                                                                                  \
    {                                                                                              \
        NUM_CP_KINDS,                                                                              \
        {                                                                                          \
            RING, GATHER, ULYSSES, RING_HEADS, GATHER_HEADS                                        \
        }                                                                                          \
    }
#define ALL_DEALS                                                                                  \
    {                                                                                              \
        NUM_DEALS,                                                                                 \
        {                                                                                          \
            PLAIN, ZIGZAG, BALANCED                                                                \
        }                                                                                          \
    }
#define ALL_ROWS                                                                                   \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            ROWS_ODD, ROWS_PACKED, ROWS_WINDOW                                                     \
        }                                                                                          \
    }

/* Models, precisions and all that divides weights. By sgd, whose weights are held to little more
 * than rounding. */
static const levels cover_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {6,
                    {MODEL_GPT2, MODEL_LLAMA, MODEL_TIED, MODEL_ONE_KEY, MODEL_MLM,
                     MODEL_CLASSIFY}},
    [CELL_PRECISION] = {2, {FP32, BF16}},
    [CELL_OPTIM] = {1, {SGD_LONG}},
    [CELL_DP] = {2, {1, 2}},
    [CELL_TP] = {2, {1, 2}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_GROUP] = {2, {0, 2}},
    [CELL_MICRO] = {2, {1, 3}},
    [CELL_KEEP] = {2, {0, 1}},
    [CELL_CP] = {3, {2, 3, 4}},
    [CELL_CP_KIND] = ALL_KINDS,
    [CELL_CP_DEAL] = ALL_DEALS,
    [CELL_ROWS] = ALL_ROWS,
};

/* How a step is put together: micro-batches, halves of the backward, tiles of the loss. */
static const levels split_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {4, {MODEL_GPT2, MODEL_LLAMA, MODEL_TIED, MODEL_MLM}},
    [CELL_OPTIM] = {2, {ADAMW, MUON}},
    [CELL_DP] = {2, {1, 2}},
    [CELL_TP] = {1, {1}},
    [CELL_ZERO] = {2, {0, 3}},
    [CELL_MICRO] = {2, {1, 2}},
    [CELL_SPLIT] = {2, {0, 1}},
    [CELL_TILE] = {2, {0, 7}},
    [CELL_CP] = {3, {2, 3, 4}},
    [CELL_CP_KIND] = ALL_KINDS,
    [CELL_CP_DEAL] = ALL_DEALS,
    [CELL_ROWS] = ALL_ROWS,
};

/* Stages: schedules by their place in cell_schedules. */
enum { ONE_F_ONE_B = 0, INTERLEAVED = 2, ZB_V = 5 };
static const levels stage_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {3, {MODEL_GPT2, MODEL_TIED, MODEL_MLM}},
    [CELL_DP] = {2, {1, 2}},
    [CELL_TP] = {2, {1, 2}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_ZERO] = {3, {0, 2, 3}},
    [CELL_MICRO] = {2, {2, 4}},
    [CELL_PP] = {2, {2, 3}},
    [CELL_SCHEDULE] = {3, {ONE_F_ONE_B, INTERLEAVED, ZB_V}},
    [CELL_LAYERS] = {1, {5}},
    [CELL_TILE] = {2, {0, 7}},
    [CELL_CP] = {2, {2, 4}},
    [CELL_CP_KIND] = ALL_KINDS,
    [CELL_CP_DEAL] = {2, {PLAIN, BALANCED}},
    [CELL_ROWS] = ALL_ROWS,
};

/* Every schedule with one update a step, in the covers of triples alone. */
static const levels schedule_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {2, {MODEL_GPT2, MODEL_TIED}},
    [CELL_OPTIM] = {1, {SGD_LONG}},
    [CELL_DP] = {1, {1}},
    [CELL_TP] = {1, {1}},
    [CELL_ZERO] = {2, {0, 3}},
    [CELL_MICRO] = {2, {2, 4}},
    [CELL_PP] = {2, {2, 4}},
    [CELL_SCHEDULE] = {NUM_SCHEDULES, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
    [CELL_LAYERS] = {1, {7}},
    [CELL_CP] = {1, {2}},
    [CELL_CP_KIND] = {3, {RING, GATHER, ULYSSES}},
    [CELL_CP_DEAL] = {2, {PLAIN, BALANCED}},
    [CELL_ROWS] = {2, {ROWS_ODD, ROWS_PACKED}},
};

static void test_pairwise_cover(void **state)
{
    (void)state;
    assert_int_equal(check_covers(cover_levels, 1, COVER_STEPS), 0);
}

static void test_pairwise_cover_of_steps(void **state)
{
    (void)state;
    assert_int_equal(check_covers(split_levels, 1, COVER_STEPS), 0);
}

static void test_pairwise_cover_of_stages(void **state)
{
    (void)state;
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
    bool fine = matrix_check("context", cover_levels, COVER_STEPS, NULL);
    fine &= matrix_check("context-steps", split_levels, COVER_STEPS, NULL);
    fine &= matrix_check("context-stages", stage_levels, COVER_STEPS, NULL);
    fine &= matrix_check("context-schedules", schedule_levels, COVER_STEPS, NULL);
    assert_true(fine);
}

/* --- What changes no bit -----------------------------------------------------------------------
 */

#define CONTEXT(model, precision, tp, sp, zero, cp, kind, deal, rows)                              \
    {                                                                                              \
        {                                                                                          \
            [CELL_MODEL] = model, [CELL_PRECISION] = precision, [CELL_OPTIM] = SGD_LONG,           \
            [CELL_DP] = 1, [CELL_TP] = tp, [CELL_SP] = sp, [CELL_ZERO] = zero, [CELL_MICRO] = 2,   \
            [CELL_CP] = cp, [CELL_CP_KIND] = kind, [CELL_CP_DEAL] = deal, [CELL_ROWS] = rows       \
        }                                                                                          \
    }

/* Forwards that are done again, keys that travel again or not under the computation: the same. */
static void test_recomputation_and_overlap(void **state)
{
    (void)state;
    static const cell cells[] = {
        CONTEXT(MODEL_GPT2, FP32, 1, 0, 0, 3, RING, ZIGZAG, ROWS_ODD),
        CONTEXT(MODEL_LLAMA, FP32, 2, 1, 3, 2, GATHER, PLAIN, ROWS_ODD),
        CONTEXT(MODEL_TIED, BF16, 1, 0, 3, 4, ULYSSES, PLAIN, ROWS_PACKED),
        CONTEXT(MODEL_ONE_KEY, FP32, 1, 0, 1, 4, RING_HEADS, BALANCED, ROWS_PACKED),
        CONTEXT(MODEL_LLAMA, BF16, 1, 0, 2, 4, GATHER_HEADS, BALANCED, ROWS_WINDOW),
        CONTEXT(MODEL_MLM, FP32, 2, 1, 0, 2, RING, BALANCED, ROWS_PACKED),
    };
    static const char *const more[] = {"layout.recompute=selective", "layout.recompute=full",
                                       "run.overlap=false"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        cell_run plain, other;
        tr_error err = {0};
        char name[256];
        cell_name(&cells[i], name, sizeof name);
        assert_true(cell_valid(&cells[i]));
        if (cell_run_with(&plain, &cells[i], "layout.recompute=none", 2, &err) != TR_OK)
            fail_msg("%s: %s", name, err.message);
        for (size_t m = 0; m < sizeof more / sizeof *more; m++) {
            if (cell_run_with(&other, &cells[i], more[m], 2, &err) != TR_OK)
                fail_msg("%s, %s: %s", name, more[m], err.message);
            /* Of 16 bits, a block that is done again leaves another rounding out, on any rank. */
            bool rounds = cells[i].is[CELL_PRECISION] != FP32 && strstr(more[m], "full");
            cell_distance d = cell_compare(&plain, &other, cell_world(&cells[i]));
            if (rounds ? !(d.loss < 1e-3 && d.norm < 5e-2) : !cell_same_bits(&plain, &other))
                fail_msg("%s, %s: the loss is %.9g, not %.9g", name, more[m],
                         other.ranks[0].loss[1], plain.ranks[0].loss[1]);
            cell_run_fini(&other);
        }
        cell_run_fini(&plain);
    }
}

/* fp16 and gradients in 16 bits, which are no part of the tables. */
static void test_precisions(void **state)
{
    (void)state;
    static const cell cells[] = {
        CONTEXT(MODEL_GPT2, FP16, 1, 0, 3, 2, RING, ZIGZAG, ROWS_ODD),
        CONTEXT(MODEL_LLAMA, FP16, 2, 1, 0, 2, GATHER, BALANCED, ROWS_PACKED),
        CONTEXT(MODEL_TIED, FP16, 1, 0, 2, 4, ULYSSES, PLAIN, ROWS_ODD),
        CONTEXT(MODEL_TIED, BF16_GRAD, 1, 0, 3, 4, RING_HEADS, BALANCED, ROWS_WINDOW),
        CONTEXT(MODEL_CLASSIFY, BF16_GRAD, 1, 0, 1, 3, GATHER, PLAIN, ROWS_ODD),
    };
    alone_runs *alone = calloc(1, sizeof *alone);
    assert_non_null(alone);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        cell_distance d;
        assert_true(cell_valid(&cells[i]));
        assert_true(check_cell(alone, &cells[i], COVER_STEPS, &d));
    }
    alone_fini(alone);
    free(alone);
}

/* Ranks with 8 and with 7 tokens have as many tiles, none of them empty; ranks with one tile alone
 * would send their messages in another order. */
static void test_tiles(void **state)
{
    (void)state;
    static const int tiles[] = {7, 1, 4};
    alone_runs *alone = calloc(1, sizeof *alone);
    assert_non_null(alone);
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int stages = 0; stages <= 2; stages += 2) {
            cell c = CONTEXT(MODEL_MLM, FP32, 1, 0, 3, 4, GATHER, PLAIN, ROWS_PACKED);
            cell_distance d;
            c.is[CELL_TILE] = tiles[i];
            c.is[CELL_PP] = stages;
            assert_true(cell_valid(&c));
            assert_true(check_cell(alone, &c, COVER_STEPS, &d));
        }
    alone_fini(alone);
    free(alone);
}

/* --- What cannot be ----------------------------------------------------------------------------
 */

static void test_refusals(void **state)
{
    (void)state;
#define REFUSED_LLAMA(keys)                                                                        \
    "model.kind=llama", "model.dim=36", "model.num_heads=6", "model.num_kv_heads=" #keys,          \
        "model.dropout=0"
    static const struct {
        const char *set[10], *words[4];
    } refused[] = {
        {{REFUSED_LLAMA(6), "layout.cp=8", "layout.cp_kind=ulysses"},
         {"layout.cp_kind is ulysses", "layout.cp=8", "6 heads", "layout.cp_heads=4"}},
        {{REFUSED_LLAMA(3), "layout.cp=4", "layout.cp_kind=ulysses"},
         {"ulysses", "3 key heads", "layout.cp_kind=ring", "layout.cp_heads=2"}},
        {{REFUSED_LLAMA(3), "layout.tp=2", "layout.cp=2", "layout.cp_kind=ulysses"},
         {"ulysses", "1 key heads", "layout.cp_heads=1"}},
        {{"layout.cp=4", "layout.cp_heads=3"},
         {"layout.cp_heads is 3", "divide layout.cp=4", "use layout.cp_heads=2"}},
        {{"layout.cp=4", "data.seq_len=3"},
         {"layout.cp is 4", "3 tokens (data.seq_len)", "layout.cp=3 at most"}},
        {{"layout.cp=3", "layout.tp=2", "layout.sp=true", "data.seq_len=5"},
         {"layout.cp x layout.tp with layout.sp is 6", "5 tokens", "layout.cp=2 at most"}},
        {{"model.kind=mlp", "layout.cp=2", "train.batch=8"},
         {"layout.cp is 2", "mlp has no tokens", "layout.dp"}},
        {{"layout.cp=4", "layout.zero=1", "layout.shard_group=3"},
         {"layout.shard_group is 3", "layout.cp 4", "nearest below that does is 2"}},
        {{"layout.cp=2", "layout.dp=3", "layout.zero=1", "layout.shard_group=4"},
         {"layout.shard_group is 4", "layout.dp 3", "nearest below that does is 2"}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tr_settings *settings = settings_of(NULL, refused[i].set);
        tr_error err = {0};
        tr_session *session = NULL;
        if (tri_api_compile(settings, 0, &session, &err) != TR_ERROR_INPUT)
            fail_msg("case %zu is not refused", i);
        assert_null(session);
        for (int w = 0; w < 4 && refused[i].words[w]; w++)
            if (!strstr(err.message, refused[i].words[w]))
                fail_msg("expected \"%s\" in: %s", refused[i].words[w], err.message);
        tr_settings_destroy(settings);
    }
}

/* What cell_valid says of heads, tokens and groups is what settings are refused for. */
static void test_every_cell_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const int ranks[] = {2, 3, 4, 6, 8};
    size_t num = 0;
    for (int model = MODEL_GPT2; model <= MODEL_MLP; model++)
        for (size_t n = 0; n < sizeof ranks / sizeof *ranks; n++)
            for (int kind = RING; kind < NUM_CP_KINDS; kind++)
                for (int tp = 1; tp <= 3 && tp * ranks[n] <= CELL_MAX_RANKS; tp++)
                    for (int group = 0; group <= 4; group += 2) {
                        cell c = CONTEXT(model, FP32, tp, 0, 1, ranks[n], kind, PLAIN, ROWS_EVEN);
                        c.is[CELL_GROUP] = group < ranks[n] ? group : 0;
                        char words[CELL_MAX_WORDS][CELL_WORD];
                        const char *set[CELL_MAX_WORDS + 1] = {0};
                        int many = cell_words(&c, words);
                        for (int w = 0; w < many; w++)
                            set[w] = words[w];
                        /* Pairs that are all of cp are ulysses: they can be. */
                        bool same = kind >= RING_HEADS && ranks[n] == 2;
                        cell as = c;
                        as.is[CELL_CP_KIND] = same ? ULYSSES : kind;
                        tr_settings *settings = settings_of(NULL, set);
                        tri_session_config config;
                        tr_error err = {0};
                        tr_status status = tri_session_config_from(settings, &config, &err);
                        if ((status == TR_OK) != cell_valid(&as)) {
                            char name[256];
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
        cmocka_unit_test(test_recomputation_and_overlap),
        cmocka_unit_test(test_precisions),
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_cell_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
