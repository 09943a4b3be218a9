/* Recomputation: not a bit of the result changes, memory falls as planned, and a budget is kept. */
#include "layout_cells.h"
#include "small_models.h"

#include "kept_bytes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "trireme/trireme.h"

/* --- Bits ------------------------------------------------------------------------------------- */

enum { STEPS = 2 };

/* model, precision, update rule, dp, tp, sp, zero, shard group, micro-batches, split backward, and
 * of pipelines: pp, schedule, chunks, layers */
static const cell fp32_cells[] = {
    {{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 1, 0}},
    {{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 3, 0}},
    {{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 3, 1}},
    {{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 1, 0}},
    {{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 3, 1}},
    {{MODEL_GPT2, FP32, ADAMW, 1, 2, 0, 0, 0, 1, 0}},
    {{MODEL_GPT2, FP32, ADAMW, 1, 2, 1, 0, 0, 3, 0}},
    {{MODEL_GPT2, FP32, ADAMW, 2, 2, 1, 2, 0, 1, 1}},
    {{MODEL_GPT2, FP32, MUON, 4, 1, 0, 3, 2, 1, 0}},
    {{MODEL_LLAMA, FP32, ADAMW, 1, 1, 0, 0, 0, 3, 0}},
    {{MODEL_LLAMA, FP32, ADAMW, 1, 2, 0, 0, 0, 1, 1}},
    {{MODEL_TIED, FP32, ADAMW, 2, 2, 1, 3, 0, 1, 0}},
    {{MODEL_MLM, FP32, ADAMW, 1, 1, 0, 0, 0, 1, 0}},
    {{MODEL_MLM, FP32, ADAMW, 1, 2, 1, 0, 0, 3, 0}},
    {{MODEL_MLM, FP32, ADAMW, 2, 1, 0, 3, 0, 3, 1}},
    {{MODEL_CLASSIFY, FP32, SGD, 3, 1, 0, 1, 0, 1, 0}},
    {{MODEL_MLP, FP32, SGD, 1, 1, 0, 0, 0, 3, 1}},
    /* pipelines: 1f1b, interleaved, zb-h1, zb-v, chimera, dualpipe */
    {{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 4, 0, 2, 0, 0, 4}},
    {{MODEL_LLAMA, FP32, ADAMW, 1, 2, 1, 0, 0, 4, 0, 2, 2, 2, 4}},
    {{MODEL_MLM, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 3, 0, 4}},
    {{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 4, 0, 2, 5, 0, 4}},
    {{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 2, 0, 4, 0, 2, 8, 0, 4}},
    {{MODEL_GPT2, FP32, ADAMW, 1, 2, 0, 0, 0, 4, 0, 2, 9, 0, 4}},
};
static const cell narrow_cells[] = {
    {{MODEL_GPT2, BF16, ADAMW, 1, 1, 0, 0, 0, 1, 0}},
    {{MODEL_GPT2, BF16_GRAD, ADAMW, 2, 2, 1, 3, 0, 3, 1}},
    {{MODEL_LLAMA, FP16, ADAMW, 2, 1, 0, 3, 0, 1, 0}},
    {{MODEL_MLM, BF16, ADAMW, 1, 2, 0, 0, 0, 1, 0}},
};
static const char *const modes[] = {"layout.recompute=selective", "layout.recompute=full",
                                    "layout.recompute=every:2"};
enum { NUM_MODES = sizeof modes / sizeof *modes };

static void run_cell(cell_run *run, const cell *c, const char *mode)
{
    char name[160];
    tr_error err = {0};
    cell_name(c, name, sizeof name);
    if (cell_run_with(run, c, mode, STEPS, &err) != TR_OK)
        fail_msg("%s, %s: %s", name, mode, err.message);
}

static void test_fp32_keeps_its_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fp32_cells / sizeof *fp32_cells; i++) {
        cell_run kept, again;
        char name[160];
        run_cell(&kept, &fp32_cells[i], NULL);
        for (int m = 0; m < NUM_MODES; m++) {
            run_cell(&again, &fp32_cells[i], modes[m]);
            cell_name(&fp32_cells[i], name, sizeof name);
            if (!cell_same_bits(&kept, &again))
                fail_msg("%s, %s: the loss is %.9g, not %.9g", name, modes[m],
                         again.ranks[0].loss[STEPS - 1], kept.ranks[0].loss[STEPS - 1]);
            cell_run_fini(&again);
        }
        cell_run_fini(&kept);
    }
}

