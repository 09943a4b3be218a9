/* The graph: the verifier names each way in which one can be broken, passes leave what they
 * promise, mistakes of a model are told in its own words, and the backward is cut where it should
 * be. */
#include "small_models.h"

#include <stdio.h>
#include <string.h>

#include "graph/emit.h"
#include "program/program.h"

/* --- Broken graphs -------------------------------------------------------------------------- */

/* The n-th node of an operator, counting from 0. */
static tri_node *node_of(tri_graph *graph, tri_op op, int n)
{
    for (size_t i = 0; i < graph->num_nodes; i++)
        if (graph->nodes[i].op == op && n-- == 0)
            return &graph->nodes[i];
    fail_msg("the graph has too few nodes of %s", tri_op_get(op)->name);
    return NULL;
}

static tri_value *result_of(tri_graph *graph, const tri_node *node)
{
    return &graph->values[node->out[0]];
}

static void unknown_input(tri_graph *graph)
{
    node_of(graph, TRI_OP_ADD, 0)->in[1] = (tri_id)graph->num_values + 7;
}

static void missing_input(tri_graph *graph)
{
    node_of(graph, TRI_OP_ADD, 0)->in[1] = TRI_NONE;
}

static void read_too_early(tri_graph *graph)
{
    node_of(graph, TRI_OP_ADD, 0)->in[1] = node_of(graph, TRI_OP_DROPOUT, 1)->out[0];
}

static void swapped_nodes(tri_graph *graph)
{
    tri_node *a = node_of(graph, TRI_OP_ADD, 0), *b = a + 1, kept = *a;
    *a = *b;
    *b = kept;
}

static void read_old_version(tri_graph *graph)
{
    tri_node *first = node_of(graph, TRI_OP_ADAM, 0), *second = node_of(graph, TRI_OP_ADAM, 1);
    second->in[3] = first->in[0];
}

static void made_twice(tri_graph *graph)
{
    node_of(graph, TRI_OP_DROPOUT, 0)->out[0] = node_of(graph, TRI_OP_ADD, 0)->out[0];
}

static void other_producer(tri_graph *graph)
{
    result_of(graph, node_of(graph, TRI_OP_ADD, 0))->producer = 0;
}

static void other_shape(tri_graph *graph)
{
    tri_value *value = result_of(graph, node_of(graph, TRI_OP_ATTENTION, 0));
    value->shape.dim[1].size++;
}

/* As many elements, but other dims: rows and columns exchanged. */
static void turned_shape(tri_graph *graph)
{
    tri_shape *shape = &result_of(graph, node_of(graph, TRI_OP_MATMUL, 0))->shape;
    tri_dim kept = shape->dim[0];
    shape->dim[0] = shape->dim[1];
    shape->dim[1] = kept;
}

static void other_type(tri_graph *graph)
{
    result_of(graph, node_of(graph, TRI_OP_ACT, 0))->dtype = TRI_I32;
}

static void exchanged_operands(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_MATMUL, 0);
    tri_id kept = node->in[0];
    node->in[0] = node->in[1];
    node->in[1] = kept;
}

static void too_few_operands(tri_graph *graph)
{
    node_of(graph, TRI_OP_ADD, 0)->num_in = 1;
}

static void too_many_operands(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_ADD, 0);
    node->in[node->num_in++] = node->in[0];
}

static void accumulating_activation(tri_graph *graph)
{
    node_of(graph, TRI_OP_ACT, 0)->write[0] = TRI_WRITE_START;
}

static void sum_without_a_begin(tri_graph *graph)
{
    node_of(graph, TRI_OP_MATMUL, 0)->write[0] = TRI_WRITE_ADD;
}

static void sum_of_other_shape(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_MATMUL, 1);
    node->write[0] = TRI_WRITE_ADD;
    node->prev[0] = node_of(graph, TRI_OP_MATMUL, 0)->out[0];
}

/* A product of the next layer goes on with a sum that something after it reads as it was before. */
static void read_half_of_a_sum(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_MATMUL, 4);
    node->write[0] = TRI_WRITE_ADD;
    node->prev[0] = node_of(graph, TRI_OP_MATMUL, 0)->out[0];
    node_of(graph, TRI_OP_BIAS_ADD, 4)->in[0] = node->prev[0];
}

static void state_as_temporary(tri_graph *graph)
{
    node_of(graph, TRI_OP_BIAS_GRAD, 0)->write[0] = TRI_WRITE_NEW;
}

static void update_of_what_is_not_read(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_ADAM, 0);
    node->prev[0] = node->in[1];
}

static void update_by_what_cannot(tri_graph *graph)
{
    node_of(graph, TRI_OP_BIAS_GRAD, 0)->write[0] = TRI_WRITE_UPDATE;
}

