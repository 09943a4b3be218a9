#include "model/model.h"

#include <string.h>

static const tri_model_def *const models[] = {&tri_model_gpt2, &tri_model_llama, &tri_model_mlp};

const tri_model_def *tri_model_find(const char *kind)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i]->kind, kind) == 0)
            return models[i];
    return NULL;
}

tr_status tri_model_params(const tri_model_config *config, const tri_batch_shape *batch,
                           tri_param_table *table, tr_error *err)
{
    const tri_model_def *def = tri_model_find(config->kind);
    if (!def)
        return tri_fail(err, TR_ERROR_INPUT, "model.kind is \"%s\"; known kinds: gpt2, llama, mlp",
                        config->kind);
    TRI_TRY(def->check(config, batch, err));
    def->params(config, table);
    if (table->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the table of parameters");
    return TR_OK;
}

tr_status tri_model_emit(const tri_model_config *config, tri_mode mode,
                         const tri_batch_shape *batch, tri_graph *graph, tr_error *err)
{
    graph->num_layers = (int)config->num_layers;
    tri_model_find(config->kind)->emit(config, mode, batch, graph);
    return tri_graph_status(graph, err);
}
