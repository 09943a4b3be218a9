#include "mesh/mesh.h"

const char *tri_axis_name(tri_axis axis)
{
    static const char *const names[TRI_NUM_AXES] = {"tp",        "cp",   "dp", "pp",     "shard",
                                                    "replicate", "home", "kv", "kv_copy"};
    return names[axis];
}

int tri_mesh_size(const tri_mesh *mesh, tri_axis axis)
{
    int dp = mesh->size[TRI_AXIS_DP] > 0 ? mesh->size[TRI_AXIS_DP] : 1;
    int shard = mesh->size[TRI_AXIS_SHARD] > 0 ? mesh->size[TRI_AXIS_SHARD] : dp;
    if (axis == TRI_AXIS_SHARD)
        return shard;
    if (axis == TRI_AXIS_REPLICATE)
        return dp / shard;
    if (axis == TRI_AXIS_KV)
        return mesh->size[TRI_AXIS_KV_COPY] > 1
                   ? mesh->size[TRI_AXIS_TP] / mesh->size[TRI_AXIS_KV_COPY]
                   : 1;
    return mesh->size[axis] > 0 ? mesh->size[axis] : 1;
}

tr_status tri_mesh_check(const tri_mesh *mesh, tr_error *err)
{
    static const int most[] = {[TRI_AXIS_TP] = TRI_MAX_TP,
                               [TRI_AXIS_CP] = 1,
                               [TRI_AXIS_DP] = TRI_MAX_DP,
                               [TRI_AXIS_PP] = TRI_MAX_PP};
    int64_t ranks = 1;
    for (int axis = 0; axis <= TRI_AXIS_PP; axis++) {
        int size = tri_mesh_size(mesh, (tri_axis)axis);
        if (size > most[axis])
            return tri_fail(err, TR_ERROR_INPUT, "layout.%s is %d, but may be %d at most",
                            tri_axis_name((tri_axis)axis), size, most[axis]);
        ranks *= size;
    }
    if (ranks <= TRI_MAX_RANKS)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.dp x layout.tp x layout.pp is %d x %d x %d = %lld ranks, but a layout "
                    "has %d at most; make one of them smaller",
                    tri_mesh_size(mesh, TRI_AXIS_DP), tri_mesh_size(mesh, TRI_AXIS_TP),
                    tri_mesh_size(mesh, TRI_AXIS_PP), (long long)ranks, TRI_MAX_RANKS);
}

int tri_mesh_ranks(const tri_mesh *mesh)
{
    int ranks = 1;
    for (int axis = 0; axis <= TRI_AXIS_PP; axis++)
        ranks *= tri_mesh_size(mesh, (tri_axis)axis);
    return ranks;
}

int tri_mesh_stride(const tri_mesh *mesh, tri_axis axis)
{
    int stride = 1;
    if (axis == TRI_AXIS_SHARD)
        return tri_mesh_stride(mesh, TRI_AXIS_DP);
    if (axis == TRI_AXIS_REPLICATE)
        return tri_mesh_stride(mesh, TRI_AXIS_DP) * tri_mesh_size(mesh, TRI_AXIS_SHARD);
    if (axis == TRI_AXIS_KV_COPY || axis == TRI_AXIS_HOME) /* of one rank: any will do */
        return stride;
    if (axis == TRI_AXIS_KV)
        return tri_mesh_size(mesh, TRI_AXIS_KV_COPY);
    for (int faster = 0; faster < (int)axis; faster++)
        stride *= tri_mesh_size(mesh, (tri_axis)faster);
    return stride;
}

int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis)
{
    return rank / tri_mesh_stride(mesh, axis) % tri_mesh_size(mesh, axis);
}
