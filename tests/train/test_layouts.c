/* Any layout, one answer: the matrix of layouts, models, precisions and update rules.
 *
 * `make test` runs a pairwise cover: for any two factors, every pair of values that can stand
 * together comes in some cell. TRIREME_TEST_FULL=1 does so for any three factors, and =whole runs
 * every cell and writes docs/matrix.md. With TRIREME_CELLS=1 every cell's figures are printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout_matrix.h"
#include "small_models.h"

enum { NUM_COVERS = 2, COVER_STEPS = 8 };

/* --- The pairwise cover ----------------------------------------------------------------------- */

static const levels cover_levels[NUM_FACTORS] = {
    [CELL_MODEL] = {NUM_MODELS, {0, 1, 2, 3, 4, 5, 6}},
    [CELL_PRECISION] = {NUM_PRECISIONS, {0, 1, 2, 3}},
    [CELL_OPTIM] = {3, {ADAMW, SGD, MUON}},
    [CELL_DP] = {5, {1, 2, 3, 4, 8}},
    [CELL_TP] = {6, {1, 2, 3, 4, 5, 6}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_GROUP] = {2, {0, 2}},
    [CELL_MICRO] = {3, {1, 2, 3}},
    [CELL_SPLIT] = {2, {0, 1}},
    [CELL_KEEP] = {2, {0, 1}},
    [CELL_TILE] = {2, {0, 7}},
};

static void test_pairwise_cover(void **state)
{
    (void)state;
    assert_int_equal(check_covers(cover_levels, NUM_COVERS, COVER_STEPS), 0);
}

/* --- Losses ----------------------------------------------------------------------------------- */

/* Sums and means of a batch are the same however it is cut: over ranks, micro-batches, both ways of
 * a pipeline. The update rule must not hide a gradient that is some times too small. */
static void test_losses_do_not_depend_on_how_the_batch_is_cut(void **state)
{
    (void)state;
    static const char *const losses[] = {"model.loss=sse", "model.loss=mse", "model.loss=mean"};
    enum { CHIMERA = 8 };
#define CUT(dp, tp, zero, micro, pp)                                                               \
    {                                                                                              \
        {                                                                                          \
            [CELL_MODEL] = MODEL_MLP, [CELL_OPTIM] = SGD, [CELL_DP] = dp, [CELL_TP] = tp,          \
            [CELL_ZERO] = zero, [CELL_MICRO] = micro, [CELL_PP] = pp, [CELL_SCHEDULE] = CHIMERA    \
        }                                                                                          \
    }
    static const cell cuts[] = {CUT(2, 1, 0, 1, 0), CUT(3, 1, 2, 2, 0), CUT(1, 1, 0, 4, 0),
                                CUT(1, 2, 0, 1, 0), CUT(2, 2, 0, 2, 0), CUT(1, 1, 0, 2, 2)};
    assert_string_equal(cell_schedules[CHIMERA], "chimera");
    for (size_t l = 0; l < sizeof losses / sizeof *losses; l++) {
        cell_run one;
        cell alone = cell_alone(&cuts[0]);
        tr_error err = {0};
        char more[64];
        snprintf(more, sizeof more, "%s optim.lr=1e-4 train.clip=0", losses[l]);
        assert_int_equal(cell_run_with(&one, &alone, more, 3, &err), TR_OK);
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            cell_run many;
            char name[200];
            cell_name(&cuts[i], name, sizeof name);
            if (cell_run_with(&many, &cuts[i], more, 3, &err) != TR_OK)
                fail_msg("%s, %s: %s", name, losses[l], err.message);
            cell_distance d = cell_compare(&one, &many, cell_world(&cuts[i]));
            if (!(d.loss < 1e-4 && d.norm < 1e-4 && d.eval < 1e-4 && d.weights < 1e-4))
                fail_msg("%s, %s: loss %g, norm %g, held-out %g, weights %g apart from one rank",
                         name, losses[l], d.loss, d.norm, d.eval, d.weights);
            cell_run_fini(&many);
        }
        cell_run_fini(&one);
    }
}

/* --- Norms ------------------------------------------------------------------------------------ */