/* In 16 bits a norm is made again from a sum that was rounded to be kept. */
static void test_16_bits_stay_close(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof narrow_cells / sizeof *narrow_cells; i++) {
        cell_run kept, again;
        run_cell(&kept, &narrow_cells[i], NULL);
        for (int m = 0; m < NUM_MODES; m++) {
            run_cell(&again, &narrow_cells[i], modes[m]);
            cell_distance d = cell_compare(&kept, &again, cell_world(&narrow_cells[i]));
            if (getenv("TRIREME_CELLS"))
                print_message("%zu %s: loss %.1e, norm %.1e\n", i, modes[m], d.loss, d.norm);
            assert_true(d.ranks_agree && d.loss < 2e-4 && d.norm < 2e-2);
            cell_run_fini(&again);
        }
        cell_run_fini(&kept);
    }
}

/* --- Plans ------------------------------------------------------------------------------------ */

typedef struct plan {
    uint64_t total; /* bytes of all */
    uint64_t kept;  /* of what is kept from F on in one micro-batch */
    double flops, redone;
    int64_t effort;
    int num_messages[TRI_NUM_OPS];
} plan;

static plan plan_of_program(const tri_program *program)
{
    plan p = {.flops = tri_program_cost(program).flops,
              .redone = tri_program_redone(program).flops};
    p.kept = kept_bytes(program);
    for (size_t i = 0; i < program->num_instrs; i++)
        if (program->instrs[i].message != TRI_NONE && tri_instr_leads(program, (uint32_t)i))
            p.num_messages[program->instrs[i].op]++;
    return p;
}

static plan plan_with(int rank, const char *const *assignments)
{
    tr_error err = {0};
    tr_settings *settings = settings_of(NULL, assignments);
    tr_session *session;
    if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
        fail_msg("rank %d: %s", rank, err.message);
    plan p = plan_of_program(&session->session.programs[TRI_PROGRAM_TRAIN]);
    p.total = tri_session_planned_bytes(&session->session);
    p.effort = session->session.config.compile.recompute.effort;
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return p;
}

#define MEDIUM                                                                                     \
    "run.device=null", "model.dim=256", "model.num_heads=4", "model.vocab=512", "train.batch=12",  \
        "data.seq_len=128"
#define LAYERS(n)  "model.num_layers=" #n
#define REDO(mode) "layout.recompute=" mode

/* One more layer keeps one more tensor: its input. */
static void test_full_keeps_inputs(void **state)
{
    (void)state;
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama", "model.kind=bert"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int split = 0; split < 2; split++) {
            const char *how = split ? "layout.split_backward=true" : "layout.split_backward=false";
            plan few = plan_with(0, SET(MEDIUM, kinds[k], how, LAYERS(3), REDO("full")));
            plan more = plan_with(0, SET(MEDIUM, kinds[k], how, LAYERS(4), REDO("full")));
            assert_int_equal(more.kept - few.kept, 12 * 128 * 256 * 4);
        }
}

/* Less is kept from mode to mode, the planned total falls by most of it, and arithmetic grows. */
static void test_memory_falls(void **state)
{
    (void)state;
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama", "model.kind=bert"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        plan none = plan_with(0, SET(MEDIUM, LAYERS(8), kinds[k], REDO("none")));
        plan selective = plan_with(0, SET(MEDIUM, LAYERS(8), kinds[k], REDO("selective")));
        plan half = plan_with(0, SET(MEDIUM, LAYERS(8), kinds[k], REDO("every:2")));
        plan full = plan_with(0, SET(MEDIUM, LAYERS(8), kinds[k], REDO("full")));
        assert_true(none.redone == 0 && none.kept > selective.kept);
        assert_true(selective.kept > half.kept && half.kept > full.kept);
        assert_true(none.total > selective.total && selective.total > half.total);
        assert_true(half.total > full.total);
        /* What a layer makes again lies in the workspace while its backward runs, and no longer. */
        double layer = (double)(none.kept - full.kept) / 8;
        assert_true((double)(none.total - full.total) > 5.5 * layer);
        assert_true(0 < selective.redone && selective.redone < half.redone);
        assert_true(half.redone < full.redone && full.redone < 0.34 * none.flops);
        assert_true(fabs(none.flops + full.redone - full.flops) < 1e-9 * full.flops);
    }
}

