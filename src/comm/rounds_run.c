/* Collectives made of messages: runs the rounds of src/collective over the ports of a group.
 *
 * Every member holds the whole vector somewhere: in recv where that is whole, otherwise in scratch
 * memory (which is reachable, so that peers pull from it). In a round all sends are posted, then
 * the receives are done one by one in the order of the list, so that terms are combined in one
 * order only; the round ends when its sends are done, too. No deadlock: a send waits for nothing
 * but its receiver, and all members of a round have posted all their sends before they wait. */
#include "comm/layout.h"
#include "comm/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    tr_group *group;
    const tr_collective *call;
    const tri_rounds *rounds;
    uint64_t element, total; /* bytes of an element; elements of the vector */
    const uint64_t *counts;  /* of blocks, or NULL */
    char *vector;
    tri_message *messages;
    char what[120];
};

struct range {
    uint64_t at, count; /* elements */
};

static bool in_blocks(tr_operation operation)
{
    return operation == TR_GATHER || operation == TR_SCATTER || operation == TR_ALL_GATHER ||
           operation == TR_REDUCE_SCATTER;
}

static uint64_t piece_begin(const struct run *run, uint32_t piece)
{
    uint64_t first, num;
    if (piece == run->rounds->num_pieces)
        return run->total;
    if (in_blocks(run->call->operation))
        return tri_block_first(run->counts, run->call->count, (int)piece);
    tri_piece_range(run->total, run->rounds->num_pieces, piece, &first, &num);
    return first;
}

static struct range transfer_range(const struct run *run, const tri_transfer *t)
{
    uint64_t at = piece_begin(run, t->first_piece);
    return (struct range){at, piece_begin(run, t->first_piece + t->num_pieces) - at};
}

static bool overlap(struct range a, struct range b)
{
    return a.at < b.at + b.count && b.at < a.at + a.count;
}

static bool is_exchange(const struct run *run)
{
    return run->call->operation == TR_ALL_TO_ALL;
}

/* Where this member's end of a transfer lies. */
static char *transfer_data(const struct run *run, const tri_transfer *t, bool sending,
                           uint64_t *count)
{
    const tr_collective *call = run->call;
    if (!is_exchange(run)) {
        struct range range = transfer_range(run, t);
        *count = range.count;
        return run->vector + range.at * run->element;
    }
    const uint64_t *counts = sending ? call->send_counts : call->recv_counts;
    int block = sending ? t->to : t->from;
    char *base = sending ? (char *)(uintptr_t)call->send : (char *)call->recv;
    *count = counts ? counts[block] : call->count;
    return base + tri_block_first(counts, call->count, block) * run->element;
}

/* A round in which this member sends what it also receives into: the send gets its own copy. */
static tr_status snapshot(const struct run *run, size_t round, const tri_transfer *send,
                          char **data, uint64_t bytes, char **copy, tr_error *err)
{
    if (is_exchange(run) || bytes == 0)
        return TR_OK;
    struct range sent = transfer_range(run, send);
    for (size_t i = run->rounds->first[round]; i < run->rounds->first[round + 1]; i++) {
        const tri_transfer *t = &run->rounds->transfers[i];
        if (t->to != run->group->rank || !overlap(sent, transfer_range(run, t)))
            continue;
        *copy = malloc(bytes);
        if (*copy == NULL)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %llu bytes",
                            (unsigned long long)bytes);
        *data = memcpy(*copy, *data, bytes);
        return TR_OK;
    }
    return TR_OK;
}

static tr_status post_sends(struct run *run, size_t round, size_t *num, char **copies,
                            tr_error *err)
{
    tr_group *group = run->group;
    for (size_t i = run->rounds->first[round]; i < run->rounds->first[round + 1]; i++) {
        const tri_transfer *t = &run->rounds->transfers[i];
        if (t->from != group->rank)
            continue;
        uint64_t count;
        char *data = transfer_data(run, t, true, &count);
        TRI_TRY(snapshot(run, round, t, &data, count * run->element, &copies[*num], err));
        tri_message *m = &run->messages[(*num)++];
        *m = (tri_message){
            .data = data, .num_bytes = count * run->element, .peer = t->to, .is_send = true};
        tri_ports_post(&group->ports, m);
    }
    return TR_OK;
}

static tr_status run_round(struct run *run, size_t round, char **copies, tr_error *err)
{
    tr_group *group = run->group;
    size_t num_sends = 0;
    TRI_TRY(post_sends(run, round, &num_sends, copies, err));
    for (size_t i = run->rounds->first[round]; i < run->rounds->first[round + 1]; i++) {
        const tri_transfer *t = &run->rounds->transfers[i];
        if (t->to != group->rank)
            continue;
        uint64_t count;
        char *data = transfer_data(run, t, false, &count);
        tri_message m = {.data = data,
                         .num_bytes = count * run->element,
                         .peer = t->from,
                         .combine = t->combine,
                         .dtype = (tri_dtype)run->call->dtype,
                         .reduction = (tri_reduction)run->call->reduction};
        tri_ports_post(&group->ports, &m);
        TRI_TRY(tri_ports_drive(&group->ports, &m, NULL, run->what, err));
    }
    for (size_t i = 0; i < num_sends; i++)
        TRI_TRY(tri_ports_drive(&group->ports, &run->messages[i], NULL, run->what, err));
    return TR_OK;
}

