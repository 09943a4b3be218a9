/* Devices of the table by what a driver calls them: "NVIDIA H100 80GB HBM3". */
#ifndef TRI_MESH_DEVICE_NAMES_H
#define TRI_MESH_DEVICE_NAMES_H

#include "mesh/devices.h"

/* The device whose product name stands in the text; NULL when none of the table's does. */
const tri_device_spec *tri_device_spec_in(const char *text);

#endif
