#include "optim/optim.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"

static const tri_optim_def *const rules[] = {&tri_optim_sgd, &tri_optim_adam, &tri_optim_adamw,
                                             &tri_optim_muon, &tri_optim_lion};
const tri_setting tri_optim_kind_row =
    TRI_CHOICE_ROW("optim.kind", "adamw", "sgd, adam, adamw, muon, lion", "Update rule",
                   "optimiser type name algorithm");

const tri_optim_def *tri_optim_at(size_t i)
{
    return i < sizeof rules / sizeof *rules ? rules[i] : NULL;
}

/* Those of the table, then those from outside; NULL past the end. */
static const tri_optim_def *rule_at(const tri_optim_config *config, size_t i)
{
    size_t num = sizeof rules / sizeof *rules;
    if (i < num)
        return rules[i];
    return i - num < config->num_outside ? config->outside[i - num] : NULL;
}

static const tri_optim_def *find_rule(const tri_optim_config *config, const char *kind)
{
    for (size_t i = 0; rule_at(config, i); i++)
        if (strcmp(rule_at(config, i)->kind, kind) == 0)
            return rule_at(config, i);
    return NULL;
}

bool tri_optim_needs_whole(const tri_optim_config *config)
{
    for (size_t i = 0; rule_at(config, i); i++) {
        const tri_optim_def *rule = rule_at(config, i);
        bool used = strcmp(rule->kind, config->rule.kind) == 0 ||
                    (config->groups && strstr(config->groups, rule->kind));
        if (rule->whole_matrices && used)
            return true;
    }
    return false;
}

tri_id tri_optim_state_as(tri_graph *graph, const tri_update *update, const char *name,
                          tri_dtype dtype)
{
    const char *full = tri_arena_dotted(&graph->arena, name, update->param->name);
    tri_id state = tri_graph_state(graph, TRI_STATE_OPTIM, full, dtype, update->param->shape,
                                   update->param_id);
    return graph->arena.failed ? TRI_NONE : graph->states[state].latest;
}

tri_id tri_optim_state(tri_graph *graph, const tri_update *update, const char *name)
{
    return tri_optim_state_as(graph, update, name, TRI_F32);
}

/* Reads "key=value" into a rule. */
static tr_status read_option(char *word, const tri_optim_config *config, tri_graph *graph,
                             tri_rule_config *rule, tr_error *err)
{
    char *equals = strchr(word, '='), *end = NULL;
    if (equals) {
        *equals = 0;
        float number = strtof(equals + 1, &end);
        bool is_number = end != equals + 1 && *end == 0 && number >= 0;
        if (strcmp(word, "lr_scale") == 0 && is_number) {
            rule->lr_scale = number;
            return TR_OK;
        }
        if (strcmp(word, "weight_decay") == 0 && is_number) {
            rule->weight_decay = number;
            return TR_OK;
        }
        if (strcmp(word, "kind") == 0 && find_rule(config, equals + 1)) {
            rule->kind = tri_arena_printf(&graph->arena, "%s", equals + 1);
            return TR_OK;
        }
        *equals = '=';
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "optim.groups: \"%s\" is not understood; write PATTERN followed by "
                    "lr_scale=NUMBER, weight_decay=NUMBER or kind=NAME (%s)",
                    word, tri_optim_kind_row.choices);
}

/* Finds the first group whose pattern matches; counts matches per group in used. */
static tr_status apply_groups(tri_graph *graph, const tri_optim_config *config, const char *name,
                              tri_rule_config *rule, tr_error *err)
{
    char *copy = strdup(config->groups), *rest = copy, *group;
    tr_status status = copy ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for groups");
    bool matched = false;
    while (status == TR_OK && !matched && (group = strsep(&rest, ";"))) {
        char *save = NULL, *pattern = strtok_r(group, " \t\n", &save), *word;
        if (!pattern)
            continue;
        matched = fnmatch(pattern, name, 0) == 0;
        tri_rule_config ignored = *rule;
        while (status == TR_OK && (word = strtok_r(NULL, " \t\n", &save)))
            status = read_option(word, config, graph, matched ? rule : &ignored, err);
    }
    free(copy);
    return status;
}

