/* Collectives made of messages: runs the rounds of src/collective over the ports of a group.
 *
 * Every member holds the whole vector somewhere: in recv where that is whole, otherwise in scratch
 * memory (which is reachable, so that peers pull from it). In an all_to_all pieces lie in send, in
 * recv, or in scratch when they are for others.
 *
 * In a round all sends are posted, then the receives; those that are combined are done one by one
 * in the order of the peers, so that terms are combined in one order only. The round ends when its
 * sends are done, too. No deadlock: a send waits for nothing but its receiver, and all members of a
 * round have posted all their sends before they wait.
 *
 * A message of one run of pieces goes straight from and to its place. One of several is packed; so
 * is a send of pieces that this member receives into in the same round, which must be sent as they
 * were before. */
#include "comm/layout.h"
#include "comm/reduce.h"
#include "comm/rounds/rounds_plan.h"
#include "comm/transport/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rounds_call {
    tr_group *group;
    const tr_collective *call;
    const tri_plan *plan;
    uint64_t element, total;        /* bytes of an element; elements of the vector */
    const uint64_t *counts;         /* of blocks, or NULL */
    char *vector, *relays, *packed; /* never NULL: places in them are found by adding */
    char none[1];                   /* what they are without a byte */
    tri_about about;
    char what[120];
};

static bool in_blocks(tr_operation operation)
{
    return operation == TR_GATHER || operation == TR_SCATTER || operation == TR_ALL_GATHER ||
           operation == TR_REDUCE_SCATTER;
}

static uint64_t piece_begin(const struct rounds_call *run, uint32_t piece)
{
    uint64_t first, num;
    if (piece == run->plan->num_pieces)
        return run->total;
    if (in_blocks(run->call->operation))
        return tri_block_first(run->counts, run->call->count, (int)piece);
    tri_piece_range(run->total, run->plan->num_pieces, piece, &first, &num);
    return first;
}

/* Where a piece of an all_to_all lies with this member. */
static char *exchange_data(const struct rounds_call *run, const tri_plan_run *r, uint64_t *bytes)
{
    const tr_collective *call = run->call;
    uint32_t size = (uint32_t)run->group->size;
    int from = (int)(r->first_piece / size), to = (int)(r->first_piece % size);
    bool own = from == run->group->rank;
    if (r->relay >= 0) {
        *bytes = call->count * run->element;
        return run->relays + (uint64_t)r->relay * *bytes;
    }
    const uint64_t *counts = own ? call->send_counts : call->recv_counts;
    int block = own ? to : from;
    char *base = own ? (char *)(uintptr_t)call->send : (char *)call->recv;
    base = base ? base : (char *)(uintptr_t)run->none; /* who sends or gets nothing may give NULL */
    *bytes = (counts ? counts[block] : call->count) * run->element;
    return base + tri_exchange_first(call, counts, block) * run->element;
}

static char *run_data(const struct rounds_call *run, const tri_plan_run *r, uint64_t *bytes)
{
    if (run->call->operation == TR_ALL_TO_ALL)
        return exchange_data(run, r, bytes);
    if (r->num_pieces == 0) {
        *bytes = 0;
        return run->vector;
    }
    uint64_t at = piece_begin(run, r->first_piece);
    *bytes = (piece_begin(run, r->first_piece + r->num_pieces) - at) * run->element;
    return run->vector + at * run->element;
}

static uint64_t step_bytes(const struct rounds_call *run, const tri_plan_step *step)
{
    uint64_t all = 0, bytes;
    for (uint32_t i = 0; i < step->num_runs; i++) {
        run_data(run, &run->plan->runs[step->first_run + i], &bytes);
        all += bytes;
    }
    return all;
}

static bool is_packed(const tri_plan_step *step)
{
    return step->num_runs > 1 || step->overlaps;
}

/* Room for what is packed in a round, each message at a multiple of 64 bytes. */
static uint64_t packed_bytes(const struct rounds_call *run)
{
    uint64_t most = 0;
    for (size_t r = 0; r < run->plan->num_rounds; r++) {
        uint64_t all = 0;
        for (size_t i = run->plan->first[r]; i < run->plan->first[r + 1]; i++)
            if (is_packed(&run->plan->steps[i]))
                all += (step_bytes(run, &run->plan->steps[i]) + 63) / 64 * 64;
        most = all > most ? all : most;
    }
    return most;
}

