#include "compile/compile.h"

#include <stdlib.h>

#include "compile/pipeline.h"
#include "mesh/grid.h"
#include "place/elsewhere/place_activations.h"
#include "place/expand.h"
#include "place/place.h"
#include "program/overlap.h"

int64_t tri_microbatch_rows(const tri_compile_config *config)
{
    int64_t parts = config->num_microbatches * tri_mesh_size(&config->mesh, TRI_AXIS_DP);
    return (config->batch + parts - 1) / parts;
}

/* Names the pass in the verifier's message: only a bug in the pass can get here. */
static tr_status after(const tri_compile_config *config, const char *pass, const tri_graph *graph,
                       tr_error *err)
{
    tr_status status = config->unproven ? TR_OK : tri_graph_verify(graph, err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "after %s", pass);
}

float tri_loss_seed(const tri_compile_config *config)
{
    if (!tri_model_of(&config->model)->sequences)
        return 1;
    int64_t targets = tri_model_row_targets(&config->model, config->seq_len);
    return 1 / ((float)config->batch * (float)targets);
}

/* Programs that write texts have short rows, and treat cp as dp. */
static bool cuts_rows(tri_mode mode)
{
    return mode != TRI_MODE_TRAIN && mode != TRI_MODE_EVAL;
}

/* Only training has something to keep gathered weights for: its backward, and more micro-batches.
 */
static tr_status make_layout(const tri_compile_config *config, const tri_pipeline *pipeline,
                             tri_mode mode, tri_layout *layout, tr_error *err)
{
    const tri_model_config *model = &config->model;
    *layout = (tri_layout){.mesh = config->mesh, .sp = config->sp, .zero = config->zero};
    layout->cp_rows = cuts_rows(mode);
    layout->cp_keys = config->cp_keys;
    layout->whole_experts = config->whole_experts;
    layout->keep_gathered = config->keep_gathered && config->zero >= 3 && mode == TRI_MODE_TRAIN;
    layout->bucket_bytes = config->bucket_bytes;
    layout->whole_tensors = tri_optim_needs_whole(&config->optim);
    layout->stages = pipeline->exists ? &pipeline->stages : NULL;
    for (int axis = 0; axis < TRI_NUM_AXES; axis++)
        layout->coordinate[axis] = tri_mesh_coordinate(&config->mesh, config->rank, (tri_axis)axis);
    TRI_TRY(tri_mesh_grid(&config->mesh, config->rank, &layout->grid, err));
    if (model->num_kv_heads > 0) /* query heads that share a key head: never apart */
        layout->grid.unit[TRI_DIM_H] = model->num_heads / model->num_kv_heads;
    return TR_OK;
}

/* The batch of all ranks that share it out: what the graph of the whole model is about. */
static tri_batch_shape whole_batch(const tri_compile_config *config, tri_mode mode,
                                   const tri_batch_shape *own)
{
    tri_batch_shape batch = *own;
    int parts = tri_mesh_size(&config->mesh, TRI_AXIS_DP);
    if (cuts_rows(mode))
        parts *= tri_mesh_size(&config->mesh, TRI_AXIS_CP);
    batch.rows *= parts;
    batch.cache.rows *= parts;
    return batch;
}

/* Of each node: a backward that is split runs it in W. The caller frees it. */
static bool *runs_later(const tri_compile_config *config, const tri_pipeline *pipeline,
                        const tri_graph *graph)
{
    bool *later = tri_program_on_chain(graph);
    for (size_t n = 0; later && n < graph->num_nodes; n++)
        later[n] = !later[n] && graph->nodes[n].phase == TRI_PHASE_BACKWARD &&
                   tri_pipeline_splits(pipeline, config, tri_node_chunk(graph, &graph->nodes[n]));
    return later;
}

/* What a chunk whose backward is split needs in W is apart from what it needs in I. */
static tr_status recompute(const tri_compile_config *config, const tri_pipeline *pipeline,
                           tri_graph *graph, tr_error *err)
{
    bool *later = runs_later(config, pipeline, graph);
    if (!later)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for recomputation");
    tr_status status = tri_recompute(graph, &config->recompute, later, err);
    free(later);
    return status == TR_OK ? after(config, "recomputation", graph, err) : status;
}

static tr_status order_messages(const tri_compile_config *config, const tri_pipeline *pipeline,
                                const tri_zero_plan *zero, tri_graph *graph, tr_error *err)
{
    bool *later = runs_later(config, pipeline, graph);
    if (!later)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to order the messages");
    tr_status status = tri_place_exchanges(graph, later, err);
    free(later);
    if (status == TR_OK)
        status = after(config, "ordering the exchanges of experts", graph, err);
    if (status == TR_OK)
        status = tri_place_order(graph, zero, config->prefetch, err);
    return status == TR_OK ? after(config, "ordering the messages", graph, err) : status;
}

