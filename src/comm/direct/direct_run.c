/* Collectives through memory that all members reach: ticks, descriptors, and the choice of a path.
 *
 *   small      every member's contribution goes into its slot along with the descriptor: one tick
 *   units      operands are reachable: the work is cut into units that whoever is awake takes
 *   staged     operands are private: through the slots, chunk by chunk */
#include "comm/layout.h"
#include "comm/transport/io.h"

#include <stdio.h>
#include <string.h>

/* Up to here a copy into the slot is cheaper than the second synchronisation of units: later where
 * ranks must wait for a core to meet. */
#define SMALL_BYTES   ((size_t)2 << 10)
#define CROWDED_BYTES ((size_t)8 << 10)

enum { FEW_MEMBERS = 8 };

char *tri_grouped_digits(uint64_t n, char out[32])
{
    char plain[24];
    int length = snprintf(plain, sizeof plain, "%llu", (unsigned long long)n);
    char *at = out;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = plain[i];
    }
    *at = '\0';
    return out;
}

/* Its numbers are of things that exist. */
static bool is_known(const tri_descriptor *d)
{
    return d->operation <= TR_ALL_TO_ALL && d->reduction <= TR_PROD && d->dtype <= TR_U8;
}

void tri_describe(const tri_descriptor *d, char *out, size_t capacity)
{
    if (!is_known(d)) { /* of a peer: names of these numbers would lie beyond tables */
        snprintf(out, capacity, "what does not exist (operation %d, type %d, reduction %d)",
                 d->operation, d->dtype, d->reduction);
        return;
    }
    char number[32], reduction[24] = "", root[24] = "", algorithm[24] = "";
    tr_operation operation = (tr_operation)d->operation;
    if (operation == TR_BARRIER) {
        snprintf(out, capacity, "barrier");
        return;
    }
    if (tri_coll_reduces(operation))
        snprintf(reduction, sizeof reduction, " (%s)",
                 tri_reduction_name((tri_reduction)d->reduction));
    if (tri_coll_rooted(operation))
        snprintf(root, sizeof root, " %s %d",
                 operation == TR_BROADCAST || operation == TR_SCATTER ? "from" : "to", d->root);
    const tri_algorithm *a = tri_algorithm_at(d->algorithm);
    if (a != NULL && !a->needs_shared_memory)
        snprintf(algorithm, sizeof algorithm, " by %s", a->name);
    snprintf(out, capacity, "%s of %s %s%s%s%s%s", tri_coll_name((tri_coll)operation),
             tri_grouped_digits(d->count, number), tri_dtype_name((tri_dtype)d->dtype), reduction,
             root, d->counts_hash ? " in varying blocks" : "", algorithm);
}

