/* Placement rules that several operators share: which pieces of its inputs an operator can work on
 * alone, and what its outputs are then. A rule is asked once for each factor of the grid, and does
 * not know which: it goes by dims. */
#include "graph/op_table.h"

static const tri_spot whole = {TRI_SPOT_WHOLE, 0};

static bool is_cut(const tri_spot *spot)
{
    return spot->kind == TRI_SPOT_CUT;
}

static tri_spot cut_at(int dim)
{
    return (tri_spot){TRI_SPOT_CUT, dim};
}

/* An operand that goes with another: cut along the dim of the same name, where it has one. Places
 * [B, P] go with their tokens [B, T]. */
static tri_spot alongside(const tri_shape *leader, tri_spot spot, const tri_shape *shape)
{
    int places = -1;
    for (int d = 0; is_cut(&spot) && d < shape->rank; d++) {
        if (shape->dim[d].name == leader->dim[spot.dim].name)
            return cut_at(d);
        if (shape->dim[d].name == TRI_DIM_P && leader->dim[spot.dim].name == TRI_DIM_T)
            places = d;
    }
    return places >= 0 ? cut_at(places) : whole;
}

/* The first input decides; the others go with it. */
void tri_place_same(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    for (int j = 1; j < node->num_in; j++)
        in[j] = alongside(&shapes[0], in[0], &shapes[j]);
    for (int k = 0; k < node->num_out; k++)
        out[k] = in[0];
}

/* Whatever is cut but for rows of the batch is gathered first. The first dim of inputs and outputs
 * are rows. */
void tri_place_batch(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    tri_spot rows = is_cut(&in[0]) && in[0].dim == 0 ? in[0] : whole;
    for (int j = 0; j < node->num_in; j++)
        in[j] = alongside(&shapes[0], rows, &shapes[j]);
    for (int k = 0; k < node->num_out; k++)
        out[k] = rows;
}

/* Sums over everything (losses): of pieces they are terms. */
void tri_place_sum(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    for (int j = 1; j < node->num_in; j++)
        in[j] = alongside(&shapes[0], in[0], &shapes[j]);
    for (int k = 0; k < node->num_out; k++)
        out[k] = is_cut(&in[0]) ? (tri_spot){TRI_SPOT_TERMS, 0} : whole;
}

/* All operands have one shape: a cut of one is a cut of all. Terms stay terms. */
void tri_place_elementwise(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                           tri_spot *out)
{
    (void)shapes;
    tri_spot spot = in[0];
    for (int j = 1; j < node->num_in; j++)
        if (is_cut(&in[j]) && !is_cut(&spot))
            spot = in[j];
    for (int j = 0; j < node->num_in; j++)
        in[j] = spot;
    for (int k = 0; k < node->num_out; k++)
        out[k] = spot;
}

/* An operand of a norm that has its rows: the values, or a statistic of each. A gain has none. */
static bool has_rows(const tri_node *node, const tri_shape *shapes, int j)
{
    int rank = shapes[j].rank, dims = tri_node_norm_dims(node);
    return rank == shapes[0].rank || (rank > 0 && rank == shapes[0].rank - dims + 1 &&
                                      shapes[j].dim[rank - 1].name == TRI_DIM_STAT);
}

/* Operators over the last dims of their rows (norms): rows may be anywhere, a row is whole.
 * Operands without rows (gains) are whole. */
void tri_place_rows(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    tri_spot spot = whole;
    int leading = shapes[0].rank - tri_node_norm_dims(node);
    for (int j = 0; j < node->num_in; j++)
        if (has_rows(node, shapes, j) && is_cut(&in[j]) && in[j].dim < leading && !is_cut(&spot))
            spot = in[j];
    for (int j = 0; j < node->num_in; j++)
        in[j] = has_rows(node, shapes, j) ? spot : whole;
    for (int k = 0; k < node->num_out; k++)
        out[k] = spot;
}