/* States, and activations between forward and backward, that rest elsewhere than on the device. */
static tr_status place_elsewhere(const tri_compile_config *config, tri_mode mode, tri_graph *graph,
                                 tr_error *err)
{
    const tri_spaces_config *spaces = &config->spaces;
    if (spaces->moments != TRI_WHERE_DEVICE || spaces->masters != TRI_WHERE_DEVICE ||
        spaces->update_on_host) {
        TRI_TRY(tri_place_spaces(graph, spaces, err));
        TRI_TRY(after(config, "placing states elsewhere", graph, err));
    }
    if (spaces->activations == TRI_WHERE_DEVICE || mode != TRI_MODE_TRAIN)
        return TR_OK;
    TRI_TRY(tri_place_activations(graph, spaces->activations, err));
    return after(config, "placing activations elsewhere", graph, err);
}

/* Ranks of cp have as many tiles each, of tokens that may differ by one: with a token a tile, one
 * of them would be empty. */
static int64_t loss_tile(const tri_compile_config *config)
{
    bool uneven = config->seq_len % tri_mesh_size(&config->mesh, TRI_AXIS_CP) != 0;
    return config->loss_tile == 1 && uneven ? 2 : config->loss_tile;
}

/* From the graph of the whole model to that of one rank. */
static tr_status divide(const tri_compile_config *config, tri_mode mode,
                        const tri_pipeline *pipeline, tri_graph *graph, tri_placed_params *placed,
                        tr_error *err)
{
    tri_layout layout;
    TRI_TRY(make_layout(config, pipeline, mode, &layout, err));
    TRI_TRY(tri_place(graph, &layout, placed, err));
    TRI_TRY(after(config, "placement", graph, err));
    if (pipeline->exists) {
        TRI_TRY(
            tri_stages_cut(graph, &pipeline->stages, &placed->homes, mode == TRI_MODE_TRAIN, err));
        TRI_TRY(after(config, "cutting the stages", graph, err));
    }
    /* Only a step of training can be done again when rows were left behind. */
    const tri_expand_config expand = {.loss_tile = loss_tile(config),
                                      .ep_room = mode == TRI_MODE_TRAIN ? config->ep_room : 0};
    TRI_TRY(tri_expand(graph, &expand, err));
    return after(config, "expanding operators", graph, err);
}

static tr_status passes(const tri_compile_config *config, tri_mode mode,
                        const tri_batch_shape *batch, tri_pipeline *pipeline, tri_graph *graph,
                        tri_placed_params *placed, tr_error *err)
{
    tri_batch_shape whole = whole_batch(config, mode, batch);
    TRI_TRY(tri_model_emit(&config->model, mode, &whole, graph, err));
    TRI_TRY(after(config, "the model", graph, err));
    if (pipeline->exists) {
        TRI_TRY(tri_pipeline_divide(pipeline, config, graph->params, err));
        TRI_TRY(tri_stages_open(graph, &pipeline->stages, err));
        TRI_TRY(after(config, "opening the stages", graph, err));
    }
    if (mode == TRI_MODE_TRAIN) {
        graph->asynchronous = pipeline->num_updates > 0;
        float seed = tri_loss_seed(config);
        TRI_TRY(tri_autodiff(graph, seed * tri_pipeline_seed(pipeline, config), err));
        graph->loss_seed = seed;
        TRI_TRY(after(config, "autodiff", graph, err));
        TRI_TRY(tri_optim_emit(graph, &config->optim, err));
        TRI_TRY(after(config, "the update rule", graph, err));
    } else if (mode == TRI_MODE_EVAL) {
        for (size_t i = 0; i < graph->num_stats; i++)
            tri_mark_output(graph, graph->states[graph->stats[i].state].latest);
    }
    if (pipeline->exists) {
        TRI_TRY(tri_stages_settle(graph, &pipeline->stages, placed, err));
        TRI_TRY(tri_pipeline_check_homes(pipeline, graph->params, &placed->homes, err));
    }
    TRI_TRY(divide(config, mode, pipeline, graph, placed, err));
    TRI_TRY(tri_fold_accumulate(graph, err));
    TRI_TRY(after(config, "folding accumulation", graph, err));
    tri_fusions can = config->fusions;
    if (config->precision.linear8 && can.amax) /* apart, GELU finds the largest of what it makes */
        can.bias_gelu = can.gelu_grad = false;
    TRI_TRY(tri_fuse_epilogues(graph, &can, err));
    TRI_TRY(after(config, "fusing epilogues", graph, err));
    if (config->precision.linear8) /* 8-bit products end with nothing else */
        can.expert_act = can.expert_grads = false;
    if (config->recompute.kind != TRI_RECOMPUTE_NONE)
        can.expert_act = false; /* made again from gate and up */
    TRI_TRY(tri_fuse_experts(graph, &can, err));
    TRI_TRY(after(config, "fusing experts", graph, err));
    if (config->precision.linear8 || config->recompute.kind != TRI_RECOMPUTE_NONE)
        can.residual = false; /* 8-bit products, and layers that are made again from their sums */
    TRI_TRY(tri_fuse_residual(graph, &can, err));
    TRI_TRY(after(config, "fusing residual sums", graph, err));
    if (config->split_backward || pipeline->exists) /* I makes no gradients of parameters */
        can.norm_grads = can.cross_entropy = false;
    TRI_TRY(tri_fuse_backward(graph, &can, err));
    TRI_TRY(after(config, "fusing the backward", graph, err));
    if (mode == TRI_MODE_TRAIN && config->precision.linear8) {
        TRI_TRY(tri_quantise_products(graph, &can, err));
        TRI_TRY(after(config, "quantising products", graph, err));
    }
    if (mode == TRI_MODE_TRAIN)
        TRI_TRY(recompute(config, pipeline, graph, err));
    if (config->overlap)
        TRI_TRY(order_messages(config, pipeline, &placed->zero, graph, err));
    return place_elsewhere(config, mode, graph, err);
}

