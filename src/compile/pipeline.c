#include "compile/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* A chunk whose backward is cut in two somewhere is cut everywhere, so that it has one set of
 * segments: B becomes I and W. */
static tr_status split_backwards(tri_schedule *s, bool pairs, tr_error *err)
{
    bool *split = calloc(s->num_chunks, sizeof *split);
    tri_action_list *lists = calloc(s->num_ranks, sizeof *lists), *old = s->ranks;
    if (!split || !lists) {
        free(split);
        free(lists);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    }
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < old[r].count; i++)
            split[old[r].actions[i].chunk] |= old[r].actions[i].kind == TRI_ACTION_I;
    s->ranks = lists;
    tr_status status = TR_OK;
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < old[r].count && status == TR_OK; i++) {
            tri_action a = old[r].actions[i];
            a.overlap = a.overlap && pairs; /* without: F and B run one after the other */
            if (a.kind != TRI_ACTION_B || !split[a.chunk]) {
                status = tri_schedule_add(s, r, a, err);
                continue;
            }
            a.kind = TRI_ACTION_I;
            a.overlap = pairs && i > 0 && old[r].actions[i - 1].overlap;
            status = tri_schedule_add(s, r, a, err);
            a.kind = TRI_ACTION_W;
            a.overlap = false;
            if (status == TR_OK)
                status = tri_schedule_add(s, r, a, err);
        }
    for (uint32_t r = 0; r < s->num_ranks; r++)
        free(old[r].actions);
    free(old);
    free(split);
    return status;
}

/* Stages that update by themselves know nothing of each other's gradients. */
static tr_status check_asynchronous(const tri_compile_config *config, const char *order,
                                    tr_error *err)
{
    if (config->optim.clip > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.schedule is %s, whose stages update by themselves, so there is no "
                        "norm of all gradients to clip; set train.clip=0",
                        order);
    if (config->optim.limits_loss)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.schedule is %s, whose stages update by themselves, so they cannot "
                        "skip a step together; set train.on_spike=warn, or train.spike_limit=0",
                        order);
    if (config->precision.compute == TRI_F16)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.schedule is %s, whose stages update by themselves, so they cannot "
                        "skip a step together as a loss scale asks for; set precision.kind=bf16",
                        order);
    if (tri_mesh_size(&config->mesh, TRI_AXIS_EP) > 1 || config->model.moe.bias_rate > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.schedule is %s, whose stages update by themselves, so they cannot "
                        "repeat a step together, nor know the loads of experts in it; set "
                        "layout.ep=1 and model.router_bias=0, or a schedule with one update a "
                        "step, such as 1f1b",
                        order);
    if (config->keep_gathered)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.keep_gathered keeps the weights that a step begins with, but "
                        "layout.schedule is %s, which updates them while a step is under way; set "
                        "layout.keep_gathered=false, or a schedule with one update a step, such as "
                        "1f1b",
                        order);
    if (config->num_microbatches > config->batch)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.schedule is %s, which updates while a step is under way, but "
                        "train.batch has only %lld rows for layout.microbatches = %lld: some "
                        "updates would be made of nothing; use a train.batch of at least %lld",
                        order, (long long)config->batch, (long long)config->num_microbatches,
                        (long long)config->num_microbatches);
    return TR_OK;
}

static tr_status check_pairs(const tri_schedule *s, const char *order, tr_error *err)
{
    bool has = false;
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++)
            has |= s->ranks[r].actions[i].overlap;
    if (has)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.pairs is true, but layout.schedule is %s, which pairs no forward with "
                    "a backward; set layout.schedule=dualpipev or dualpipe, or layout.pairs=false",
                    order);
}