/* Norms over all heads of a query or key, which tensor parallelism has to put together for them:
 * with as many key heads as ranks, fewer and more, and tokens that are divided besides. */
static void test_norms_over_all_heads(void **state)
{
    (void)state;
#define HEADS(model, tp, sp, zero, dp, pp, cp, kind)                                               \
    {                                                                                              \
        {                                                                                          \
            [CELL_MODEL] = model, [CELL_OPTIM] = SGD_LONG, [CELL_DP] = dp, [CELL_TP] = tp,         \
            [CELL_SP] = sp, [CELL_ZERO] = zero, [CELL_MICRO] = 2, [CELL_PP] = pp, [CELL_CP] = cp,  \
            [CELL_CP_KIND] = kind                                                                  \
        }                                                                                          \
    }
    static const cell cells[] = {
        HEADS(MODEL_LLAMA, 3, 0, 0, 1, 0, 0, 0),      HEADS(MODEL_LLAMA, 2, 1, 0, 1, 0, 0, 0),
        HEADS(MODEL_TIED, 4, 1, 0, 1, 0, 0, 0),       HEADS(MODEL_ONE_KEY, 2, 0, 0, 1, 0, 0, 0),
        HEADS(MODEL_ONE_KEY, 3, 1, 3, 2, 0, 0, 0),    HEADS(MODEL_TIED, 2, 1, 0, 1, 2, 0, 0),
        HEADS(MODEL_TIED, 2, 0, 3, 2, 0, 0, 0),       HEADS(MODEL_LLAMA, 1, 0, 0, 1, 0, 2, RING),
        HEADS(MODEL_LLAMA, 1, 0, 0, 1, 0, 3, GATHER), HEADS(MODEL_TIED, 2, 0, 0, 1, 0, 3, ULYSSES),
        HEADS(MODEL_TIED, 1, 0, 1, 1, 0, 2, ULYSSES),
    };
    const char *const more = "model.qk_norm_wide=true";
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        cell_run one, many;
        tr_error err = {0};
        char name[256];
        cell alone = cell_alone(&cells[i]);
        cell_name(&cells[i], name, sizeof name);
        if (cell_run_with(&one, &alone, more, 3, &err) != TR_OK ||
            cell_run_with(&many, &cells[i], more, 3, &err) != TR_OK)
            fail_msg("%s: %s", name, err.message);
        cell_distance d = cell_compare(&one, &many, cell_world(&cells[i]));
        if (!(d.ranks_agree && d.same_start && d.loss < 1e-5 && d.norm < 1e-4 && d.eval < 1e-5 &&
              d.weights < 1e-4))
            fail_msg("%s: loss %g, norm %g, held-out %g, weights %g apart from one rank", name,
                     d.loss, d.norm, d.eval, d.weights);
        cell_run_fini(&one);
        cell_run_fini(&many);
    }
}

/* --- The matrix ------------------------------------------------------------------------------- */

static const levels full_levels[NUM_FACTORS] = {
    [CELL_DP] = {5, {1, 2, 3, 4, 8}},
    [CELL_ZERO] = {4, {0, 1, 2, 3}},
    [CELL_GROUP] = {2, {0, 2}},
    [CELL_TP] = {6, {1, 2, 3, 4, 5, 6}},
    [CELL_SP] = {2, {0, 1}},
    [CELL_MICRO] = {2, {1, 3}},
    [CELL_SPLIT] = {2, {0, 1}},
    [CELL_KEEP] = {2, {0, 1}},
    [CELL_MODEL] = {NUM_MODELS, {0, 1, 2, 3, 4, 5, 6}},
    [CELL_PRECISION] = {NUM_PRECISIONS, {0, 1, 2, 3}},
    [CELL_OPTIM] = {3, {ADAMW, SGD, MUON}},
};

static void test_matrix(void **state)
{
    (void)state;
    if (!getenv("TRIREME_TEST_FULL")) {
        print_message("skipped: only in make test-full\n");
        skip();
    }
    assert_true(matrix_check("layouts", full_levels, CELL_MAX_STEPS, "docs/matrix.md"));
}

