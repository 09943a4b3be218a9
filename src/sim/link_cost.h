/* Seconds of messages on a cluster. */
#ifndef TRI_SIM_LINK_COST_H
#define TRI_SIM_LINK_COST_H

#include "collective/collective.h"
#include "mesh/cluster.h"

typedef struct tri_link_terms {
    double near_share, far_share;   /* of the bandwidth within a node, and between nodes */
    const tri_algorithm *algorithm; /* NULL: rings over all cards, started by a tree, as NCCL's */
} tri_link_terms;

/* A collective over a group, while the other groups of the same shape do the same: each device has
 * its share of the cards, and the members that one node has use theirs together. bytes: of the
 * whole vector (all_to_all: of what one rank sends). An algorithm with dims (hierarchical, torus2d)
 * gets those that the cluster gives the group. */
double tri_link_collective(const tri_cluster *cluster, const tri_rank_group *group, tri_coll coll,
                           double bytes, const tri_link_terms *terms);

/* A message from one rank to another, while all ranks send one as far. */
double tri_link_send(const tri_cluster *cluster, uint32_t from, uint32_t to, double bytes,
                     const tri_link_terms *terms);

#endif
