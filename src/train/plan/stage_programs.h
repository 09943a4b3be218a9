/* The training programs of a layout, one of each stage of its pipeline, for those who time them and
 * add up their memory. Ranks of a stage are alike, and so are most stages: one of a kind is
 * compiled, and for the others its timeline is made anew (program/retime.h). */
#ifndef TRI_TRAIN_STAGE_PROGRAMS_H
#define TRI_TRAIN_STAGE_PROGRAMS_H

#include "compile/pipeline.h"
#include "train/session.h"

typedef struct tri_stage_programs {
    uint32_t num_stages, stride; /* ranks of a stage */
    tri_pipeline pipeline;       /* without one, `exists` is false and there is one stage */
    const tri_program **programs;
    uint64_t *planned_bytes;
    const tri_compile_config *config;
    bool by_group; /* messages of different groups may be under way together */
    bool sketch;   /* tri_stage_programs_sketch made them */

    uint32_t num_compiled, num_extended;
    uint32_t *like;         /* of each stage: the first of its kind, whose program it has */
    tri_session **sessions; /* of those, where it is compiled; else NULL */
    tri_program *retimed;   /* of the others, and of the extended */
    /* A sketch: layers that are put in behind compiling, the first stage that has the same programs
     * without them, those of its rank without one layer more, and the programs with them. */
    uint32_t *steps, *base;
    tri_session **less;
    tri_program (*extended)[TRI_NUM_PROGRAMS];
} tri_stage_programs;

/* whole: every stage is compiled. config->compile.rank is not looked at. */
tr_status tri_stage_programs_compile(const tri_session_config *config, bool whole,
                                     tri_stage_programs *stages, tr_error *err);
/* For times and planned bytes alone, as exact, for those who ask about thousands of layouts:
 * nothing is proven, and a program may have fewer layers of other stages, names and values than it
 * has when it is run. */
tr_status tri_stage_programs_sketch(const tri_session_config *config, tri_stage_programs *stages,
                                    tr_error *err);
void tri_stage_programs_fini(tri_stage_programs *stages);

#endif
