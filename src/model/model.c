#include "model/model.h"

#include <stdio.h>
#include <string.h>

static const tri_model_def *const models[] = {&tri_model_mlp, &tri_model_gpt2, &tri_model_llama,
                                              &tri_model_bert};
const tri_setting tri_model_kind_row =
    TRI_CHOICE_ROW("model.kind", "gpt2", "mlp, gpt2, llama, bert", "Architecture",
                   "type arch architecture model_type");

const tri_model_def *tri_model_at(size_t i)
{
    return i < sizeof models / sizeof *models ? models[i] : NULL;
}

const tri_model_def *tri_model_find(const char *kind)
{
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i]->kind, kind) == 0)
            return models[i];
    return NULL;
}

const tri_model_def *tri_model_of(const tri_model_config *config)
{
    return config->def ? config->def : tri_model_find(config->kind);
}

static tr_status check_task(const tri_model_def *def, tri_task task, tr_error *err)
{
    static const char *const names[] = {"lm", "mlm", "classify"};
    if (def->tasks & 1u << task)
        return TR_OK;
    char can[64] = "";
    for (int t = 0; t < 3; t++)
        if (def->tasks & 1u << t)
            snprintf(can + strlen(can), sizeof can - strlen(can), "%s%s", can[0] ? " or " : "",
                     names[t]);
    return tri_fail(err, TR_ERROR_INPUT, "model.task is %s, but a model of kind %s is for %s%s",
                    names[task], def->kind, can,
                    task == TRI_TASK_LM ? "" : "; model.kind=bert has the others");
}

int64_t tri_model_row_targets(const tri_model_config *config, int64_t seq_len)
{
    return config->task == TRI_TASK_CLASSIFY ? 1 : seq_len;
}

bool tri_model_generates(const tri_model_config *config)
{
    return tri_model_of(config)->generates && config->task == TRI_TASK_LM;
}

/* Heads are divided by groups that share a key head, so a number that only another kind has would
 * give ranks none. 0: nobody has decided. */
static tr_status check_key_heads(const tri_model_def *def, const tri_model_config *m, tr_error *err)
{
    if (def->key_heads || m->num_kv_heads == 0 || m->num_kv_heads == m->num_heads)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "model.num_kv_heads is %lld, but model.kind=%s has no key heads; leave it "
                    "out, or use model.kind=llama",
                    (long long)m->num_kv_heads, def->kind);
}

tr_status tri_model_params(const tri_model_config *config, const tri_batch_shape *batch,
                           tri_param_table *table, tr_error *err)
{
    const tri_model_def *def = tri_model_of(config);
    if (!def)
        return tri_fail(err, TR_ERROR_INPUT, "model.kind is \"%s\"; known kinds: %s", config->kind,
                        tri_model_kind_row.choices);
    TRI_TRY(check_task(def, config->task, err));
    TRI_TRY(check_key_heads(def, config, err));
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
    if (mode == TRI_MODE_PREFILL || mode == TRI_MODE_DECODE)
        graph->cache = batch->cache;
    const tri_model_def *def = tri_model_of(config);
    tri_batch_shape shape = *batch;
    shape.mask_documents |= def->documents;
    def->emit(config, mode, &shape, graph);
    return tri_graph_status(graph, err);
}