static void replaces_another(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_BIAS_GRAD, 0);
    node->prev[0] = node_of(graph, TRI_OP_BIAS_GRAD, 1)->prev[0];
}

static void forgotten_version(tri_graph *graph)
{
    tri_node *node = node_of(graph, TRI_OP_ADAM, 0);
    graph->states[result_of(graph, node)->state].latest = node->in[0];
}

static void third_operand_missing(tri_graph *graph)
{
    node_of(graph, TRI_OP_MATMUL, 0)->attr.matmul.epilogue = TRI_EPILOGUE_BIAS;
}

static void attribute_of_another(tri_graph *graph)
{
    node_of(graph, TRI_OP_ACT, 0)->attr.attention.window = 3;
}

static void test_verifier_names_what_is_broken(void **state)
{
    (void)state;
    static const struct {
        void (*apply)(tri_graph *graph);
        const char *says;
    } rows[] = {
        {unknown_input, "(add): reads a value that does not exist"},
        {missing_input, "(add): reads a value that does not exist"},
        {read_too_early, "(add): reads before it is made: h.0.attn.resid"},
        {swapped_nodes, "(dropout): reads before it is made: embd.sum"},
        {read_old_version, "(adam): reads an outdated version of wte.weight"},
        {made_twice, "(dropout): makes a second time embd.sum"},
        {other_producer, "(add): is not the noted producer of embd.sum"},
        {other_shape, "(attention): gives another shape or type to h.0.attn"},
        {turned_shape, "(matmul): gives another shape or type to h.0.attn.c_attn.product"},
        {other_type, "(act): gives another shape or type to h.0.mlp.gelu"},
        {exchanged_operands, "(matmul): does not fit its operands: the contracted dims"},
        {too_few_operands, "(add): has a wrong number of operands"},
        {too_many_operands, "(add): has a wrong number of operands"},
        {accumulating_activation, "(act): cannot accumulate into h.0.mlp.gelu"},
        {sum_without_a_begin, "(matmul): adds to another value than h.0.attn.c_attn.product"},
        {sum_of_other_shape, "(matmul): adds to another value than h.0.attn.c_proj.product"},
        {read_half_of_a_sum, "(bias_add): reads what has been added to: h.0.attn.c_attn.product"},
        {state_as_temporary, "(bias_grad): writes as a temporary what is a state: grad."},
        {update_of_what_is_not_read, "(adam): updates what it does not read: wte.weight"},
        {update_by_what_cannot, "(bias_grad): updates what it does not read: grad."},
        {replaces_another, "(bias_grad): replaces an outdated version of grad."},
        {forgotten_version, "the last version of wte.weight is not noted"},
        {third_operand_missing, "(matmul): does not fit its operands: its epilogue"},
        {attribute_of_another, "(act): has attributes of another operator"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        small_graph g;
        tr_error err = {0};
        small_graph_init(&g, TINY, SET("model.num_layers=2"), UP_TO_FOLD); /* verified there */
        rows[i].apply(&g.graph);
        tr_status status = tri_graph_verify(&g.graph, &err);
        if (status != TR_ERROR_INTERNAL || !strstr(err.message, rows[i].says))
            fail_msg("row %zu: the verifier should say \"%s\", not \"%s\"", i, rows[i].says,
                     status == TR_OK ? "all is well" : err.message);
        small_graph_fini(&g);
    }
}

/* --- Passes --------------------------------------------------------------------------------- */

static int count_op(const tri_graph *graph, tri_op op)
{
    int count = 0;
    for (size_t i = 0; i < graph->num_nodes; i++)
        count += graph->nodes[i].op == op;
    return count;
}

static int count_products(const tri_graph *graph, tri_epilogue epilogue)
{
    int count = 0;
    for (size_t i = 0; i < graph->num_nodes; i++)
        count +=
            graph->nodes[i].op == TRI_OP_MATMUL && graph->nodes[i].attr.matmul.epilogue == epilogue;
    return count;
}

static void test_folding_leaves_no_accumulate(void **state)
{
    (void)state;
    small_graph g;
    tr_error err = {0};
    small_graph_init(&g, TINY, SET("model.num_layers=3"), UP_TO_UPDATE);
    int before = (int)g.graph.num_nodes, folded = count_op(&g.graph, TRI_OP_ACCUMULATE);
    assert_int_equal(folded, (int)g.params.count + 1); /* the tied table has two contributions */
    assert_int_equal(tri_fold_accumulate(&g.graph, &err), TR_OK);
    assert_int_equal(tri_graph_verify(&g.graph, &err), TR_OK);
    assert_int_equal(count_op(&g.graph, TRI_OP_ACCUMULATE), 0);
    assert_int_equal(g.graph.num_nodes, before - folded);
    small_graph_fini(&g);
}

/* Every node of a gpt2 of L layers with dropout, before and after fusion. */
static void check_counts(int layers, bool fused)
{
    char assignment[32];
    snprintf(assignment, sizeof assignment, "model.num_layers=%d", layers);
    small_graph g;
    small_graph_init(&g, TINY, SET(assignment), fused ? UP_TO_FUSE : UP_TO_FOLD);
    const struct {
        tri_op op;
        int count;
    } rows[] = {
        {TRI_OP_BIAS_ADD, fused ? 0 : 4 * layers},
        {TRI_OP_ACT, fused ? 0 : layers},
        {TRI_OP_ACT_GRAD, fused ? 0 : layers},
        {TRI_OP_MATMUL, 3 * (4 * layers + 1)}, /* forward, gradients of x and of W */
        {TRI_OP_BIAS_GRAD, 4 * layers},
        {TRI_OP_ADD, 2}, /* the embeddings, and the two ways out of their sum */
        {TRI_OP_DROPOUT, 2 * (2 * layers + 1)},
        {TRI_OP_EMBED, 2},
        {TRI_OP_EMBED_GRAD, 2},
        {TRI_OP_LAYERNORM, 1},
        {TRI_OP_ADD_LAYERNORM, 2 * layers},
        {TRI_OP_LAYERNORM_GRAD, 2 * layers + 1},
        {TRI_OP_LAYERNORM_PARAM_GRAD, 2 * layers + 1},
        {TRI_OP_ATTENTION, layers},
        {TRI_OP_ATTENTION_GRAD, layers},
        {TRI_OP_CE_STATS, 1},
        {TRI_OP_CE_LOSS, 1},
        {TRI_OP_CE_GRAD, 1},
        {TRI_OP_SUM_SQUARES, 12 * layers + 4},
        {TRI_OP_FINISH, 1},
        {TRI_OP_ADAM, 12 * layers + 4},
    };
    int total = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        total += rows[i].count;
        if (count_op(&g.graph, rows[i].op) != rows[i].count)
            fail_msg("%d nodes of %s, not %d", count_op(&g.graph, rows[i].op),
                     tri_op_get(rows[i].op)->name, rows[i].count);
    }
    assert_int_equal(g.graph.num_nodes, total); /* and no others */
    assert_int_equal(count_products(&g.graph, TRI_EPILOGUE_BIAS), fused ? 3 * layers : 0);
    assert_int_equal(count_products(&g.graph, TRI_EPILOGUE_BIAS_GELU), fused ? layers : 0);
    assert_int_equal(count_products(&g.graph, TRI_EPILOGUE_GELU_GRAD), fused ? layers : 0);
    small_graph_fini(&g);
}

