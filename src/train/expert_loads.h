/* Loads of experts, as the host reads them after a step: for every layer that has experts, how much
 * more the busiest of them had to do than the mean. */
#ifndef TRI_TRAIN_EXPERT_LOADS_H
#define TRI_TRAIN_EXPERT_LOADS_H

#include "compile/compile.h"
#include "run/executor.h"

typedef struct tri_expert_loads {
    size_t num;     /* layers with experts; 0: there are none */
    tri_id *value;  /* of each: its loads in the program that trains, in the order of the layers */
    tri_id *second; /* and in the one that repeats steps, where there is one */
    float *largest; /* of the last step: the largest load of a layer over its mean */
    float most;     /* the largest of these */
} tri_expert_loads;

/* second may be NULL. */
tr_status tri_expert_loads_find(tri_expert_loads *loads, const tri_program *program,
                                const tri_program *second, tr_error *err);
void tri_expert_loads_read(tri_expert_loads *loads, const tri_executor *executor, bool repeated);
void tri_expert_loads_fini(tri_expert_loads *loads);

#endif
