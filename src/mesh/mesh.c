#include "mesh/mesh.h"

const char *tri_axis_name(tri_axis axis)
{
    static const char *const names[TRI_NUM_AXES] = {
        "tp",      "cp", "dp",       "pp",          "shard",    "replicate",
        "home",    "kv", "kv_copy",  "cp_ring",     "cp_heads", "cp_kv",
        "cp_copy", "ep", "ep_shard", "ep_replicate"};
    return names[axis];
}

static int at_least_one(int size)
{
    return size > 0 ? size : 1;
}

int tri_mesh_size(const tri_mesh *mesh, tri_axis axis)
{
    const int *size = mesh->size;
    int data = at_least_one(size[TRI_AXIS_DP]) * at_least_one(size[TRI_AXIS_CP]);
    int shard = size[TRI_AXIS_SHARD] > 0 ? size[TRI_AXIS_SHARD] : data;
    int heads = at_least_one(size[TRI_AXIS_CP_HEADS]), ep = at_least_one(size[TRI_AXIS_EP]);
    int ep_shard = at_least_one(shard / ep);
    switch (axis) {
    case TRI_AXIS_SHARD:
        return shard;
    case TRI_AXIS_REPLICATE:
        return data / shard;
    case TRI_AXIS_KV:
        return size[TRI_AXIS_KV_COPY] > 1 ? size[TRI_AXIS_TP] / size[TRI_AXIS_KV_COPY] : 1;
    case TRI_AXIS_CP_RING:
        return at_least_one(size[TRI_AXIS_CP]) / heads;
    case TRI_AXIS_CP_KV:
        return heads / at_least_one(size[TRI_AXIS_CP_COPY]);
    case TRI_AXIS_EP_SHARD:
        return ep_shard;
    case TRI_AXIS_EP_REPLICATE:
        return data / (ep * ep_shard);
    default:
        return at_least_one(size[axis]);
    }
}

tr_status tri_mesh_check(const tri_mesh *mesh, tr_error *err)
{
    static const int most[] = {[TRI_AXIS_TP] = TRI_MAX_TP,
                               [TRI_AXIS_CP] = TRI_MAX_CP,
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
                    "layout.dp x layout.cp x layout.tp x layout.pp is %d x %d x %d x %d = %lld "
                    "ranks, but a layout has %d at most; make one of them smaller",
                    tri_mesh_size(mesh, TRI_AXIS_DP), tri_mesh_size(mesh, TRI_AXIS_CP),
                    tri_mesh_size(mesh, TRI_AXIS_TP), tri_mesh_size(mesh, TRI_AXIS_PP),
                    (long long)ranks, TRI_MAX_RANKS);
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
    switch (axis) {
    case TRI_AXIS_SHARD:
    case TRI_AXIS_CP_HEADS:
    case TRI_AXIS_CP_COPY:
    case TRI_AXIS_EP:
        return tri_mesh_stride(mesh, TRI_AXIS_CP);
    case TRI_AXIS_EP_SHARD:
        return tri_mesh_stride(mesh, TRI_AXIS_EP) * tri_mesh_size(mesh, TRI_AXIS_EP);
    case TRI_AXIS_EP_REPLICATE:
        return tri_mesh_stride(mesh, TRI_AXIS_EP_SHARD) * tri_mesh_size(mesh, TRI_AXIS_EP_SHARD);
    case TRI_AXIS_REPLICATE:
        return tri_mesh_stride(mesh, TRI_AXIS_CP) * tri_mesh_size(mesh, TRI_AXIS_SHARD);
    case TRI_AXIS_KV_COPY:
    case TRI_AXIS_HOME: /* of one rank: any will do */
        return stride;
    case TRI_AXIS_KV:
        return tri_mesh_size(mesh, TRI_AXIS_KV_COPY);
    case TRI_AXIS_CP_RING:
        return tri_mesh_stride(mesh, TRI_AXIS_CP) * tri_mesh_size(mesh, TRI_AXIS_CP_HEADS);
    case TRI_AXIS_CP_KV:
        return tri_mesh_stride(mesh, TRI_AXIS_CP) * tri_mesh_size(mesh, TRI_AXIS_CP_COPY);
    default:
        break;
    }
    for (int faster = 0; faster < (int)axis; faster++)
        stride *= tri_mesh_size(mesh, (tri_axis)faster);
    return stride;
}

int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis)
{
    return rank / tri_mesh_stride(mesh, axis) % tri_mesh_size(mesh, axis);
}
