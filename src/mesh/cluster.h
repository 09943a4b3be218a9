/* Clusters as data: nodes of devices, and the tiers of links between them.
 *
 * A tier is a kind of link and the devices that reach each other without leaving it: those of a
 * node, of a rack, all of them. Domains of a tier are runs of consecutive ranks, since axes of the
 * mesh are mapped from the inside out: ranks whose numbers are close are close. */
#ifndef TRI_MESH_CLUSTER_H
#define TRI_MESH_CLUSTER_H

#include "base/error.h"
#include "mesh/rank_group.h"

enum { TRI_CLUSTER_TIERS = 3, TRI_CLUSTER_NAME = 32 };

typedef struct tri_tier {
    const char *name;    /* "node", "rack", "network" */
    uint32_t devices;    /* of a domain; of the last tier: all of the cluster */
    double bytes_per_s;  /* of a device, one way: its share of the cards of its node */
    double latency_s;    /* of a message */
    uint32_t torus_axes; /* a torus with links along each axis, both ways at once; 0: a switch */
} tri_tier;

typedef struct tri_cluster {
    char name[TRI_CLUSTER_NAME];
    const char *device; /* that its nodes have, by its name; NULL: not said */
    uint32_t nodes, devices_per_node;
    bool measured; /* rates are what messages reach, and nothing of a profile comes off */
    uint32_t num_tiers;
    tri_tier tier[TRI_CLUSTER_TIERS]; /* the fastest first */
} tri_cluster;

/* What a row of the table of clusters says; a description changes some of it. */
typedef struct tri_cluster_spec {
    const char *name, *title, *device;
    uint32_t devices_per_node;
    double node_bytes_per_s; /* of a device within its node, one way */
    uint32_t cards_per_node; /* network cards, which the devices of a node share; 0: no network */
    double card_bytes_per_s;
    double latency_s, card_latency_s;
    uint32_t torus_axes;     /* of the links within a node, which is then a pod */
    uint32_t rack_nodes;     /* nodes with a switch of their own; 0: all have the same */
    double oversubscription; /* of the links that leave a rack */
    const char *source;
} tri_cluster_spec;

/* NULL past the end, or when there is none of that name. */
const tri_cluster_spec *tri_cluster_spec_at(size_t i);
const tri_cluster_spec *tri_cluster_spec_find(const char *name);

/* "dgx-h100:32": a name of the table and a number of nodes (without: as many as `devices` need);
 * "nodes=4,devices_per_node=8,node_bandwidth=300G,..."; both, "dgx-a100:8,cards_per_node=4"; or the
 * path of a file (a name with a dot or a slash) with a line "key: value" or "key=value" for each,
 * in which `like` names a row of the table and `device` a device. A cluster that has less than
 * `devices` is refused. */
tr_status tri_cluster_parse(const char *text, uint32_t devices, tri_cluster *cluster,
                            tr_error *err);

/* Whether tri_cluster_parse takes it for a path. */
bool tri_cluster_is_path(const char *text);

/* How a group lies on a cluster. */
typedef struct tri_group_span {
    uint32_t tier; /* the first in which all members are in one domain */
    /* The most members that one domain of each tier has: these share its links to the next. */
    uint32_t inside[TRI_CLUSTER_TIERS];
} tri_group_span;
tri_group_span tri_cluster_span(const tri_cluster *cluster, const tri_rank_group *group);

/* The first tier whose domain has both ranks. */
uint32_t tri_cluster_tier_between(const tri_cluster *cluster, uint32_t a, uint32_t b);

#endif
