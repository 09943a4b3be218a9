/* Between the places of a rank's own memory (graph/where.h): what lets a state rest elsewhere than
 * where it is computed with. */
#include "graph/op_table.h"

static double no_flops(const tri_node *node, const tri_shape *in, const tri_shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

/* With a second input the result is the next version of a state, which rests where it goes. */
const tri_op_def tri_def_fetch = {
    .name = "fetch",
    .inputs = "x: one place farther from the device; optionally the version that y replaces",
    .outputs = "y: x",
    .meaning = "Copies x from a file to the host, or from the host to the device.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .updates = {2},
    .optional = 2,
    .communicates = true,
    .infer = tri_infer_given,
    .flops = no_flops,
};

const tri_op_def tri_def_stash = {
    .name = "stash",
    .inputs = "x: one place nearer to the device; optionally the version that y replaces",
    .outputs = "y: x",
    .meaning = "Copies x from the device to the host, or from the host to a file.",
    .family = TRI_ATTR_MESSAGE,
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .updates = {2},
    .optional = 2,
    .communicates = true,
    .infer = tri_infer_given,
    .flops = no_flops,
};