static tr_status build_schedule(tri_pipeline *pipeline, const tri_compile_config *config,
                                tr_error *err)
{
    tri_schedule *s = &pipeline->schedule;
    int pp = tri_mesh_size(&config->mesh, TRI_AXIS_PP);
    tri_schedule_config wanted = {
        .order = config->schedule && config->schedule[0] ? config->schedule : "1f1b",
        .num_ranks = (uint32_t)pp,
        .num_microbatches = (uint32_t)config->num_microbatches,
        .chunks_per_rank = (uint32_t)config->chunks};
    tr_status status = tri_schedule_build(&wanted, s, err);
    if (status != TR_OK)
        return tri_fail_prefix(err, status, "layout.schedule");
    if (s->num_chunks < 2) /* a file: what its ranks do is data parallelism */
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.schedule is %s, which has one chunk for all %d ranks; cut the "
                        "layers into two chunks or more, or use layout.dp",
                        wanted.order, pp);
    if (config->pairs)
        TRI_TRY(check_pairs(s, wanted.order, err));
    if (s->update_every > 0)
        TRI_TRY(check_asynchronous(config, wanted.order, err));
    TRI_TRY(tri_schedule_check(s, err));
    if (!s->has_messages) {
        if (!config->split_backward)
            tri_schedule_join_backward(s);
        TRI_TRY(split_backwards(s, config->pairs, err));
        TRI_TRY(tri_schedule_lower(s, err));
    }
    return tri_schedule_check(s, err);
}

static void count_updates(tri_pipeline *pipeline)
{
    const tri_schedule *s = &pipeline->schedule;
    if (s->update_every > 0)
        pipeline->num_updates = (s->num_microbatches + s->update_every - 1) / s->update_every;
}

static tr_status find_splits(tri_pipeline *pipeline, tr_error *err)
{
    const tri_schedule *s = &pipeline->schedule;
    pipeline->splits = calloc(s->num_chunks, sizeof *pipeline->splits);
    if (!pipeline->splits)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    for (uint32_t r = 0; r < s->num_ranks; r++)
        for (size_t i = 0; i < s->ranks[r].count; i++)
            if (s->ranks[r].actions[i].kind == TRI_ACTION_I)
                pipeline->splits[s->ranks[r].actions[i].chunk] = true;
    return TR_OK;
}

tr_status tri_pipeline_init(tri_pipeline *pipeline, const tri_compile_config *config, tr_error *err)
{
    *pipeline = (tri_pipeline){0};
    int pp = tri_mesh_size(&config->mesh, TRI_AXIS_PP);
    if (pp == 1)
        return TR_OK;
    pipeline->borrowed = config->made_schedule != NULL;
    if (pipeline->borrowed)
        pipeline->schedule = *config->made_schedule;
    else
        TRI_TRY(build_schedule(pipeline, config, err));
    pipeline->exists = true;
    count_updates(pipeline);
    TRI_TRY(find_splits(pipeline, err));
    int routes = 1; /* that a micro-batch takes: with a single one, the second stays unused */
    for (uint32_t m = 0; m < pipeline->schedule.num_microbatches; m++)
        if (pipeline->schedule.route[m] >= routes)
            routes = pipeline->schedule.route[m] + 1;
    pipeline->stages =
        (tri_stages){.num_ranks = pp,
                     .rank = tri_mesh_coordinate(&config->mesh, config->rank, TRI_AXIS_PP),
                     .num_chunks = (int)pipeline->schedule.num_chunks,
                     .num_routes = routes,
                     .home = pipeline->schedule.home};
    return TR_OK;
}

tr_status tri_pipeline_check_homes(const tri_pipeline *pipeline, const tri_param_table *params,
                                   const tri_homes *homes, tr_error *err)
{
    for (size_t i = 0; i < params->count && pipeline->num_updates > 0; i++) {
        uint32_t ranks[TRI_MAX_HOMES];
        if (tri_home_set_ranks(&pipeline->stages, homes->set[i], ranks) > 1)
            return tri_fail(err, TR_ERROR_INPUT,
                            "layout.schedule is %s, whose stages update by themselves, but stages "
                            "%d and %d share %s and would drift apart; use a model whose head has "
                            "a matrix of its own (llama with model.tied_head=false), or a schedule "
                            "with one update a step, such as 1f1b",
                            pipeline->schedule.order ? pipeline->schedule.order->name : "a file",
                            ranks[0], ranks[1], params->items[i].name);
    }
    return TR_OK;
}

float tri_pipeline_seed(const tri_pipeline *pipeline, const tri_compile_config *config)
{
    bool mean = tri_model_of(&config->model)->sequences;
    return pipeline->num_updates > 0 && mean ? (float)pipeline->num_updates : 1;
}

