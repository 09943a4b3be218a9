/* Rows whose numbers are data: how many go from a rank to another is known when the step runs, what
 * there is room for when it is compiled.
 *
 * fit_rooms cuts the counts down to the rooms, and adds what is cut off to a statistic. Finish
 * reads that, so the update of a step that lacks rows writes nothing. The fitted counts travel in
 * an all_to_all of equal blocks; then both ends of every pair know how many rows come. The way
 * back, of gradients or of results, is the same message with the two lists of counts changed about.
 */
#include "graph/op_table.h"

static tr_status infer_fit(const tri_node *node, const tri_shape *in, tri_shape *out,
                           tri_dtype *out_dtype, tr_error *err)
{
    char text[128];
    if (node->attr.message.room.rows < 1)
        return tri_fail(err, TR_ERROR_INPUT, "%s has no room for any row",
                        tri_shape_text(&in[0], text, sizeof text));
    out[0] = in[0];
    out[1] = tri_shape_scalar(1);
    out_dtype[0] = TRI_I32;
    return TR_OK;
}

const tri_op_def tri_def_fit_rooms = {
    .name = "fit_rooms",
    .inputs = "counts i32 [ranks]: rows for each rank of an axis",
    .outputs = "fitted i32 [ranks], overflow [1]",
    .suffix = {NULL, "overflow"},
    .meaning = "fitted = min(counts, room); adds the rows that find no room to a statistic, which "
               "finish reads.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 1,
    .max_in = 1,
    .min_out = 2,
    .max_out = 2,
    .can_accumulate = 1 << 1,
    .wide_out = 1 << 1,
    .infer = infer_fit,
};

static tr_status infer_rows(const tri_node *node, const tri_shape *in, tri_shape *out,
                            tri_dtype *out_dtype, tr_error *err)
{
    (void)node;
    (void)out_dtype;
    char text[128];
    bool right = in[0].rank >= 2 && tri_shape_count(&in[0]) > 0;
    for (int j = 1; j < 3 && right; j++)
        right = tri_shape_count(&in[j]) == in[0].dim[0].size;
    if (!right)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has no room for each of the ranks that are counted",
                        tri_shape_text(&in[0], text, sizeof text));
    out[0] = in[0];
    return TR_OK;
}

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const tri_op_def tri_def_all_to_all_rows = {
    .name = "all_to_all_rows",
    .inputs = "x [ranks, room, ...], sent i32 [ranks], got i32 [ranks]",
    .outputs = "y [ranks, room, ...]",
    .meaning = "An all_to_all of varying counts: the first sent[r] rows of block r go to rank r of "
               "a mesh axis, the first got[r] rows of block r of y come from it. The other rows of "
               "y hold nothing.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .communicates = true,
    .infer = infer_rows,
    .flops = no_flops,
};
