/* The policy of tensor parallelism (Megatron-LM): heads, the feed-forward width and the vocabulary
 * are cut, the model width is not. The first product of a block is then cut along its columns and
 * the second along its rows, and each block ends in one sum.
 *
 * Query heads stay with the key head they share, as long as there is a key head for every rank.
 * With more ranks than that, tp is kv x kv_copy: the ranks of a kv_copy group hold the same key
 * head and divide its query heads. Keys and values are cut over kv then and copied over kv_copy. In
 * the backward a rank has only its own queries' share of what reaches a key: everything that is cut
 * over kv is a term of a sum over kv_copy from there until the gradients of its parameters are
 * summed. What is linear in it, and the backward is, may be applied before. */
#include "place/place.h"

tri_cut tri_tp_cut_dim(const tri_layout *layout, const tri_shape *shape, int dim)
{
    bool heads = shape->dim[dim].name == TRI_DIM_H;
    int copies = tri_mesh_size(&layout->mesh, TRI_AXIS_KV_COPY);
    tri_axis axis = shape->dim[dim].name == TRI_DIM_G && copies > 1 ? TRI_AXIS_KV : TRI_AXIS_TP;
    return (tri_cut){.dim = (uint8_t)dim,
                     .parts = tri_mesh_size(&layout->mesh, axis),
                     .part = layout->coordinate[axis],
                     .size = shape->dim[dim].size,
                     .unit = heads && layout->head_unit > 0 ? layout->head_unit : 1,
                     .nest = heads ? copies : 1,
                     .axis = (uint8_t)axis};
}

tri_cut tri_tp_cut(const tri_layout *layout, const tri_param *param)
{
    for (int d = 0; d < param->shape.rank; d++) {
        tri_dim_name name = param->shape.dim[d].name;
        if (name == TRI_DIM_H || name == TRI_DIM_G || name == TRI_DIM_F || name == TRI_DIM_V)
            return tri_mesh_size(&layout->mesh, TRI_AXIS_TP) > 1
                       ? tri_tp_cut_dim(layout, &param->shape, d)
                       : (tri_cut){0};
    }
    return (tri_cut){0};
}
