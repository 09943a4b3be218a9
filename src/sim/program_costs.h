/* What the actions of a pipeline take on a described device: the roofline of each instruction of
 * the ranks' programs, added up. */
#ifndef TRI_SIM_PROGRAM_COSTS_H
#define TRI_SIM_PROGRAM_COSTS_H

#include "mesh/devices.h"
#include "program/program.h"
#include "schedule/schedule.h"

typedef struct tri_device_model {
    const tri_device_spec *device;
    const tri_link_spec *link;
    tri_rate rate;     /* of matrix products; those of 8-bit operands have TRI_RATE_FP8 */
    double efficiency; /* share of the datasheet's figures that is reached */
} tri_device_model;

/* Seconds of one instruction: arithmetic or memory, whichever takes longer; of a collective the
 * bytes that a ring moves, for all that travel in it. */
double tri_instr_seconds(const tri_program *program, uint32_t instr, const tri_device_model *model);

/* Costs in seconds. programs[r] is of rank r of the pipeline. by_chunk has room for TRI_NUM_ACTIONS
 * x num_chunks, update for one number a rank; costs points to them afterwards. */
void tri_program_costs(const tri_program *const *programs, int num_ranks,
                       const tri_device_model *model, double *by_chunk, double *update,
                       tri_action_costs *costs);

/* Seconds of each pair of calls, [num_chunks][num_chunks]: of the forward and of the backward; 0
 * where there is none. False without memory. */
bool tri_program_pair_costs(const tri_program *const *programs, int num_ranks,
                            const tri_device_model *model, double *by_pair);

#endif
