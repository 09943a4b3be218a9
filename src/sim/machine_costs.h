/* What the instructions of a program take on a machine: a device by its profile (device_profile.h)
 * and a cluster (mesh/cluster.h). */
#ifndef TRI_SIM_MACHINE_COSTS_H
#define TRI_SIM_MACHINE_COSTS_H

#include "sim/device_profile.h"
#include "sim/link_cost.h"
#include "sim/timing.h"

typedef struct tri_machine_model {
    tri_device_profile profile;
    tri_cluster cluster;
    tri_link_terms terms;
    tri_rate rate;           /* of products whose operands are not of 8 bits */
    double host_bytes_per_s; /* between the device and its host, one way */
} tri_machine_model;

/* A cluster of one tier, in which all ranks reach each other over this link. */
tri_cluster tri_cluster_of_link(const tri_link_spec *link, uint32_t ranks);
tri_machine_model tri_machine_model_of(const tri_device_spec *device, const tri_cluster *cluster,
                                       tri_rate rate);

/* For tri_timing_run; the model must outlive it. */
tri_cost_table tri_machine_costs(const tri_machine_model *model);

#endif
