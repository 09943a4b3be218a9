#include "config/layout_words.h"

#include <inttypes.h>

#include "compile/pipeline.h"
#include "sim/sim.h"

double tri_layout_bubble(const tri_compile_config *config)
{
    tri_pipeline pipeline;
    tri_sim sim;
    tri_action_costs costs = tri_sim_unit_costs();
    double bubble = 0;
    if (tri_mesh_size(&config->mesh, TRI_AXIS_PP) == 1)
        return 0;
    if (tri_pipeline_init(&pipeline, config, NULL) != TR_OK)
        return 0;
    if (tri_sim_run(&pipeline.schedule, &costs, &sim, NULL) == TR_OK) {
        bubble = sim.bubble;
        tri_sim_fini(&sim);
    }
    tri_pipeline_fini(&pipeline);
    return bubble;
}

/* What stands between two parts of the list. */
static const char *between(bool *any)
{
    const char *text = *any ? " x " : ": ";
    *any = true;
    return text;
}

/* "4 context-parallel (ring, heads in groups of 2)" */
static void add_context(const tri_compile_config *c, int cp, tri_text *text)
{
    int heads = tri_mesh_size(&c->mesh, TRI_AXIS_CP_HEADS);
    const char *keys = c->cp_keys == TRI_KEYS_RING ? "ring" : "gather";
    if (heads == cp)
        tri_text_add(text, "%d context-parallel (ulysses)", cp);
    else if (heads > 1)
        tri_text_add(text, "%d context-parallel (%s between groups of %d that divide heads)", cp,
                     keys, heads);
    else
        tri_text_add(text, "%d context-parallel (%s)", cp, keys);
}

/* What ZeRO divides over all ranks that share out the batch, or over groups of them. */
static void add_zero(const tri_compile_config *c, tri_text *text)
{
    int group = c->mesh.size[TRI_AXIS_SHARD];
    int data =
        tri_mesh_size(&c->mesh, TRI_AXIS_SHARD) * tri_mesh_size(&c->mesh, TRI_AXIS_REPLICATE);
    if (c->zero > 0 && group > 0 && group < data)
        tri_text_add(text, " (ZeRO %d in groups of %d)", c->zero, group);
    else if (c->zero > 0)
        tri_text_add(text, " (ZeRO %d)", c->zero);
}

static void add_parts(const tri_compile_config *c, int pp, int tp, int dp, tri_text *text)
{
    bool any = false;
    int cp = tri_mesh_size(&c->mesh, TRI_AXIS_CP);
    if (pp > 1) {
        tri_text_add(text, "%s%d pipeline stages (%s, %" PRId64 " micro-batch%s, %.0f %% bubble)",
                     between(&any), pp, c->schedule, c->num_microbatches,
                     c->num_microbatches == 1 ? "" : "es", 100 * tri_layout_bubble(c));
    }
    if (tp > 1)
        tri_text_add(text, "%s%d tensor-parallel%s", between(&any), tp,
                     c->sp ? " (with sequence parallelism)" : "");
    if (cp > 1) {
        tri_text_add(text, "%s", between(&any));
        add_context(c, cp, text);
    }
    if (dp > 1)
        tri_text_add(text, "%s%d data-parallel", between(&any), dp);
    if (dp > 1 || cp > 1)
        add_zero(c, text);
}

void tri_layout_words(const tri_compile_config *c, tri_text *text)
{
    int pp = tri_mesh_size(&c->mesh, TRI_AXIS_PP), tp = tri_mesh_size(&c->mesh, TRI_AXIS_TP);
    int dp = tri_mesh_size(&c->mesh, TRI_AXIS_DP), ranks = tri_mesh_ranks(&c->mesh);
    tri_text_add(text, "%d rank%s", ranks, ranks == 1 ? "" : "s");
    add_parts(c, pp, tp, dp, text);
    if (pp == 1 && c->num_microbatches > 1)
        tri_text_add(text, "%s%" PRId64 " micro-batches, one after the other",
                     ranks > 1 ? "; " : ", ", c->num_microbatches);
    if (c->recompute.kind != TRI_RECOMPUTE_NONE)
        tri_text_add(text, "; activations recomputed");
}
