/* Devices and links by name, from their makers' datasheets: what a calculation on paper starts
 * from. Nothing here was measured; `trireme bench` measures.
 *
 * A rate of 0 is one that the device does not have, or that its datasheet does not give. */
#ifndef TRI_MESH_DEVICES_H
#define TRI_MESH_DEVICES_H

#include "base/error.h"

#include <stddef.h>

typedef enum tri_rate {               /* of matrix products, by the type of the operands */
                        TRI_RATE_F32, /* on the ordinary units */
                        TRI_RATE_TF32,
                        TRI_RATE_16, /* bf16; f16 on the P100 and V100, which have no bf16 */
                        TRI_RATE_FP8,
                        TRI_RATE_INT8, /* whole numbers: TOP/s */
                        TRI_NUM_RATES
} tri_rate;

typedef struct tri_device_spec {
    const char *name;    /* "h100" */
    const char *aliases; /* other names it is known by, "a100-80,a100-80g"; or NULL */
    const char *title;
    double dense[TRI_NUM_RATES];  /* FLOP/s */
    double sparse[TRI_NUM_RATES]; /* with 2:4 sparsity, the figure that advertisements print */
    double memory_bytes, memory_bytes_per_s;
    int multiprocessors; /* units that run a tile of a product each */
    const char *link;    /* the usual one, by its name in the table of links */
    const char *source;
} tri_device_spec;

typedef struct tri_link_spec {
    const char *name;
    const char *title;
    double bytes_per_s; /* of a device, in one direction, to one neighbour or to the switch */
    /* A torus: a ring of devices along each axis of the mesh, with links of its own, on which data
     * travels both ways at once. 0: a switch, whose bandwidth the axes share. */
    int torus_axes;
    const char *source;
} tri_link_spec;

const char *tri_rate_name(tri_rate rate);

/* NULL past the end, or when there is none of that name. */
const tri_device_spec *tri_device_spec_at(size_t i);
const tri_device_spec *tri_device_spec_find(const char *name); /* or by an alias */
const tri_link_spec *tri_link_spec_at(size_t i);
const tri_link_spec *tri_link_spec_find(const char *name);

/* A name of the table, "peak=312T,memory=80G,bandwidth=2039G", or both: "a100,memory=40G". Further
 * keys: f32, tf32, fp8, int8, sparse, multiprocessors, link. Strings of the spec are constants. */
tr_status tri_device_spec_parse(const char *text, tri_device_spec *spec, tr_error *err);
/* "312e12", "312T": a positive number, with k, M, G, T or P behind it. */
tr_status tri_quantity_parse(const char *text, double *value, tr_error *err);

/* Bytes a second, each device, that a ring over so many axes of a mesh moves. */
double tri_link_ring_bytes_per_s(const tri_link_spec *link, int num_axes);

#endif