/* Sums over rows into columns (gradients of biases and gains): cut rows give terms, cut columns cut
 * results. A norm over several dims has them all, as its gain is whole. */
void tri_place_columns(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    /* The result has the last dims of the input: how many is known for norms, and for biases from
     * the first dim that is not of a position. */
    int dims = tri_node_norm_dims(node), leading = shapes[0].rank - dims;
    if (node->op == TRI_OP_BIAS_GRAD)
        leading = node->attr.bias_grad.leading;
    tri_spot spot = dims > 1 && is_cut(&in[0]) && in[0].dim >= leading ? whole : in[0];
    for (int j = 0; j < node->num_in; j++)
        in[j] = spot;
    for (int k = 0; k < node->num_out; k++)
        out[k] = !is_cut(&spot)       ? whole
                 : spot.dim < leading ? (tri_spot){TRI_SPOT_TERMS, 0}
                                      : cut_at(spot.dim - leading);
}

/* x [..., N] + bias [N]. */
void tri_place_bias(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)node;
    int leading = shapes[0].rank - shapes[1].rank;
    if (is_cut(&in[1]))
        in[0] = cut_at(in[1].dim + leading);
    else if (is_cut(&in[0]) && in[0].dim >= leading)
        in[1] = cut_at(in[0].dim - leading);
    out[0] = in[0];
}

/* Rows of x that an index finds: tokens [B, T] that lie apart have an index of their own, which is
 * among what a rank has. The index decides. */
void tri_place_by_index(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    int first = shapes[1].rank - !node->attr.gather.each, lead = node->attr.gather.lead;
    tri_spot rows = is_cut(&in[1]) && in[1].dim < first ? in[1] : whole;
    bool width = !is_cut(&rows) && is_cut(&in[0]) && in[0].dim >= lead;
    out[0] = width ? cut_at(first + in[0].dim - lead) : rows;
    in[0] = width ? in[0] : alongside(&shapes[1], rows, &shapes[0]);
    for (int j = 1; j < node->num_in; j++)
        in[j] = alongside(&shapes[1], rows, &shapes[j]);
}

/* The four cases of a product, on one axis: see docs/parallelism.md. */
void tri_place_product(const tri_product *product, tri_spot *in, tri_spot *out)
{
    int inner_a = in[0].dim - product->contract_a, inner_b = in[1].dim - product->contract_b;
    bool cut_a = is_cut(&in[0]) && inner_a >= 0 && inner_a < product->num_contracted;
    bool cut_b = is_cut(&in[1]) && inner_b >= 0 && inner_b < product->num_contracted;
    *out = whole;
    if (cut_a && cut_b && inner_a == inner_b) {
        *out = (tri_spot){TRI_SPOT_TERMS, 0};
        return;
    }
    if (cut_a)
        in[0] = whole;
    if (cut_b)
        in[1] = whole;
    if (is_cut(&in[0]) && is_cut(&in[1])) /* rows and columns both */
        in[product->gather_b ? 1 : 0] = whole;
    if (is_cut(&in[0]))
        *out = cut_at(in[0].dim - product->free_a);
    else if (is_cut(&in[1]))
        *out = cut_at(product->num_free_a + in[1].dim - product->free_b);
}

void tri_place_matmul(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    const tri_matmul_attr *attr = &node->attr.matmul;
    tri_product product = {
        .contract_a = attr->trans_a ? 0 : attr->split_a,
        .contract_b = attr->trans_b ? attr->split_b : 0,
        .num_contracted = attr->trans_a ? attr->split_a : shapes[0].rank - attr->split_a,
        .free_a = attr->trans_a ? attr->split_a : 0,
        .free_b = attr->trans_b ? 0 : attr->split_b,
        /* Activations that are cut along the positions are gathered, not weights. */
        .gather_b = is_cut(&in[1]) && shapes[1].dim[in[1].dim].name == TRI_DIM_T,
    };
    product.num_free_a = shapes[0].rank - product.num_contracted;
    for (int k = 0; k < node->num_out; k++)
        out[k] = whole;
    tri_place_product(&product, in, &out[0]);
}

