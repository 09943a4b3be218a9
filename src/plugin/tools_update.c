/* What a plug-in may call while it describes the update of a parameter; and its learning rate. */
#include <string.h>

#include "graph/op_table.h"
#include "plugin/plugin.h"

struct tr_updates {
    tri_graph *g;
    const tri_update *u;
    bool applied;
};

static bool is_call(tr_updates *updates, const char *name, tr_value a, tr_value b)
{
    tri_graph *g = updates->g;
    const tr_value most = (tr_value)g->num_values;
    if (!name || !*name || strlen(name) > 60)
        tri_graph_fail(g, "the plug-in's rule gives an operator no name");
    else if (a >= most || b >= most)
        tri_graph_fail(g, "the plug-in's rule gives %s a value that there is not", name);
    return g->status == TR_OK;
}

tr_value tri_tool_moment(tr_updates *updates, const char *name)
{
    if (!is_call(updates, name, 0, 0))
        return TR_NO_VALUE;
    const char *full = tri_arena_printf(&updates->g->arena, "%s.%s", updates->u->rule->kind, name);
    return updates->g->arena.failed ? TR_NO_VALUE : tri_optim_state(updates->g, updates->u, full);
}

tr_value tri_tool_momentum(tr_updates *updates, tr_value state, double beta, bool nesterov)
{
    tri_graph *g = updates->g;
    if (!is_call(updates, "momentum", state, 0))
        return TR_NO_VALUE;
    if (tri_value_at(g, state)->state == TRI_NONE) {
        tri_graph_fail(g, "the plug-in's rule has momentum in what is no moment");
        return TR_NO_VALUE;
    }
    tri_attr attr = {.update = {.beta1 = (float)beta, .nesterov = nesterov}};
    tri_id in[] = {state, updates->u->grad, updates->u->result};
    return tri_node_out(
        g, tri_graph_emit(g, TRI_OP_MOMENTUM, tri_graph_name(g, "momentum"), &attr, in, 3, 2), 1);
}

tr_value tri_tool_unit_norm(tr_updates *updates, const char *name, tr_value x, double eps)
{
    tri_graph *g = updates->g;
    tri_attr attr = {.update = {.eps = (float)eps}};
    if (!is_call(updates, name, x, 0))
        return TR_NO_VALUE;
    return tri_node_out(
        g, tri_graph_emit(g, TRI_OP_UNIT_NORM, tri_graph_name(g, name), &attr, &x, 1, 1), 0);
}

tr_value tri_tool_sum(tr_updates *updates, const char *name, double a, tr_value x, double b,
                      tr_value y)
{
    return is_call(updates, name, x, y) ? tri_axpby(updates->g, name, (float)a, x, (float)b, y)
                                        : TR_NO_VALUE;
}

void tri_tool_apply(tr_updates *updates, tr_value x, double scale)
{
    const tri_update *u = updates->u;
    if (updates->applied)
        tri_graph_fail(updates->g, "the plug-in's rule updates a parameter twice");
    updates->applied = true;
    if (!is_call(updates, "apply", x, 0))
        return;
    tri_attr attr = {.update = {.alpha = (float)scale,
                                .weight_decay = u->weight_decay,
                                .lr_scale = u->lr_scale}};
    tri_id in[] = {u->value, x, u->sched, u->result};
    tri_graph_emit(updates->g, TRI_OP_APPLY_UPDATE, u->param->name, &attr, in, 4, 1);
}

static tr_role role_of(tri_param_role role)
{
    return role == TRI_ROLE_EMBEDDING ? TR_ROLE_EMBEDDING
           : role == TRI_ROLE_MATRIX  ? TR_ROLE_MATRIX
           : role == TRI_ROLE_ROUTER  ? TR_ROLE_ROUTER
           : role == TRI_ROLE_EXPERTS ? TR_ROLE_EXPERTS
           : role == TRI_ROLE_BIAS    ? TR_ROLE_BIAS
                                      : TR_ROLE_NORM;
}

static void emit(tri_graph *g, const tri_update *u)
{
    const tri_outside_rule *rule = (const tri_outside_rule *)u->rule;
    const tri_shape *shape = &u->param->shape;
    tr_updates updates = {.g = g, .u = u};
    tr_update what = {.settings = u->config->settings,
                      .name = u->param->name,
                      .role = role_of(u->param->role),
                      .rows = tri_shape_span(shape, 0, u->param->split),
                      .columns = tri_shape_span(shape, u->param->split, shape->rank),
                      .lr_scale = (double)u->lr_scale,
                      .weight_decay = (double)u->weight_decay};
    rule->row->emit(&tri_plugin_tools, &what, &updates);
    if (!updates.applied)
        tri_graph_fail(g, "optim.kind %s of a plug-in ends without tr_tools.apply", rule->def.kind);
}

static bool is_matrix(const tri_param *param)
{
    return param->role == TRI_ROLE_MATRIX;
}

void tri_outside_rule_def(tri_outside_rule *rule, tri_owned own)
{
    rule->def = (tri_optim_def){.kind = rule->row->kind,
                                .whole_matrices = rule->row->whole,
                                .handles = rule->row->matrices ? is_matrix : NULL,
                                .emit = emit,
                                .own = own};
}

/* ---- the learning rate ---- */

static void read_lr(const tr_settings *settings, tri_lr_schedule *s)
{
    s->settings = settings;
}

static double rate(const tri_lr_schedule *s, int64_t step)
{
    const tri_outside_lr *lr = (const tri_outside_lr *)s->def;
    tr_lr what = {
        .settings = s->settings, .lr = s->lr, .steps = s->steps, .warmup = s->warmup_steps};
    return lr->row->rate(&tri_plugin_tools, &what, step);
}

void tri_outside_lr_def(tri_outside_lr *schedule, tri_owned own)
{
    schedule->def =
        (tri_lr_def){.kind = schedule->row->kind, .rate = rate, .own = own, .read = read_lr};
}
