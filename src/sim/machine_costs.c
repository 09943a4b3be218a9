#include "sim/machine_costs.h"

#include <math.h>
#include <stdio.h>

#include "program/messages.h"

/* Of a network's bandwidth, what NCCL reaches between nodes with large messages. */
static const double far_share = 0.8;
/* Of PCIe 5.0 x16, what copies from pinned memory reach. */
static const double host_rate = 0.85 * 64e9;
static const double link_latency_s = 5e-6;

tri_cluster tri_cluster_of_link(const tri_link_spec *link, uint32_t ranks)
{
    tri_cluster cluster = {.nodes = 1, .devices_per_node = ranks, .num_tiers = 1};
    snprintf(cluster.name, sizeof cluster.name, "%s", link->name);
    cluster.tier[0] = (tri_tier){.name = "node",
                                 .devices = ranks,
                                 .bytes_per_s = link->bytes_per_s,
                                 .latency_s = link_latency_s,
                                 .torus_axes = (uint32_t)link->torus_axes};
    return cluster;
}

tri_machine_model tri_machine_model_of(const tri_device_spec *device, const tri_cluster *cluster,
                                       tri_rate rate)
{
    tri_machine_model model = {.profile = tri_profile_of(device),
                               .cluster = *cluster,
                               .rate = rate,
                               .host_bytes_per_s = host_rate};
    model.terms = (tri_link_terms){.near_share = cluster->measured ? 1 : model.profile.link,
                                   .far_share = cluster->measured ? 1 : far_share};
    return model;
}

/* ---- instructions ---- */

static const tri_value *value_of(const tri_program *program, const tri_operand *operand)
{
    return &program->values[operand->value];
}

static double count_of(const tri_program *program, const tri_operand *operand)
{
    return (double)tri_shape_count(&value_of(program, operand)->shape);
}

/* The sides of a product follow from the elements of its operands and its result. Products by
 * expert have as many matrices. */
static double product_seconds(const tri_machine_model *model, const tri_program *program,
                              const tri_instr *instr)
{
    double a = count_of(program, &instr->in[0]), b = count_of(program, &instr->in[1]);
    double c = count_of(program, &instr->out[0]), flops = instr->cost.flops;
    double k = flops / (2 * c), m = a / k, n = b / k;
    bool plain = instr->op == TRI_OP_MATMUL && k >= 1 && fabs(m * n / c - 1) < 0.01;
    bool float8 = tri_instr_float8(program, instr);
    if (!plain) /* several matrices, or several results */
        m = n = sqrt(c);
    tri_product_size size = {
        .m = m,
        .n = n,
        .k = flops / (2 * m * n),
        .batch = 1,
        .rate = float8 ? TRI_RATE_FP8 : model->rate,
        .out_bytes = (double)tri_dtype_size(value_of(program, &instr->out[0])->dtype, 1)};
    return tri_profile_product(&model->profile, &size, model->profile.gap_s);
}

static double attention_seconds(const tri_machine_model *model, const tri_program *program,
                                const tri_instr *instr)
{
    bool backward = instr->op == TRI_OP_ATTENTION_GRAD;
    const tri_shape *q = &value_of(program, &instr->in[backward ? TRI_ATTENTION_GRAD_Q : 0])->shape;
    tri_flash_size size = {.rows = 1,
                           .heads = 1,
                           .queries = (double)q->dim[1].size,
                           .width = (double)q->dim[q->rank - 1].size,
                           .backward = backward};
    /* As many pairs of a query and a key as the operator counts, whatever the mask. */
    double a_pair = backward ? 10 : 4;
    size.keys = instr->cost.flops / (a_pair * size.queries * size.width);
    double seconds = tri_profile_flash(&model->profile, &size, model->profile.gap_s);
    return fmax(seconds, tri_profile_memory(&model->profile, instr->cost.bytes, 1, 0));
}

static double instr_seconds(const void *context, const tri_program *program, uint32_t i)
{
    const tri_machine_model *model = context;
    const tri_instr *instr = &program->instrs[i];
    if (instr->op == TRI_OP_ATTENTION || instr->op == TRI_OP_ATTENTION_GRAD)
        return attention_seconds(model, program, instr);
    if (tri_op_multiplies(instr->op) && instr->cost.flops > 0)
        return product_seconds(model, program, instr);
    return tri_profile_memory(&model->profile, instr->cost.bytes, 1, model->profile.gap_s);
}

/* ---- messages ---- */

static tri_coll coll_of(tri_message_kind kind)
{
    switch (kind) {
    case TRI_MESSAGE_ALL_REDUCE:
        return TRI_COLL_ALL_REDUCE;
    case TRI_MESSAGE_ALL_GATHER:
        return TRI_COLL_ALL_GATHER;
    case TRI_MESSAGE_REDUCE_SCATTER:
        return TRI_COLL_REDUCE_SCATTER;
    case TRI_MESSAGE_ALL_TO_ALL:
        return TRI_COLL_ALL_TO_ALL;
    default:
        return TRI_COLL_BROADCAST;
    }
}

static double message_seconds(const void *context, const tri_program *program,
                              const tri_message *message)
{
    const tri_machine_model *model = context;
    double bytes = (double)tri_message_bytes(message);
    if (tri_message_carries(message))
        return bytes / model->host_bytes_per_s;
    const tri_rank_group *group = &program->groups[message->group];
    bool shifts = message->kind == TRI_MESSAGE_SHIFT;
    if (shifts || tri_message_pairwise(message)) {
        uint32_t peer = shifts ? tri_shift_place(program, message, true) : message->peer;
        return tri_link_send(&model->cluster, (uint32_t)tri_rank_group_member(group, group->own),
                             (uint32_t)tri_rank_group_member(group, peer),
                             shifts ? (double)tri_message_moved(message) : bytes, &model->terms);
    }
    if (message->kind == TRI_MESSAGE_ALL_TO_ALL)
        bytes = (double)message->send.bytes;
    return tri_link_collective(&model->cluster, group, coll_of(message->kind), bytes,
                               &model->terms);
}

static double copy_seconds(const void *context, double bytes)
{
    const tri_machine_model *model = context;
    return tri_profile_memory(&model->profile, 2 * bytes, 1, model->profile.gap_s);
}

tri_cost_table tri_machine_costs(const tri_machine_model *model)
{
    return (tri_cost_table){.context = model,
                            .instr = instr_seconds,
                            .message = message_seconds,
                            .copy = copy_seconds,
                            .by_instr = true};
}