/* A cut table finds some of the ids: the others give zeros, so the result is terms. Cut ids give a
 * cut result. */
void tri_place_embed(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)node;
    (void)shapes;
    if (is_cut(&in[0])) {
        in[1] = whole;
        out[0] = (tri_spot){TRI_SPOT_TERMS, 0};
        return;
    }
    out[0] = in[1];
}

void tri_place_embed_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                          tri_spot *out)
{
    (void)node;
    (void)shapes;
    if (is_cut(&in[2])) { /* this rank's rows of the table, from all positions */
        in[0] = in[1] = whole;
        out[0] = in[2];
        return;
    }
    if (is_cut(&in[0]) && in[0].dim >= 2)
        in[0] = whole;
    in[1] = in[0];
    out[0] = is_cut(&in[0]) ? (tri_spot){TRI_SPOT_TERMS, 0} : whole;
}

/* Attention is a matter of each head, and of each row of the batch. */
static int head_dim(const tri_shape *shape)
{
    return shape->rank - 2;
}

static bool cut_by_heads(const tri_shape *shape, const tri_spot *spot)
{
    return is_cut(spot) && shape->rank >= 4 && spot->dim == head_dim(shape);
}

static bool cut_by_rows(const tri_spot *spot)
{
    return is_cut(spot) && spot->dim == 0;
}

/* Keys and values go with their queries. Where there are fewer key heads than ranks (tp.c), ranks
 * that share one have all of it, and keep it. */
static tri_spot key_spot(const tri_shape *q, const tri_shape *k, const tri_spot *spot)
{
    bool copied = !is_cut(spot) && k->dim[head_dim(k)].size < q->dim[head_dim(q)].size;
    return copied ? whole : cut_at(head_dim(k));
}

/* A sink goes with its head. */
static tri_spot sink_spot(const tri_shape *sink, bool cut)
{
    return cut && sink->rank == 1 ? cut_at(0) : whole;
}

/* Keys and values are caches: these decide, and their rows are those of the batch. */
static bool place_cached(const tri_node *node, const tri_shape *shapes, tri_spot *in)
{
    if (cut_by_rows(&in[1])) {
        for (int j = 0; j < node->num_in; j++)
            in[j] = j == 1 ? in[1] : alongside(&shapes[1], in[1], &shapes[j]);
        return false;
    }
    bool cut = is_cut(&in[1]) || cut_by_heads(&shapes[0], &in[0]);
    in[0] = cut ? cut_at(head_dim(&shapes[0])) : whole;
    in[2] = in[1];
    for (int j = 3; j < node->num_in; j++)
        in[j] = j == TRI_ATTENTION_SINK ? sink_spot(&shapes[j], cut) : whole;
    return cut;
}

/* Tokens of a row may be anywhere when queries and keys have places. first: that of q; what belongs
 * to keys is cut alike, or whole on every rank that has queries. */
static bool cut_by_tokens(const tri_node *node, const tri_shape *shapes, const tri_spot *in,
                          int first)
{
    int places =
        TRI_ATTENTION_Q_PLACES + (first ? TRI_NUM_ATTENTION_GRAD_IN - TRI_NUM_ATTENTION_IN : 0);
    return is_cut(&in[first]) && shapes[first].rank == 4 && in[first].dim == 1 &&
           node->num_in > places + 1 && shapes[places].rank >= 0 && shapes[places + 1].rank >= 0;
}

