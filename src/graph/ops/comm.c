/* Communication as operators: what a placement pass inserts where producer and consumer disagree.
 */
#include "graph/op_table.h"

static double flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)out;
    return (double)tri_shape_count(&in[0]);
}

const tri_op_def tri_def_all_reduce = {
    .name = "all_reduce",
    .inputs = "x: a term of a sum on every rank of the axis",
    .outputs = "x: the sum, on every rank",
    .meaning =
        "Adds x over the ranks of a mesh axis, in place and in a fixed order, so that all of "
        "them get the same bits. Neighbours in memory travel in one message.",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .updates = {1},
    .communicates = true,
    .infer = tri_infer_same,
    .flops = flops,
};
