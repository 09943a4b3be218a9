/* What instructions take on a described device by the roofline: arithmetic or memory, whichever
 * takes longer; of a message the bytes that a ring moves. */
#ifndef TRI_SIM_ROOFLINE_H
#define TRI_SIM_ROOFLINE_H

#include "mesh/devices.h"
#include "sim/timing.h"

typedef struct tri_device_model {
    const tri_device_spec *device;
    const tri_link_spec *link;
    tri_rate rate;     /* of matrix products; those of 8-bit operands have TRI_RATE_FP8 */
    double efficiency; /* share of the datasheet's figures that is reached */
} tri_device_model;

/* Seconds of one instruction; of the first of a message those of all that travel in it. */
double tri_instr_seconds(const tri_program *program, uint32_t instr, const tri_device_model *model);

/* For tri_timing_run; the model must outlive it. */
tri_cost_table tri_roofline_costs(const tri_device_model *model);

#endif