static uint32_t segment_of(const tri_program *program, size_t instr)
{
    uint32_t s = 0;
    while (instr >= program->segments[s].first + program->segments[s].count)
        s++;
    return s;
}

/* What was made again is not kept from one part of a split backward to the other. */
static void expect_no_crossing(const tri_program *program)
{
    int num[2] = {0};
    for (size_t i = 0; i < program->num_instrs; i++) {
        if (!program->instrs[i].redone)
            continue;
        uint32_t own = segment_of(program, i);
        num[program->segments[own].action == TRI_ACTION_W]++;
        for (size_t r = i + 1; r < program->num_instrs; r++)
            for (int j = 0; j < program->instrs[r].num_in; j++)
                for (int k = 0; k < program->instrs[i].num_out; k++)
                    if (program->instrs[r].in[j].value == program->instrs[i].out[k].value)
                        assert_int_equal(segment_of(program, r), own);
    }
    assert_true(num[0] > 0 && num[1] > 0);
}

static void test_split_keeps_nothing_more(void **state)
{
    (void)state;
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama", "model.kind=bert"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int zero = 0; zero <= 3; zero += 3) {
            const char *stage = zero ? "layout.zero=3" : "layout.zero=0";
            tr_settings *settings =
                settings_of(NULL, SET(MEDIUM, LAYERS(3), kinds[k], "layout.dp=2", stage,
                                      "layout.split_backward=true", REDO("full")));
            tr_session *session = compiled(settings);
            expect_no_crossing(&session->session.programs[TRI_PROGRAM_TRAIN]);
            tr_session_destroy(session);
            tr_settings_destroy(settings);
        }
}

/* A layer is made again when its backward begins, and not before. */
static void test_clones_stand_before_their_use(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(NULL, SET(MEDIUM, LAYERS(4), REDO("full")));
    tr_session *session = compiled(settings);
    const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
    int at = 4, num = 0;
    for (size_t s = 0; s < program->num_segments; s++)
        for (uint32_t i = 0; i < program->segments[s].count; i++) {
            const tri_instr *instr = &program->instrs[program->segments[s].first + i];
            if (program->segments[s].action != TRI_ACTION_B) {
                assert_false(instr->redone);
                continue;
            }
            assert_true(instr->layer <= at); /* clones and others alike go down the layers */
            at = instr->layer;
            num += instr->redone;
        }
    assert_true(num >= 4 * 6);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* Messages that are sent again: of a layer, the sum after attention; with sp, the pieces are put
 * together before attention and feed-forward as well. */
static void test_messages_of_tp(void **state)
{
    (void)state;
    plan none = plan_with(0, SET(MEDIUM, LAYERS(4), "layout.tp=2", REDO("none")));
    plan full = plan_with(0, SET(MEDIUM, LAYERS(4), "layout.tp=2", REDO("full")));
    plan selective = plan_with(0, SET(MEDIUM, LAYERS(4), "layout.tp=2", REDO("selective")));
    assert_int_equal(full.num_messages[TRI_OP_ALL_REDUCE],
                     none.num_messages[TRI_OP_ALL_REDUCE] + 4);
    assert_int_equal(selective.num_messages[TRI_OP_ALL_REDUCE],
                     none.num_messages[TRI_OP_ALL_REDUCE]);
    none = plan_with(0, SET(MEDIUM, LAYERS(4), "layout.tp=2", "layout.sp=true", REDO("none")));
    full = plan_with(0, SET(MEDIUM, LAYERS(4), "layout.tp=2", "layout.sp=true", REDO("full")));
    assert_int_equal(full.num_messages[TRI_OP_REDUCE_SCATTER],
                     none.num_messages[TRI_OP_REDUCE_SCATTER] + 4);
    assert_int_equal(full.num_messages[TRI_OP_ALL_GATHER],
                     none.num_messages[TRI_OP_ALL_GATHER] + 8);
}

/* Divided weights are put together for the backward once, also for what it makes again; W of a
 * split backward does so for itself. */
static void test_messages_of_zero_3(void **state)
{
    (void)state;
    static const char *const kinds[] = {"model.kind=gpt2", "model.kind=llama", "model.kind=bert"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        plan none = plan_with(
            1, SET(MEDIUM, LAYERS(4), kinds[k], "layout.dp=2", "layout.zero=3", REDO("none")));
        plan full = plan_with(
            1, SET(MEDIUM, LAYERS(4), kinds[k], "layout.dp=2", "layout.zero=3", REDO("full")));
        plan split = plan_with(1, SET(MEDIUM, LAYERS(4), kinds[k], "layout.dp=2", "layout.zero=3",
                                      "layout.split_backward=true", REDO("full")));
        assert_int_equal(full.num_messages[TRI_OP_UNSHARD], none.num_messages[TRI_OP_UNSHARD]);
        assert_int_equal(split.num_messages[TRI_OP_UNSHARD], none.num_messages[TRI_OP_UNSHARD] + 4);
    }
}

/* --- Budgets ---------------------------------------------------------------------------------- */

static const char *pick(const char *const *from, uint64_t num, int *draw)
{
    return from[tri_random_word(20, 0, (*draw)++, 7) % num];
}
#define PICK(...)                                                                                  \
    pick((const char *const[]){__VA_ARGS__},                                                       \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), draw)

