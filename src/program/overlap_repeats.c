/* Calls of a segment whose flights are those of one before them: they begin with the same messages
 * under way, as far as they touch these. Messages that are started ahead of their place, or are too
 * small to be worth a lane of their own, depend on more: where there may be such, every call is
 * walked. */
#include <stdlib.h>
#include <string.h>

#include "program/overlap_parts.h"

/* A message that is under way when a call begins, and lands in it, or has not when it ends. */
typedef struct met {
    const tri_message *message;
    bool same_read, same_write; /* its memory is of the instance that the call has */
    uint32_t flight, wait_instr;
    double work; /* of the call before it lands */
} met;

/* A message that a call starts. */
typedef struct overlap_started {
    uint32_t instr, wait_instr; /* TRI_NONE: it is under way when the call ends */
    bool made;
    double work; /* of the call before it is started */
} overlap_started;

/* What was seen of a call of a segment, the first or the last of it or none of these. */
typedef struct repeat {
    bool known;
    met *met;
    overlap_started *started;
    size_t num_met, num_started;
    double work; /* of the whole call */
} repeat;

typedef struct overlap_repeats {
    repeat *of; /* [segment][first][last] */
    met *now;   /* of the call at hand */
    size_t num_now, capacity;
    bool noting;
} overlap_repeats;

bool tri_overlap_repeats_init(overlap_planner *p)
{
    if (!p->how->in_place || p->how->min_bytes > 0)
        return true;
    p->repeats = calloc(1, sizeof *p->repeats);
    if (p->repeats)
        p->repeats->of = calloc(4 * p->program->num_segments + 1, sizeof *p->repeats->of);
    return p->repeats && p->repeats->of;
}

static void forget(repeat *r)
{
    free(r->met);
    free(r->started);
    *r = (repeat){0};
}

void tri_overlap_repeats_fini(overlap_planner *p)
{
    overlap_repeats *r = p->repeats;
    if (!r)
        return;
    for (size_t k = 0; r->of && k < 4 * p->program->num_segments; k++)
        forget(&r->of[k]);
    free(r->of);
    free(r->now);
    free(r);
}

static repeat *repeat_of(const overlap_planner *p, const tri_call *call)
{
    return &p->repeats->of[4 * (size_t)call->segment + 2 * call->first + call->last];
}

/* The messages under way that a call touches. */
static bool find_met(overlap_planner *p, const tri_call *call)
{
    overlap_repeats *r = p->repeats;
    r->num_now = 0;
    for (size_t n = 0; n < p->num_air; n++) {
        const overlap_airborne *a = &p->air[n];
        if (!tri_overlap_may_touch(p, call, a))
            continue;
        met *now = tri_array_grow(r->now, r->num_now, &r->capacity, sizeof *now);
        p->no_memory |= !now;
        if (!now)
            return false;
        r->now = now;
        now[r->num_now++] =
            (met){.message = a->message,
                  .same_read = tri_overlap_same_instance(p->program, call, &a->read),
                  .same_write = tri_overlap_same_instance(p->program, call, &a->write),
                  .flight = a->flight};
    }
    return true;
}

static bool meets_the_same(const overlap_repeats *r, const repeat *like)
{
    bool same = like->known && like->num_met == r->num_now;
    for (size_t n = 0; same && n < r->num_now; n++)
        same = r->now[n].message == like->met[n].message &&
               r->now[n].same_read == like->met[n].same_read &&
               r->now[n].same_write == like->met[n].same_write;
    return same;
}

static size_t air_of(const overlap_planner *p, uint32_t flight)
{
    size_t n = 0;
    while (n < p->num_air && p->air[n].flight != flight)
        n++;
    return n;
}

static tr_status do_again(overlap_planner *p, uint32_t c, const repeat *like)
{
    const overlap_repeats *r = p->repeats;
    const double before = p->work;
    for (size_t n = 0; n < like->num_met; n++) {
        p->work = before + like->met[n].work;
        if (like->met[n].wait_instr != TRI_NONE)
            tri_overlap_land(p, air_of(p, r->now[n].flight), c, like->met[n].wait_instr);
    }
    for (size_t n = 0; n < like->num_started; n++) {
        const overlap_started *s = &like->started[n];
        p->work = before + s->work;
        TRI_TRY(tri_overlap_take_off(p, c, s->instr));
        if (s->wait_instr == TRI_NONE)
            continue;
        size_t flight = p->air[--p->num_air].flight;
        p->program->flights[flight].wait_call = c;
        p->program->flights[flight].wait_instr = s->wait_instr;
        p->made[flight] = s->made;
    }
    p->work = before + like->work;
    return TR_OK;
}

bool tri_overlap_repeat(overlap_planner *p, uint32_t c, tr_status *status)
{
    const tri_call *call = &p->program->calls[c];
    *status = TR_OK;
    if (!p->repeats)
        return false;
    p->repeats->noting = !call->pair && call->copy_from == TRI_NONE && find_met(p, call);
    const repeat *like = repeat_of(p, call);
    if (!p->repeats->noting || !meets_the_same(p->repeats, like))
        return false;
    *status = do_again(p, c, like);
    return true;
}

/* What is done in a call before each of its instructions; the caller frees it. */
static double *work_before(const tri_program *program, const tri_call *call)
{
    const tri_segment *segment = &program->segments[call->segment];
    double *work = calloc((size_t)segment->count + 1, sizeof *work);
    for (uint32_t k = 0; work && k < segment->count; k++) {
        const tri_instr *instr = &program->instrs[segment->first + k];
        bool computes = instr->message == TRI_NONE && tri_call_runs(call, instr);
        work[k + 1] = work[k] + (computes ? tri_overlap_work(instr) : 0);
    }
    return work;
}

static uint32_t wait_of(const overlap_planner *p, uint32_t flight)
{
    return air_of(p, flight) < p->num_air ? TRI_NONE : p->program->flights[flight].wait_instr;
}

tr_status tri_overlap_note(overlap_planner *p, uint32_t c, size_t first)
{
    const tri_program *program = p->program;
    overlap_repeats *r = p->repeats;
    if (!r || !r->noting)
        return TR_OK;
    repeat *now = repeat_of(p, &program->calls[c]);
    const uint32_t begin = program->segments[program->calls[c].segment].first;
    double *work = work_before(program, &program->calls[c]);
    forget(now);
    now->met = malloc((r->num_now + 1) * sizeof *now->met);
    now->started = malloc((program->num_flights - first + 1) * sizeof *now->started);
    if (!now->met || !now->started || !work) {
        free(work);
        return tri_fail(p->err, TR_ERROR_RUNTIME, "no memory for the program's messages");
    }
    for (; now->num_met < r->num_now; now->num_met++) {
        met *m = &now->met[now->num_met];
        *m = r->now[now->num_met];
        m->wait_instr = wait_of(p, m->flight);
        m->work = m->wait_instr == TRI_NONE ? 0 : work[m->wait_instr - begin];
    }
    for (uint32_t f = (uint32_t)first; f < program->num_flights; f++)
        now->started[now->num_started++] =
            (overlap_started){.instr = program->flights[f].instr,
                              .wait_instr = wait_of(p, f),
                              .made = p->made[f],
                              .work = work[program->flights[f].instr - begin]};
    free(work);
    now->work = p->work - p->call_work[c];
    now->known = true;
    return TR_OK;
}