/* Asks for a line as its writer; __builtin_prefetch asks as a reader unless told the processor. */
static inline void fetch_to_write(const void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

static tri_descriptor *own_descriptor(const tr_group *group, uint64_t tick)
{
    return &group->cells[group->rank]->arrivals[tick % 2].call;
}

static uint64_t arrived_at(const tr_group *group, int member)
{
    const tri_arrival *arrival = &group->cells[member]->arrivals[group->tick % 2];
    return atomic_load_explicit(&arrival->tick.value, memory_order_relaxed);
}

/* The members that have not arrived, as text: "rank 2", "ranks 1, 3 and 5 more". */
static void list_missing(const tr_group *group, char *out, size_t capacity)
{
    int missing = 0, shown = 0;
    size_t length = 0;
    for (int i = 0; i < group->size; i++)
        missing += arrived_at(group, i) < group->tick;
    length += (size_t)snprintf(out, capacity, missing == 1 ? "rank" : "ranks");
    for (int i = 0; i < group->size && shown < 8; i++)
        if (arrived_at(group, i) < group->tick)
            length += (size_t)snprintf(out + length, capacity - length, "%s %d", shown++ ? "," : "",
                                       group->ranks[i]);
    if (missing > shown)
        snprintf(out + length, capacity - length, " and %d more", missing - shown);
}

static int first_missing(void *context)
{
    const tr_group *group = context;
    for (int i = 0; i < group->size; i++)
        if (arrived_at(group, i) < group->tick)
            return group->ranks[i];
    return -1;
}

tr_status tri_wait_failed(tr_group *group, const tr_collective *call, tri_wait_result result,
                          double seconds, const char *who, tr_error *err)
{
    tri_descriptor d = {.operation = (uint8_t)call->operation,
                        .reduction = (uint8_t)call->reduction,
                        .dtype = (uint8_t)call->dtype,
                        .root = call->root,
                        .algorithm = 255};
    uint64_t sent = tri_send_elements(group, call), received = tri_recv_elements(group, call);
    d.count = sent > received ? sent : received;
    char what[160], bytes[32];
    tri_describe(&d, what, sizeof what);
    tri_grouped_digits(d.count * tri_dtype_bytes((tri_dtype)call->dtype), bytes);
    const char *label = call->label ? call->label : "";
    const char *reason = group->comm->boot.stop->reason;
    if (result == TRI_WAIT_STOPPED)
        tri_fail(err, TR_ERROR_RUNTIME,
                 "rank %d stopped waiting for %s after %.1f s in %s (%s bytes%s%s), call %llu of "
                 "group %s: %s",
                 group->comm->boot.rank, who, seconds, what, bytes, *label ? ", " : "", label,
                 (unsigned long long)group->call, group->name, reason);
    else
        tri_fail(err, TR_ERROR_RUNTIME,
                 "%s did not come to %s (%s bytes%s%s), call %llu of group %s: rank %d waited "
                 "%.1f s",
                 who, what, bytes, *label ? ", " : "", label, (unsigned long long)group->call,
                 group->name, group->comm->boot.rank, seconds);
    group->broken = true;
    if (err != NULL)
        group->error = *err;
    return TR_ERROR_RUNTIME;
}

/* Few members look at each other's arrivals: nobody writes to a line of somebody else, and the line
 * that says that a member has come says with what. Many count themselves in one place: each is
 * woken once, by the last. */
static void arrive(tr_group *group)
{
    tri_eventcount *own = &group->cells[group->rank]->arrivals[++group->tick % 2].tick;
    atomic_store_explicit(&own->value, group->tick, memory_order_release);
    if (group->size > FEW_MEMBERS)
        tri_eventcount_add(&group->cells[0]->arrived, 1, group->tick * (uint64_t)group->size);
}

/* After arriving: wakes those who sleep. That takes a fence, which costs little once what was
 * written before has left this core. */
static void wake_others(tr_group *group)
{
    if (group->size <= FEW_MEMBERS)
        tri_eventcount_wake(&group->cells[group->rank]->arrivals[group->tick % 2].tick);
}

static tri_wait_result await_others(tr_group *group, double *seconds)
{
    uint64_t tick = group->tick, all = tick * (uint64_t)group->size;
    tri_wait_result result = TRI_WAIT_DONE;
    if (group->size > FEW_MEMBERS)
        return tri_eventcount_wait(group->waiter, &group->cells[0]->arrived, all, first_missing,
                                   group, seconds);
    for (int k = 1; k < group->size && result == TRI_WAIT_DONE; k++) {
        int i = (group->rank + k) % group->size;
        result = tri_eventcount_wait(group->waiter, &group->cells[i]->arrivals[tick % 2].tick, tick,
                                     first_missing, group, seconds);
    }
    return result;
}

static tr_status meet(tr_group *group, const tr_collective *call, tr_error *err)
{
    double seconds = 0;
    tri_wait_result result = await_others(group, &seconds);
    if (result == TRI_WAIT_DONE)
        return TR_OK;
    char who[120];
    list_missing(group, who, sizeof who);
    return tri_wait_failed(group, call, result, seconds, who, err);
}

tr_status tri_tick(tr_group *group, const tr_collective *call, tr_error *err)
{
    arrive(group);
    wake_others(group);
    return meet(group, call, err);
}

static uint64_t hash_counts(const uint64_t *counts, int n)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < n; i++)
        hash = (hash ^ counts[i]) * 0x100000001b3u;
    return hash | 1;
}

