/* layout.keep_gathered: zero 3 whose gathered weights stay from the first forward of a step to its
 * last backward. No bit changes; memory grows by the weights, as planned; and each is gathered
 * once. What is sent is counted in test_layout_plans.c, what the checker sees in test_program.c. */
#include "layout_cells.h"
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/ledger.h"
#include "trireme/trireme.h"

/* --- Bits ------------------------------------------------------------------------------------- */

enum { STEPS = 3 };
#define KEEP "layout.keep_gathered=true "

/* model, precision, update rule, dp, tp, sp, zero, shard group, micro-batches, split backward, and
 * of pipelines: pp, schedule, chunks, layers; then what else is set on both sides */
static const struct {
    cell cell;
    const char *more;
} cases[] = {
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 1, 0}}, ""},
    {{{MODEL_GPT2, FP32, ADAMW, 3, 1, 0, 3, 0, 3, 0}}, ""},
    {{{MODEL_GPT2, BF16, ADAMW, 2, 1, 0, 3, 0, 2, 1}}, ""},
    {{{MODEL_LLAMA, FP32, MUON, 4, 1, 0, 3, 2, 3, 0}}, ""},
    {{{MODEL_LLAMA, BF16_GRAD, ADAMW, 2, 1, 0, 3, 0, 3, 0}}, "run.overlap=false"},
    {{{MODEL_TIED, FP32, ADAMW, 2, 2, 1, 3, 0, 3, 0}}, ""},
    {{{MODEL_ONE_KEY, FP32, ADAMW, 2, 2, 0, 3, 0, 2, 1}}, "layout.prefetch=3"},
    {{{MODEL_MLM, FP16, ADAMW, 2, 1, 0, 3, 0, 2, 0}}, "layout.prefetch=0"},
    {{{MODEL_MLP, FP32, SGD, 2, 1, 0, 3, 0, 3, 0}}, ""},
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 3, 0}}, "layout.recompute=full"},
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 3, 1}}, "layout.recompute=full"},
    {{{MODEL_LLAMA, FP32, ADAMW, 2, 2, 1, 3, 0, 1, 0}}, "layout.recompute=selective"},
    /* pipelines: 1f1b, gpipe, interleaved, zb-h1, zb-v, chimera, dualpipe */
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 0, 0, 4}}, ""},
    {{{MODEL_LLAMA, BF16, ADAMW, 2, 2, 0, 3, 0, 2, 0, 2, 1, 0, 4}}, ""},
    {{{MODEL_TIED, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 2, 2, 4}}, "layout.recompute=every:2"},
    {{{MODEL_MLM, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 3, 0, 4}}, "layout.recompute=full"},
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 5, 0, 4}}, ""},
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 8, 0, 4}}, ""},
    {{{MODEL_GPT2, FP32, ADAMW, 2, 1, 0, 3, 0, 4, 0, 2, 9, 0, 4}}, ""},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

static void run_cell(cell_run *run, const cell *c, const char *more, const char *name)
{
    tr_error err = {0};
    if (cell_run_with(run, c, more, STEPS, &err) != TR_OK)
        fail_msg("%s, %s: %s", name, more, err.message);
}

/* Losses, norms, an evaluation and all weights: as without, and as zero 2, where weights are whole
 * all the time. */
static void test_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_CASES; i++) {
        cell_run plain, kept, two;
        cell whole = cases[i].cell;
        char name[160], more[120];
        cell_name(&cases[i].cell, name, sizeof name);
        snprintf(more, sizeof more, KEEP "%s", cases[i].more);
        whole.is[CELL_ZERO] = 2;
        assert_true(cell_valid(&cases[i].cell));
        run_cell(&plain, &cases[i].cell, cases[i].more, name);
        run_cell(&kept, &cases[i].cell, more, name);
        run_cell(&two, &whole, cases[i].more, name);
        if (!cell_same_bits(&plain, &kept))
            fail_msg("%s, %s: the loss is %.9g, not %.9g", name, more,
                     kept.ranks[0].loss[STEPS - 1], plain.ranks[0].loss[STEPS - 1]);
        if (!cell_same_bits(&two, &kept))
            fail_msg("%s, %s: the loss is %.9g, with zero 2 %.9g", name, more,
                     kept.ranks[0].loss[STEPS - 1], two.ranks[0].loss[STEPS - 1]);
        cell_run_fini(&plain);
        cell_run_fini(&kept);
        cell_run_fini(&two);
    }
}

