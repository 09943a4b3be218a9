#include "model/moe.h"

#include <stdlib.h>

#include "graph/emit.h"

/* The next part "7" or "3..5" of a list, with the comma behind it; false: it is neither. */
static bool next_range(const char **text, int64_t *first, int64_t *last)
{
    char *end;
    *first = *last = strtoll(*text, &end, 10);
    if (end == *text)
        return false;
    if (end[0] == '.' && end[1] == '.') {
        const char *from = end + 2;
        *last = strtoll(from, &end, 10);
        if (end == from)
            return false;
    }
    *text = *end == ',' && end[1] ? end + 1 : end;
    return *end == 0 || (*end == ',' && end[1]);
}

bool tri_moe_has(const tri_moe_config *moe, int64_t layer)
{
    const char *text = moe->layers ? moe->layers : "";
    bool has = !*text;
    for (int64_t first, last; *text && next_range(&text, &first, &last);)
        has |= layer >= first && layer <= last;
    return moe->num_experts > 0 && has;
}

static tr_status check_layers(const tri_moe_config *moe, int64_t num_layers, tr_error *err)
{
    const char *text = moe->layers ? moe->layers : "";
    bool right = true;
    for (int64_t first, last; *text && right;)
        right =
            next_range(&text, &first, &last) && first >= 0 && first <= last && last < num_layers;
    if (!right)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.expert_layers is \"%s\"; give layers from 0 to %lld, such as "
                        "1..%lld or 1,3,5, or nothing for all of them",
                        moe->layers, (long long)num_layers - 1, (long long)num_layers - 1);
    return TR_OK;
}

tr_status tri_moe_check(const tri_moe_config *moe, int64_t num_layers, tr_error *err)
{
    if (moe->num_experts == 0)
        return TR_OK;
    if (moe->choices > moe->num_experts)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.experts_per_token is %lld, but there are %lld experts; lower it, or "
                        "raise model.num_experts",
                        (long long)moe->choices, (long long)moe->num_experts);
    if (moe->num_experts % moe->groups != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.router_groups is %lld, which does not divide model.num_experts %lld",
                        (long long)moe->groups, (long long)moe->num_experts);
    if (moe->groups > 1 && (moe->group_limit > moe->groups ||
                            moe->num_experts / moe->groups * moe->group_limit < moe->choices))
        return tri_fail(
            err, TR_ERROR_INPUT,
            "model.router_group_limit is %lld of %lld groups, which does not leave %lld "
            "experts to choose; raise it, at most to model.router_groups",
            (long long)moe->group_limit, (long long)moe->groups, (long long)moe->choices);
    return check_layers(moe, num_layers, err);
}

int64_t tri_moe_active(const tri_moe_config *moe, const tri_param_table *table)
{
    int64_t active = 0;
    for (size_t i = 0; i < table->count; i++) {
        int64_t count = tri_shape_count(&table->items[i].shape);
        bool expert = table->items[i].role == TRI_ROLE_EXPERTS;
        active += expert ? count / moe->num_experts * moe->choices : count;
    }
    return active;
}

void tri_moe_write(const tri_param_writer *w, const tri_moe_config *moe, int64_t dim, float std)
{
    const tri_init normal = {TRI_INIT_NORMAL, std};
    tri_dim d = {TRI_DIM_D, dim}, e = {TRI_DIM_E, moe->num_experts};
    tri_dim f = {TRI_DIM_F, moe->expert_dim}, s = {TRI_DIM_F, moe->shared_dim};
    tri_shape width = {.rank = 1, .dim = {d}}, hidden = {.rank = 1, .dim = {s}};
    tri_write_router(w, "mlp.gate", e, d, std, moe->bias_rate > 0);
    tri_write_experts(w, "mlp.experts.gate_proj", e, f, d, normal);
    tri_write_experts(w, "mlp.experts.up_proj", e, f, d, normal);
    tri_write_experts(w, "mlp.experts.down_proj", e, d, f, normal);
    if (moe->shared_dim == 0)
        return;
    tri_write_linear(w, "mlp.shared_expert.gate_proj", hidden, width, normal, NULL);
    tri_write_linear(w, "mlp.shared_expert.up_proj", hidden, width, normal, NULL);
    tri_write_linear(w, "mlp.shared_expert.down_proj", width, hidden, normal, NULL);
    if (moe->shared_gate)
        tri_write_linear(w, "mlp.shared_expert_gate", tri_shape_of(1, TRI_DIM_N, (int64_t)1), width,
                         normal, NULL);
}

static tri_route_attr how_to_route(const tri_moe_config *moe)
{
    return (tri_route_attr){.score = moe->score,
                            .choices = (int32_t)moe->choices,
                            .groups = (int32_t)moe->groups,
                            .group_limit = (int32_t)moe->group_limit,
                            .renorm = moe->renorm,
                            .scale = moe->scale};
}

/* The expert that every token goes to. */
static tri_id shared_expert(tri_graph *g, const tri_moe_config *moe, tri_id x)
{
    tri_id gate = tri_linear(g, "mlp.shared_expert.gate_proj", x);
    tri_id up = tri_linear(g, "mlp.shared_expert.up_proj", x);
    tri_id y = tri_linear(g, "mlp.shared_expert.down_proj",
                          tri_swiglu(g, "mlp.shared_expert.act", gate, up));
    if (!moe->shared_gate)
        return y;
    return tri_gate_rows(g, "mlp.shared_expert", y, tri_linear(g, "mlp.shared_expert_gate", x));
}

tri_id tri_moe_emit(tri_graph *g, const tri_moe_config *moe, bool train, const tri_batch_inputs *in,
                    tri_id x, tri_routing *router)
{
    tri_route_attr how = how_to_route(moe);
    *router = tri_route(g, "mlp.gate", x, &how, train ? moe->jitter : 0, in);
    if (train)
        tri_drop_rows(g, "mlp.kept", router, moe->capacity, in);
    tri_id y = tri_experts(g, "mlp.experts", x, router);
    return moe->shared_dim > 0 ? tri_add(g, "mlp", y, shared_expert(g, moe, x)) : y;
}

void tri_moe_losses(tri_graph *g, const tri_moe_config *moe, const tri_routing *routers,
                    int num_layers, const char *scope)
{
    tri_route_attr how = how_to_route(moe);
    tri_id joint = TRI_NONE;
    float layers = 0, experts = (float)moe->num_experts;
    how.whole = moe->over != TRI_BALANCE_SEQUENCE;
    for (int l = 0; l < num_layers; l++)
        layers += routers[l].logits != TRI_NONE;
    for (int l = 0; l < num_layers; l++) {
        if (routers[l].logits == TRI_NONE)
            continue;
        tri_graph_enter(g, l, scope, l);
        tri_id sums =
            tri_route_sums(g, "mlp.router", &routers[l], &how, 1 / layers, moe->bias_rate);
        tri_count_dropped(g, "mlp.dropped", &routers[l], 1 / (layers * (float)moe->choices));
        if (moe->over != TRI_BALANCE_JOINT)
            tri_balance(g, "mlp.balance", sums, experts / ((float)moe->choices * layers));
        else
            joint = joint == TRI_NONE ? sums : tri_add(g, "mlp.joint", joint, sums);
    }
    if (moe->over == TRI_BALANCE_JOINT) /* tokens are counted once for each layer */
        tri_balance(g, "mlp.balance", joint, experts / layers);
    /* A loss of each layer counts whole; what is shown is their mean. */
    tri_router_losses(g, moe->over == TRI_BALANCE_JOINT ? moe->balance : moe->balance * layers,
                      moe->z * layers);
}