enum { NUM_RANDOM = 17 };

static void random_settings(const char **set, int *draw)
{
    const char *const words[] = {
        "run.device=null",
        PICK("model.kind=gpt2", "model.kind=llama", "model.kind=bert"),
        PICK("model.num_layers=4", "model.num_layers=5", "model.num_layers=8"),
        PICK("model.dim=192", "model.dim=384"),
        PICK("model.num_heads=6", "model.num_heads=12"),
        PICK("model.vocab=1000", "model.vocab=5003"),
        PICK("data.seq_len=128", "data.seq_len=500"),
        PICK("train.batch=12", "train.batch=25"),
        PICK("precision.kind=fp32", "precision.kind=bf16"),
        PICK("layout.dp=1", "layout.dp=2", "layout.dp=3"),
        PICK("layout.tp=1", "layout.tp=1", "layout.tp=2"),
        PICK("layout.pp=1", "layout.pp=1", "layout.pp=2"),
        PICK("layout.sp=false", "layout.sp=true"),
        PICK("layout.microbatches=1", "layout.microbatches=3"),
        PICK("layout.split_backward=false", "layout.split_backward=true"),
        PICK("optim.kind=adamw", "optim.kind=muon"),
    };
    size_t num = sizeof words / sizeof *words;
    for (size_t i = 0; i < num; i++)
        set[i] = words[i];
    set[num++] = strcmp(words[9], "layout.dp=1") == 0
                     ? "layout.zero=0"
                     : PICK("layout.zero=0", "layout.zero=1", "layout.zero=2", "layout.zero=3");
    assert_int_equal(num, NUM_RANDOM);
}

/* The plan of rank 0 with an effort that is given. */
static uint64_t total_of_effort(const tri_session *session, int64_t effort)
{
    tr_error err = {0};
    tri_program train;
    tri_compile_config config = session->config.compile;
    config.recompute.effort = effort;
    tri_batch_shape batch = tri_session_batch_shape(session, TRI_PROGRAM_TRAIN);
    if (tri_compile(&config, &session->params, TRI_MODE_TRAIN, &batch, &train, NULL, &err) != TR_OK)
        fail_msg("%s", err.message);
    const tri_program *programs[] = {&train, &session->programs[TRI_PROGRAM_EVAL],
                                     &session->programs[TRI_PROGRAM_PREDICT]};
    tri_store store;
    tri_store_plan(&store, (tri_device *)&session->device, programs, 3);
    tri_program_fini(&train);
    return tri_store_total(&store);
}

