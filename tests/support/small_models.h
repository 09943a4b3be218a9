/* Settings, graphs and programs of small models, for tests of what lies between a model and its
 * step program. Everything here fails the running cmocka test when it cannot. */
#ifndef TRI_TESTS_SMALL_MODELS_H
#define TRI_TESTS_SMALL_MODELS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "api/api.h"

/* One assignment "section.key=value" per word of a list that ends in NULL. */
static inline tr_settings *settings_of(const char *recipe, const char *const *assignments)
{
    tr_settings *settings;
    tr_error err = {0};
    tr_status status = tr_settings_create(&settings, &err);
    if (status == TR_OK && recipe)
        status = tr_settings_load(settings, recipe, &err);
    for (; status == TR_OK && *assignments; assignments++)
        status = tr_settings_set(settings, *assignments, &err);
    if (status != TR_OK)
        fail_msg("%s", err.message);
    return settings;
}

#define SET(...)                                                                                   \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, "run.threads=1", NULL                                                         \
    }
#define TINY "recipes/tiny.yaml"

/* A session up to its memory plan; nothing large is allocated. */
static inline tr_session *compiled(tr_settings *settings)
{
    tr_session *session;
    tr_error err = {0};
    if (tri_api_compile(settings, 0, &session, &err) != TR_OK)
        fail_msg("%s", err.message);
    return session;
}

/* The graph of a training step, and the table it stands on. */
typedef struct small_graph {
    tri_param_table params;
    tri_graph graph;
    tri_session_config config;
    tr_settings *settings;
} small_graph;

/* How far the passes of src/compile are taken. */
typedef enum how_far { UP_TO_MODEL, UP_TO_AUTODIFF, UP_TO_UPDATE, UP_TO_FOLD, UP_TO_FUSE } how_far;

static inline tr_status small_passes(small_graph *g, how_far end, tr_error *err)
{
    const tri_compile_config *config = &g->config.compile;
    tri_batch_shape batch = {.rows = tri_microbatch_rows(config), .seq_len = config->seq_len};
    tri_fusions all = {.bias = true, .bias_gelu = true, .gelu_grad = true};
    TRI_TRY(tri_model_params(&config->model, &batch, &g->params, err));
    TRI_TRY(tri_graph_init(&g->graph, &g->params, err));
    g->graph.precision = g->config.compile.precision;
    TRI_TRY(tri_model_emit(&config->model, TRI_MODE_TRAIN, &batch, &g->graph, err));
    if (end >= UP_TO_AUTODIFF)
        TRI_TRY(tri_autodiff(&g->graph, tri_loss_seed(config), err));
    if (end >= UP_TO_UPDATE)
        TRI_TRY(tri_optim_emit(&g->graph, &config->optim, err));
    if (end >= UP_TO_FOLD)
        TRI_TRY(tri_fold_accumulate(&g->graph, err));
    if (end >= UP_TO_FUSE)
        TRI_TRY(tri_fuse_epilogues(&g->graph, &all, err));
    return tri_graph_verify(&g->graph, err);
}

static inline void small_graph_init(small_graph *g, const char *recipe,
                                    const char *const *assignments, how_far end)
{
    tr_error err = {0};
    *g = (small_graph){.settings = settings_of(recipe, assignments)};
    tri_param_table_init(&g->params);
    tr_status status = tri_settings_complete(g->settings, &err);
    if (status == TR_OK)
        status = tri_session_config_from(g->settings, &g->config, &err);
    if (status == TR_OK)
        status = small_passes(g, end, &err);
    if (status != TR_OK)
        fail_msg("%s", err.message);
}

static inline void small_graph_fini(small_graph *g)
{
    tri_graph_fini(&g->graph);
    tri_param_table_fini(&g->params);
    tr_settings_destroy(g->settings);
}

#endif
