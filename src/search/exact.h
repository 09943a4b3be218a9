/* One layout, looked at exactly: its programs are compiled, their memory is planned, and a step of
 * them is timed. */
#ifndef TRI_SEARCH_EXACT_H
#define TRI_SEARCH_EXACT_H

#include "mesh/cluster.h"
#include "search/choice.h"
#include "sim/link_cost.h"
#include "sim/step_sim.h"
#include "train/plan/stage_programs.h"

/* What layouts are for: devices, and what work takes on them. */
typedef struct tri_search_machine {
    uint32_t devices, node; /* node: devices of one */
    uint64_t fit_bytes;     /* that recomputation to fit may take; 0: all of these: */
    uint64_t memory_bytes;  /* that the plan of a rank may take */
    tri_cost_table costs;   /* safe to ask from several threads; or, not NULL: */
    const tri_measured *measured;
    tri_cost_table wire; /* with measured: of messages that it does not have */
    bool host;           /* ranks are processes of this kind of machine, with so many cores */
    int cores;
    double peak_flops;          /* of a device, for MFU */
    const tri_cluster *cluster; /* for bounds of messages; NULL: they are bounded by nothing */
    tri_link_terms terms;
    double error; /* share by which times are usually off */
} tri_search_machine;

typedef struct tri_layout_result {
    tri_layout_choice choice;
    bool known, fits; /* known: it was looked at, and not refused */
    bool planned;     /* with evaluation and prediction, too */
    double bound;     /* seconds, from below */
    double slow_s;    /* from so many on, with a lane for each group, other lanes are not tried; 0:
                         they always are */
    double seconds;
    uint64_t bytes;   /* of the fullest rank */
    uint32_t fullest; /* its stage */
    /* Of the stage that computes most, in seconds. */
    double time[TRI_NUM_TIME_KINDS], redone, idle;
    double redone_of[TRI_NUM_TIME_KINDS]; /* of each kind: recomputation */
    char axis[TRI_STEP_MAX_AXES][TRI_STEP_AXIS_NAME];
    double exposed[TRI_STEP_MAX_AXES];
    uint32_t num_axes;
    double mfu;
    char why[200]; /* it was refused: the reason */
} tri_layout_result;

/* What recomputation to fit is given. */
static inline uint64_t tri_fit_budget(const tri_search_machine *machine)
{
    return machine->fit_bytes ? machine->fit_bytes : machine->memory_bytes;
}

/* The settings with this layout, for its ranks' programs; the caller destroys them. */
tr_status tri_layout_settings(const tr_settings *base, const tri_layout_choice *choice,
                              uint64_t budget_bytes, tr_settings **settings, tr_error *err);
/* Compiles the stages' programs on such a machine, TRI_PROGRAMS_... or single ones. Unless they are
 * to be proven they are sketches, with the same times and bytes. */
tr_status tri_layout_compile(const tri_search_machine *machine, tr_settings *settings,
                             unsigned programs, bool prove, tri_stage_programs *stages,
                             tr_error *err);
/* What is to be timed of them; and that. group_lanes: with a lane for each group of ranks. model:
 * room for prices, which the caller frees with tri_measured_model_fini. */
tr_status tri_layout_step_case(const tri_search_machine *machine, const tri_stage_programs *stages,
                               bool group_lanes, tri_measured_model *model, tri_step_case *step,
                               tr_error *err);
tr_status tri_layout_time(const tri_search_machine *machine, const tri_stage_programs *stages,
                          bool group_lanes, tri_measured_model *model, tri_step_sim *step,
                          tr_error *err);

/* How much of a look is wanted. */
typedef enum tri_look {
    TRI_LOOK_TIMES, /* of training: a step is timed */
    TRI_LOOK_PLAN,  /* memory alone, with evaluation and prediction */
    TRI_LOOK_PROOF, /* the same of programs that are proven */
    TRI_LOOK_ALL    /* times and memory, with evaluation and prediction */
} tri_look;

/* All of it. What settings refuse is no failure: result->known stays false, and why says why. What
 * is not looked at stays as it was. */
tr_status tri_layout_look(const tri_search_machine *machine, const tr_settings *base, tri_look how,
                          tri_layout_result *result, tr_error *err);

#endif