static tr_status check_patterns_match(const tri_graph *graph, const char *groups, tr_error *err)
{
    char *copy = strdup(groups), *rest = copy, *group;
    tr_status status = copy ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for groups");
    while (status == TR_OK && (group = strsep(&rest, ";"))) {
        char *save = NULL, *pattern = strtok_r(group, " \t\n", &save);
        bool any = !pattern;
        for (size_t i = 0; !any && i < graph->params->count; i++)
            any = fnmatch(pattern, graph->params->items[i].name, 0) == 0;
        if (!any)
            status = tri_fail(err, TR_ERROR_INPUT,
                              "optim.groups: no parameter matches \"%s\"; `trireme plan --params` "
                              "lists the names",
                              pattern);
    }
    free(copy);
    return status;
}

/* Norms and biases do not decay, unless a group says so. */
static float default_decay(const tri_param *param, float weight_decay)
{
    return param->role == TRI_ROLE_NORM || param->role == TRI_ROLE_BIAS ? 0 : weight_decay;
}

static tr_status emit_param(tri_graph *graph, const tri_optim_config *config, tri_id param,
                            tri_id sched, tri_id result, tr_error *err)
{
    const tri_param *p = &graph->params->items[param];
    tri_rule_config chosen = config->rule;
    chosen.weight_decay = default_decay(p, chosen.weight_decay);
    if (config->groups && config->groups[0])
        TRI_TRY(apply_groups(graph, config, p->name, &chosen, err));
    const tri_optim_def *rule = find_rule(config, chosen.kind);
    if (!rule)
        return tri_fail(err, TR_ERROR_INPUT, "optim.kind is \"%s\"; known: %s", chosen.kind,
                        tri_optim_kind_row.choices);
    if (rule->handles && !rule->handles(p))
        rule = &tri_optim_adamw;
    tri_update update = {.config = config,
                         .rule = rule,
                         .param = p,
                         .param_id = param,
                         .lr_scale = chosen.lr_scale,
                         .weight_decay = chosen.weight_decay,
                         .value = tri_graph_param(graph, param),
                         .grad = graph->states[graph->grad_state[param]].latest,
                         .sched = sched,
                         .result = result};
    tri_graph_enter(graph, p->layer, "%s", p->name);
    rule->emit(graph, &update);
    return tri_graph_status(graph, err);
}

static tr_status emit_steered(tri_graph *graph, const tri_steered *steered, tri_id result,
                              tr_error *err)
{
    const tri_param *p = &graph->params->items[steered->param];
    const tri_attr attr = {.route = {.alpha = steered->rate}};
    tri_graph_enter(graph, p->layer, "%s", p->name);
    tri_id in[] = {tri_graph_param(graph, steered->param), graph->states[steered->load].latest,
                   result};
    tri_graph_emit(graph, TRI_OP_MOVE_BIAS, p->name, &attr, in, 3, 1);
    return tri_graph_status(graph, err);
}

/* The 16-bit copy of a parameter that has one. */
static tr_status emit_copy(tri_graph *graph, tri_id param, tr_error *err)
{
    const tri_param *p = &graph->params->items[param];
    if (graph->copy_state[param] == TRI_NONE)
        return TR_OK;
    tri_graph_enter(graph, p->layer, "%s", p->name);
    tri_id in[] = {tri_graph_param(graph, param), tri_graph_weight(graph, param)};
    tri_graph_emit(graph, TRI_OP_NARROW, p->name, NULL, in, 2, 1);
    return tri_graph_status(graph, err);
}

static double loss_limit(const tri_step_now *now, double constant)
{
    (void)constant;
    return now->loss_limit;
}

/* Returns the result of the step. A scaler gets its next version here: after the backward, its only
 * other reader. */