/* --- Plans ------------------------------------------------------------------------------------ */

typedef struct plan {
    double total, gathered, work, frames; /* bytes */
    double messages;                      /* bytes of gathers that stay, of one call */
    double eval;                          /* bytes of the evaluation's program */
    double activations;                   /* bytes that the ledger lists */
    double weights;                       /* bytes of what this rank's layers read, whole */
    double num_tensors;
    int forward, backward; /* gathers in the program, and those of them that run once */
    int forward_once, backward_once;
} plan;

static void note_gathers(const tri_program *program, plan *p)
{
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        bool forward = segment->action == TRI_ACTION_F;
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (instr->op != TRI_OP_UNSHARD)
                continue;
            p->weights += (double)tri_value_bytes(&program->values[instr->out[0].value]);
            p->num_tensors++;
            if (!tri_instr_leads(program, i))
                continue;
            *(forward ? &p->forward : &p->backward) += 1;
            *(forward ? &p->forward_once : &p->backward_once) += instr->first_only;
            p->messages += instr->first_only
                               ? (double)tri_message_bytes(&program->messages[instr->message])
                               : 0;
        }
    }
}

static plan plan_with(int rank, const char *const *assignments)
{
    tr_error err = {0};
    tr_settings *settings = settings_of(NULL, assignments);
    tr_session *session;
    plan p = {0};
    if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
        fail_msg("rank %d: %s", rank, err.message);
    const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
    const tri_program *eval = &session->session.programs[TRI_PROGRAM_EVAL];
    for (size_t s = 0; s < program->num_spaces; s++) {
        double bytes = (double)tri_space_total(&program->spaces[s]);
        tri_space_kind kind = program->spaces[s].kind;
        p.gathered += kind == TRI_SPACE_GATHERED ? bytes : 0;
        p.work += kind == TRI_SPACE_WORK ? bytes : 0;
        p.frames += kind == TRI_SPACE_FRAME ? bytes : 0;
    }
    for (size_t s = 0; s < eval->num_spaces; s++)
        p.eval += (double)tri_space_total(&eval->spaces[s]);
    for (int i = 0; i < TRI_NUM_SLABS; i++)
        p.total += (double)session->session.store.slabs[i].bytes;
    note_gathers(program, &p);
    tri_ledger ledger;
    assert_int_equal(tri_ledger_make(program, &ledger, &err), TR_OK);
    p.activations = (double)ledger.kept;
    tri_ledger_fini(&ledger);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return p;
}

#define MEDIUM                                                                                     \
    "run.device=null", "model.num_layers=6", "model.dim=256", "model.num_heads=4",                 \
        "model.vocab=512", "train.batch=24", "data.seq_len=32", "layout.zero=3"
#define KEPT(yes) "layout.keep_gathered=" yes

/* With several micro-batches: each weight in a place of its own, once, however many micro-batches
 * are under way; the workspace, which has held the layers at hand, gives some room back; frames and
 * the evaluation are as without. */