static void test_counts_of_operators(void **state)
{
    (void)state;
    for (int layers = 1; layers <= 3; layers += 2) {
        check_counts(layers, false);
        check_counts(layers, true);
    }
}

/* A device that offers less gets less. */
static void test_fusion_follows_the_device(void **state)
{
    (void)state;
    small_graph g;
    tr_error err = {0};
    small_graph_init(&g, TINY, SET("model.num_layers=2"), UP_TO_FOLD);
    size_t before = g.graph.num_nodes;
    assert_int_equal(tri_fuse_epilogues(&g.graph, &(tri_fusions){0}, &err), TR_OK);
    assert_int_equal(g.graph.num_nodes, before);
    assert_int_equal(tri_fuse_epilogues(&g.graph, &(tri_fusions){.bias = true}, &err), TR_OK);
    assert_int_equal(tri_graph_verify(&g.graph, &err), TR_OK);
    assert_int_equal(count_op(&g.graph, TRI_OP_BIAS_ADD), 0);
    assert_int_equal(count_op(&g.graph, TRI_OP_ACT), 2);
    assert_int_equal(count_op(&g.graph, TRI_OP_ACT_GRAD), 2);
    small_graph_fini(&g);
}

static void join(small_graph *g, const char *const *assignments, tri_fusions can)
{
    tr_error err = {0};
    small_graph_init(g, TINY, assignments, UP_TO_FUSE);
    assert_int_equal(tri_fuse_backward(&g->graph, &can, &err), TR_OK);
    if (tri_graph_verify(&g->graph, &err) != TR_OK)
        fail_msg("%s", err.message);
}

/* What the backward reads twice: norms with their parameters and the bias before the sum, the
 * logits, sums of products. */
