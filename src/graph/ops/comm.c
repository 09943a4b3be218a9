/* Communication as operators, and the reordering that goes with it: what a placement pass inserts
 * where producer and consumer disagree.
 *
 * What is gathered or scattered lies in blocks, one rank's piece after the other. That is the order
 * of the tensor itself when the cut dim is its first; otherwise block and unblock reorder. */
#include "graph/op_table.h"

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

static tr_status check_cut(const tri_cut *cut, const tri_shape *in, bool piece, tr_error *err)
{
    char text[128];
    int64_t wanted = piece ? tri_cut_size(cut, cut->part) : cut->size;
    if (cut->parts > 0 && cut->dim < in->rank && in->dim[cut->dim].size == wanted)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s is not cut as its dim %d of %lld says",
                    tri_shape_text(in, text, sizeof text), cut->dim, (long long)cut->size);
}

const tri_op_def tri_def_all_reduce = {
    .name = "all_reduce",
    .inputs = "x: a partial sum on every rank of the axis",
    .outputs = "x: the sum, on every rank",
    .meaning =
        "Adds x over the ranks of a mesh axis, in place and in a fixed order, so that all of "
        "them get the same bits; of statistics it may be the largest or the least. Neighbours in "
        "memory travel in one message.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .updates = {1},
    .may_alias = {1},
    .communicates = true,
    .infer = tri_infer_same,
    .flops = flops,
};

/* From a piece to all of it. */
static tr_status infer_unslice(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    const tri_cut *cut = &node->attr.message.cut;
    TRI_TRY(check_cut(cut, &in[0], true, err));
    out[0] = in[0];
    out[0].dim[cut->dim].size = cut->size;
    return TR_OK;
}

/* From a piece to the whole; where no dim is cut, a new first one counts the ranks. */
static tr_status infer_gather(const tri_node *node, const tri_shape *in, tri_shape *out,
                              tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    const tri_cut *cut = &node->attr.message.cut;
    out[0] = in[0];
    if (cut->dim == TRI_NO_DIM) {
        out[0].rank++;
        for (int d = out[0].rank - 1; d > 0; d--)
            out[0].dim[d] = in[0].dim[d - 1];
        out[0].dim[0] = (tri_dim){TRI_DIM_N, cut->parts};
        return TR_OK;
    }
    return infer_unslice(node, in, out, out_dtype, err);
}

const tri_op_def tri_def_all_gather = {
    .name = "all_gather",
    .inputs = "x: a shard on every rank of the axis",
    .outputs = "y: all shards, in blocks",
    .meaning = "Collects the shards of all ranks of a mesh axis, one after the other.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .communicates = true,
    .infer = infer_gather,
    .place = tri_place_all_gather,
    .flops = no_flops,
};

const tri_op_def tri_def_broadcast = {
    .name = "broadcast",
    .inputs = "x: at the root; none on the others",
    .outputs = "y: x, on every rank",
    .meaning = "Copies x from one rank of a mesh axis to all of them.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .optional = 1,
    .communicates = true,
    .infer = tri_infer_given,
    .flops = no_flops,
};

const tri_op_def tri_def_recv = {
    .name = "recv",
    .inputs = "none",
    .outputs = "y: what the peer sends",
    .meaning = "Receives from one rank of a mesh axis: the other half of its send.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 0,
    .max_in = 0,
    .min_out = 1,
    .max_out = 1,
    .communicates = true,
    .infer = tri_infer_given,
    .flops = no_flops,
};

static tr_status infer_nothing(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)in;
    (void)out;
    (void)out_dtype;
    (void)err;
    return TR_OK;
}

const tri_op_def tri_def_send = {
    .name = "send",
    .inputs = "x",
    .outputs = "none",
    .meaning = "Sends x to one rank of a mesh axis.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 0,
    .max_out = 0,
    .communicates = true,
    .infer = infer_nothing,
    .flops = no_flops,
};

static tr_status infer_piece(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    const tri_cut *cut = &node->attr.message.cut;
    TRI_TRY(check_cut(&node->attr.message.cut, &in[0], false, err));
    out[0] = in[0];
    out[0].dim[cut->dim].size = tri_cut_size(cut, cut->part);
    return TR_OK;
}

const tri_op_def tri_def_reduce_scatter = {
    .name = "reduce_scatter",
    .inputs = "x: a partial sum on every rank of the axis, in blocks",
    .outputs = "y: this rank's shard of the sum",
    .meaning = "Adds x over the ranks of a mesh axis in a fixed order; each rank gets its shard.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .communicates = true,
    .infer = infer_piece,
    .flops = flops,
};