static void test_memory(void **state)
{
    (void)state;
    static const char *const layouts[][5] = {
        {"layout.dp=2", "layout.microbatches=3", "layout.pp=1", "layout.tp=1",
         "layout.recompute=none"},
        {"layout.dp=4", "layout.microbatches=2", "layout.pp=1", "layout.tp=2",
         "layout.recompute=full"},
        {"layout.dp=2", "layout.microbatches=2", "layout.split_backward=true",
         "precision.kind=bf16", "layout.recompute=full"},
        {"layout.dp=2", "layout.microbatches=6", "layout.pp=2", "layout.tp=1",
         "layout.recompute=none"},
        {"layout.dp=2", "layout.microbatches=6", "layout.pp=3", "layout.schedule=zb-h1",
         "layout.recompute=full"},
        {"layout.dp=4", "layout.microbatches=4", "layout.pp=2", "layout.schedule=zb-v",
         "layout.shard_group=2"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int rank = 0; rank < 4; rank += 3) {
            const char *const *l = layouts[i];
            plan plain = plan_with(rank, SET(MEDIUM, KEPT("false"), l[0], l[1], l[2], l[3], l[4]));
            plan kept = plan_with(rank, SET(MEDIUM, KEPT("true"), l[0], l[1], l[2], l[3], l[4]));
            assert_true(plain.gathered == 0 && plain.forward_once == 0);
            /* Tensors begin at multiples of 32 elements, buckets at those of 64 bytes. */
            assert_true(kept.gathered == kept.messages && kept.gathered >= kept.weights &&
                        kept.gathered <= kept.weights + kept.num_tensors * 128);
            assert_true(kept.frames == plain.frames && kept.eval == plain.eval);
            assert_true(kept.work <= plain.work);
            if (kept.total - plain.total != kept.gathered - (plain.work - kept.work))
                fail_msg("%s %s, rank %d: %.0f bytes more, with %.0f of weights and %.0f less of "
                         "work",
                         l[1], l[2], rank, kept.total - plain.total, kept.gathered,
                         plain.work - kept.work);
            assert_true(kept.total > plain.total);
            /* Each bucket once, where its forward begins. */
            assert_true(kept.forward == plain.forward && kept.forward_once == kept.forward);
            assert_true(kept.backward == 0 && plain.backward > 0);
        }
}

/* With one micro-batch weights live in `work` from their forward to their backward, and make room
 * for what is made after that. */
static void test_memory_of_one_microbatch(void **state)
{
    (void)state;
    plan plain = plan_with(0, SET(MEDIUM, KEPT("false"), "layout.dp=2"));
    plan kept = plan_with(0, SET(MEDIUM, KEPT("true"), "layout.dp=2"));
    assert_true(kept.gathered == 0 && kept.messages >= kept.weights);
    assert_true(kept.total > plain.total + 0.5 * kept.weights);
    assert_true(kept.total <= plain.total + kept.messages);
    assert_true(kept.forward_once == kept.forward && kept.backward == 0);
    assert_true(kept.activations == plain.activations); /* weights are none */
}

/* A shared table is gathered by the chunks that have it: once without a pipeline, and once in the
 * first and in the last chunk of one. */
static void test_shared_table(void **state)
{
    (void)state;
    static const char *const pipelines[] = {"layout.pp=1", "layout.pp=2", "layout.pp=2"};
    static const char *const orders[] = {"layout.schedule=1f1b", "layout.schedule=1f1b",
                                         "layout.schedule=zb-v"};
    static const int gathers[][2] = {{1, 1}, {1, 1}, {2, 0}};
    for (int i = 0; i < 3; i++)
        for (int rank = 0; rank < 4; rank += 2) {
            tr_error err = {0};
            tr_settings *settings =
                settings_of(NULL, SET(MEDIUM, KEPT("true"), "model.kind=llama",
                                      "model.tied_head=true", "model.dropout=0", "layout.dp=2",
                                      "layout.microbatches=4", pipelines[i], orders[i]));
            tr_session *session;
            int found = 0;
            if (i == 0 && rank > 0) {
                tr_settings_destroy(settings);
                continue;
            }
            if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
                fail_msg("%s", err.message);
            const tri_program *program = &session->session.programs[TRI_PROGRAM_TRAIN];
            for (size_t n = 0; n < program->num_instrs; n++)
                found += program->instrs[n].op == TRI_OP_UNSHARD &&
                         tri_value_bytes(&program->values[program->instrs[n].out[0].value]) ==
                             512 * 256 * 4;
            assert_int_equal(found, gathers[i][rank / 2]);
            tr_session_destroy(session);
            tr_settings_destroy(settings);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_one_microbatch),
        cmocka_unit_test(test_shared_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
