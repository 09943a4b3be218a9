/* The mesh: a named grid of ranks. One object from which every coordinate and group is derived.
 * Rank order, fastest first: tp, cp, dp, pp. */
#ifndef TRI_MESH_MESH_H
#define TRI_MESH_MESH_H

#include <stdint.h>

#include "base/error.h"

/* The most ranks that a layout may have, in all and along each axis: what tests plan. Settings
 * above them are refused by name, so that every count and rank below fits an int. */
enum {
    TRI_MAX_RANKS = 1 << 20,
    TRI_MAX_DP = 1 << 20,
    TRI_MAX_TP = 1024,
    TRI_MAX_CP = 1024,
    TRI_MAX_PP = 1024,
};

/* `home` is not an axis of the grid: the ranks of a pipeline that hold the same layers, which an
 * instruction names itself. It has one rank wherever it is asked for its size.
 * dp x cp is a product of replicate x shard: ranks of a shard group hold different slices of what
 * ZeRO divides, those of a replicate group the same. tp is one of kv x kv_copy where there are more
 * of its ranks than key heads: ranks of a kv group hold different key heads, those of a kv_copy
 * group (neighbours) the same. cp is one of cp_ring x cp_heads: attention divides heads over the
 * ranks of cp_heads (neighbours) and goes from rank to rank over cp_ring. cp_heads is one of
 * cp_kv x cp_copy, as tp is of kv x kv_copy. And dp x cp is ep_replicate x ep_shard x ep: ranks of
 * an ep group (neighbours) hold different experts, ep_shard is what is left of shard to divide them
 * over, and ep_replicate what is left of all. */
typedef enum tri_axis {
    TRI_AXIS_TP,
    TRI_AXIS_CP,
    TRI_AXIS_DP,
    TRI_AXIS_PP,
    TRI_AXIS_SHARD,
    TRI_AXIS_REPLICATE,
    TRI_AXIS_HOME,
    TRI_AXIS_KV,
    TRI_AXIS_KV_COPY,
    TRI_AXIS_CP_RING,
    TRI_AXIS_CP_HEADS,
    TRI_AXIS_CP_KV,
    TRI_AXIS_CP_COPY,
    TRI_AXIS_EP,
    TRI_AXIS_EP_SHARD,
    TRI_AXIS_EP_REPLICATE,
    TRI_NUM_AXES
} tri_axis;

/* An axis that was never set (0) has one rank. size[TRI_AXIS_SHARD] is the size of a shard group, 0
 * for all of dp x cp; what replicate is follows. size[TRI_AXIS_KV_COPY] is how many ranks hold a
 * key head; kv follows, and where that is one or not set, tp has no factors and kv is one too.
 * size[TRI_AXIS_CP_HEADS] and size[TRI_AXIS_CP_COPY] are given, cp_ring and cp_kv follow;
 * size[TRI_AXIS_EP] is given, ep_shard and ep_replicate follow. */
typedef struct tri_mesh {
    int size[TRI_NUM_AXES];
} tri_mesh;

const char *tri_axis_name(tri_axis axis);
int tri_mesh_size(const tri_mesh *mesh, tri_axis axis);
/* TR_ERROR_INPUT: an axis, or all together, above what is said above. */
tr_status tri_mesh_check(const tri_mesh *mesh, tr_error *err);
int tri_mesh_ranks(const tri_mesh *mesh);
/* The distance between neighbours along an axis. */
int tri_mesh_stride(const tri_mesh *mesh, tri_axis axis);
int tri_mesh_coordinate(const tri_mesh *mesh, int rank, tri_axis axis);

#endif