static void pack(const struct rounds_call *run, const tri_plan_step *step, char *to)
{
    uint64_t bytes;
    for (uint32_t i = 0; i < step->num_runs; i++, to += bytes) {
        const char *from = run_data(run, &run->plan->runs[step->first_run + i], &bytes);
        if (bytes > 0)
            memcpy(to, from, bytes);
    }
}

static void unpack(const struct rounds_call *run, const tri_plan_step *step, const char *from)
{
    uint64_t bytes;
    const tr_collective *call = run->call;
    for (uint32_t i = 0; i < step->num_runs; i++, from += bytes) {
        char *to = run_data(run, &run->plan->runs[step->first_run + i], &bytes);
        if (bytes > 0 && step->combine)
            tri_combine((tri_dtype)call->dtype, (tri_reduction)call->reduction, to, from,
                        bytes / run->element);
        else if (bytes > 0)
            memcpy(to, from, bytes);
    }
}

/* Between two members that have nothing for each other, as both know, there is no message. A
 * barrier is made of such. */
static bool is_skipped(const struct rounds_call *run, const tri_plan_step *step)
{
    return run->call->operation == TR_ALL_TO_ALL && run->call->send_counts != NULL &&
           step_bytes(run, step) == 0;
}

/* The message of a step; packed ones take their place from *room. */
static void make_message(const struct rounds_call *run, const tri_plan_step *step, char **room,
                         tri_port_message *m)
{
    uint64_t bytes;
    *m = (tri_port_message){.peer = step->peer, .is_send = step->is_send, .about = &run->about};
    if (is_packed(step)) {
        m->data = *room;
        m->num_bytes = step_bytes(run, step);
        *room += (m->num_bytes + 63) / 64 * 64;
        if (step->is_send)
            pack(run, step, m->data);
        return;
    }
    m->data = run_data(run, &run->plan->runs[step->first_run], &bytes);
    m->num_bytes = bytes;
    m->combine = step->combine && !step->is_send;
    m->dtype = (tri_dtype)run->call->dtype;
    m->reduction = (tri_reduction)run->call->reduction;
}

static tr_status finish(struct rounds_call *run, const tri_plan_step *step, tri_port_message *m,
                        tr_error *err)
{
    if (is_skipped(run, step))
        return TR_OK;
    TRI_TRY(tri_ports_drive(&run->group->ports, m, NULL, run->what, err));
    if (!step->is_send && is_packed(step))
        unpack(run, step, m->data);
    return TR_OK;
}

static void post(struct rounds_call *run, const tri_plan_step *step, char **room,
                 tri_port_message *m)
{
    if (is_skipped(run, step))
        return;
    make_message(run, step, room, m);
    tri_ports_post(&run->group->ports, m);
}

static tr_status run_round(struct rounds_call *run, size_t round, tr_error *err)
{
    const tri_plan *plan = run->plan;
    const tri_plan_step *steps = &plan->steps[plan->first[round]];
    size_t num = plan->first[round + 1] - plan->first[round], num_sends = 0;
    char *room = run->packed;
    for (; num_sends < num && steps[num_sends].is_send; num_sends++)
        post(run, &steps[num_sends], &room, &plan->messages[num_sends]);
    size_t posted = num_sends;
    for (size_t i = num_sends; i < num; i++) {
        /* All at once, but for terms of a sum. */
        for (; posted < num && (posted <= i || !steps[posted].combine); posted++)
            post(run, &steps[posted], &room, &plan->messages[posted]);
        TRI_TRY(finish(run, &steps[i], &plan->messages[i], err));
    }
    for (size_t i = 0; i < num_sends; i++)
        TRI_TRY(finish(run, &steps[i], &plan->messages[i], err));
    return TR_OK;
}

/* Chooses where the vector is, or that it must be in scratch memory (NULL). */
static char *find_vector(const struct rounds_call *run, uint64_t own_at)
{
    const tr_collective *call = run->call;
    bool root = run->group->rank == call->root;
    bool whole_recv = call->operation == TR_ALL_REDUCE || call->operation == TR_BROADCAST ||
                      call->operation == TR_ALL_GATHER ||
                      ((call->operation == TR_REDUCE || call->operation == TR_GATHER) && root);
    const char *in_place = call->send ? (const char *)call->send + own_at : NULL;
    if (whole_recv)
        return call->recv;
    if ((call->operation == TR_SCATTER && root) ||
        (call->operation == TR_REDUCE_SCATTER && in_place == (const char *)call->recv))
        return (char *)(uintptr_t)call->send; /* a root only sends; in place is allowed */
    return NULL;
}

