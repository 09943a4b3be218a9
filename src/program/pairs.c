/* Calls that run as one: the forward of one micro-batch and the backward of another.
 *
 * Their instructions become one list of turns, taken from the one half and the other in turn.
 * A half runs until an instruction reads what a message of its own brings; then it is the other's
 * turn, so that the message is under way while that computes. The other runs until it has to wait
 * itself, or until it has done as large a share of its work as the first.
 *
 * 1. Each half keeps its order, and a message with several tensors stays in one piece.
 * 2. What both touch outside of frames and `work`, such as sums that both add to, the forward
 *    touches first, as it would without a pair: results are the same, bit for bit. In frames each
 *    micro-batch has its own, and the memory plan keeps the halves apart in `work`.
 * 3. Only what is equal on all ranks of a group decides: kinds of instructions and which values
 *    they read, never sizes. So these ranks make the same list, and issue messages in one order. */
#include <stdlib.h>
#include <string.h>

#include "program/messages.h"

bool tri_timeline_turn(const tri_program *program, size_t call, uint32_t n, tri_turn *turn)
{
    const tri_call *first = &program->calls[call];
    const tri_segment *segment = &program->segments[first->segment];
    *turn = (tri_turn){(uint32_t)call, segment->first, segment->first + segment->count};
    if (!first->pair)
        return n == 0;
    const tri_pair *pair = &program->pairs[first->pair - 1];
    if (n >= pair->num_turns)
        return false;
    *turn = pair->list[n];
    turn->call += (uint32_t)call;
    return true;
}

uint64_t tri_timeline_place(const tri_program *program, uint32_t call, uint32_t instr)
{
    if (call >= program->num_calls || !program->calls[call].pair)
        return (uint64_t)call << 32 | instr;
    const tri_call *at = &program->calls[call];
    const uint32_t *place = program->pairs[at->pair - 1].place[at->nth];
    return (uint64_t)(call - at->nth) << 32 | place[instr - program->segments[at->segment].first];
}

/* Whether it is a message that the other half may hide: one of every micro-batch, between ranks. */
static bool is_hidden(const tri_instr *instr)
{
    return tri_op_get(instr->op)->communicates && instr->op != TRI_OP_FETCH &&
           instr->op != TRI_OP_STASH && !instr->border && !instr->first_only && !instr->last_only;
}

static bool has_hidden(const tri_program *program, uint32_t segment)
{
    const tri_segment *s = &program->segments[segment];
    for (uint32_t i = s->first; i < s->first + s->count; i++)
        if (is_hidden(&program->instrs[i]))
            return true;
    return false;
}

/* An instruction of a half. */
typedef struct member {
    uint32_t nth, instr; /* call of the pair */
    uint32_t after;      /* so many of the forward must have run */
} member;

typedef struct half {
    member *members;
    uint32_t count, next;
    uint32_t heavy, done; /* heavy ones: all, and those that have run */
    bool hides;           /* it has messages */
    bool waits;           /* its next instruction reads what a message brings */
} half;

typedef struct merger {
    const tri_program *program;
    tri_pair *pair;
    half halves[2];
    /* Of each value that a message makes: 1 + what the other half had done when it was started. */
    uint32_t *sent;
    uint32_t num_run;
    size_t capacity; /* of the list */
    bool no_memory;
} merger;

/* ---- what both touch ---- */

/* States, and what the first micro-batch makes for all: numbered, or TRI_NONE. */
static uint32_t shared_of(const tri_program *program, const tri_operand *operand)
{
    if (operand->value == TRI_NONE)
        return TRI_NONE;
    tri_id state = program->values[operand->value].state;
    if (state != TRI_NONE)
        return state;
    bool stays = program->spaces[operand->space].kind == TRI_SPACE_GATHERED;
    return stays ? (uint32_t)program->num_states + operand->value : TRI_NONE;
}