/* Sizes that settings allow one by one may together be more than addresses can tell apart. What the
 * memory plan adds up is at most this: every value apart, in a frame for each micro-batch. */
static tr_status check_size(const tri_compile_config *config, const tri_pipeline *pipeline,
                            const tri_graph *graph, tr_error *err)
{
    double bytes = 0, most = 0x1p62;
    for (size_t v = 0; v < graph->num_values; v++) {
        double size = (double)tri_dtype_bytes(graph->values[v].dtype);
        for (int d = 0; d < graph->values[v].shape.rank; d++)
            size *= (double)graph->values[v].shape.dim[d].size;
        bytes += size;
    }
    if (pipeline->exists)
        bytes *= (double)config->num_microbatches;
    if (bytes <= most)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "the values of a step would take up to %.3g bytes, which no memory plan can "
                    "hold; lower train.batch (%lld), data.seq_len (%lld) or the model's size",
                    bytes, (long long)config->batch, (long long)config->seq_len);
}

static tr_status build(const tri_compile_config *config, tri_mode mode, const tri_graph *graph,
                       const tri_placed_params *placed, const tri_pipeline *pipeline,
                       tri_program *program, tr_error *err)
{
    uint32_t num = mode == TRI_MODE_TRAIN ? (uint32_t)config->num_microbatches : 1;
    tri_memory_needs needs = config->memory;
    needs.keep_pieces = config->extends;
    const tri_build_config wanted = {.schedule = pipeline->actions.actions,
                                     .num_actions = pipeline->actions.count,
                                     .num_microbatches = num,
                                     .delayed = pipeline->schedule.delayed,
                                     .needs = &needs};
    TRI_TRY(tri_program_build(graph, placed, &wanted, program, err));
    bool files_only = config->lanes && config->spaces.beside;
    if (config->extends || (!files_only && (!config->overlap || config->lanes)))
        return TR_OK;
    const tri_overlap how = {.min_bytes = config->overlap_min_bytes,
                             .files_only = files_only,
                             .in_place = config->in_place};
    tr_status status = tri_plan_overlap(program, &how, err);
    if (status != TR_OK)
        tri_program_fini(program);
    return status;
}

tr_status tri_compile(const tri_compile_config *config, const tri_param_table *params,
                      tri_mode mode, const tri_batch_shape *batch, tri_program *program,
                      tri_text *graph_text, tr_error *err)
{
    tri_graph graph;
    tri_placed_params placed;
    tri_pipeline pipeline = {0};
    TRI_TRY(tri_graph_init(&graph, params, err));
    graph.precision = config->precision;
    graph.head = config->head;
    graph.experts_apart = tri_mesh_size(&config->mesh, TRI_AXIS_EP) > 1;
    tr_status status = tri_placed_params_init(&placed, params, err);
    if (status == TR_OK)
        status = tri_pipeline_init(&pipeline, config, err);
    placed.masters = config->spaces.masters;
    if (status == TR_OK)
        status = passes(config, mode, batch, &pipeline, &graph, &placed, err);
    if (status == TR_OK && graph_text)
        tri_graph_print(&graph, graph_text);
    if (status == TR_OK)
        status = check_size(config, &pipeline, &graph, err);
    if (status == TR_OK)
        status = tri_pipeline_actions(&pipeline, config, mode, &graph, err);
    if (status == TR_OK)
        status = build(config, mode, &graph, &placed, &pipeline, program, err);
    tri_pipeline_fini(&pipeline);
    tri_graph_fini(&graph);
    tri_placed_params_fini(&placed);
    if (status == TR_OK && !config->unproven) {
        status = tri_program_check(program, err);
        if (status != TR_OK) {
            tri_program_fini(program);
            status = tri_fail_prefix(err, TR_ERROR_INTERNAL, "the compiled program is wrong");
        }
    }
    return status;
}
