/* The questions about the layout that was chosen: lanes of messages, and the batch. */
#include "cli/advise/advise_parts.h"
#include "config/settings_internal.h"
#include "sim/run_sums.h"

void tri_ask_lanes(tri_advice *advice)
{
    if (advice->chosen < 0)
        return;
    tri_advised_layout layout = tri_advise_trial(advice, advice->chosen)->layout;
    if (!layout.group_lanes || tr_settings_given(advice->given, "run.lanes"))
        return;
    tri_advised_question *q = tri_advise_ask(
        advice, "lanes", "May messages of different groups of devices be under way together?",
        "one group's messages should not wait for another's; run.lanes=group is off by default "
        "until it has been measured on several GPUs");
    layout.group_lanes = false;
    int one = tri_advise_try(advice, &layout);
    if (one < 0 || !tri_advise_trial(advice, one)->timed) {
        tri_advise_answer(q, "Yes.");
        return;
    }
    double apart = tri_advise_trial(advice, advice->chosen)->seconds;
    double together = tri_advise_trial(advice, one)->seconds;
    tri_advise_number(q, "one_lane_ms", "a step, one message at a time", 1e3 * together,
                      TRI_ADVISED_MS);
    tri_advise_number(q, "group_lanes_ms", "a step, a lane for each group", 1e3 * apart,
                      TRI_ADVISED_MS);
    if (together <= 1.01 * apart) {
        tri_advise_answer(q, "It changes little: one at a time, the default.");
        advice->chosen = one;
        return;
    }
    tri_advise_answer(q, "Yes: %.1f %% less time.", 100 * (1 - apart / together));
    tri_advise_follows(q, "run.lanes", "group");
}

static tri_link_spec link_of(const tri_tier *tier)
{
    return (tri_link_spec){.name = tier->name,
                           .title = tier->name,
                           .bytes_per_s = tier->bytes_per_s,
                           .torus_axes = (int)tier->torus_axes};
}

typedef struct batch_limits {
    double tokens;          /* of a device */
    double inside, outside; /* FSDP is bound by arithmetic from so many on */
    double tensor;          /* devices of tensor parallelism within a node, at most */
} batch_limits;

static batch_limits limits_of(const tri_advice *advice)
{
    const tri_sim_machine *m = advice->machine;
    const tri_device_spec *device = tri_sim_machine_device(m);
    const tri_cluster *cluster = &m->model.cluster;
    tri_link_spec inside = link_of(&cluster->tier[0]);
    tri_link_spec outside = link_of(&cluster->tier[cluster->num_tiers - 1]);
    double bytes = m->rate == TRI_RATE_16 ? 2 : 4, width = (double)advice->model.ffn_dim;
    batch_limits l = {.tokens = (double)advice->model.batch * (double)advice->model.seq_len /
                                (double)advice->devices,
                      .inside = tri_fsdp_tokens(device, &inside, 1, m->rate, bytes),
                      .outside = tri_fsdp_tokens(device, &outside, 1, m->rate, bytes),
                      .tensor = tri_tensor_devices(device, &inside, 1, m->rate, bytes, width)};
    return l;
}

void tri_ask_batch(tri_advice *advice)
{
    tri_advised_question *q = tri_advise_ask(
        advice, "batch", "Is the batch of a device large enough to be bound by arithmetic?",
        "FSDP is bound by arithmetic from C/W tokens a device on, tensor parallelism up to F W/C "
        "devices (trireme place --limits)");
    batch_limits l = limits_of(advice);
    bool several = advice->devices > advice->node;
    double limit = several ? l.outside : l.inside;
    tri_advise_number(q, "device_tokens", "tokens of a device in a step", l.tokens,
                      TRI_ADVISED_COUNT);
    tri_advise_number(q, "node_limit_tokens", "limit of FSDP within a node", l.inside,
                      TRI_ADVISED_COUNT);
    if (several)
        tri_advise_number(q, "network_limit_tokens", "limit of FSDP over all devices", l.outside,
                          TRI_ADVISED_COUNT);
    if (l.tensor > 0)
        tri_advise_number(q, "tensor_limit_devices", "limit of tensor parallelism within a node",
                          l.tensor, TRI_ADVISED_COUNT);
    if (advice->devices == 1)
        tri_advise_answer(q, "One device sends nothing.");
    else if (l.tokens >= limit)
        tri_advise_answer(q, "Yes: %.1f times the limit of FSDP over all devices.",
                          l.tokens / limit);
    else
        tri_advise_answer(q,
                          "No: %.2f of the limit of FSDP over all devices. A train.batch of %.0f "
                          "rows would reach it; other axes, or fewer devices, make up for it.",
                          l.tokens / limit,
                          limit * (double)advice->devices / (double)advice->model.seq_len);
}