static void place_tokens(const tri_node *node, const tri_shape *shapes, tri_spot *in, int first)
{
    const int more = first ? TRI_NUM_ATTENTION_GRAD_IN - TRI_NUM_ATTENTION_IN : 0;
    tri_spot keys = node->attr.attention.keys == TRI_KEYS_GATHERED ? whole : cut_at(1);
    for (int j = 0; j < node->num_in; j++) {
        int of = j - more; /* as of attention itself, from the rows on */
        in[j] = whole;
        if (j == first + 1 || j == first + 2 || of == TRI_ATTENTION_K_PLACES)
            in[j] = keys;
        else if (shapes[j].rank == 4 || of == TRI_ATTENTION_SPAN || of == TRI_ATTENTION_Q_PLACES)
            in[j] = cut_at(1);
    }
    if (first)
        in[TRI_ATTENTION_GRAD_LSE] = cut_at(2);
}

/* Whether heads are cut. */
static bool place_apart(const tri_node *node, const tri_shape *shapes, tri_spot *in)
{
    if (cut_by_rows(&in[0])) {
        for (int j = 1; j < node->num_in; j++)
            in[j] = alongside(&shapes[0], in[0], &shapes[j]);
        return false;
    }
    if (cut_by_tokens(node, shapes, in, 0)) {
        place_tokens(node, shapes, in, 0);
        return false;
    }
    bool cut = cut_by_heads(&shapes[0], &in[0]);
    in[0] = cut ? in[0] : whole;
    for (int j = 1; j < node->num_in; j++)
        in[j] = j == TRI_ATTENTION_SINK               ? sink_spot(&shapes[j], cut)
                : cut && j < 3 && shapes[j].rank >= 4 ? key_spot(&shapes[0], &shapes[j], &in[j])
                                                      : whole;
    return cut;
}

void tri_place_heads(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    bool cut = node->attr.attention.cached ? place_cached(node, shapes, in)
                                           : place_apart(node, shapes, in);
    tri_spot rows = is_cut(&in[0]) ? in[0] : whole; /* of the batch, or their tokens */
    out[0] = cut ? cut_at(2) : rows;
    out[1] = cut ? cut_at(1) : rows; /* lse [B, H, T] */
    if (!cut && is_cut(&rows) && rows.dim == 1)
        out[1] = cut_at(2);
}

/* do, q, k, v, o, lse. A key that several ranks have gets from each what its queries give. */
static void place_heads_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                             tri_spot *out)
{
    bool cut = cut_by_heads(&shapes[1], &in[1]);
    for (int j = 0; j < node->num_in; j++) {
        bool key = j == 2 || j == 3;
        if (!cut || j > 4 || shapes[j].rank < 4)
            in[j] = whole;
        else
            in[j] = key ? key_spot(&shapes[1], &shapes[j], &in[j]) : cut_at(head_dim(&shapes[j]));
    }
    if (cut)
        in[5] = cut_at(1);
    for (int k = 0; k < node->num_out; k++)
        out[k] = !cut                 ? whole
                 : is_cut(&in[1 + k]) ? cut_at(head_dim(&shapes[1 + k]))
                                      : (tri_spot){TRI_SPOT_TERMS, 0};
}

void tri_place_heads_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                          tri_spot *out)
{
    const int sink = TRI_NUM_ATTENTION_GRAD_IN - 1;
    bool rows = cut_by_rows(&in[1]), sinks = sink < node->num_in && shapes[sink].rank >= 0;
    bool tokens = cut_by_tokens(node, shapes, in, TRI_ATTENTION_GRAD_Q);
    if (tokens) {
        place_tokens(node, shapes, in, TRI_ATTENTION_GRAD_Q);
        for (int k = 0; k < node->num_out; k++) /* of keys that all have, what its queries give */
            out[k] = k == 0 || is_cut(&in[TRI_ATTENTION_GRAD_Q + k])
                         ? cut_at(1)
                         : (tri_spot){TRI_SPOT_TERMS, 0};
        rows = true;
    } else if (rows) {
        for (int j = 0; j < node->num_in; j++)
            in[j] = j == 1 ? in[1] : alongside(&shapes[1], in[1], &shapes[j]);
        for (int k = 0; k < node->num_out; k++)
            out[k] = in[1];
    } else {
        place_heads_grad(node, shapes, in, out);
    }
    if (!sinks)
        return;
    bool heads = !rows && is_cut(&in[1]);
    in[sink] = sink_spot(&shapes[sink], heads);
    out[node->num_out - 1] = rows    ? (tri_spot){TRI_SPOT_TERMS, 0} /* of its own queries */
                             : heads ? cut_at(0)
                                     : whole;
}