static tri_id emit_finish(tri_graph *graph, const tri_optim_config *config)
{
    tri_attr attr = {.finish = {.alpha = graph->loss_seed, .clip = config->clip}};
    tri_id in[5 + TRI_MAX_SHOWN] = {tri_graph_stat_value(graph, TRI_STAT_LOSS),
                                    tri_graph_stat_value(graph, TRI_STAT_COUNT),
                                    tri_graph_stat_value(graph, TRI_STAT_SQUARES), TRI_NONE};
    bool scales = graph->scaler != TRI_NONE;
    if (scales) {
        in[3] = graph->states[graph->scaler].latest;
        attr.finish.interval = graph->precision.growth_interval;
    }
    int num = graph->num_shown > 0 ? 4 + (int)graph->num_shown : scales ? 4 : 3;
    for (size_t k = 0; k < graph->num_shown; k++) {
        const tri_stat *stat = &graph->stats[graph->shown[k]];
        const tri_loss *loss = tri_graph_loss_of(graph, graph->states[stat->state].latest);
        if (loss && loss != &graph->losses[0]) /* which is an input of its own */
            attr.finish.weight[k] = loss->weight;
        attr.finish.means |= (uint8_t)(tri_stat_at(stat->row)->mean << k);
        attr.finish.stops |= (uint8_t)(tri_stat_at(stat->row)->stops << k);
        in[4 + k] = graph->states[stat->state].latest;
    }
    if (config->limits_loss) {
        attr.finish.limit_row =
            tri_graph_step_rows(graph, &(tri_step_row){"loss.limit", loss_limit, 0}, 1);
        num = num < 4 ? 4 : num; /* without a scaler its place is empty */
        in[num++] = graph->sched;
    }
    tri_id node = tri_graph_emit(graph, TRI_OP_FINISH, "result", &attr, in, num, scales ? 2 : 1);
    return node == TRI_NONE ? TRI_NONE : graph->nodes[node].out[0];
}

static double learning_rate(const tri_step_now *now, double constant)
{
    (void)constant;
    return now->lr;
}

tr_status tri_optim_emit(tri_graph *graph, const tri_optim_config *config, tr_error *err)
{
    if (config->groups && config->groups[0])
        TRI_TRY(check_patterns_match(graph, config->groups, err));
    graph->phase = TRI_PHASE_UPDATE;
    tri_graph_enter(graph, graph->num_layers, "%s", "");
    tri_graph_step_rows(graph, &(tri_step_row){"lr", learning_rate, 0}, 1);
    tri_id sched = graph->sched;
    uint8_t squares = tri_graph_stat(graph, TRI_STAT_SQUARES);
    TRI_TRY(tri_graph_status(graph, err));
    tri_id norm = graph->stats[squares].state;
    bool first = true;
    for (size_t i = 0; i < graph->params->count; i++) {
        if (graph->grad_state[i] == TRI_NONE)
            continue;
        tri_id grad = graph->states[graph->grad_state[i]].latest;
        tri_id node = tri_graph_emit(graph, TRI_OP_SUM_SQUARES, "sum_squares", NULL, &grad, 1, 1);
        TRI_TRY(tri_graph_status(graph, err));
        tri_graph_write_state(graph, node, 0, norm, first ? TRI_WRITE_START : TRI_WRITE_ADD);
        first = false;
    }
    tri_id result = emit_finish(graph, config);
    TRI_TRY(tri_graph_status(graph, err));
    tri_mark_output(graph, result);
    /* When stages update by themselves there is no norm of all gradients: the host says what to
     * apply them with, and the result is for its eyes alone. */
    if (graph->asynchronous)
        result = tri_graph_input(graph, "apply", TRI_F32, tri_shape_scalar(TRI_NUM_RESULT), false);
    for (size_t i = 0; i < graph->params->count; i++)
        if (graph->grad_state[i] != TRI_NONE)
            TRI_TRY(emit_param(graph, config, (tri_id)i, sched, result, err));
    /* After all updates, not each after its own: a device that takes many of a kind in one launch
     * then has two launches for the whole model. */
    for (size_t i = 0; i < graph->params->count; i++)
        if (graph->grad_state[i] != TRI_NONE)
            TRI_TRY(emit_copy(graph, (tri_id)i, err));
    for (size_t i = 0; i < graph->num_steered; i++)
        TRI_TRY(emit_steered(graph, &graph->steered[i], result, err));
    return TR_OK;
}