static void test_backward_is_joined(void **state)
{
    (void)state;
    small_graph g;
    tri_fusions all = {.add = true, .norm_grads = true, .cross_entropy = true};
    join(&g, SET("model.num_layers=2", "model.dropout=0"), all);
    assert_int_equal(count_op(&g.graph, TRI_OP_LAYERNORM_GRADS), 5);
    assert_int_equal(count_op(&g.graph, TRI_OP_LAYERNORM_GRAD), 0);
    assert_int_equal(count_op(&g.graph, TRI_OP_LAYERNORM_PARAM_GRAD), 0);
    assert_int_equal(count_op(&g.graph, TRI_OP_BIAS_GRAD), 2 * 2); /* c_attn and c_fc */
    assert_int_equal(count_op(&g.graph, TRI_OP_CROSS_ENTROPY), 1);
    assert_int_equal(count_op(&g.graph, TRI_OP_CE_STATS), 0);
    assert_int_equal(count_op(&g.graph, TRI_OP_CE_GRAD), 0);
    small_graph_fini(&g);

    /* Dropout is between the norm and the bias: that sum stays apart. */
    join(&g, SET("model.num_layers=2", "model.dropout=0.1"), all);
    assert_int_equal(count_op(&g.graph, TRI_OP_LAYERNORM_GRADS), 5);
    assert_int_equal(count_op(&g.graph, TRI_OP_BIAS_GRAD), 4 * 2);
    small_graph_fini(&g);

    /* Gradients of q, k, v add up, and of gate and up: three additions in each layer. */
    const char *const *llama = SET("model.kind=llama", "model.num_layers=2", "model.dropout=0");
    join(&g, llama, all);
    assert_int_equal(count_products(&g.graph, TRI_EPILOGUE_ADD), 3 * 2);
    assert_int_equal(count_op(&g.graph, TRI_OP_ADD), 1);
    assert_int_equal(count_op(&g.graph, TRI_OP_RMSNORM_GRADS), 5);
    small_graph_fini(&g);
    /* The gain of all heads together has the dims of the bias before it. */
    join(&g,
         SET("model.kind=llama", "model.num_layers=2", "model.dropout=0", "model.qkv_bias=true",
             "model.qk_norm=true", "model.qk_norm_wide=true"),
         all);
    assert_int_equal(count_op(&g.graph, TRI_OP_RMSNORM_GRADS), 5 + 2 * 2);
    assert_int_equal(count_op(&g.graph, TRI_OP_BIAS_GRAD), 1 * 2); /* of v */
    small_graph_fini(&g);
    join(&g, llama, (tri_fusions){0});
    assert_int_equal(count_products(&g.graph, TRI_EPILOGUE_ADD), 0);
    assert_int_equal(count_op(&g.graph, TRI_OP_RMSNORM_GRADS), 0);
    assert_int_equal(count_op(&g.graph, TRI_OP_CROSS_ENTROPY), 0);
    small_graph_fini(&g);
}

/* Sums of the residual stream: in the products that end the branches, where nothing is between. */
static void test_residual_sums_move_into_products(void **state)
{
    (void)state;
    const struct {
        const char *const *set;
        int add;
    } rows[] = {
        {SET("model.num_layers=3", "model.dropout=0"), 0}, /* a bias is between */
        {SET("model.kind=llama", "model.num_layers=3", "model.dropout=0"), 6},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int can = 0; can < 2; can++) {
            small_graph g;
            tr_error err = {0};
            small_graph_init(&g, TINY, rows[i].set, UP_TO_FUSE);
            size_t before = g.graph.num_nodes;
            tri_fusions fusions = {.residual = can};
            assert_int_equal(tri_fuse_residual(&g.graph, &fusions, &err), TR_OK);
            if (tri_graph_verify(&g.graph, &err) != TR_OK)
                fail_msg("%s", err.message);
            int add = can ? rows[i].add : 0;
            assert_int_equal(g.graph.num_nodes, before);
            assert_int_equal(count_products(&g.graph, TRI_EPILOGUE_ADD), add);
            assert_int_equal(count_op(&g.graph, TRI_OP_RMSNORM), add ? 7 : i);
            assert_int_equal(count_op(&g.graph, TRI_OP_ADD_LAYERNORM) +
                                 count_op(&g.graph, TRI_OP_ADD_RMSNORM),
                             6 - add);
            small_graph_fini(&g);
        }
}

static int count_copies(const tri_graph *graph)
{
    int num = 0;
    for (size_t i = 0; i < graph->params->count; i++)
        num += graph->copy_state[i] != TRI_NONE;
    return num;
}