/* True when peers reach the operand, or when there is none. */
static bool refer(tr_group *group, const void *address, uint64_t num_bytes, tri_ref *ref)
{
    tr_comm *comm = group->comm;
    *ref = (tri_ref){0};
    return num_bytes == 0 || comm->transport->ref(comm->state, address, num_bytes, ref);
}

static bool exchange_varies(const tr_collective *call)
{
    return call->operation == TR_ALL_TO_ALL && call->send_counts != NULL;
}

void tri_describe_call(const tr_group *group, const tr_collective *call, int algorithm,
                       tri_descriptor *d)
{
    const uint64_t *counts = tri_block_counts(call);
    *d = (tri_descriptor){.count = call->count,
                          .root = tri_coll_rooted(call->operation) ? call->root : 0,
                          .operation = (uint8_t)call->operation,
                          .reduction = (uint8_t)call->reduction,
                          .dtype = (uint8_t)call->dtype,
                          .algorithm = (uint8_t)algorithm};
    if (counts != NULL) {
        d->counts_hash = hash_counts(counts, group->size);
        d->count = tri_block_first(counts, 0, group->size);
    } else if (exchange_varies(call)) {
        d->counts_hash = 1; /* that they vary is agreed, what they are is not */
        d->count = call->room;
    }
}

void tri_about_descriptor(const tri_about *about, tri_descriptor *d)
{
    *d = (tri_descriptor){.count = about->count,
                          .counts_hash = about->counts_hash,
                          .root = about->root,
                          .operation = about->operation,
                          .reduction = about->reduction,
                          .dtype = about->dtype,
                          .algorithm = about->algorithm};
}

void tri_announce(tr_group *group, const tr_collective *call, int algorithm)
{
    tri_describe_call(group, call, algorithm, own_descriptor(group, group->tick + 1));
    if (!exchange_varies(call))
        return;
    size_t bytes = (size_t)group->size * sizeof *call->send_counts;
    memcpy(tri_cell_counts(group, group->rank, false), call->send_counts, bytes);
    memcpy(tri_cell_counts(group, group->rank, true), call->recv_counts, bytes);
}

bool tri_same_call(const tri_descriptor *a, const tri_descriptor *b)
{
    return a->count == b->count && a->counts_hash == b->counts_hash && a->root == b->root &&
           a->operation == b->operation && a->dtype == b->dtype && a->algorithm == b->algorithm &&
           (a->reduction == b->reduction || !tri_coll_reduces((tr_operation)a->operation));
}

/* What one member sends to another must be what the other expects. */
static tr_status compare_exchange(tr_group *group, tr_error *err)
{
    for (int i = 0; i < group->size; i++) {
        const uint64_t *send = tri_cell_counts(group, i, false);
        for (int j = 0; j < group->size; j++) {
            uint64_t expected = tri_cell_counts(group, j, true)[i];
            if (send[j] == expected)
                continue;
            group->broken = true;
            tr_status status = tri_fail(
                err, TR_ERROR_RUNTIME,
                "all_to_all: rank %d sends %llu elements to rank %d, which expects %llu, in call "
                "%llu of group %s",
                group->ranks[i], (unsigned long long)send[j], group->ranks[j],
                (unsigned long long)expected, (unsigned long long)group->call, group->name);
            if (err != NULL)
                group->error = *err;
            return status;
        }
    }
    return TR_OK;
}

tr_status tri_compare(tr_group *group, const tr_collective *call, tr_error *err)
{
    const tri_descriptor *first = &group->cells[0]->arrivals[group->tick % 2].call;
    for (int i = 1; i < group->size; i++) {
        const tri_descriptor *other = &group->cells[i]->arrivals[group->tick % 2].call;
        if (tri_same_call(first, other))
            continue;
        char a[160], b[160];
        tri_describe(first, a, sizeof a);
        tri_describe(other, b, sizeof b);
        tri_fail(err, TR_ERROR_RUNTIME,
                 "rank %d called %s, rank %d called %s, as call %llu of "
                 "group %s",
                 group->ranks[0], a, group->ranks[i], b, (unsigned long long)group->call,
                 group->name);
        group->broken = true;
        if (err != NULL)
            group->error = *err;
        return TR_ERROR_RUNTIME;
    }
    return exchange_varies(call) ? compare_exchange(group, err) : TR_OK;
}