/* Vector, relays and packed messages share one block of scratch. */
static tr_status place_parts(struct rounds_call *run, uint64_t own_at, tr_error *err)
{
    bool exchange = run->call->operation == TR_ALL_TO_ALL;
    bool barrier = run->call->operation == TR_BARRIER;
    char *found = exchange || barrier ? NULL : find_vector(run, own_at);
    run->vector = run->relays = run->packed =
        run->none; /* sizes are asked for before there is any */
    uint64_t vector = 0, relays = 0, packed = packed_bytes(run);
    if (!exchange && !barrier && found == NULL)
        vector = (run->total * run->element + 1 + 63) / 64 * 64;
    relays = (run->plan->num_relays * run->call->count * run->element + 63) / 64 * 64;
    char *memory = run->none;
    if (vector + relays + packed > 0)
        TRI_TRY(tri_plan_scratch(run->group, vector + relays + packed, &memory, err));
    run->vector = found ? found : memory;
    run->relays = memory + vector;
    run->packed = memory + vector + relays;
    return TR_OK;
}

/* Puts this member's part of the vector where it lies. */
static void place_own(const struct rounds_call *run, char *own_block)
{
    const tr_collective *call = run->call;
    bool send_is_block = call->operation == TR_GATHER || call->operation == TR_ALL_GATHER;
    char *to = send_is_block ? own_block : run->vector;
    uint64_t bytes = tri_send_elements(run->group, call) * run->element;
    if (bytes > 0 && call->send != to)
        memcpy(to, call->send, bytes);
}

/* A mean is divided, and a block that lies elsewhere goes to recv. */
static void take_result(const struct rounds_call *run, const char *own_block)
{
    const tr_collective *call = run->call;
    uint64_t elements = tri_recv_elements(run->group, call);
    bool block = call->operation == TR_SCATTER || call->operation == TR_REDUCE_SCATTER;
    if (block && elements > 0 && own_block != call->recv)
        memcpy(call->recv, own_block, elements * run->element);
    if (tri_coll_reduces(call->operation) && call->reduction == TR_MEAN && elements > 0)
        tri_divide((tri_dtype)call->dtype, call->recv, elements, run->group->size);
}

static void copy_own_exchange(const struct rounds_call *run)
{
    const tr_collective *call = run->call;
    int me = run->group->rank;
    uint64_t bytes = (call->send_counts ? call->send_counts[me] : call->count) * run->element;
    if (bytes > 0)
        memcpy((char *)call->recv + tri_exchange_first(call, call->recv_counts, me) * run->element,
               (const char *)call->send +
                   tri_exchange_first(call, call->send_counts, me) * run->element,
               bytes);
}

static tri_about about_call(const tr_group *group, const tr_collective *call,
                            const tri_algorithm *algorithm)
{
    tri_descriptor d;
    tri_describe_call(group, call, tri_algorithm_number(algorithm), &d);
    return (tri_about){.call = group->call,
                       .count = d.count,
                       .counts_hash = d.counts_hash,
                       .root = d.root,
                       .operation = d.operation,
                       .reduction = d.reduction,
                       .dtype = d.dtype,
                       .algorithm = d.algorithm};
}

tr_status tri_rounds_run(tr_group *group, const tr_collective *call, const tri_algorithm *algorithm,
                         const tri_coll_shape *shape, tr_error *err)
{
    struct rounds_call run = {.group = group,
                              .call = call,
                              .element = tri_dtype_bytes((tri_dtype)call->dtype),
                              .counts = tri_block_counts(call)};
    TRI_TRY(tri_plan_find(group, call, algorithm, shape, &run.plan, err));
    run.total = in_blocks(call->operation) ? tri_block_first(run.counts, call->count, group->size)
                                           : call->count;
    snprintf(run.what, sizeof run.what, "%s %s, call %llu of group %s", algorithm->name,
             tri_coll_name((tri_coll)call->operation), (unsigned long long)group->call,
             group->name);
    run.about = about_call(group, call, algorithm);
    uint64_t own_at = 0;
    if (in_blocks(call->operation))
        own_at = tri_block_first(run.counts, call->count, group->rank) * run.element;
    TRI_TRY(place_parts(&run, own_at, err));
    bool moves = call->operation != TR_ALL_TO_ALL && call->operation != TR_BARRIER;
    if (call->operation == TR_ALL_TO_ALL)
        copy_own_exchange(&run);
    else if (moves)
        place_own(&run, run.vector + own_at);
    for (size_t r = 0; r < run.plan->num_rounds; r++)
        TRI_TRY(run_round(&run, r, err));
    if (moves)
        take_result(&run, run.vector + own_at);
    return TR_OK;
}
