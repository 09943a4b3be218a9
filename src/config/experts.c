/* Expert parallelism: from layout.ep, etp and ep_room to the mesh and to where experts lie. */
#include "config/resolve.h"

/* Ranks of an ep group are neighbours among those that share out the batch: within cp, or all of it
 * for some of dp. And groups that ZeRO divides over are whole ep groups, or parts of one. */
static bool fits(int64_t ep, const tri_compile_config *compile)
{
    int64_t dp = tri_mesh_size(&compile->mesh, TRI_AXIS_DP);
    int64_t cp = tri_mesh_size(&compile->mesh, TRI_AXIS_CP);
    int64_t shard = tri_mesh_size(&compile->mesh, TRI_AXIS_SHARD);
    bool data = ep <= cp ? cp % ep == 0 : ep % cp == 0 && dp % (ep / cp) == 0;
    bool nests = ep <= shard ? shard % ep == 0 : ep % shard == 0;
    return data && nests && compile->model.moe.num_experts % ep == 0;
}

static tr_status check_ep(const tri_compile_config *compile, int64_t ep, tr_error *err)
{
    int64_t nearest = ep, experts = compile->model.moe.num_experts;
    if (ep > 1 && experts == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.ep is %lld, but the model has no experts to divide; leave it out, "
                        "or set model.num_experts",
                        (long long)ep);
    if (ep == 1 || fits(ep, compile))
        return TR_OK;
    while (!fits(nearest, compile))
        nearest--;
    return tri_fail(err, TR_ERROR_INPUT,
                    "layout.ep is %lld: it must divide the %lld experts and layout.cp=%d, or be "
                    "layout.cp times a divisor of layout.dp=%d (and fit layout.shard_group, where "
                    "that is given); the nearest below that does is %lld",
                    (long long)ep, (long long)experts, tri_mesh_size(&compile->mesh, TRI_AXIS_CP),
                    tri_mesh_size(&compile->mesh, TRI_AXIS_DP), (long long)nearest);
}

/* Every tensor-parallel rank needs something of each width that is divided. */
static tr_status check_widths(const tri_compile_config *compile, tr_error *err)
{
    const tri_moe_config *moe = &compile->model.moe;
    int tp = tri_mesh_size(&compile->mesh, TRI_AXIS_TP);
    if (moe->num_experts == 0)
        return TR_OK;
    if (moe->expert_dim < tp && !compile->whole_experts)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.tp is %d, but model.expert_dim is %lld, which leaves ranks without "
                        "any; use layout.tp=%lld at most, or layout.sp=true and layout.etp=1",
                        tp, (long long)moe->expert_dim, (long long)moe->expert_dim);
    if (moe->shared_dim > 0 && moe->shared_dim < tp)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.tp is %d, but model.shared_dim is %lld, which leaves ranks without "
                        "any; use layout.tp=%lld at most",
                        tp, (long long)moe->shared_dim, (long long)moe->shared_dim);
    return TR_OK;
}

tr_status tri_experts_config(const tr_settings *s, tri_compile_config *compile, tr_error *err)
{
    int64_t ep = tr_settings_int(s, "layout.ep"), etp = tr_settings_int(s, "layout.etp");
    int tp = tri_mesh_size(&compile->mesh, TRI_AXIS_TP);
    TRI_TRY(check_ep(compile, ep, err));
    if (etp > 0 && etp != tp && (etp != 1 || !compile->sp))
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.etp is %lld: experts are divided as layout.tp=%d says, or, with "
                        "layout.sp=true, not at all (layout.etp=1)",
                        (long long)etp, tp);
    compile->mesh.size[TRI_AXIS_EP] = (int)ep;
    compile->whole_experts = etp == 1 && tp > 1;
    compile->ep_room = tr_settings_float(s, "layout.ep_room");
    TRI_TRY(check_widths(compile, err));
    if (compile->model.moe.num_experts > 0 && compile->model.moe.over == TRI_BALANCE_JOINT &&
        tri_mesh_size(&compile->mesh, TRI_AXIS_PP) > 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.balance_over is joint, which adds up loads of all layers, but the "
                        "layers are divided over layout.pp=%d ranks; use sequence or microbatch",
                        tri_mesh_size(&compile->mesh, TRI_AXIS_PP));
    return TR_OK;
}
