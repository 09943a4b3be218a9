/* model.loss_tile: the head in tiles along T. The same loss and gradients as the plain head, in
 * every layout; no value of the program has more logits than those of a tile. */
#include "layout_cells.h"
#include "small_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "place/expand.h"
#include "place/policy.h"
#include "trireme/trireme.h"

/* --- Loss and gradients ----------------------------------------------------------------------- */

/* One step of plain gradient descent that goes so far that the weights are the gradients. */
#define GRADIENTS                                                                                  \
    "optim.lr=1000 optim.momentum=0 optim.weight_decay=0 train.clip=1e9 optim.warmup_steps=0 "     \
    "optim.schedule=constant "

typedef struct tile_case {
    cell cell;
    int tile; /* 24 tokens a row */
    const char *more;
} tile_case;

static const tile_case cases[] = {
    {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 1, 0}}, 5, ""},
    {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 3, 0}}, 1, ""},
    {{{MODEL_LLAMA, FP32, SGD, 1, 1, 0, 0, 0, 1, 1}}, 23, ""},
    {{{MODEL_LLAMA, FP32, SGD, 1, 3, 0, 0, 0, 2, 1}}, 8, ""},
    {{{MODEL_TIED, FP32, SGD, 2, 2, 1, 0, 0, 1, 0}}, 7, ""},
    {{{MODEL_MLM, FP32, SGD, 1, 3, 1, 0, 0, 2, 0}}, 10, ""},
    {{{MODEL_GPT2, FP32, SGD, 2, 1, 0, 1, 0, 2, 0}}, 9, ""},
    {{{MODEL_TIED, FP32, SGD, 2, 1, 0, 2, 0, 1, 0}}, 5, ""},
    {{{MODEL_LLAMA, FP32, SGD, 2, 1, 0, 2, 0, 3, 1}}, 6, ""},
    {{{MODEL_LLAMA, FP32, SGD, 2, 2, 0, 3, 0, 2, 0}}, 5, "layout.recompute=full"},
    {{{MODEL_GPT2, FP32, SGD, 3, 1, 0, 3, 0, 1, 1}}, 11, "layout.recompute=full"},
    {{{MODEL_MLM, FP32, SGD, 2, 1, 0, 3, 0, 2, 0, 0, 0, 0, 0, 1}}, 5, ""},
    {{{MODEL_MLM, FP32, SGD, 2, 1, 0, 3, 0, 2, 0}},
     7,
     ""}, /* a bias that the backward reads early */
    /* pipelines: 1f1b, zb-h1, zb-v, dualpipe */
    {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 4, 0, 2, 0, 0, 4}}, 5, ""},
    {{{MODEL_TIED, FP32, SGD, 1, 2, 0, 0, 0, 4, 0, 2, 3, 0, 4}}, 7, "layout.recompute=full"},
    {{{MODEL_LLAMA, FP32, SGD, 2, 1, 0, 3, 0, 4, 0, 2, 5, 0, 4}}, 5, ""},
    {{{MODEL_GPT2, FP32, SGD, 1, 1, 0, 0, 0, 4, 0, 2, 9, 0, 4}}, 5, ""},
};

static void compare(const tile_case *c, const char *more, int steps, double tolerance)
{
    cell_run plain, tiled;
    char name[200], with[300];
    tr_error err = {0};
    cell_name(&c->cell, name, sizeof name);
    snprintf(with, sizeof with, "%s%s model.loss_tile=%d", more, c->more, c->tile);
    assert_true(cell_valid(&c->cell));
    snprintf(name + strlen(name), sizeof name - strlen(name), ", tile %d", c->tile);
    if (cell_run_with(&tiled, &c->cell, with, steps, &err) != TR_OK)
        fail_msg("%s: %s", name, err.message);
    *strstr(with, "model.loss_tile") = 0;
    if (cell_run_with(&plain, &c->cell, with, steps, &err) != TR_OK)
        fail_msg("%s, plain: %s", name, err.message);
    cell_distance d = cell_compare(&plain, &tiled, cell_world(&c->cell));
    if (getenv("TRIREME_CELLS"))
        print_message("%s: loss %.2g, norm %.2g, held-out %.2g, all gradients %.2g, worst %.2g\n",
                      name, d.loss, d.norm, d.eval, d.weights, d.tensor);
    if (!(d.loss <= tolerance && d.norm <= tolerance && d.eval <= tolerance &&
          d.accuracy <= tolerance && d.weights <= tolerance && d.tensor <= tolerance) ||
        !d.ranks_agree)
        fail_msg("%s: loss %g, norm %g, held-out %g, accuracy %g, gradients %g, worst %g", name,
                 d.loss, d.norm, d.eval, d.accuracy, d.weights, d.tensor);
    cell_run_fini(&plain);
    cell_run_fini(&tiled);
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(&cases[i], GRADIENTS, 1, 1e-6);
}

