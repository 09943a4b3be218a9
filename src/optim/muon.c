/* Muon (Jordan et al. 2024): the momentum of a matrix is replaced by the nearest matrix with equal
 * singular values, found by five Newton-Schulz steps; other parameters get AdamW. The update is
 * scaled by 0.2 sqrt(max(rows, columns)), which gives it the size of AdamW's, so both share one
 * learning rate (Liu et al. 2025). */
#include <math.h>

#include "graph/op_table.h"
#include "optim/optim.h"

/* Coefficients of the quintic that pulls singular values towards 1. */
static const float a = 3.4445f, b = -4.7750f, c = 2.0315f;

static bool handles(const tri_param *param)
{
    return param->role == TRI_ROLE_MATRIX;
}

/* One step: X <- a X + (b G + c G G) X with G = X X^T; for a tall X the same from the right. */
static tri_id newton_schulz(tri_graph *g, tri_id x, uint8_t split, bool tall)
{
    if (x == TRI_NONE)
        return TRI_NONE;
    int rank = g->values[x].shape.rank;
    uint8_t side = tall ? (uint8_t)(rank - split) : split; /* dims of one side of the square G */
    tri_id gram = tri_matmul(g, "muon.gram", x, split, tall, x, split, !tall);
    tri_id gram2 = tri_matmul(g, "muon.gram2", gram, side, false, gram, side, false);
    tri_id poly = tri_axpby(g, "muon.poly", b, gram, c, gram2);
    tri_id px = tall ? tri_matmul(g, "muon.px", x, split, false, poly, side, false)
                     : tri_matmul(g, "muon.px", poly, side, false, x, split, false);
    return tri_axpby(g, "muon.x", a, x, 1, px);
}

static void emit(tri_graph *g, const tri_update *u)
{
    uint8_t split = u->param->split;
    double rows = (double)tri_shape_span(&u->param->shape, 0, split);
    double columns = (double)tri_shape_span(&u->param->shape, split, u->param->shape.rank);
    bool tall = rows > columns;

    tri_attr momentum = {.update = {.beta1 = u->config->momentum, .nesterov = u->config->nesterov}};
    tri_id in[] = {tri_optim_state(g, u, "muon.momentum"), u->grad, u->result};
    tri_id node =
        tri_graph_emit(g, TRI_OP_MOMENTUM, tri_graph_name(g, "muon"), &momentum, in, 3, 2);

    tri_attr unit = {.update = {.eps = 1e-7f}};
    tri_id update = tri_node_out(g, node, 1);
    tri_id x = tri_node_out(
        g,
        tri_graph_emit(g, TRI_OP_UNIT_NORM, tri_graph_name(g, "muon.unit"), &unit, &update, 1, 1),
        0);
    for (int i = 0; i < 5; i++)
        x = newton_schulz(g, x, split, tall);

    tri_attr apply = {.update = {.alpha = (float)(0.2 * sqrt(tall ? rows : columns)),
                                 .weight_decay = u->weight_decay,
                                 .lr_scale = u->lr_scale}};
    tri_id last[] = {u->value, x, u->sched, u->result};
    tri_graph_emit(g, TRI_OP_APPLY_UPDATE, u->param->name, &apply, last, 4, 1);
}

/* What it does not handle, AdamW does. */
const tri_optim_def tri_optim_muon = {
    .kind = "muon",
    .whole_matrices = true,
    .handles = handles,
    .emit = emit,
    .own = {.reads =
                "optim.momentum optim.nesterov optim.beta1 optim.beta2 optim.eps optim.moments",
            .defaults = "optim.momentum=0.95 optim.nesterov=true"},
};
