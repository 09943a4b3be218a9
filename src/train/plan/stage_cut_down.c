#include "train/plan/stage_cut_down.h"

#include <math.h>
#include <stdlib.h>

/* Layers that are left of a chunk at least, of which the one between the first and the last is seen
 * to repeat when there is another; and those that are worth taking out. */
enum { LEAST_LAYERS = 3, LEAST_STEPS = 5 };

/* The first layer takes no sum from a layer before it, so it may cost less. */
static bool cost_alike(const tri_pipeline *pipeline)
{
    const double *cost = pipeline->layer_costs + 1;
    for (int l = 2; pipeline->exists && l < pipeline->stages.num_layers; l++)
        if (cost[l] != cost[1])
            return false;
    return true;
}

/* Layers of models of the tree are alike but for experts, which may be in some of them. */
static bool may_cut(const tri_pipeline *pipeline, const tri_compile_config *config)
{
    return pipeline->stages.num_routes <= 1 && pipeline->num_updates == 0 &&
           tri_model_of(&config->model) == tri_model_find(config->model.kind) &&
           config->model.moe.num_experts == 0 && config->recompute.kind != TRI_RECOMPUTE_BUDGET &&
           cost_alike(pipeline);
}

/* Layers from one that recomputes to the next: what is taken out must be a multiple of them. */
static int every_of(const tri_compile_config *config)
{
    int64_t every = config->recompute.kind == TRI_RECOMPUTE_EVERY ? config->recompute.every : 1;
    return (int)(every < config->model.num_layers ? every : config->model.num_layers);
}

static bool is_own(const tri_pipeline *pipeline, uint32_t stage, int chunk)
{
    return !pipeline->exists || pipeline->schedule.home[chunk] == stage;
}

static int chunk_of(const tri_pipeline *pipeline, int layer)
{
    return pipeline->exists ? pipeline->stages.chunk_of[layer + 1] : 0;
}

/* Layers of a chunk that are needed of another stage's, which has so many: what is next to this
 * one's. */
static int needed(const tri_pipeline *pipeline, uint32_t stage, int chunk, int layers, int every)
{
    int last = (int)pipeline->schedule.num_chunks - 1;
    bool next = (chunk > 0 && is_own(pipeline, stage, chunk - 1)) ||
                (chunk < last && is_own(pipeline, stage, chunk + 1));
    int least = next ? 1 : 0;
    return layers < least ? layers : least + (layers - least) % every;
}

static int layers_of(const tri_pipeline *pipeline, const tri_compile_config *config, int chunk)
{
    int count = 0;
    for (int l = 0; l < (int)config->model.num_layers; l++)
        count += chunk_of(pipeline, l) == chunk;
    return count;
}

uint32_t tri_stage_most_steps(const tri_pipeline *pipeline, uint32_t stage,
                              const tri_compile_config *config)
{
    int least = (int)config->model.num_layers, kept = LEAST_LAYERS;
    int num_chunks = pipeline->exists ? (int)pipeline->schedule.num_chunks : 1;
    if (!may_cut(pipeline, config) || config->num_microbatches == 1 || every_of(config) > 1)
        return 0;
    for (int c = 0; c < num_chunks; c++) {
        if (!is_own(pipeline, stage, c))
            continue;
        int layers = layers_of(pipeline, config, c);
        least = layers < least ? layers : least;
    }
    /* The last sums of gradients are waited for a bucket later, and the first weights are gathered
     * together: the layers that this reaches are not like others. */
    if (config->overlap)
        kept += (config->zero >= 2) + (config->zero >= 3 ? config->prefetch : 0);
    int steps = least > kept ? least - kept : 0;
    return steps < LEAST_STEPS ? 0 : (uint32_t)steps;
}

bool tri_stage_buckets_repeat(const tri_compile_config *config, const tri_param_table *params)
{
    double layer = 0, all = 0;
    if (config->zero > 0 || isinf(config->bucket_bytes) ||
        tri_mesh_size(&config->mesh, TRI_AXIS_DP) * tri_mesh_size(&config->mesh, TRI_AXIS_CP) == 1)
        return true;
    for (size_t i = 0; i < params->count; i++) {
        double count = (double)tri_shape_count(&params->items[i].shape);
        layer += params->items[i].layer == 1 ? count : 0;
        all += count;
    }
    all += layer * (double)config->model.num_layers;
    return sizeof(float) * all < config->bucket_bytes ||
           sizeof(uint16_t) * layer >= config->bucket_bytes;
}

/* A model without a pipeline has one chunk. */
static void cut_all(uint32_t steps, tri_compile_config *config)
{
    config->model.num_layers -= (int64_t)steps;
}

tr_status tri_stage_cut_down(const tri_pipeline *pipeline, uint32_t stage, uint32_t steps,
                             tri_compile_config *config, int **chunks, tr_error *err)
{
    const int num_layers = (int)config->model.num_layers;
    *chunks = NULL;
    if (!may_cut(pipeline, config))
        return TR_OK;
    if (!pipeline->exists) {
        cut_all(steps, config);
        return TR_OK;
    }
    int *kept = *chunks = calloc((size_t)num_layers + 2, sizeof *kept), num = 0, left = 0;
    if (!kept)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the layers of a stage");
    for (int l = 0; l < num_layers; l++) {
        int chunk = chunk_of(pipeline, l);
        if (l == 0 || chunk_of(pipeline, l - 1) != chunk) {
            left = layers_of(pipeline, config, chunk);
            left = is_own(pipeline, stage, chunk)
                       ? left - (int)steps
                       : needed(pipeline, stage, chunk, left, every_of(config));
        }
        if (left-- > 0)
            kept[++num] = chunk;
    }
    kept[num + 1] = chunk_of(pipeline, num_layers);
    config->model.num_layers = num;
    config->made_chunks = kept;
    return TR_OK;
}
