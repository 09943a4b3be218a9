/* Devices and links by name, from their makers' datasheets: what a calculation on paper starts
 * from. Nothing here was measured; `trireme bench` measures.
 *
 * A rate of 0 is one that the device does not have, or that its datasheet does not give. */
#ifndef TRI_MESH_DEVICES_H
#define TRI_MESH_DEVICES_H

#include <stddef.h>

typedef enum tri_rate {               /* of matrix products, by the type of the operands */
                        TRI_RATE_F32, /* on the ordinary units */
                        TRI_RATE_TF32,
                        TRI_RATE_16, /* bf16; f16 on the V100, which has no bf16 */
                        TRI_RATE_FP8,
                        TRI_RATE_INT8, /* whole numbers: TOP/s */
                        TRI_NUM_RATES
} tri_rate;

typedef struct tri_device_spec {
    const char *name; /* "h100" */
    const char *title;
    double dense[TRI_NUM_RATES];  /* FLOP/s */
    double sparse[TRI_NUM_RATES]; /* with 2:4 sparsity, the figure that advertisements print */
    double memory_bytes, memory_bytes_per_s;
    const char *link; /* the usual one, by its name in the table of links */
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
const tri_device_spec *tri_device_spec_find(const char *name);
const tri_link_spec *tri_link_spec_at(size_t i);
const tri_link_spec *tri_link_spec_find(const char *name);

/* Bytes a second, each device, that a ring over so many axes of a mesh moves. */
double tri_link_ring_bytes_per_s(const tri_link_spec *link, int num_axes);

#endif