/* The forward of training, whatever the program: it decides where the layers lie. */
static tr_status emit_training(const tri_compile_config *config, const tri_param_table *params,
                               tri_graph *graph, tr_error *err)
{
    tri_batch_shape batch = {.rows = tri_microbatch_rows(config),
                             .seq_len = config->seq_len,
                             .mask_documents = config->mask_documents};
    TRI_TRY(tri_graph_init(graph, params, err));
    graph->precision = config->precision;
    tr_status status = tri_model_emit(&config->model, TRI_MODE_TRAIN, &batch, graph, err);
    if (status != TR_OK)
        tri_graph_fini(graph);
    return status;
}

/* What the stages share is known when the model has been emitted: that costs a moment, and only the
 * schedules that mind are asked. */
static tr_status check_shared(tri_pipeline *pipeline, const tri_compile_config *config,
                              tr_error *err)
{
    tri_batch_shape batch = {.rows = tri_microbatch_rows(config), .seq_len = config->seq_len};
    tri_param_table params;
    tri_graph graph;
    tri_placed_params placed = {0};
    tri_param_table_init(&params);
    tr_status status = tri_model_params(&config->model, &batch, &params, err);
    if (status == TR_OK)
        status = emit_training(config, &params, &graph, err);
    if (status == TR_OK) {
        status = tri_placed_params_init(&placed, &params, err);
        if (status == TR_OK)
            status = tri_stages_settle(&graph, &pipeline->stages, &placed, err);
        if (status == TR_OK)
            status = tri_pipeline_check_homes(pipeline, &params, &placed.homes, err);
        tri_placed_params_fini(&placed);
        tri_graph_fini(&graph);
    }
    tri_param_table_fini(&params);
    return status;
}

tr_status tri_pipeline_check(const tri_compile_config *config, tr_error *err)
{
    tri_pipeline pipeline;
    /* A misspelt order is told without a pipeline too: with one, the run would be refused. */
    if (config->schedule && config->schedule[0] && tri_order_known(config->schedule, err) != TR_OK)
        return tri_fail_prefix(err, TR_ERROR_INPUT, "layout.schedule");
    tr_status status = tri_pipeline_init(&pipeline, config, err);
    size_t units = (size_t)config->model.num_layers + 2;
    double *cost = calloc(units, sizeof *cost);
    pipeline.stages.num_layers = (int)config->model.num_layers;
    pipeline.stages.chunk_of = calloc(units, sizeof *pipeline.stages.chunk_of);
    if (status == TR_OK && pipeline.exists)
        status = cost && pipeline.stages.chunk_of
                     ? tri_stages_divide(&pipeline.stages, cost, config->stages, err)
                     : tri_fail(err, TR_ERROR_RUNTIME, "no memory to divide the layers");
    if (status == TR_OK && pipeline.num_updates > 0)
        status = check_shared(&pipeline, config, err);
    free(cost);
    tri_pipeline_fini(&pipeline);
    return status;
}

static tr_status take_chunks(tri_stages *stages, const tri_compile_config *config, tr_error *err)
{
    size_t units = (size_t)config->model.num_layers + 2;
    stages->num_layers = (int)config->model.num_layers;
    stages->chunk_of = calloc(units, sizeof *stages->chunk_of);
    if (!stages->chunk_of)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to divide the layers");
    memcpy(stages->chunk_of, config->made_chunks, units * sizeof *stages->chunk_of);
    return TR_OK;
}

/* All programs of a run share the parameters, so they have to divide the layers alike. An
 * evaluation costs other than a training step (it has no dropout, say), and by its own costs it
 * would put layers on ranks that do not train them. */
tr_status tri_pipeline_divide(tri_pipeline *pipeline, const tri_compile_config *config,
                              const tri_param_table *params, tr_error *err)
{
    tri_stages *stages = &pipeline->stages;
    tri_graph graph;
    if (config->made_chunks)
        return take_chunks(stages, config, err);
    TRI_TRY(emit_training(config, params, &graph, err));
    size_t units = (size_t)graph.num_layers + 2;
    pipeline->layer_costs = calloc(units, sizeof *pipeline->layer_costs);
    stages->num_layers = graph.num_layers;
    stages->chunk_of = calloc(units, sizeof *stages->chunk_of);
    tr_status status = pipeline->layer_costs && stages->chunk_of
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to divide the layers");
    if (status == TR_OK) {
        tri_stages_costs(&graph, pipeline->layer_costs);
        status = tri_stages_divide(stages, pipeline->layer_costs, config->stages, err);
    }
    tri_graph_fini(&graph);
    return status;
}