/* The last of the forward that writes, or touches at all, what an instruction touches. */
static void find_conflicts(merger *m, uint32_t *writes, uint32_t *touches)
{
    const tri_program *program = m->program;
    for (uint32_t n = 0; n < m->halves[0].count; n++) {
        const tri_instr *instr = &program->instrs[m->halves[0].members[n].instr];
        for (int o = 0; o < instr->num_in + instr->num_out; o++) {
            bool out = o >= instr->num_in;
            uint32_t at = shared_of(program, out ? &instr->out[o - instr->num_in] : &instr->in[o]);
            if (at == TRI_NONE)
                continue;
            touches[at] = n + 1;
            writes[at] = out ? n + 1 : writes[at];
        }
    }
    for (uint32_t n = 0; n < m->halves[1].count; n++) {
        member *own = &m->halves[1].members[n];
        const tri_instr *instr = &program->instrs[own->instr];
        for (int o = 0; o < instr->num_in + instr->num_out; o++) {
            bool out = o >= instr->num_in;
            uint32_t at = shared_of(program, out ? &instr->out[o - instr->num_in] : &instr->in[o]);
            uint32_t after = at == TRI_NONE ? 0 : out ? touches[at] : writes[at];
            own->after = after > own->after ? after : own->after;
        }
    }
}

/* ---- the list ---- */

static bool ended(const half *h)
{
    return h->next == h->count;
}

static const tri_instr *next_of(const merger *m, const half *h)
{
    return &m->program->instrs[h->members[h->next].instr];
}

/* Behind the first of its message, or of a message: from here on no other half may come. */
static bool in_message(const merger *m, const half *h)
{
    return !ended(h) && !tri_instr_leads(m->program, h->members[h->next].instr);
}

/* Whether the next instruction reads what a message brings that nothing has hidden so far. */
static bool must_wait(const merger *m, const half *h, const half *other)
{
    const tri_instr *instr = next_of(m, h);
    for (int j = 0; j < instr->num_in; j++) {
        tri_id value = instr->in[j].value;
        if (value != TRI_NONE && m->sent[value] && other->done < m->sent[value])
            return true;
    }
    for (int k = 0; k < instr->num_out; k++) {
        tri_id value = instr->write[k] == TRI_WRITE_NEW ? TRI_NONE : instr->prev[k];
        if (value != TRI_NONE && m->sent[value] && other->done < m->sent[value])
            return true;
    }
    return false;
}

/* Whether a half has done as large a share of its work as the other. */
static bool keeps_up(const half *h, const half *other)
{
    return (uint64_t)h->done * (other->heavy ? other->heavy : 1) >=
           (uint64_t)other->done * (h->heavy ? h->heavy : 1);
}

static void put(merger *m, uint32_t nth, uint32_t instr)
{
    tri_pair *pair = m->pair;
    tri_turn *last = pair->num_turns ? &pair->list[pair->num_turns - 1] : NULL;
    const tri_segment *segment = &m->program->segments[pair->segment[nth]];
    pair->place[nth][instr - segment->first] = m->num_run++;
    if (last && last->call == nth && last->end == instr) {
        last->end++;
        return;
    }
    tri_turn *grown = tri_array_grow(pair->list, pair->num_turns, &m->capacity, sizeof *grown);
    m->no_memory |= !grown;
    if (!grown)
        return;
    pair->list = grown;
    grown[pair->num_turns++] = (tri_turn){nth, instr, instr + 1};
}

static void run_next(merger *m, half *h)
{
    const half *other = h == &m->halves[0] ? &m->halves[1] : &m->halves[0];
    const member *own = &h->members[h->next++];
    const tri_instr *instr = &m->program->instrs[own->instr];
    put(m, own->nth, own->instr);
    h->done += tri_op_multiplies(instr->op);
    for (int k = 0; k < instr->num_out && is_hidden(instr); k++)
        m->sent[instr->out[k].value] = other->done + 1;
}

/* One turn of a half; false: it could not begin. past: whatever it waits for. */
static bool take_turn(merger *m, int which, bool past)
{
    half *h = &m->halves[which], *other = &m->halves[1 - which];
    uint32_t begun = h->next, done = h->done;
    h->waits = false;
    while (!ended(h) && !m->no_memory) {
        bool free_to_go = in_message(m, h) || ended(other);
        if (!free_to_go && !past && must_wait(m, h, other)) {
            h->waits = true;
            break;
        }
        if (!free_to_go && other->waits && h->done > done && keeps_up(h, other))
            break;
        past = false;
        while (which == 1 && other->next < h->members[h->next].after)
            run_next(m, other);
        while (which == 1 && in_message(m, other))
            run_next(m, other);
        run_next(m, h);
    }
    return h->next > begun;
}

static void interleave(merger *m)
{
    int which = m->halves[0].hides || !m->halves[1].hides ? 0 : 1;
    bool past = false;
    while ((!ended(&m->halves[0]) || !ended(&m->halves[1])) && !m->no_memory) {
        past = !take_turn(m, which, past); /* both wait: the other goes on and waits */
        which = 1 - which;
    }
}

