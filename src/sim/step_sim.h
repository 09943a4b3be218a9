/* A step on a described machine: what people ask of a timing (timing.h). How long, where the time
 * goes, how much of each axis is hidden, does every rank fit, and what would faster parts bring. */
#ifndef TRI_SIM_STEP_SIM_H
#define TRI_SIM_STEP_SIM_H

#include "sim/measured/measured_costs.h"
#include "sim/timing.h"

enum { TRI_STEP_MAX_AXES = 24, TRI_STEP_AXIS_NAME = TRI_GROUP_NAME };

/* Parts of a machine that may be faster. */
typedef enum tri_faster {
    TRI_FASTER_PRODUCTS,
    TRI_FASTER_MEMORY,
    TRI_FASTER_LINKS,
    TRI_NUM_FASTER
} tri_faster;
const char *tri_faster_name(tri_faster part); /* "products" */

typedef struct tri_step_case {
    const tri_program *const *programs; /* of one rank of each stage */
    const uint64_t *planned_bytes;      /* of the same */
    uint32_t num_stages;
    uint32_t stride; /* ranks of a stage */
    bool one_lane;   /* messages of a rank run one at a time, whatever their group */
    tri_cost_table costs;
    tri_cost_table faster[TRI_NUM_FASTER]; /* with 10 % more of a part */
    bool in_place;                         /* as in tri_timing_case */
    /* NULL: the costs above. Else those of a measured profile, which depend on how often ranks that
     * share a machine compute at the same time. */
    tri_measured_model *measured;
    tri_timing_pace pace; /* brake: of each stage */
    bool brief;           /* only the step itself: not with other lanes, nor with faster parts */
    double peak_flops;    /* of a rank: the datasheet's rate of the type that products have */
} tri_step_case;

typedef struct tri_step_sim {
    tri_timing timing;
    /* Axes over which messages go, "carry" for fetch and stash; of each the stages' seconds. */
    char axis[TRI_STEP_MAX_AXES][TRI_STEP_AXIS_NAME];
    uint32_t num_axes;
    double (*exposed)[TRI_STEP_MAX_AXES], (*hidden)[TRI_STEP_MAX_AXES]; /* [stage] */
    double flops, redone_flops; /* of all ranks: the model's own, and recomputation */
    double mfu, hfu;            /* of that peak */
    uint32_t slowest, fullest;  /* stages: that computes most, with most memory */
    double by_group;            /* seconds of the step with a lane for each group; not when brief */
    double faster[TRI_NUM_FASTER]; /* seconds of the step with 10 % more of this part; likewise */
} tri_step_sim;

tr_status tri_step_sim_run(const tri_step_case *c, tri_step_sim *sim, tr_error *err);
void tri_step_sim_fini(tri_step_sim *sim);

/* The same timing once more, for whoever watches. */
tr_status tri_step_sim_watch(const tri_step_case *c, const tri_timing_watch *watch, tr_error *err);
/* The axis of a message of a program; num_axes for one that takes no time. */
uint32_t tri_step_axis(const tri_step_sim *sim, const tri_program *program, uint32_t message);

#endif