/* A vocabulary of 128 k, whole and over tp. */
static void test_large_vocabulary(void **state)
{
    (void)state;
    static const tile_case large[] = {
        {{{MODEL_LLAMA, FP32, SGD, 1, 1, 0, 0, 0, 1, 0}}, 3, ""},
        {{{MODEL_TIED, FP32, SGD, 1, 2, 1, 0, 0, 2, 0}}, 5, ""},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        compare(&large[i],
                GRADIENTS "model.vocab=131072 model.dim=12 model.num_layers=1 data.seq_len=8 "
                          "train.batch=2 train.eval_batches=1 ",
                1, 1e-6);
}

/* Sums of several tiles round otherwise in 16 bits; steps that follow amplify it. With stages that
 * update by themselves, sums of gradients begin anew within a step, but not the loss. */
static void test_steps(void **state)
{
    (void)state;
    static const struct {
        tile_case of;
        double tolerance;
    } rows[] = {
        {{{{MODEL_GPT2, BF16, SGD, 1, 2, 0, 0, 0, 1, 0}}, 5, ""}, 1e-2},
        {{{{MODEL_LLAMA, BF16_GRAD, SGD, 2, 1, 0, 3, 0, 2, 0}}, 7, ""}, 2e-2},
        {{{{MODEL_TIED, FP16, SGD, 2, 1, 0, 2, 0, 2, 1}}, 7, ""}, 1e-2},
        {{{{MODEL_LLAMA, FP32, SGD, 1, 1, 0, 0, 0, 4, 0, 2, 0, 0, 4}},
          5,
          "layout.schedule=pipedream train.clip=0"},
         1e-3},
        {{{{MODEL_LLAMA, FP32, SGD, 1, 1, 0, 0, 0, 4, 0, 2, 0, 0, 4}},
          5,
          "layout.schedule=pipedream-2bw train.clip=0"},
         1e-3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        compare(&rows[i].of, "", 3, rows[i].tolerance);
}

/* --- Plans ------------------------------------------------------------------------------------ */

static bool is_wide(const tri_value *value)
{
    return value->kind == TRI_VALUE_TEMP && tri_dim_named(&value->shape, TRI_DIM_T) >= 0 &&
           tri_dim_named(&value->shape, TRI_DIM_V) >= 0;
}

typedef struct plan {
    double work, flops; /* bytes of a step's values; arithmetic */
    int64_t most;       /* tokens of a row that logits, or their gradient, are of */
    int num_wide;       /* instructions that have to do with logits */
    bool kept;          /* some of them lie where they stay beyond their segment */
    int gathers;        /* weights that are put together from slices */
    bool old_gathers;   /* the backward reads what the forward has put together */
} plan;

static size_t segment_of(const tri_program *program, size_t instr)
{
    size_t s = 0;
    while (instr >= program->segments[s].first + program->segments[s].count)
        s++;
    return s;
}

static void look(const tri_program *program, plan *p)
{
    for (size_t s = 0; s < program->num_spaces; s++)
        if (program->spaces[s].kind == TRI_SPACE_WORK || program->spaces[s].kind == TRI_SPACE_FRAME)
            p->work += (double)tri_space_total(&program->spaces[s]);
    for (size_t i = 0; i < program->num_instrs; i++) {
        const tri_instr *instr = &program->instrs[i];
        bool wide = false;
        for (int o = 0; o < instr->num_in + instr->num_out; o++) {
            tri_operand at = o < instr->num_in ? instr->in[o] : instr->out[o - instr->num_in];
            if (at.value == TRI_NONE || !is_wide(&program->values[at.value]))
                continue;
            const tri_shape *shape = &program->values[at.value].shape;
            int64_t tokens = shape->dim[tri_dim_named(shape, TRI_DIM_T)].size;
            p->most = tokens > p->most ? tokens : p->most;
            p->kept |= program->spaces[at.space].kind == TRI_SPACE_FRAME;
            wide = true;
        }
        p->num_wide += wide;
        p->gathers += instr->op == TRI_OP_UNSHARD;
        for (size_t of = 0; instr->op == TRI_OP_UNSHARD && of < program->num_instrs; of++)
            for (int j = 0; j < program->instrs[of].num_in; j++)
                p->old_gathers |= program->instrs[of].in[j].value == instr->out[0].value &&
                                  segment_of(program, i) != segment_of(program, of);
        p->flops += instr->redone ? 0 : instr->cost.flops;
    }
}

static plan plan_of(const char *const *layout, const char *tile, int kind)
{
    tr_settings *settings =
        settings_of(NULL, SET("run.device=null", "model.num_layers=4", "model.dim=64",
                              "model.num_heads=4", "model.vocab=4096", "train.batch=8",
                              "data.seq_len=96", layout[0], layout[1], layout[2], tile));
    tr_session *session;
    tr_error err = {0};
    plan p = {0};
    int rank = (int)tri_settings_num_ranks(settings) - 1; /* of a pipeline, the one with the head */
    if (tri_api_compile(settings, rank, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    look(&session->session.programs[kind], &p);
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return p;
}

/* Neither logits nor their gradient are there for more than a tile, in no space of the program; the
 * memory that a step takes falls by what they would take, and nothing is computed twice. */
static void test_logits_are_absent(void **state)
{
    (void)state;
    static const char *const layouts[][3] = {
        {"layout.dp=1", "layout.tp=1", "layout.microbatches=1"},
        {"layout.dp=1", "layout.tp=2", "layout.sp=true"},
        {"layout.microbatches=2", "layout.split_backward=true", "layout.recompute=full"},
        {"layout.dp=2", "layout.zero=3", "layout.recompute=full"},
        {"layout.pp=2", "layout.microbatches=4", "layout.schedule=zb-h1"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int kind = TRI_PROGRAM_TRAIN; kind <= TRI_PROGRAM_EVAL; kind++) {
            plan plain = plan_of(layouts[i], "model.loss_tile=0", kind);
            plan tiled = plan_of(layouts[i], "model.loss_tile=10", kind);
            assert_true(plain.most == 96 && plain.num_wide > 0);
            if (tiled.most != 10 || tiled.kept || tiled.num_wide != 10 * plain.num_wide)
                fail_msg("%s %s %s: logits of %d tokens, %s, in %d instructions instead of %d",
                         layouts[i][0], layouts[i][1], layouts[i][2], (int)tiled.most,
                         tiled.kept ? "kept" : "not kept", tiled.num_wide, 10 * plain.num_wide);
            assert_true(tiled.gathers == plain.gathers && !tiled.old_gathers);
            assert_true(fabs(tiled.flops / plain.flops - 1) < 1e-5);
            if (kind == TRI_PROGRAM_TRAIN && tiled.work > 0.7 * plain.work)
                fail_msg("%s %s %s: %.0f bytes instead of %.0f", layouts[i][0], layouts[i][1],
                         layouts[i][2], tiled.work, plain.work);
        }
}

/* --- The pass --------------------------------------------------------------------------------- */

static int count(const tri_graph *graph, tri_op op)
{
    int num = 0;
    for (size_t n = 0; n < graph->num_nodes; n++)
        num += graph->nodes[n].op == op;
    return num;
}

/* What a GPU does in one with whole rows, it does in one with the rows of a tile. */
static void test_tiles_are_fused(void **state)
{
    (void)state;
    small_graph g;
    tr_error err = {0};
    const tri_expand_config tiles = {.loss_tile = 10};
    small_graph_init(&g, TINY, SET("model.num_layers=2", "data.seq_len=24"), UP_TO_UPDATE);
    assert_int_equal(tri_expand(&g.graph, &tiles, &err), TR_OK);
    assert_int_equal(tri_graph_verify(&g.graph, &err), TR_OK);
    assert_int_equal(count(&g.graph, TRI_OP_CE_GRAD), 3);
    assert_int_equal(tri_fold_accumulate(&g.graph, &err), TR_OK);
    assert_int_equal(count(&g.graph, TRI_OP_ACCUMULATE), 0);
    assert_int_equal(tri_fuse_backward(&g.graph, &(tri_fusions){.cross_entropy = true}, &err),
                     TR_OK);
    assert_int_equal(tri_graph_verify(&g.graph, &err), TR_OK);
    assert_int_equal(count(&g.graph, TRI_OP_CROSS_ENTROPY), 3);
    assert_int_equal(count(&g.graph, TRI_OP_CE_GRAD) + count(&g.graph, TRI_OP_CE_STATS), 0);
    size_t nodes = g.graph.num_nodes;
    assert_int_equal(tri_expand(&g.graph, &tiles, &err), TR_OK); /* tiles stay as they are */
    assert_int_equal(g.graph.num_nodes, nodes);
    small_graph_fini(&g);
}

/* An operator that no rule lets run on a tile is refused by name. */
static void test_refusal(void **state)
{
    (void)state;
    small_graph g;
    tr_error err = {0};
    small_graph_init(&g, TINY, SET("model.num_layers=2", "data.seq_len=24"), UP_TO_AUTODIFF);
    for (size_t n = 0; n < g.graph.num_nodes; n++)
        if (g.graph.nodes[n].op == TRI_OP_CE_GRAD)
            g.graph.nodes[n].op = TRI_OP_BLOCK;
    assert_int_equal(tri_expand(&g.graph, &(tri_expand_config){.loss_tile = 10}, &err),
                     TR_ERROR_INTERNAL);
    assert_string_equal(err.message,
                        "block cannot run in tiles: no rule says what it makes of a tile");
    small_graph_fini(&g);
}

static void test_too_many_tiles(void **state)
{
    (void)state;
    tr_settings *settings = settings_of(TINY, SET("data.seq_len=5000", "model.loss_tile=4"));
    tr_session *session;
    tr_error err = {0};
    assert_int_equal(tri_api_compile(settings, 0, &session, &err), TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "model.loss_tile=5 or more"));
    tr_settings_destroy(settings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),       cmocka_unit_test(test_large_vocabulary),
        cmocka_unit_test(test_steps),           cmocka_unit_test(test_logits_are_absent),
        cmocka_unit_test(test_tiles_are_fused), cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_too_many_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
