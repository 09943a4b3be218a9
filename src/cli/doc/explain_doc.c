/* trireme explain --json: a program, instruction by instruction. */
#include "cli/doc/docs.h"
#include "program/messages.h"

static void put_operands(json_t *item, const char *key, const tri_program *program,
                         const tri_operand *operands, int num)
{
    char shape[128];
    json_t *list = tri_doc_list(item, key);
    for (int i = 0; i < num; i++) {
        if (operands[i].value == TRI_NONE)
            continue;
        const tri_value *value = &program->values[operands[i].value];
        json_t *operand = tri_doc_item(list);
        tri_doc_text(operand, "name", value->name);
        tri_doc_text(operand, "dtype", tri_dtype_name(value->dtype));
        tri_doc_text(operand, "shape", tri_shape_text(&value->shape, shape, sizeof shape));
        tri_doc_text(operand, "space", program->spaces[operands[i].space].name);
        tri_doc_count(operand, "offset_bytes", (int64_t)operands[i].offset);
        tri_doc_count(operand, "bytes", (int64_t)tri_value_bytes(value));
    }
}

static void put_message(json_t *item, const tri_program *program, const tri_instr *instr)
{
    const tri_message *message = &program->messages[instr->message];
    json_t *object = tri_doc_object(item, "message");
    tri_doc_text(object, "operation", tri_message_kind_name(message->kind));
    tri_doc_text(object, "group",
                 message->group == TRI_NONE ? NULL : program->groups[message->group].name);
    tri_doc_count(object, "bytes", (int64_t)tri_message_bytes(message));
    tri_doc_count(object, "first_instruction", message->first);
    tri_doc_count(object, "instructions", message->count);
}

static void put_instructions(json_t *segment, const tri_program *program, const tri_segment *s)
{
    json_t *list = tri_doc_list(segment, "instructions");
    for (uint32_t i = s->first; i < s->first + s->count; i++) {
        const tri_instr *instr = &program->instrs[i];
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "number", i);
        tri_doc_text(item, "operator", tri_op_get(instr->op)->name);
        tri_doc_count(item, "layer", instr->layer);
        tri_doc_number(item, "flops", instr->cost.flops);
        tri_doc_number(item, "bytes", instr->cost.bytes);
        put_operands(item, "reads", program, instr->in, instr->num_in);
        put_operands(item, "makes", program, instr->out, instr->num_out);
        if (instr->message != TRI_NONE)
            put_message(item, program, instr);
    }
}

static void put_segments(json_t *doc, const tri_program *program, bool brief)
{
    char name[24];
    json_t *list = tri_doc_list(doc, "segments");
    for (size_t s = 0; s < program->num_segments; s++) {
        json_t *item = tri_doc_item(list);
        int64_t calls = 0;
        for (size_t c = 0; c < program->num_calls; c++)
            calls += program->calls[c].segment == s;
        tri_doc_text(item, "name", tri_segment_text(program, &program->segments[s], name));
        tri_doc_text(item, "action", tri_action_name(program->segments[s].action));
        tri_doc_count(item, "chunk", program->segments[s].chunk);
        tri_doc_count(item, "num_instructions", program->segments[s].count);
        tri_doc_count(item, "calls", calls);
        if (!brief)
            put_instructions(item, program, &program->segments[s]);
    }
}

static void put_pairs(json_t *doc, const tri_program *program)
{
    char name[24];
    json_t *list = tri_doc_list(doc, "pairs");
    for (uint32_t p = 0; p < program->num_pairs; p++) {
        const tri_pair *pair = &program->pairs[p];
        const tri_pair_messages count = tri_pair_count(program, p + 1);
        json_t *item = tri_doc_item(list);
        tri_doc_count(item, "messages", count.all);
        tri_doc_count(item, "messages_beside_the_other", count.beside);
        json_t *turns = tri_doc_list(item, "turns");
        for (uint32_t n = 0; n < pair->num_turns; n++) {
            const tri_segment *segment = &program->segments[pair->segment[pair->list[n].call]];
            json_t *turn = tri_doc_item(turns);
            tri_doc_text(turn, "segment", tri_segment_text(program, segment, name));
            tri_doc_count(turn, "first", pair->list[n].first);
            tri_doc_count(turn, "last", (int64_t)pair->list[n].end - 1);
        }
    }
}

static void put_timeline(json_t *doc, const tri_program *program)
{
    char name[24];
    json_t *list = tri_doc_list(doc, "timeline");
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_call *call = &program->calls[c];
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "segment",
                     tri_segment_text(program, &program->segments[call->segment], name));
        tri_doc_count(item, "microbatch", call->microbatch);
    }
}

void tri_doc_program(json_t *doc, const tri_session *session, int which, bool brief)
{
    const tri_program *program = &session->programs[which];
    tri_cost cost = tri_program_cost(program);
    tri_doc_model(doc, session);
    tri_doc_count(doc, "microbatches", program->num_microbatches);
    tri_doc_count(doc, "num_instructions", (int64_t)program->num_instrs);
    tri_doc_count(doc, "num_calls", (int64_t)program->num_calls);
    tri_doc_count(doc, "num_messages", (int64_t)program->num_messages);
    tri_doc_number(doc, "flops", cost.flops);
    tri_doc_number(doc, "recomputed_flops", tri_program_redone(program).flops);
    tri_doc_number(doc, "traffic_bytes", cost.bytes);
    json_t *spaces = tri_doc_list(doc, "spaces");
    for (size_t s = 0; s < program->num_spaces; s++) {
        const tri_space *space = &program->spaces[s];
        if (tri_space_total(space) == 0)
            continue;
        json_t *item = tri_doc_item(spaces);
        tri_doc_text(item, "name", space->name);
        tri_doc_count(item, "bytes", (int64_t)tri_space_total(space));
        tri_doc_count(item, "instances", space->num_instances);
    }
    if (!brief)
        put_timeline(doc, program);
    put_segments(doc, program, brief);
    if (program->num_pairs > 0 && !brief)
        put_pairs(doc, program);
}

void tri_doc_operators(json_t *doc)
{
    json_t *list = tri_doc_list(doc, "operators");
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        const tri_op_def *def = tri_op_get((tri_op)op);
        json_t *item = tri_doc_item(list);
        tri_doc_text(item, "name", def->name);
        tri_doc_text(item, "reads", def->inputs);
        tri_doc_text(item, "makes", def->outputs);
        tri_doc_text(item, "meaning", def->meaning);
    }
}