/* No smaller effort would have done. */
static void expect_least(const char *const *set, uint64_t budget)
{
    tr_settings *settings = settings_of(NULL, set);
    tr_session *session = compiled(settings);
    const tri_session *s = &session->session;
    int64_t effort = s->config.compile.recompute.effort;
    for (int64_t e = 0; e < effort; e++)
        if (total_of_effort(s, e) <= budget)
            fail_msg("effort %lld was chosen, but %lld fits into %llu", (long long)effort,
                     (long long)e, (unsigned long long)budget);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
}

/* The number at the end of "layout.dp=2". */
static int digit_of(const char *word)
{
    return word[strlen(word) - 1] - '0';
}

/* Of the rank that needs most; *first is the plan of rank 0. */
static uint64_t largest_total(const char *const *set, int ranks, plan *first)
{
    uint64_t most = 0;
    for (int rank = 0; rank < ranks; rank++) {
        plan p = plan_with(rank, set);
        most = p.total > most ? p.total : most;
        if (rank == 0)
            *first = p;
    }
    return most;
}

static void test_budgets_are_kept(void **state)
{
    (void)state;
    int draw = 0, between = 0;
    for (int i = 0; i < 20; i++) {
        const char *set[NUM_RANDOM + 2] = {NULL};
        char budget_word[64];
        random_settings(set, &draw);
        int dp = digit_of(set[9]), tp = digit_of(set[10]), pp = digit_of(set[11]);
        plan none, full;
        set[NUM_RANDOM] = REDO("none");
        uint64_t most = largest_total(set, dp * tp * pp, &none);
        set[NUM_RANDOM] = REDO("full");
        uint64_t least = largest_total(set, dp * tp * pp, &full);
        assert_true(least < most);
        uint64_t budget = least + tri_random_word(20, 1, i, 7) % 1000 * (most - least) / 1000;
        snprintf(budget_word, sizeof budget_word, "layout.recompute=budget:%llu",
                 (unsigned long long)budget);
        set[NUM_RANDOM] = budget_word;
        plan first = plan_with(0, set), stage = first;
        for (int rank = 0; rank < dp * tp * pp; rank++) {
            plan p = plan_with(rank, set);
            if (rank % (dp * tp) == 0)
                stage = p; /* each finds its own; its ranks agree */
            assert_true(p.total <= budget && p.effort == stage.effort);
        }
        assert_true(first.redone <= full.redone);
        between += 0 < first.redone && first.redone < full.redone;
        if (dp * tp * pp == 1)
            expect_least(set, budget);
    }
    assert_true(between >= 10); /* most budgets are met with less than everything */
}

/* A budget that cannot be met is refused with one that can. */
static void test_small_budgets_are_refused(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_settings *settings = settings_of(NULL, SET(MEDIUM, LAYERS(4), REDO("budget:1MiB")));
    tr_session *session;
    assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
    tr_settings_destroy(settings);
    const char *advice = strstr(err.message, "layout.recompute=budget:");
    assert_non_null(advice);
    char word[64];
    unsigned long long least = 0;
    assert_int_equal(sscanf(advice, "layout.recompute=budget:%llu", &least), 1);
    snprintf(word, sizeof word, "layout.recompute=budget:%llu", least);
    plan p = plan_with(0, SET(MEDIUM, LAYERS(4), word));
    assert_int_equal(p.total, least);
    snprintf(word, sizeof word, "layout.recompute=budget:%llu", least - 1);
    settings = settings_of(NULL, SET(MEDIUM, LAYERS(4), word));
    assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
    tr_settings_destroy(settings);
}

static void assert_same_weights(tr_session *one, tr_session *other)
{
    tr_error err = {0};
    assert_int_equal(tr_session_pull(one, &err), TR_OK);
    assert_int_equal(tr_session_pull(other, &err), TR_OK);
    for (size_t i = 0; i < tr_session_num_params(one); i++) {
        tr_param a = tr_session_param(one, i), b = tr_session_param(other, i);
        for (int64_t k = 0; k < a.count; k++)
            if (memcmp(&a.data[k], &b.data[k], sizeof a.data[k]) != 0)
                fail_msg("%s[%lld]: %.9g and %.9g", a.name, (long long)k, (double)a.data[k],
                         (double)b.data[k]);
    }
}

