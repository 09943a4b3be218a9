#include "sim/roofline.h"

#include <math.h>

#include "program/messages.h"

static double message_seconds(const tri_program *program, const tri_message *message,
                              const tri_device_model *model)
{
    double bytes = (double)tri_message_bytes(message);
    double rate = model->link->bytes_per_s * model->efficiency;
    if (tri_message_pairwise(message) || tri_message_carries(message))
        return bytes / rate;
    if (message->kind == TRI_MESSAGE_SHIFT)
        return (double)tri_message_moved(message) / rate;
    double ranks = program->groups[message->group].size;
    double share = ranks > 1 ? (ranks - 1.0) / ranks : 0;
    if (message->kind == TRI_MESSAGE_ALL_TO_ALL)
        share /= ranks; /* each has a part to begin with */
    return (message->kind == TRI_MESSAGE_ALL_REDUCE ? 2 : 1) * share * bytes / rate;
}

/* Products of 8-bit operands have a rate of their own. */
static double arithmetic_rate(const tri_program *program, const tri_instr *instr,
                              const tri_device_model *model)
{
    return model->device->dense[tri_instr_float8(program, instr) ? TRI_RATE_FP8 : model->rate];
}

double tri_instr_seconds(const tri_program *program, uint32_t i, const tri_device_model *model)
{
    const tri_instr *instr = &program->instrs[i];
    if (!tri_instr_leads(program, i))
        return 0;
    if (instr->message != TRI_NONE)
        return message_seconds(program, &program->messages[instr->message], model);
    double arithmetic =
        instr->cost.flops / (arithmetic_rate(program, instr, model) * model->efficiency);
    double memory = instr->cost.bytes / (model->device->memory_bytes_per_s * model->efficiency);
    return fmax(arithmetic, memory);
}

static double instr_cost(const void *context, const tri_program *program, uint32_t i)
{
    return tri_instr_seconds(program, i, context);
}

static double message_cost(const void *context, const tri_program *program,
                           const tri_message *message)
{
    return message_seconds(program, message, context);
}

static double copy_cost(const void *context, double bytes)
{
    const tri_device_model *model = context;
    return 2 * bytes / (model->device->memory_bytes_per_s * model->efficiency);
}

tri_cost_table tri_roofline_costs(const tri_device_model *model)
{
    return (tri_cost_table){
        .context = model, .instr = instr_cost, .message = message_cost, .copy = copy_cost};
}