/* Where no dim is cut, the first one counts the blocks, one for each rank. */
static tr_status check_blocks(const tri_cut *cut, const tri_shape *in, tr_error *err)
{
    char text[128];
    if (cut->parts > 0 && cut->size == cut->parts && in->rank > 0 && in->dim[0].size == cut->parts)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "%s has no block for each of %d ranks",
                    tri_shape_text(in, text, sizeof text), cut->parts);
}

/* From pieces of one dim to pieces of another, or from blocks to blocks. */
static tr_status infer_exchange(const tri_node *node, const tri_shape *in, tri_shape *out,
                                tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    const tri_cut *cut = &node->attr.message.cut, *scatter = &node->attr.message.scatter;
    if (cut->dim == TRI_NO_DIM && scatter->dim == TRI_NO_DIM) {
        out[0] = in[0];
        TRI_TRY(check_blocks(scatter, &in[0], err));
        return check_blocks(cut, &in[0], err);
    }
    TRI_TRY(check_cut(cut, &in[0], true, err));
    TRI_TRY(check_cut(scatter, &in[0], false, err));
    out[0] = in[0];
    out[0].dim[cut->dim].size = cut->size;
    out[0].dim[scatter->dim].size = tri_cut_size(scatter, scatter->part);
    return TR_OK;
}

const tri_op_def tri_def_all_to_all = {
    .name = "all_to_all",
    .inputs = "x: a shard along one dim, in blocks along another",
    .outputs = "y: a shard along the other, in blocks along the first",
    .meaning = "Sends block r to rank r of a mesh axis, and collects what all ranks send: a value "
               "that is sharded along one dim becomes one that is sharded along another. Where no "
               "dim is sharded, the first one counts the blocks.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .communicates = true,
    .infer = infer_exchange,
    .flops = no_flops,
};

/* A dim of no cut: all ranks have as much. Otherwise the piece that a rank has is followed by the
 * one that the rank before it had. */
static tr_status infer_shift(const tri_node *node, const tri_shape *in, tri_shape *out,
                             tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    const tri_cut *cut = &node->attr.message.cut;
    out[0] = in[0];
    if (cut->dim == TRI_NO_DIM)
        return TR_OK;
    TRI_TRY(check_cut(cut, &in[0], true, err));
    out[0].dim[cut->dim].size = tri_cut_size(cut, tri_shifted_piece(&node->attr.message));
    return TR_OK;
}

const tri_op_def tri_def_shift = {
    .name = "shift",
    .inputs = "x: a shard, or a value of one size on every rank of the axis",
    .outputs = "y: that of the rank so many places back",
    .meaning = "Every rank of a mesh axis sends x so many places on, around the ring, and gets "
               "what the rank as many places back sends.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .communicates = true,
    .infer = infer_shift,
    .flops = no_flops,
};

const tri_op_def tri_def_slice = {
    .name = "slice",
    .inputs = "x",
    .outputs = "y",
    .meaning = "y = a piece of x along a dim: this rank's shard, or a tile.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .moves = true,
    .infer = infer_piece,
    .flops = no_flops,
};

const tri_op_def tri_def_unslice = {
    .name = "unslice",
    .inputs = "x: a piece along a dim",
    .outputs = "y: zeros, but for that piece",
    .meaning = "The transpose of slice. Pieces that are added to one result put it together.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .can_accumulate = 1,
    .moves = true,
    .infer = infer_unslice,
    .flops = no_flops,
};

static tr_status infer_reorder(const tri_node *node, const tri_shape *in, tri_shape *out,
                               tri_dtype *out_dtype, tr_error *err)
{
    (void)out_dtype;
    out[0] = in[0];
    return check_cut(&node->attr.message.cut, &in[0], false, err);
}

const tri_op_def tri_def_block = {
    .name = "block",
    .inputs = "x",
    .outputs = "y",
    .meaning = "y = the shards of x along a dim, each dense, one after the other.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .moves = true,
    .infer = infer_reorder,
    .flops = no_flops,
};

const tri_op_def tri_def_unblock = {
    .name = "unblock",
    .inputs = "x",
    .outputs = "y",
    .meaning = "The inverse of block.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .moves = true,
    .infer = infer_reorder,
    .flops = no_flops,
};