static tr_status run_rounds(struct run *run, tr_error *err)
{
    const tri_rounds *rounds = run->rounds;
    size_t most = 1;
    for (size_t r = 0; r < rounds->num_rounds; r++) {
        size_t num = 0;
        for (size_t i = rounds->first[r]; i < rounds->first[r + 1]; i++)
            num += rounds->transfers[i].from == run->group->rank;
        most = num > most ? num : most;
    }
    run->messages = calloc(most, sizeof *run->messages);
    char **copies = calloc(most, sizeof *copies);
    tr_status status = TR_OK;
    if (run->messages == NULL || copies == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %zu messages", most);
    for (size_t r = 0; status == TR_OK && r < rounds->num_rounds; r++) {
        status = run_round(run, r, copies, err);
        for (size_t i = 0; i < most; i++) {
            free(copies[i]);
            copies[i] = NULL;
        }
    }
    free(run->messages);
    free(copies);
    return status;
}

static tr_status need_scratch(tr_group *group, size_t bytes, tr_error *err)
{
    tr_comm *comm = group->comm;
    if (group->scratch_bytes >= bytes)
        return TR_OK;
    comm->transport->free(comm->state, group->scratch);
    group->scratch = NULL;
    group->scratch_bytes = 0;
    TRI_TRY(comm->transport->alloc(comm->state, bytes + bytes / 2, &group->scratch, err));
    group->scratch_bytes = bytes + bytes / 2;
    return TR_OK;
}

/* Chooses where the vector is and puts this member's part of it there. */
static tr_status place_vector(struct run *run, char **own_block, tr_error *err)
{
    tr_group *group = run->group;
    const tr_collective *call = run->call;
    bool root = group->rank == call->root;
    bool whole_recv = call->operation == TR_ALL_REDUCE || call->operation == TR_BROADCAST ||
                      call->operation == TR_ALL_GATHER ||
                      ((call->operation == TR_REDUCE || call->operation == TR_GATHER) && root);
    uint64_t own_at = 0;
    if (in_blocks(call->operation))
        own_at = tri_block_first(run->counts, call->count, group->rank) * run->element;
    const char *in_place = call->send ? (const char *)call->send + own_at : NULL;
    if (whole_recv)
        run->vector = call->recv;
    else if ((call->operation == TR_SCATTER && root) ||
             (call->operation == TR_REDUCE_SCATTER && in_place == (const char *)call->recv))
        run->vector = (char *)(uintptr_t)call->send; /* a root only sends; in place is allowed */
    if (run->vector == NULL) {
        TRI_TRY(need_scratch(group, run->total * run->element + 1, err));
        run->vector = group->scratch;
    }
    *own_block = run->vector + own_at;
    bool send_is_block = call->operation == TR_GATHER || call->operation == TR_ALL_GATHER;
    char *to = send_is_block ? *own_block : run->vector;
    uint64_t bytes = tri_send_elements(group, call) * run->element;
    if (bytes > 0 && call->send != to)
        memcpy(to, call->send, bytes);
    return TR_OK;
}

/* A mean is divided, and a block that lies elsewhere goes to recv. */
static void take_result(const struct run *run, const char *own_block)
{
    const tr_collective *call = run->call;
    uint64_t elements = tri_recv_elements(run->group, call);
    bool block = call->operation == TR_SCATTER || call->operation == TR_REDUCE_SCATTER;
    if (block && elements > 0 && own_block != call->recv)
        memcpy(call->recv, own_block, elements * run->element);
    if (tri_coll_reduces(call->operation) && call->reduction == TR_MEAN && elements > 0)
        tri_divide((tri_dtype)call->dtype, call->recv, elements, run->group->size);
}

static tr_status find_rounds(tr_group *group, const tr_collective *call,
                             const tri_algorithm *algorithm, tr_error *err)
{
    int root = tri_coll_rooted(call->operation) ? call->root : 0;
    if (group->rounds_by == algorithm && group->rounds_of == call->operation &&
        group->rounds_root == root)
        return TR_OK;
    tri_rounds_free(&group->rounds);
    group->rounds_by = NULL;
    TRI_TRY(algorithm->rounds((tri_coll)call->operation, group->size, root, &group->rounds, err));
    group->rounds_by = algorithm;
    group->rounds_of = call->operation;
    group->rounds_root = root;
    return TR_OK;
}

static void copy_own_exchange(const struct run *run)
{
    int me = run->group->rank;
    uint64_t count;
    tri_transfer own = {.from = me, .to = me};
    char *from = transfer_data(run, &own, true, &count);
    char *to = transfer_data(run, &own, false, &count);
    if (count > 0)
        memcpy(to, from, count * run->element);
}

tr_status tri_rounds_run(tr_group *group, const tr_collective *call, const tri_algorithm *algorithm,
                         tr_error *err)
{
    TRI_TRY(find_rounds(group, call, algorithm, err));
    struct run run = {.group = group,
                      .call = call,
                      .rounds = &group->rounds,
                      .element = tri_dtype_bytes((tri_dtype)call->dtype),
                      .counts = tri_block_counts(call)};
    run.total = in_blocks(call->operation) ? tri_block_first(run.counts, call->count, group->size)
                                           : call->count;
    snprintf(run.what, sizeof run.what, "%s %s, call %llu of group %s", algorithm->name,
             tri_coll_name((tri_coll)call->operation), (unsigned long long)group->call,
             group->name);
    char *own_block = NULL;
    if (call->operation == TR_ALL_TO_ALL)
        copy_own_exchange(&run);
    else if (call->operation != TR_BARRIER)
        TRI_TRY(place_vector(&run, &own_block, err));
    TRI_TRY(run_rounds(&run, err));
    if (call->operation != TR_ALL_TO_ALL && call->operation != TR_BARRIER)
        take_result(&run, own_block);
    return TR_OK;
}