/* --- What cannot be ----------------------------------------------------------------------------
 */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        cell cell;
        const char *words[3];
    } refused[] = {
#define LAYOUT(model, dp, tp, sp, micro)                                                           \
    {{[CELL_MODEL] = model, [CELL_DP] = dp, [CELL_TP] = tp, [CELL_SP] = sp, [CELL_MICRO] = micro}}
        {LAYOUT(MODEL_GPT2, 1, 6, 0, 1), {"layout.tp is 6", "model.num_heads is 5", "layout.tp=5"}},
        {LAYOUT(MODEL_LLAMA, 1, 4, 0, 1),
         {"layout.tp is 4", "model.num_kv_heads is 3", "layout.tp=3 or layout.tp=6"}},
        {LAYOUT(MODEL_TIED, 1, 5, 0, 1),
         {"layout.tp is 5", "model.num_kv_heads is 2", "layout.tp=4 or layout.tp=6"}},
        {LAYOUT(MODEL_ONE_KEY, 1, 7, 0, 1), {"layout.tp is 7", "model.num_heads is 6"}},
        {LAYOUT(MODEL_CLASSIFY, 1, 7, 0, 1), {"layout.tp is 7", "model.num_heads is 5"}},
        {LAYOUT(MODEL_MLP, 1, 42, 0, 1), {"layout.tp is 42", "model.ffn_dim is 41"}},
        {LAYOUT(MODEL_MLP, 5, 1, 0, 1), {"train.batch 12", "mlp", "train.batch=10 or 15"}},
        {LAYOUT(MODEL_MLP, 8, 1, 0, 2), {"train.batch 12", "mlp", "use train.batch=16"}},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char words[CELL_MAX_WORDS][CELL_WORD];
        const char *set[CELL_MAX_WORDS + 1] = {0};
        int num = cell_words(&refused[i].cell, words);
        for (int w = 0; w < num; w++)
            set[w] = words[w];
        tr_settings *settings = settings_of(NULL, set);
        tr_error err = {0};
        tr_session *session = NULL;
        assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
        assert_null(session);
        for (int w = 0; w < 3 && refused[i].words[w]; w++)
            if (!strstr(err.message, refused[i].words[w]))
                fail_msg("expected \"%s\" in: %s", refused[i].words[w], err.message);
        tr_settings_destroy(settings);
    }
}

/* Fewer rows than ranks and micro-batches: some of them have none at all. */
static void test_few_rows(void **state)
{
    (void)state;
    static const cell cells[] = {
        {.is = {[CELL_DP] = 5, [CELL_TP] = 1, [CELL_ZERO] = 0, [CELL_MICRO] = 3}},
        {.is = {[CELL_DP] = 8, [CELL_TP] = 1, [CELL_ZERO] = 3, [CELL_MICRO] = 2}},
        {.is = {[CELL_DP] = 5, [CELL_TP] = 1, [CELL_ZERO] = 3, [CELL_MICRO] = 3, [CELL_KEEP] = 1}},
        {.is = {[CELL_DP] = 1, [CELL_TP] = 2, [CELL_SP] = 1, [CELL_MICRO] = 20}},
        {.is = {[CELL_MODEL] = MODEL_CLASSIFY,
                [CELL_DP] = 4,
                [CELL_TP] = 2,
                [CELL_ZERO] = 2,
                [CELL_MICRO] = 5}},
    };
    alone_runs *alone = calloc(1, sizeof *alone);
    assert_non_null(alone);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        cell_distance d;
        assert_true(check_cell(alone, &cells[i], COVER_STEPS, &d));
    }
    alone_fini(alone);
    free(alone);
}

/* Settings that have nothing to work on change nothing: sp with one tensor-parallel rank, and zero
 * with one data-parallel one. */
static void test_without_effect(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(TINY, SET("layout.sp=true", "layout.zero=3"));
    tr_session *session = compiled(settings);
    const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
    for (size_t i = 0; i < program->num_instrs; i++)
        assert_false(tri_op_get(program->instrs[i].op)->communicates);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrix), /* first: it forks, and others start threads */
        cmocka_unit_test(test_pairwise_cover),
        cmocka_unit_test(test_losses_do_not_depend_on_how_the_batch_is_cut),
        cmocka_unit_test(test_norms_over_all_heads),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_without_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