/* What fits without recomputation is left alone, and a budget between changes no bit either. */
static void test_budgets_keep_bits(void **state)
{
    (void)state;
    static const cell c = {{MODEL_GPT2, FP32, ADAMW, 1, 1, 0, 0, 0, 1, 0}};
    cell_run kept, again;
    run_cell(&kept, &c, NULL);
    run_cell(&again, &c, "layout.recompute=budget:1GiB");
    assert_true(cell_same_bits(&kept, &again));
    cell_run_fini(&again);
    for (int64_t effort = 1; effort <= 9; effort += 2) { /* three layers, three levels */
        tr_error err = {0};
        tr_settings *settings =
            settings_of(TINY, SET("model.num_layers=3", REDO("budget:1GiB"), "train.steps=2"));
        tr_session *session = compiled(settings), *other = compiled(settings);
        session->session.config.compile.recompute.effort = effort;
        tri_program *train = &session->session.programs[TRI_PROGRAM_TRAIN];
        tri_batch_shape batch = tri_session_batch_shape(&session->session, TRI_PROGRAM_TRAIN);
        tri_program_fini(train);
        assert_int_equal(tri_compile(&session->session.config.compile, &session->session.params,
                                     TRI_MODE_TRAIN, &batch, train, NULL, &err),
                         TR_OK);
        assert_true(tri_program_redone(train).flops > 0);
        const tri_program *programs[] = {train, &session->session.programs[TRI_PROGRAM_EVAL],
                                         &session->session.programs[TRI_PROGRAM_PREDICT]};
        tri_store_plan(&session->session.store, &session->session.device, programs, 3);
        assert_int_equal(tri_api_start(session, &err), TR_OK);
        assert_int_equal(tri_api_start(other, &err), TR_OK);
        for (int i = 0; i < 2; i++) {
            tr_step a, b;
            assert_int_equal(tr_session_step(session, &a, &err), TR_OK);
            assert_int_equal(tr_session_step(other, &b, &err), TR_OK);
            assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm);
        }
        assert_same_weights(session, other);
        tr_session_destroy(session);
        tr_session_destroy(other);
        tr_settings_destroy(settings);
    }
    cell_run_fini(&kept);
}

static void test_parsing(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        tri_recompute_kind kind;
        int64_t every;
        uint64_t bytes;
    } good[] = {{"none", TRI_RECOMPUTE_NONE, 1, 0},
                {"selective", TRI_RECOMPUTE_SELECTIVE, 1, 0},
                {"full", TRI_RECOMPUTE_FULL, 1, 0},
                {"every:3", TRI_RECOMPUTE_EVERY, 3, 0},
                {"budget:123", TRI_RECOMPUTE_BUDGET, 1, 123},
                {"budget:8GiB", TRI_RECOMPUTE_BUDGET, 1, 8ull << 30},
                {"budget:1.5 mb", TRI_RECOMPUTE_BUDGET, 1, 1500000},
                {"budget:2k", TRI_RECOMPUTE_BUDGET, 1, 2048}};
    static const char *const bad[] = {"",          "all",         "every",       "every:0",
                                      "every:-2",  "every:2x",    "budget:",     "budget:-1",
                                      "budget:0",  "budget:many", "budget:3qib", "budget:1e40",
                                      "budget:nan"};
    tri_recompute_config config;
    tr_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(tri_recompute_parse(good[i].text, &config, &err), TR_OK);
        assert_true(config.kind == good[i].kind && config.every == good[i].every);
        assert_int_equal(config.budget_bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tri_recompute_parse(bad[i], &config, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, "budget:8GiB"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32_keeps_its_bits),
        cmocka_unit_test(test_16_bits_stay_close),
        cmocka_unit_test(test_full_keeps_inputs),
        cmocka_unit_test(test_memory_falls),
        cmocka_unit_test(test_split_keeps_nothing_more),
        cmocka_unit_test(test_clones_stand_before_their_use),
        cmocka_unit_test(test_messages_of_tp),
        cmocka_unit_test(test_messages_of_zero_3),
        cmocka_unit_test(test_budgets_are_kept),
        cmocka_unit_test(test_small_budgets_are_refused),
        cmocka_unit_test(test_budgets_keep_bits),
        cmocka_unit_test(test_parsing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