/* Elements that pieces bring this member from the others and take from it: a combined piece is read
 * by its home from all and given to its targets; another goes from its source to its targets. */
static void piece_traffic(tr_group *group, const tr_collective *call, uint64_t *in, uint64_t *out)
{
    tri_coll_layout layout = {group, call, true};
    int num = tri_coll_layout_pieces(&layout), size = group->size, me = group->rank;
    for (int i = 0; i < num; i++) {
        tri_coll_piece piece = tri_coll_layout_piece(&layout, i);
        int from = piece.source;
        uint64_t targets = piece.target < 0 ? (uint64_t)size : 1;
        if (from < 0) {
            from = tri_coll_layout_home(&layout, i);
            if (from == me)
                *in += (uint64_t)(size - 1) * piece.count;
            else
                *out += piece.count;
        }
        bool to_me = piece.target < 0 || piece.target == me;
        bool to_source = piece.target < 0 || piece.target == from;
        if (from == me)
            *out += (targets - to_source) * piece.count;
        else if (to_me)
            *in += piece.count;
    }
}

static void count_traffic(tr_group *group, const tr_collective *call)
{
    uint64_t in = 0, out = 0, bytes = tri_dtype_bytes((tri_dtype)call->dtype);
    if (call->operation == TR_ALL_TO_ALL) { /* size^2 pieces: too many to ask all of them */
        const uint64_t *own = call->send_counts ? &call->send_counts[group->rank] : &call->count;
        in = tri_recv_elements(group, call) - *own;
        out = tri_send_elements(group, call) - *own;
    } else {
        piece_traffic(group, call, &in, &out);
    }
    tri_count(&group->bytes_received, in * bytes);
    tri_count(&group->bytes_sent, out * bytes);
}

/* The others have read what this member published a tick ago, and have the lines; the next call
 * will write there. Fetched while its own results are still on their way, they cost it nothing. */
static void fetch_next(const tr_group *group, size_t bytes)
{
    unsigned parity = (group->tick + 1) % 2;
    const char *slot = tri_cell_slot(group, group->rank, parity);
    fetch_to_write(&group->cells[group->rank]->arrivals[parity]);
    for (size_t at = 0; at < bytes; at += 64)
        fetch_to_write(slot + at);
}

static bool anyone_private(const tr_group *group)
{
    for (int i = 0; i < group->size; i++)
        if (group->cells[i]->arrivals[group->tick % 2].call.is_private)
            return true;
    return false;
}

tr_status tri_direct_run(tr_group *group, const tr_collective *call, tr_error *err)
{
    uint64_t tick = group->tick + 1, element = tri_dtype_bytes((tri_dtype)call->dtype);
    tri_descriptor *d = own_descriptor(group, tick);
    tri_cell *cell = group->cells[group->rank];
    size_t most = group->comm->waiter.core_for_each ? SMALL_BYTES : CROWDED_BYTES;
    bool small = !exchange_varies(call) && tri_staged_bytes(group, call) <= most;
    if (small) {
        tri_staged_fill(group, call, 0, tick);
    } else {
        d->is_private =
            !refer(group, call->send, tri_send_span(group, call) * element, &cell->send[tick % 2]);
        d->is_private |=
            !refer(group, call->recv, tri_recv_span(group, call) * element, &cell->recv[tick % 2]);
        atomic_store_explicit(&cell->claim, tri_claim_first(tick), memory_order_relaxed);
    }
    arrive(group);
    if (small) /* what nobody else has a part in, while the others are on their way */
        tri_staged_drain(group, call, 0, tick, TRI_OWN_PIECES);
    wake_others(group);
    TRI_TRY(meet(group, call, err));
    TRI_TRY(tri_compare(group, call, err));
    count_traffic(group, call);
    if (small) {
        tri_staged_drain(group, call, 0, tick, TRI_OTHER_PIECES);
        fetch_next(group, tri_staged_bytes(group, call));
        return TR_OK;
    }
    if (anyone_private(group))
        return tri_direct_staged(group, call, err);
    return tri_direct_units(group, call, err);
}
