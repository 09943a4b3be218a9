/* Update rules, as graph. A rule is one file: it emits the nodes that turn a parameter and its
 * accumulated gradient into the parameter's next version. */
#ifndef TRI_OPTIM_OPTIM_H
#define TRI_OPTIM_OPTIM_H

#include "base/settings/row.h"
#include "graph/emit.h"
#include "trireme/settings.h"

/* Settings of one parameter group. */
typedef struct tri_rule_config {
    const char *kind;
    float lr_scale, weight_decay;
} tri_rule_config;

struct tri_optim_def;

typedef struct tri_optim_config {
    tri_rule_config rule; /* of parameters that no group names */
    float beta1, beta2, eps, momentum;
    bool nesterov;
    bool moments8;    /* adam, adamw: moments of larger tensors rest in 8 bits */
    float clip;       /* largest global norm of the gradient, 0 = none */
    bool limits_loss; /* each step has a limit, and one with a larger loss writes nothing */
    /* "PATTERN key=value ...; PATTERN ..." with keys lr_scale, weight_decay and kind. The first
     * pattern that matches a parameter's name counts. */
    const char *groups;
    /* Rules from outside the tree, beside those of the table, and where they find their own
     * settings. */
    const struct tri_optim_def *const *outside;
    size_t num_outside;
    const tr_settings *settings;
} tri_optim_config;

/* One parameter to be updated. */
typedef struct tri_update {
    const tri_optim_config *config;
    const struct tri_optim_def *rule; /* that is asked */
    const tri_param *param;
    tri_id param_id;
    float lr_scale, weight_decay;
    tri_id value, grad;   /* newest versions of the parameter and its accumulator */
    tri_id sched, result; /* numbers of the step (tri_graph_step_rows), and what FINISH made */
} tri_update;

typedef struct tri_optim_def {
    const char *kind;
    bool whole_matrices; /* sharded state must be cut at the borders of tensors */
    /* NULL for all; parameters that it does not handle get adamw. */
    bool (*handles)(const tri_param *param);
    void (*emit)(tri_graph *graph, const tri_update *update);
    tri_owned own;
    /* Its own members of the description, which is that of all rules: groups of parameters may have
     * different ones. NULL: other rules read all that it needs. */
    void (*read)(const tr_settings *settings, tri_optim_config *config);
} tri_optim_def;

extern const tri_optim_def tri_optim_sgd, tri_optim_adam, tri_optim_adamw, tri_optim_muon,
    tri_optim_lion;

extern const tri_setting tri_optim_kind_row; /* optim.kind */
const tri_optim_def *tri_optim_at(size_t i); /* or NULL past the end */

/* Adds the end of the step: norm, factor, and every parameter's update. */
tr_status tri_optim_emit(tri_graph *graph, const tri_optim_config *config, tr_error *err);

/* Whether a rule that is used needs whole matrices. */
bool tri_optim_needs_whole(const tri_optim_config *config);

/* A state of the shape of the parameter ("adam.m.wte.weight"); returns its first version. */
tri_id tri_optim_state(tri_graph *graph, const tri_update *update, const char *name);
/* The same in another type, which may be a code. */
tri_id tri_optim_state_as(tri_graph *graph, const tri_update *update, const char *name,
                          tri_dtype dtype);

#endif
