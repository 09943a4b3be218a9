/* The algorithm of a call that names none. */
#include "comm/comm_internal.h"

const tri_algorithm *tri_choose(const tr_group *group, const tr_collective *call,
                                tri_coll_shape *shape)
{
    (void)shape;
    if (group->comm->transport->io == NULL)
        return &tri_algorithm_direct;
    return tri_algorithm_ring.emit[call->operation] ? &tri_algorithm_ring : &tri_algorithm_tree;
}