/* Adam takes the copies along; what updates otherwise leaves them to narrow. */
static void test_adam_writes_copies(void **state)
{
    (void)state;
    small_graph g;
    tri_fusions can = {.adam_copy = true};
    join(&g, SET("precision.kind=bf16", "optim.kind=adamw"), can);
    int copies = count_copies(&g.graph), written = 0;
    assert_true(copies > 0);
    for (size_t n = 0; n < g.graph.num_nodes; n++)
        written += g.graph.nodes[n].op == TRI_OP_ADAM && g.graph.nodes[n].num_out == 4;
    assert_int_equal(written, copies);
    assert_int_equal(count_op(&g.graph, TRI_OP_NARROW), 0);
    small_graph_fini(&g);
    join(&g, SET("precision.kind=bf16", "optim.kind=adamw"), (tri_fusions){0});
    assert_int_equal(count_op(&g.graph, TRI_OP_NARROW), copies);
    small_graph_fini(&g);
    join(&g, SET("precision.kind=bf16", "optim.kind=sgd"), can);
    assert_int_equal(count_op(&g.graph, TRI_OP_NARROW), copies);
    small_graph_fini(&g);
}

/* Through several sizes of the table of names; of equal names the first is found. */
static void test_parameters_are_found_by_name(void **state)
{
    (void)state;
    tri_param_table table;
    char name[32];
    tri_param_table_init(&table);
    assert_int_equal(tri_param_find(&table, "h.0.weight"), TRI_NONE);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "h.%d.weight", i % 2000);
        tri_param_add(&table, (tri_param){.name = name, .layer = i});
        assert_int_equal(tri_param_find(&table, name), i % 2000);
    }
    assert_false(table.failed);
    assert_int_equal(table.count, 3000);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "h.%d.weight", i);
        assert_int_equal(tri_param_find(&table, name), i);
    }
    assert_int_equal(tri_param_find(&table, "h.2000.weight"), TRI_NONE);
    assert_int_equal(tri_param_find(&table, ""), TRI_NONE);
    tri_param_table_fini(&table);
}

/* --- Mistakes in a model -------------------------------------------------------------------- */

/* A graph with a value of each of two shapes, and one parameter. */
typedef struct sketch {
    tri_param_table params;
    tri_graph graph;
    tri_id bd, bf;
} sketch;

static void sketch_init(sketch *s)
{
    tr_error err = {0};
    tri_param_table_init(&s->params);
    tri_param_add(&s->params, (tri_param){.name = "fc.weight",
                                          .split = 1,
                                          .shape = tri_shape_of(2, TRI_DIM_F, (int64_t)6, TRI_DIM_D,
                                                                (int64_t)4)});
    assert_int_equal(tri_graph_init(&s->graph, &s->params, &err), TR_OK);
    tri_shape bd = tri_shape_of(2, TRI_DIM_B, (int64_t)2, TRI_DIM_D, (int64_t)4);
    tri_shape bf = tri_shape_of(2, TRI_DIM_B, (int64_t)2, TRI_DIM_F, (int64_t)6);
    s->bd = tri_graph_input(&s->graph, "x", TRI_F32, bd, true);
    s->bf = tri_graph_input(&s->graph, "y", TRI_F32, bf, true);
}

static void add_of_other_shapes(sketch *s)
{
    tri_add(&s->graph, "sum", s->bd, s->bf);
}

static void linear_of_other_width(sketch *s)
{
    tri_linear(&s->graph, "fc", s->bf);
}

static void linear_without_weight(sketch *s)
{
    tri_graph_enter(&s->graph, 0, "h.%d", 0);
    tri_linear(&s->graph, "proj", s->bd);
}

static void tied_to_nothing(sketch *s)
{
    tri_linear_tied(&s->graph, "head", "wte.weight", s->bd);
}

static void attention_of_a_matrix(sketch *s)
{
    tri_batch_inputs in = {.rows = s->bd, .step = s->bd};
    tri_attention(&s->graph, "attn", (tri_attention_inputs){s->bd, TRI_NONE, TRI_NONE, TRI_NONE},
                  (tri_attention_config){.causal = true}, &in);
}

static tri_id heads(sketch *s, tri_dim_name name, int64_t num, int64_t width)
{
    tri_shape shape =
        tri_shape_of(4, TRI_DIM_B, (int64_t)2, TRI_DIM_T, (int64_t)5, name, num, TRI_DIM_K, width);
    return tri_graph_input(&s->graph, "x", TRI_F32, shape, true);
}

static void rope_of_odd_width(sketch *s)
{
    tri_rope_config rope = {.theta = 10000};
    tri_rope(&s->graph, "rope", heads(s, TRI_DIM_H, 3, 7), s->bd, &rope);
}

static void attention_of_uneven_groups(sketch *s)
{
    tri_batch_inputs in = {.rows = s->bd, .step = s->bd};
    tri_id kv = heads(s, TRI_DIM_G, 2, 8);
    tri_attention(&s->graph, "attn",
                  (tri_attention_inputs){heads(s, TRI_DIM_H, 3, 8), kv, kv, TRI_NONE},
                  (tri_attention_config){.causal = true}, &in);
}

