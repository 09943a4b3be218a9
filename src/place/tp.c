/* The policy of tensor parallelism (Megatron-LM): heads, the feed-forward width and the vocabulary
 * are cut, the model width is not. The first product of a block is then cut along its columns and
 * the second along its rows, and each block ends in one sum. */
#include "place/place.h"

tri_cut tri_tp_cut_dim(const tri_layout *layout, const tri_shape *shape, int dim)
{
    bool heads = shape->dim[dim].name == TRI_DIM_H;
    return (tri_cut){.dim = (uint8_t)dim,
                     .parts = (uint16_t)tri_mesh_size(&layout->mesh, TRI_AXIS_TP),
                     .part = (uint16_t)layout->coordinate[TRI_AXIS_TP],
                     .size = shape->dim[dim].size,
                     .unit = heads && layout->head_unit > 0 ? layout->head_unit : 1};
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
