/* Programs priced by a measured profile, for tri_timing_run. */
#ifndef TRI_SIM_MEASURED_COSTS_H
#define TRI_SIM_MEASURED_COSTS_H

#include "sim/measured/measured.h"
#include "sim/roofline.h"

/* Work of which there is no sample of its kind. */
enum { TRI_MEASURED_MISSING = 8 };
typedef struct tri_measured_missing {
    tri_op op;
    char kind[TRI_WORK_KIND];
    tri_found found;
    double seconds; /* of the step, as guessed */
} tri_measured_missing;

typedef struct tri_measured_model {
    const tri_measured *profile;
    int ranks;                       /* of the layout */
    const tri_measured_table *busy;  /* of ranks that all compute, as many as have cores */
    const tri_measured_table *alone; /* of a rank while the others wait; NULL: as busy */
    tri_cost_table wire; /* of messages that the profile does not have; message NULL: none */
    double faster[3];    /* of products, of other work, of messages: times as fast */

    const tri_program *const *programs;
    uint32_t num_programs;
    double **busy_s, **alone_s; /* [program][instr]: of a call, on average */
    double *crowd; /* of each program: share of its computing while the others compute, too */

    size_t num_found[TRI_NUM_FOUND];                    /* instructions */
    double found_s[TRI_NUM_FOUND];                      /* their seconds in a step */
    tri_measured_missing missing[TRI_MEASURED_MISSING]; /* those that take longest first */
    size_t num_missing;                                 /* kinds, more perhaps than are listed */

} tri_measured_model;

/* For a layout of so many ranks with so many threads each. Without a table for them the message
 * names those that there are. The programs must outlive the model. */
tr_status tri_measured_model_init(tri_measured_model *model, const tri_measured *profile,
                                  const tri_program *const *programs, uint32_t num, int ranks,
                                  int threads, tr_error *err);
void tri_measured_model_fini(tri_measured_model *model);
/* The model must outlive it. */
tri_cost_table tri_measured_costs(const tri_measured_model *model);
/* Of a timing by these costs: which share of its computing each class had company in. True: it has
 * changed, so that another timing is closer. stride: ranks of a class. */
bool tri_measured_crowd(tri_measured_model *model, const tri_timing *timing, uint32_t stride);

#endif
