/* The head of a language model in tiles along T: the logits of one tile at a time, so that neither
 * they nor their gradient are ever there for all tokens.
 *
 * The backward starts from a constant, so the gradients of a tile can be made as soon as its logits
 * are there: product, cross-entropy, and both products of the backward, then the next tile. Nothing
 * is computed twice. Training therefore runs all of the head in the backward, evaluation in the
 * forward. Programs that predict have no cross-entropy, and a row of logits for each text. */
#include "place/expand.h"
#include "place/policy.h"
#include "place/tile.h"

/* As many on every rank, whatever it has of T: with one tile the head stays in the forward, and
 * ranks that send each other messages do so in one order. The first rank has most tokens, by one at
 * most; so in tiles of two or more no rank has an empty one. */
static int64_t parts(const tri_graph *graph, const tri_node *node, const tri_expand_config *config)
{
    const tri_value *logits = &graph->values[node->in[0]];
    const int32_t first[TRI_MAX_FACTORS] = {0};
    int t = tri_dim_named(&logits->shape, TRI_DIM_T);
    int64_t tile = config->loss_tile, begin;
    if (tile <= 0 || t < 0)
        return 1;
    int64_t tokens = logits->shape.dim[t].size;
    if (logits->at.dim[t].num > 0)
        tokens = tri_placement_piece(&graph->grid, &logits->at.dim[t], logits->whole.dim[t], first,
                                     &begin);
    return (tokens + tile - 1) / tile;
}

static tr_status expand(tri_graph *graph, const tri_node *node, int64_t num, tr_error *err)
{
    const tri_shape *logits = &graph->values[node->in[0]].shape;
    const tri_tiling how = {
        .along = TRI_DIM_T, .wide = logits->dim[logits->rank - 1].name, .num_tiles = (int32_t)num};
    return tri_tile(graph, &how, err);
}

const tri_expansion tri_expansion_head = {.op = TRI_OP_CE_STATS, .parts = parts, .expand = expand};
