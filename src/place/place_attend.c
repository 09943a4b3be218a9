/* Attention and tokens that are divided over cp.
 *
 * Everywhere else tokens lie where they are. For attention cp is cp_ring x cp_heads. Over cp_heads
 * queries, keys and values go from tokens to heads, each rank with all tokens of its heads, and
 * results go back (Ulysses): an all-to-all each way. Where there are more ranks than key heads,
 * those of cp_copy share one and gather its tokens instead. Over cp_ring queries stay, and keys
 * come: gathered before the node, or by what the node is expanded to. */
#include "place/placer.h"

static bool is_attention(tri_op op)
{
    return op == TRI_OP_ATTENTION || op == TRI_OP_ATTENTION_GRAD;
}

/* The dim of a value that counts heads, for a node that attends. -1: it has none, and stays. */
static int head_dim_of(const tri_node *node, const tri_shape *shape, int j)
{
    bool gradient = node->op == TRI_OP_ATTENTION_GRAD;
    if (gradient && j == TRI_ATTENTION_GRAD_LSE)
        return 1;
    return j <= (gradient ? TRI_ATTENTION_GRAD_O : TRI_ATTENTION_V) && shape->rank >= 4
               ? shape->rank - 2
               : -1;
}

static bool is_key(const tri_node *node, int j)
{
    int first = node->op == TRI_OP_ATTENTION_GRAD ? TRI_ATTENTION_GRAD_Q : TRI_ATTENTION_Q;
    return j == first + 1 || j == first + 2;
}

static void spots_of(const tri_placer *p, tri_id id, tri_spot *spots)
{
    for (int f = 0; f < p->layout->grid.num_factors; f++)
        spots[f] = tri_placement_spot(&p->values[id].at, f);
}

/* Brings a value to where its spots say; over factors it is a sum of terms of, it is completed on
 * the way. */
static tr_status bring(tri_placer *p, tri_id *id, const tri_spot *spots, tr_error *err)
{
    const tri_placed *v = &p->values[*id];
    tri_placement want = tri_placement_of(&p->layout->grid, &v->global, spots);
    want.how = v->at.how;
    return tri_placer_convert(p, *id, &want, id, err);
}

/* Operands of a node that attends: from tokens to heads. */
static tr_status to_heads(tri_placer *p, tri_node *node, tr_error *err)
{
    const tri_factor_set heads = tri_placer_axis(p, TRI_AXIS_CP_HEADS);
    const tri_factor_set copies = tri_placer_axis(p, TRI_AXIS_CP_COPY);
    for (int j = 0; j < node->num_in && heads; j++) {
        tri_spot spots[TRI_MAX_FACTORS];
        int dim =
            node->in[j] == TRI_NONE ? -1 : head_dim_of(node, &p->values[node->in[j]].global, j);
        if (dim < 0)
            continue;
        spots_of(p, node->in[j], spots);
        for (int f = 0; f < p->layout->grid.num_factors; f++)
            if (heads >> f & 1)
                spots[f] = copies >> f & 1 && is_key(node, j) ? (tri_spot){TRI_SPOT_WHOLE, 0}
                                                              : (tri_spot){TRI_SPOT_CUT, dim};
        TRI_TRY(bring(p, &node->in[j], spots, err));
    }
    return TR_OK;
}

/* What attention has left at heads, or as terms: back to tokens. */
static tr_status to_tokens(tri_placer *p, tri_node *node, tr_error *err)
{
    const tri_factor_set cp = tri_placer_axis(p, TRI_AXIS_CP);
    for (int j = 0; j < node->num_in; j++) {
        if (node->in[j] == TRI_NONE)
            continue;
        tri_spot spots[TRI_MAX_FACTORS];
        int dim = tri_dim_named(&p->values[node->in[j]].global, TRI_DIM_T);
        bool away = false;
        spots_of(p, node->in[j], spots);
        for (int f = 0; dim >= 0 && f < p->layout->grid.num_factors; f++) {
            if (!(cp >> f & 1))
                continue;
            away |= spots[f].kind == TRI_SPOT_TERMS ||
                    (spots[f].kind == TRI_SPOT_CUT && spots[f].dim != dim);
            spots[f] = (tri_spot){TRI_SPOT_CUT, dim};
        }
        if (away)
            TRI_TRY(bring(p, &node->in[j], spots, err));
    }
    return TR_OK;
}

tr_status tri_placer_attend(tri_placer *p, tri_node *node, tr_error *err)
{
    if (!tri_placer_axis(p, TRI_AXIS_CP) || p->layout->cp_rows || node->phase == TRI_PHASE_UPDATE)
        return TR_OK;
    if (!is_attention(node->op))
        return to_tokens(p, node, err);
    if (tri_placer_axis(p, TRI_AXIS_CP_RING))
        node->attr.attention.keys = (uint8_t)p->layout->cp_keys;
    return to_heads(p, node, err);
}