/* o1 [B, T, H, V] decides for o2, and for lse [B, H, T]. */
void tri_place_merge(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    for (int j = 1; j < node->num_in; j++)
        in[j] = alongside(&shapes[0], in[0], &shapes[j]);
    out[0] = in[0];
    out[1] = in[1];
}

/* The caches [B, G, P, K] decide: what is written to them is cut alike. Their rows are those of the
 * batch. */
void tri_place_cache_write(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                           tri_spot *out)
{
    bool heads = is_cut(&in[0]) && in[0].dim == 1, rows = cut_by_rows(&in[0]);
    in[1] = in[0];
    for (int j = 2; j < node->num_in; j++)
        in[j] = heads && shapes[j].rank >= 4 ? cut_at(head_dim(&shapes[j]))
                : rows                       ? alongside(&shapes[0], in[0], &shapes[j])
                                             : whole;
    out[0] = out[1] = in[0];
}

/* Statistics of a cut vocabulary are of this rank's part: "terms" that the pass gathers and
 * combines. */
void tri_place_ce_stats(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)node;
    bool vocabulary = is_cut(&in[0]) && in[0].dim == shapes[0].rank - 1;
    if (vocabulary)
        in[1] = whole;
    else
        in[1] = in[0];
    out[0] = vocabulary ? (tri_spot){TRI_SPOT_TERMS, 0} : in[0];
}

/* From the statistics of parts, [N, B, T, 3], to those of all of it. */
void tri_place_ce_combine(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                          tri_spot *out)
{
    (void)node;
    (void)shapes;
    if (is_cut(&in[0]) && in[0].dim == 0)
        in[0] = whole;
    out[0] = is_cut(&in[0]) ? cut_at(in[0].dim - 1) : whole;
}

/* What ranks collect, cut along another dim than that of the pieces, is cut along it still. */
void tri_place_all_gather(const tri_node *node, const tri_shape *shapes, tri_spot *in,
                          tri_spot *out)
{
    (void)shapes;
    int dim = node->attr.message.cut.dim;
    if (is_cut(&in[0]) && in[0].dim == dim)
        in[0] = whole;
    out[0] = is_cut(&in[0]) ? cut_at(in[0].dim + (dim == TRI_NO_DIM)) : whole;
}

/* loss, count, lse, hits: all but the third are sums over positions. */
void tri_place_ce_loss(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    tri_spot stats = in[0];
    tri_place_sum(node, shapes, in, out);
    out[2] = stats;
}

void tri_place_ce_grad(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)node;
    bool vocabulary = is_cut(&in[0]) && in[0].dim == shapes[0].rank - 1;
    in[1] = in[2] = vocabulary ? whole : in[0]; /* the scaler, if any, is whole as it is */
    out[0] = in[0];
}

/* Update rules: the state (input 0) decides for every operand of its shape. */
void tri_place_state(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    tri_spot spot = in[0];
    for (int j = 1; j < node->num_in; j++)
        in[j] = shapes[j].rank >= 0 && tri_shape_equal(&shapes[j], &shapes[0]) ? spot : whole;
    for (int k = 0; k < node->num_out; k++)
        out[k] = spot;
}

/* A sum over all elements: of pieces it is a term. */
void tri_place_total(const tri_node *node, const tri_shape *shapes, tri_spot *in, tri_spot *out)
{
    (void)node;
    (void)shapes;
    out[0] = is_cut(&in[0]) ? (tri_spot){TRI_SPOT_TERMS, 0} : whole;
}
