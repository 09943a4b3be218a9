/* A cluster as its ranks found it: what they measured of its links, and what of its network follows
 * from that. How messages are sent and timed is train/health/survey.h's business. */
#ifndef TRI_MESH_CLUSTER_FOUND_H
#define TRI_MESH_CLUSTER_FOUND_H

#include "base/text.h"
#include "mesh/cluster.h"

enum { TRI_CLUSTER_DISTANCES = 16 };

typedef struct tri_cluster_found {
    uint32_t nodes, devices_per_node;
    /* Within a node. 0: it has one device. */
    double latency_s;
    double pair_bytes_per_s; /* one pair, the others silent */
    /* Of each device while all gather from all, as collectives are priced; alone: of copies in
     * memory. */
    double node_bytes_per_s;
    /* From one node to another. 0: there is one. */
    double cross_latency_s;
    double cross_pair_bytes_per_s; /* one pair */
    double cross_bytes_per_s;      /* each device with its counterpart at once: all together */
    /* The same to the node 1, 2, 4 ... places on, all nodes at once: of one node. None where there
     * are two nodes. */
    uint32_t num_distances;
    double distance_bytes_per_s[TRI_CLUSTER_DISTANCES];
} tri_cluster_found;

/* Cards cannot be seen, but if one pair gets a quarter of what all get together there are four.
 * Their number divides that of the devices; how fast one is follows from all together. The first
 * distance at which nodes get much less than two of them alone is where switches end: as many nodes
 * share one, and the ratio is the oversubscription. */
void tri_cluster_derive(const tri_cluster_found *found, tri_cluster_spec *spec);

/* As lines that tri_cluster_parse reads from a file, as of measured rates. What is 0 or NULL is
 * left out. */
void tri_cluster_write_lines(const tri_cluster_spec *spec, uint32_t nodes, tri_text *text);

#endif