static tr_status append(tri_pipeline *pipeline, tri_action action, tr_error *err)
{
    tri_action_list *list = &pipeline->actions;
    tri_action *grown =
        tri_array_grow(list->actions, list->count, &list->capacity, sizeof *list->actions);
    if (!grown)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the schedule");
    list->actions = grown;
    list->actions[list->count++] = action;
    return TR_OK;
}

static tr_status add(tri_pipeline *pipeline, tri_action_kind kind, uint32_t chunk,
                     uint32_t microbatch, tr_error *err)
{
    return append(pipeline, (tri_action){.kind = kind, .chunk = chunk, .microbatch = microbatch},
                  err);
}

/* Without a pipeline: forward and backward of each micro-batch in turn. */
bool tri_pipeline_splits(const tri_pipeline *pipeline, const tri_compile_config *config, int chunk)
{
    return pipeline->exists ? pipeline->splits[chunk] : config->split_backward;
}

static tr_status plain_actions(tri_pipeline *pipeline, tri_mode mode, uint32_t num, bool split,
                               tr_error *err)
{
    for (uint32_t m = 0; m < num; m++) {
        TRI_TRY(add(pipeline, TRI_ACTION_F, 0, m, err));
        if (mode != TRI_MODE_TRAIN)
            continue;
        TRI_TRY(add(pipeline, split ? TRI_ACTION_I : TRI_ACTION_B, 0, m, err));
        if (split)
            TRI_TRY(add(pipeline, TRI_ACTION_W, 0, m, err));
    }
    return TR_OK;
}

/* Without a backward: a micro-batch goes through the chunks of the first route. */
static tr_status forward_actions(tri_pipeline *pipeline, tr_error *err)
{
    const tri_stages *s = &pipeline->stages;
    for (uint32_t c = 0; c < (uint32_t)s->num_chunks; c++) {
        if ((int)s->home[c] != s->rank)
            continue;
        if (c > 0 && (int)s->home[c - 1] != s->rank)
            TRI_TRY(add(pipeline, TRI_ACTION_RECV_F, c, 0, err));
        TRI_TRY(add(pipeline, TRI_ACTION_F, c, 0, err));
        if (c + 1 < (uint32_t)s->num_chunks && (int)s->home[c + 1] != s->rank)
            TRI_TRY(add(pipeline, TRI_ACTION_SEND_F, c, 0, err));
    }
    return TR_OK;
}

tr_status tri_pipeline_actions(tri_pipeline *pipeline, const tri_compile_config *config,
                               tri_mode mode, const tri_graph *graph, tr_error *err)
{
    bool trains = mode == TRI_MODE_TRAIN, updates = trains;
    if (!pipeline->exists) {
        uint32_t num = trains ? (uint32_t)config->num_microbatches : 1;
        TRI_TRY(plain_actions(pipeline, mode, num, config->split_backward, err));
    } else if (!trains) {
        TRI_TRY(forward_actions(pipeline, err));
    } else {
        const tri_action_list *own = &pipeline->schedule.ranks[pipeline->stages.rank];
        for (size_t i = 0; i < own->count; i++) {
            tri_action a = own->actions[i];
            a.chunk = a.kind == TRI_ACTION_U ? 0 : a.chunk;
            a.overlap = a.overlap && config->pairs;
            TRI_TRY(append(pipeline, a, err));
        }
    }
    for (size_t n = 0; n < graph->num_nodes; n++)
        updates |= graph->nodes[n].phase == TRI_PHASE_UPDATE;
    uint32_t part = trains && graph->asynchronous ? TRI_UPDATE_END : TRI_UPDATE_ALL;
    return updates ? add(pipeline, TRI_ACTION_U, part, 0, err) : TR_OK;
}

void tri_pipeline_fini(tri_pipeline *pipeline)
{
    if (!pipeline->borrowed)
        tri_schedule_fini(&pipeline->schedule);
    free(pipeline->layer_costs);
    free(pipeline->splits);
    free(pipeline->stages.chunk_of);
    free(pipeline->actions.actions);
    *pipeline = (tri_pipeline){0};
}