/* ---- pairs ---- */

static bool fill_half(merger *m, half *h, uint32_t from, uint32_t to)
{
    const tri_program *program = m->program;
    size_t most = 1;
    for (uint32_t n = from; n < to; n++)
        most += program->segments[m->pair->segment[n]].count;
    h->members = calloc(most, sizeof *h->members);
    for (uint32_t n = from; n < to && h->members; n++) {
        const tri_segment *segment = &program->segments[m->pair->segment[n]];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            h->members[h->count++] = (member){.nth = n, .instr = i};
            h->heavy += tri_op_multiplies(program->instrs[i].op);
            h->hides |= is_hidden(&program->instrs[i]);
        }
    }
    return h->members != NULL;
}

static tr_status make_list(tri_program *program, tri_pair *pair, tr_error *err)
{
    merger m = {.program = program, .pair = pair};
    size_t shared = program->num_states + program->num_values + 1;
    uint32_t *writes = calloc(2 * shared, sizeof *writes);
    m.sent = calloc(program->num_values + 1, sizeof *m.sent);
    bool good = m.sent && writes && fill_half(&m, &m.halves[0], 0, 1) &&
                fill_half(&m, &m.halves[1], 1, pair->num_calls);
    for (uint32_t n = 0; n < pair->num_calls; n++) {
        uint32_t count = program->segments[pair->segment[n]].count;
        pair->place[n] = tri_arena_alloc(&program->arena, (count + 1) * sizeof(uint32_t));
        good &= pair->place[n] != NULL;
    }
    if (good) {
        find_conflicts(&m, writes, writes + shared);
        interleave(&m);
    }
    free(writes);
    free(m.sent);
    free(m.halves[0].members);
    free(m.halves[1].members);
    return good && !m.no_memory
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the lists of pairs");
}

/* The pair of these calls, which is made when it is first asked for. */
static tr_status find_pair(tri_program *program, size_t call, uint32_t num, size_t *capacity,
                           uint32_t *found, tr_error *err)
{
    tri_pair wanted = {.num_calls = num};
    for (uint32_t n = 0; n < num; n++)
        wanted.segment[n] = program->calls[call + n].segment;
    for (uint32_t p = 0; p < program->num_pairs; p++)
        if (program->pairs[p].num_calls == num &&
            memcmp(program->pairs[p].segment, wanted.segment, sizeof wanted.segment) == 0) {
            *found = p;
            return TR_OK;
        }
    tri_pair *grown = tri_array_grow(program->pairs, program->num_pairs, capacity, sizeof *grown);
    if (!grown)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the lists of pairs");
    program->pairs = grown;
    *found = (uint32_t)program->num_pairs++;
    grown[*found] = wanted;
    return make_list(program, &grown[*found], err);
}

static uint32_t num_overlapping(const tri_program *program, size_t call)
{
    uint32_t num = 1;
    while (program->calls[call + num - 1].overlaps && call + num < program->num_calls)
        num++;
    return num;
}

tr_status tri_pair_calls(tri_program *program, tr_error *err)
{
    size_t capacity = 0;
    for (size_t c = 0; c < program->num_calls;) {
        uint32_t num = num_overlapping(program, c), pair = 0;
        if (num > TRI_MOST_PAIRED)
            return tri_fail(err, TR_ERROR_INTERNAL, "call %zu overlaps with %u others", c, num - 1);
        if (num > 1)
            TRI_TRY(find_pair(program, c, num, &capacity, &pair, err));
        for (uint32_t n = 0; n < num && num > 1; n++) {
            program->calls[c + n].pair = pair + 1;
            program->calls[c + n].nth = n;
        }
        c += num;
    }
    return TR_OK;
}

void tri_pair_halves(const tri_program *program, tri_half *half)
{
    for (size_t c = 0; c < program->num_calls;) {
        uint32_t num = num_overlapping(program, c);
        bool hides = false;
        for (uint32_t n = 0; n < num; n++)
            hides |= has_hidden(program, program->calls[c + n].segment);
        for (uint32_t n = 0; n < num && num > 1 && hides; n++)
            half[program->calls[c + n].segment] = n ? TRI_HALF_BACKWARD : TRI_HALF_FORWARD;
        c += num;
    }
}
