/* Pairs as text: whose turn it is, and what is hidden. */
#include "program/text_parts.h"

/* The first call of a pair in the timeline. */
static uint32_t first_call(const tri_program *program, uint32_t pair)
{
    uint32_t c = 0;
    while (c < program->num_calls && program->calls[c].pair != pair)
        c++;
    return c;
}

/* Whether the other half has a turn while a message is under way. */
static bool other_has_turn(const tri_program *program, uint32_t begin, const tri_flight *flight)
{
    const tri_call *call = &program->calls[flight->call];
    uint64_t from = flight->place;
    uint64_t to = tri_timeline_place(program, flight->wait_call, flight->wait_instr);
    tri_turn turn;
    for (uint32_t n = 0; tri_timeline_turn(program, begin, n, &turn); n++) {
        uint64_t at = tri_timeline_place(program, turn.call, turn.first);
        bool backward = program->calls[turn.call].nth > 0;
        if (backward != (call->nth > 0) && at > from && at < to)
            return true;
    }
    return false;
}

tri_pair_messages tri_pair_count(const tri_program *program, uint32_t pair)
{
    tri_pair_messages count = {0};
    uint32_t begin = first_call(program, pair);
    tri_turn turn;
    for (uint32_t n = 0; tri_timeline_turn(program, begin, n, &turn); n++)
        for (uint32_t i = turn.first; i < turn.end; i++) {
            const tri_instr *instr = &program->instrs[i];
            count.all += instr->message != TRI_NONE && tri_instr_leads(program, i) &&
                         tri_call_runs(&program->calls[turn.call], instr);
        }
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_flight *flight = &program->flights[f];
        if (flight->call >= begin && flight->call < begin + tri_calls_at_once(program, begin))
            count.beside += other_has_turn(program, begin, flight);
    }
    return count;
}

void tri_text_pairs(const tri_program *program, bool all, tri_text *text)
{
    enum { FEW = 12 };
    char name[24];
    for (uint32_t p = 0; p < program->num_pairs; p++) {
        const tri_pair *pair = &program->pairs[p];
        const tri_pair_messages count = tri_pair_count(program, p + 1);
        tri_text_add(text, "\npair %u:", p + 1);
        for (uint32_t n = 0; n < pair->num_calls; n++)
            tri_text_add(text, "%s %s", n == 1 ? " beside" : "",
                         tri_segment_text(program, &program->segments[pair->segment[n]], name));
        tri_text_add(text,
                     ", %u turn%s, %u message%s, %u of them under way in a turn of the other\n",
                     pair->num_turns, pair->num_turns == 1 ? "" : "s", count.all,
                     count.all == 1 ? "" : "s", count.beside);
        for (uint32_t n = 0; n < pair->num_turns && (all || n < FEW); n++) {
            const tri_turn *turn = &pair->list[n];
            const tri_segment *segment = &program->segments[pair->segment[turn->call]];
            tri_text_add(text, "       %s %u to %u\n", tri_segment_text(program, segment, name),
                         turn->first, turn->end - 1);
        }
        if (!all && pair->num_turns > FEW)
            tri_text_add(text, "       ...  %u turns more\n", pair->num_turns - FEW);
    }
}
