#include "run/trace/message_numbers.h"

#include <stdlib.h>

#include "program/messages.h"

/* FNV-1a. What it is made of is the same wherever a member looks, so the number is, too. */
uint64_t tri_message_mix(uint64_t sum, uint64_t value)
{
    for (int i = 0; i < 8; i++, value >>= 8)
        sum = (sum ^ (value & 0xff)) * 0x100000001b3u;
    return sum;
}

static uint64_t mix_group(const tri_rank_group *group)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (const char *c = group->name; *c; c++)
        sum = tri_message_mix(sum, (unsigned char)*c);
    for (uint32_t place = 0; place < group->size; place++)
        sum = tri_message_mix(sum, (uint64_t)tri_rank_group_member(group, place));
    return sum;
}

/* Messages that follow each other: those of a group, or of two of its members one way. */
typedef struct message_stream {
    uint32_t group;
    uint64_t from, to; /* of collectives: both 0 */
    uint64_t sum;
    uint64_t count;
} message_stream;

typedef struct message_streams {
    message_stream *streams;
    size_t num, capacity;
} message_streams;

static message_stream *stream_of(message_streams *list, const tri_program *program,
                                 const tri_message *message)
{
    const tri_rank_group *group = &program->groups[message->group];
    message_stream wanted = {.group = message->group};
    if (tri_message_pairwise(message)) {
        uint64_t own = (uint64_t)tri_rank_group_member(group, group->own) + 1;
        uint64_t peer = (uint64_t)tri_rank_group_member(group, message->peer) + 1;
        wanted.from = message->kind == TRI_MESSAGE_SEND ? own : peer;
        wanted.to = message->kind == TRI_MESSAGE_SEND ? peer : own;
    }
    for (size_t i = 0; i < list->num; i++) {
        message_stream *s = &list->streams[i];
        if (s->group == wanted.group && s->from == wanted.from && s->to == wanted.to)
            return s;
    }
    if (list->num == list->capacity) {
        size_t capacity = 2 * list->capacity + 16;
        message_stream *more = realloc(list->streams, capacity * sizeof *more);
        if (!more)
            return NULL;
        list->streams = more;
        list->capacity = capacity;
    }
    wanted.sum = tri_message_mix(tri_message_mix(mix_group(group), wanted.from), wanted.to);
    list->streams[list->num] = wanted;
    return &list->streams[list->num++];
}

static bool is_numbered(const tri_program *program, uint32_t instr)
{
    uint32_t message = program->instrs[instr].message;
    return message != TRI_NONE && program->messages[message].first == instr &&
           !tri_message_carries(&program->messages[message]);
}

/* Where messages of each segment have their places, and how many a step has. */
static size_t place_messages(tri_message_numbers *numbers)
{
    const tri_program *program = numbers->program;
    size_t total = 0;
    for (size_t s = 0; s < program->num_segments; s++) {
        const tri_segment *segment = &program->segments[s];
        uint32_t place = 0;
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            if (is_numbered(program, i))
                numbers->place[i] = place++;
    }
    for (size_t c = 0; c < program->num_calls; c++) {
        const tri_segment *segment = &program->segments[program->calls[c].segment];
        numbers->first_of_call[c] = (uint32_t)total;
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++)
            total += is_numbered(program, i);
    }
    return total;
}

static bool number_messages(tri_message_numbers *numbers)
{
    const tri_program *program = numbers->program;
    message_streams list = {0};
    bool good = true;
    for (size_t c = 0; c < program->num_calls && good; c++) {
        const tri_call *call = &program->calls[c];
        const tri_segment *segment = &program->segments[call->segment];
        for (uint32_t i = segment->first; i < segment->first + segment->count && good; i++) {
            const tri_instr *instr = &program->instrs[i];
            if (!is_numbered(program, i) || !tri_call_runs(call, instr))
                continue;
            message_stream *s = stream_of(&list, program, &program->messages[instr->message]);
            good = s != NULL;
            if (good)
                numbers->number[numbers->first_of_call[c] + numbers->place[i]] =
                    tri_message_mix(s->sum, s->count++) | 1;
        }
    }
    free(list.streams);
    return good;
}

bool tri_message_numbers_init(tri_message_numbers *numbers, const tri_program *program)
{
    *numbers = (tri_message_numbers){.program = program};
    numbers->place = calloc(program->num_instrs + 1, sizeof *numbers->place);
    numbers->first_of_call = calloc(program->num_calls + 1, sizeof *numbers->first_of_call);
    if (numbers->place && numbers->first_of_call)
        numbers->number = calloc(place_messages(numbers) + 1, sizeof *numbers->number);
    return numbers->number && number_messages(numbers);
}

void tri_message_numbers_fini(tri_message_numbers *numbers)
{
    free(numbers->place);
    free(numbers->first_of_call);
    free(numbers->number);
    *numbers = (tri_message_numbers){0};
}

uint64_t tri_message_number(const tri_message_numbers *numbers, size_t call, uint32_t instr)
{
    if (!is_numbered(numbers->program, instr))
        return 0;
    return numbers->number[numbers->first_of_call[call] + numbers->place[instr]];
}
