/* What the parts of the advice share: trying layouts, and asking. */
#ifndef TRI_CLI_ADVISE_ADVISE_PARTS_H
#define TRI_CLI_ADVISE_ADVISE_PARTS_H

#include "cli/advise/advise.h"

/* ---- advise_trial.c ---- */

/* The number of the trial of a layout, compiled once, and timed when it fits; -1 when there is no
 * room for more trials. */
int tri_advise_try(tri_advice *advice, const tri_advised_layout *layout);
/* The first trial: the model on one device. Its failure is that of the settings. */
tr_status tri_advise_alone(tri_advice *advice, tr_error *err);
bool tri_advised_same(const tri_advised_layout *a, const tri_advised_layout *b);
/* Plans the chosen layout with all programs of a run; one that does not fit then makes room for the
 * fastest that does. */
void tri_advise_settle(tri_advice *advice);
const tri_advised_trial *tri_advise_trial(const tri_advice *advice, int trial);

/* ---- advise_fit.c ---- */

/* Numbers of devices along the axes; dp is as many as are left, and have rows. */
typedef struct tri_advised_shape {
    int64_t tp, cp, ep, pp;
} tri_advised_shape;

/* The fastest layouts of a shape that fit, by what they make again; -1: none does. */
typedef struct tri_advised_fit {
    int best, by_redo[TRI_NUM_ADVISED_REDO];
} tri_advised_fit;

tri_advised_layout tri_advise_shaped(const tri_advice *advice, const tri_advised_shape *shape);
tri_advised_shape tri_advise_shape_of(const tri_advised_layout *layout);
tri_advised_fit tri_advise_fit(tri_advice *advice, const tri_advised_shape *shape);
/* Whether a trial is worth taking instead of the best so far; takes it. */
bool tri_advise_take(tri_advice *advice, int trial);
/* Rows of a data-parallel rank. */
int64_t tri_advise_rows(const tri_advice *advice, const tri_advised_layout *layout);
/* How many devices would be enough, by doubling; 0: none that was tried. */
int64_t tri_advise_needed(tri_advice *advice);

/* ---- questions ---- */

tri_advised_question *tri_advise_ask(tri_advice *advice, const char *name, const char *asks,
                                     const char *rule);
void tri_advise_answer(tri_advised_question *q, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void tri_advise_number(tri_advised_question *q, const char *key, const char *label, double value,
                       tri_advised_unit unit);
void tri_advise_show(tri_advised_question *q, int trial); /* -1 and what is shown: nothing */
/* A setting that follows; the settings of the layout that was chosen. */
void tri_advise_follows(tri_advised_question *q, const char *setting, const char *value);
void tri_advise_follow(const tri_advice *advice, tri_advised_question *q);

/* Whether plain data parallelism over all devices was enough. */
bool tri_advise_is_plain(const tri_advice *advice);
const tri_advised_axis *tri_advise_axis(const tri_advised_trial *trial, const char *name);

/* advise_memory.c, advise_axes.c, advise_end.c; in the order in which they are asked. */
void tri_ask_one_device(tri_advice *advice);
void tri_ask_zero(tri_advice *advice);
void tri_ask_recompute(tri_advice *advice);
void tri_ask_tensor(tri_advice *advice);
void tri_ask_pipeline(tri_advice *advice);
void tri_ask_context(tri_advice *advice);
void tri_ask_experts(tri_advice *advice);
void tri_ask_lanes(tri_advice *advice);
void tri_ask_batch(tri_advice *advice);

#endif