static void window_that_looks_ahead(sketch *s)
{
    tri_batch_inputs in = {.rows = s->bd, .step = s->bd};
    tri_id x = heads(s, TRI_DIM_H, 3, 8);
    tri_attention(&s->graph, "attn", (tri_attention_inputs){x, x, x, TRI_NONE},
                  (tri_attention_config){.window = 4}, &in);
}

static void span_of_one_number(sketch *s)
{
    tri_id x = heads(s, TRI_DIM_H, 3, 8);
    tri_id span =
        tri_graph_input(&s->graph, "span", TRI_I32,
                        tri_shape_of(2, TRI_DIM_B, (int64_t)2, TRI_DIM_T, (int64_t)5), true);
    tri_id in[] = {x, x, x, s->bd, s->bd, TRI_NONE, span};
    tri_graph_emit(&s->graph, TRI_OP_ATTENTION, "attn", NULL, in, 7, 2);
}

static void merge_of_other_lengths(sketch *s)
{
    tri_id o = heads(s, TRI_DIM_H, 3, 8);
    tri_shape bht =
        tri_shape_of(3, TRI_DIM_B, (int64_t)2, TRI_DIM_H, (int64_t)3, TRI_DIM_T, (int64_t)4);
    tri_id lse = tri_graph_input(&s->graph, "lse", TRI_F32, bht, true);
    tri_graph_emit(&s->graph, TRI_OP_ATTENTION_MERGE, "o", NULL, (tri_id[]){o, lse, o, lse}, 4, 2);
}

static void norm_without_gain(sketch *s)
{
    tri_id stream = s->bd;
    tri_residual_layernorm(&s->graph, "ln", &stream, TRI_NONE, 1e-5f);
}

static void loss_of_other_shape(sketch *s)
{
    tri_output_loss(&s->graph, TRI_LOSS_MSE, s->bd, s->bf);
}

static void loss_of_another_count(sketch *s)
{
    tri_output_loss(&s->graph, TRI_LOSS_MSE, s->bd, s->bd);
    uint8_t sum = tri_graph_stat(&s->graph, TRI_STAT_Z_LOSS);
    tri_graph_add_loss(&s->graph, &(tri_loss){"same", sum, s->graph.losses[0].count, 0.5f});
    assert_int_equal(s->graph.num_losses, 2);
    assert_int_equal(s->graph.status, TR_OK);
    tri_graph_add_loss(&s->graph, &(tri_loss){"other", sum, sum, 0.5f});
}

static void step_of_too_many_numbers(sketch *s)
{
    for (int i = 0; i <= TRI_MAX_STEP_ROWS; i++)
        tri_graph_step_rows(&s->graph, &(tri_step_row){"row", NULL, i}, 1);
}

static void test_mistakes_are_told_clearly(void **state)
{
    (void)state;
    static const struct {
        void (*apply)(sketch *s);
        const char *says;
    } rows[] = {
        {loss_of_another_count, "the loss other is divided by another count than out"},
        {step_of_too_many_numbers, "the rules of this model read more than 16 numbers of a step"},
        {add_of_other_shapes, "sum (add): shapes [B 2, D 4] and [B 2, F 6] differ"},
        {linear_of_other_width,
         "fc (matmul): the contracted dims of [B 2, F 6] and [F 6, D 4] differ"},
        {linear_without_weight, "the model has no parameter h.0.proj.weight"},
        {tied_to_nothing, "the model has no parameter wte.weight"},
        {attention_of_a_matrix, "attn (attention): needs [B, T, qkv 3, H, K], not [B 2, D 4]"},
        {rope_of_odd_width,
         "rope (rope): needs [B, T, H, K] with an even K, not [B 2, T 5, H 3, K 7]"},
        {attention_of_uneven_groups, "with H a multiple of G, not [B 2, T 5, H 3, K 8], [B 2, T 5, "
                                     "G 2, K 8] and [B 2, T 5, G 2, K 8]"},
        {span_of_one_number, "attn (attention): needs a span for each query, [B, T, 2], not [B 2, "
                             "T 5]"},
        {merge_of_other_lengths, "o (attention_merge): needs two results of attention"},
        {window_that_looks_ahead, "attn (attention): a window of 4 needs causal attention"},
        {norm_without_gain, "the model has no parameter ln.weight"},
        {loss_of_other_shape, "out (out_loss): output and target differ in shape"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sketch s;
        tr_error err = {0};
        sketch_init(&s);
        rows[i].apply(&s);
        assert_int_equal(tri_graph_status(&s.graph, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, rows[i].says))
            fail_msg("it should say \"%s\", not \"%s\"", rows[i].says, err.message);
        /* What follows a failure does nothing, and the first one is what is told. */
        size_t before = s.graph.num_nodes;
        assert_int_equal(tri_activation(&s.graph, "act", TRI_ACT_RELU, s.bd), TRI_NONE);
        tri_graph_fail(&s.graph, "another");
        assert_int_equal(s.graph.num_nodes, before);
        assert_int_equal(tri_autodiff(&s.graph, 1, &err), TR_ERROR_INPUT);
        assert_non_null(strstr(err.message, rows[i].says));
        tri_graph_fini(&s.graph);
        tri_param_table_fini(&s.params);
    }
}

static void test_autodiff_needs_a_loss(void **state)
{
    (void)state;
    sketch s;
    tr_error err = {0};
    sketch_init(&s);
    tri_linear(&s.graph, "fc", s.bd);
    assert_int_equal(tri_autodiff(&s.graph, 1, &err), TR_ERROR_INTERNAL);
    assert_non_null(strstr(err.message, "no loss"));
    tri_graph_fini(&s.graph);
    tri_param_table_fini(&s.params);
}

/* --- The cut through the backward ----------------------------------------------------------- */

/* The backward of activations ends at the embeddings of a gpt2 ... */
static void test_chain_of_gpt2_ends_at_the_embeddings(void **state)
{
    (void)state;
    small_graph g;
    small_graph_init(&g, TINY, SET("model.num_layers=2"), UP_TO_FOLD);
    for (size_t i = 0; i < g.graph.num_nodes; i++) {
        const tri_node *node = &g.graph.nodes[i];
        assert_int_equal(node->ends_chain, node->op == TRI_OP_EMBED_GRAD);
        assert_true(!node->ends_chain || node->phase == TRI_PHASE_BACKWARD);
    }
    small_graph_fini(&g);
}

/* ... and at the first product of an mlp, whose input is data. */
static void test_chain_of_mlp_ends_at_the_first_product(void **state)
{
    (void)state;
    small_graph g;
    int ends = 0;
    small_graph_init(&g, NULL, SET("model.kind=mlp", "model.num_layers=3"), UP_TO_FOLD);
    for (size_t i = 0; i < g.graph.num_nodes; i++) {
        if (!g.graph.nodes[i].ends_chain)
            continue;
        assert_int_equal(g.graph.nodes[i].op, TRI_OP_MATMUL);
        assert_string_equal(result_of(&g.graph, &g.graph.nodes[i])->name, "grad.pair.0.fc1.weight");
        ends++;
    }
    assert_int_equal(ends, 1);
    small_graph_fini(&g);
}

static const tri_segment *segment_of(const tri_program *program, tri_action_kind kind)
{
    for (size_t s = 0; s < program->num_segments; s++)
        if (program->segments[s].action == kind)
            return &program->segments[s];
    fail_msg("there is no segment %s", tri_action_name(kind));
    return NULL;
}

static bool writes_gradient(const tri_program *program, const tri_instr *instr)
{
    for (int k = 0; k < instr->num_out; k++) {
        tri_id state = program->values[instr->out[k].value].state;
        if (state != TRI_NONE && program->states[state].kind == TRI_STATE_GRAD)
            return true;
    }
    return false;
}

static void build_split(const small_graph *g, tri_program *program)
{
    static const tri_action split[] = {{.kind = TRI_ACTION_F},
                                       {.kind = TRI_ACTION_I},
                                       {.kind = TRI_ACTION_W},
                                       {.kind = TRI_ACTION_U}};
    tr_error err = {0};
    const tri_build_config wanted = {.schedule = split, .num_actions = 4, .num_microbatches = 1};
    tri_placed_params placed;
    if (tri_placed_params_init(&placed, g->graph.params, &err) != TR_OK ||
        tri_program_build(&g->graph, &placed, &wanted, program, &err) != TR_OK ||
        tri_program_check(program, &err) != TR_OK)
        fail_msg("%s", err.message);
    tri_placed_params_fini(&placed);
}

/* W holds what makes gradients of weights and nothing else; I what carries the chain. */
static void test_w_holds_exactly_the_weight_gradients(void **state)
{
    (void)state;
    enum { L = 3 };
    small_graph g;
    tri_program program;
    int num[TRI_NUM_OPS] = {0};
    small_graph_init(&g, TINY, SET("model.num_layers=3"), UP_TO_FUSE);
    build_split(&g, &program);
    const tri_segment *w = segment_of(&program, TRI_ACTION_W);
    const tri_segment *chain = segment_of(&program, TRI_ACTION_I);
    for (uint32_t i = 0; i < w->count; i++) {
        const tri_instr *instr = &program.instrs[w->first + i];
        num[instr->op]++;
        if (!writes_gradient(&program, instr))
            fail_msg("W holds %s, which makes no gradient of a weight",
                     program.values[instr->out[0].value].name);
    }
    assert_int_equal(num[TRI_OP_MATMUL], 4 * L + 1);
    assert_int_equal(num[TRI_OP_BIAS_GRAD], 4 * L);
    assert_int_equal(num[TRI_OP_LAYERNORM_PARAM_GRAD], 2 * L + 1);
    assert_int_equal(num[TRI_OP_EMBED_GRAD], 2);
    assert_int_equal(w->count, (4 * L + 1) + 4 * L + (2 * L + 1) + 2);
    for (uint32_t i = 0; i < chain->count; i++)
        if (writes_gradient(&program, &program.instrs[chain->first + i]))
            fail_msg("I holds %s",
                     program.values[program.instrs[chain->first + i].out[0].value].name);
    /* head, four products, attention, norms and dropouts of each layer, the embeddings */
    assert_int_equal(chain->count, 2 + L * (4 + 1 + 2 + 2) + 1 + 2);
    tri_program_fini(&program);
    small_graph_fini(&g);
}

/* By reachability, not by kind of operator: without a bias nothing of layer 0's input gradient is
 * wanted, so the product that would make it is not there, and all that is left belongs to W. */
static void test_mlp_is_cut_by_reachability(void **state)
{
    (void)state;
    small_graph g;
    tri_program program;
    small_graph_init(
        &g, NULL, SET("model.kind=mlp", "model.num_layers=2", "model.bias=false", "model.act=none"),
        UP_TO_FUSE);
    build_split(&g, &program);
    assert_int_equal(segment_of(&program, TRI_ACTION_W)->count, 4);
    assert_int_equal(segment_of(&program, TRI_ACTION_I)->count, 1 + 3);
    tri_program_fini(&program);
    small_graph_fini(&g);
}

/* Rules that read the same numbers share the rows; others get rows of their own, one after the
 * other. */
static void test_rules_share_the_rows_of_a_step(void **state)
{
    (void)state;
    sketch s;
    sketch_init(&s);
    const tri_step_row lr = {"lr", NULL, 0}, first[] = {{"b1", NULL, 0.9}, {"b2", NULL, 0.95}};
    const tri_step_row second[] = {{"b1", NULL, 0.9}, {"b2", NULL, 0.999}};
    assert_int_equal(tri_graph_step_rows(&s.graph, &lr, 1), 0);
    tri_id sched = s.graph.sched;
    assert_int_equal(tri_graph_step_rows(&s.graph, first, 2), 1);
    assert_int_equal(tri_graph_step_rows(&s.graph, second, 2), 3);
    assert_int_equal(tri_graph_step_rows(&s.graph, first, 2), 1);
    assert_int_equal(tri_graph_step_rows(&s.graph, &lr, 1), 0);
    assert_int_equal(s.graph.sched, sched);
    assert_int_equal(tri_shape_count(&s.graph.values[sched].shape), 5);
    tri_graph_fini(&s.graph);
    tri_param_table_fini(&s.params);
}

/* Places of tokens are cut and moved like the tokens themselves. */
static void test_whole_numbers_stay_whole_when_moved(void **state)
{
    (void)state;
    static const tri_op ops[] = {TRI_OP_SLICE,      TRI_OP_UNSLICE,    TRI_OP_BLOCK, TRI_OP_UNBLOCK,
                                 TRI_OP_ALL_GATHER, TRI_OP_ALL_TO_ALL, TRI_OP_SHIFT};
    static const tri_dtype dtypes[] = {TRI_I32, TRI_F32, TRI_BF16};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const tri_value x = {.dtype = dtypes[d]}, *in = &x;
            tri_dtype out;
            tri_infer_dtypes(ops[i], &(tri_attr){0}, &in, 1, &out, 1);
            assert_int_equal(out, dtypes[d]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verifier_names_what_is_broken),
        cmocka_unit_test(test_folding_leaves_no_accumulate),
        cmocka_unit_test(test_counts_of_operators),
        cmocka_unit_test(test_fusion_follows_the_device),
        cmocka_unit_test(test_backward_is_joined),
        cmocka_unit_test(test_residual_sums_move_into_products),
        cmocka_unit_test(test_adam_writes_copies),
        cmocka_unit_test(test_mistakes_are_told_clearly),
        cmocka_unit_test(test_autodiff_needs_a_loss),
        cmocka_unit_test(test_chain_of_gpt2_ends_at_the_embeddings),
        cmocka_unit_test(test_chain_of_mlp_ends_at_the_first_product),
        cmocka_unit_test(test_w_holds_exactly_the_weight_gradients),
        cmocka_unit_test(test_parameters_are_found_by_name),
        cmocka_unit_test(test_mlp_is_cut_by_reachability),
        cmocka_unit_test(test_rules_share_the_rows_of_a_step),
        cmocka_unit_test(test_whole_numbers_stay_whole_when_moved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
