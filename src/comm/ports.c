/* A channel is a ring of message descriptions and a ring of chunks, written by the sender, and two
 * counters written by the receiver.
 *
 * Invariants:
 *   1. posted and staged grow only after the description or the chunk is complete; taken and
 *      drained only after it has been read. Each pair is one release and one acquire.
 *   2. Chunks belong to private messages in order: a message's chunks are staged only when those of
 *      all earlier messages of the channel are.
 *   3. Whoever changes a channel rings the other end's bell afterwards. Whoever waits reads its
 *      bell before it looks at the channels, so that no ring is lost. */
#include "comm/ports.h"
#include "comm/comm_internal.h"
#include "comm/reduce.h"
#include "comm/transport/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RING        8
#define NUM_CHUNKS  4
#define CHUNK_BYTES ((size_t)64 << 10)
/* As much as the receiver copies from reachable memory before it looks at its other messages. */
#define PULL_BYTES ((size_t)1 << 20)

struct description {
    uint64_t num_bytes;
    tri_ref ref; /* segment 0: in chunks */
};

struct tri_channel {
    _Alignas(TRI_CACHE_LINE) _Atomic uint64_t posted; /* messages, by the sender */
    _Atomic uint64_t staged;                          /* chunks, by the sender */
    struct description ring[RING];
    _Alignas(TRI_CACHE_LINE) _Atomic uint64_t taken; /* messages, by the receiver */
    _Atomic uint64_t drained;                        /* chunks, by the receiver */
    _Atomic uint64_t refused;                        /* 1 + bytes that the receiver expected */
    _Alignas(4096) char chunks[NUM_CHUNKS][CHUNK_BYTES];
};

size_t tri_ports_bytes(int size)
{
    return (size_t)size * sizeof(tri_channel);
}

void tri_ports_fini(tri_ports *ports)
{
    if (ports->io != NULL)
        ports->io->close(ports);
    free(ports->signals);
    free(ports->out);
    free(ports->in);
    free(ports->bells);
    free(ports->sends);
    free(ports->recvs);
    *ports = (tri_ports){0};
}

tr_status tri_ports_init(tri_ports *ports, tr_comm *comm, int size, int me, const int *ranks,
                         void **channels, tri_eventcount **bells, tr_error *err)
{
    size_t n = (size_t)size;
    *ports = (tri_ports){.comm = comm, .size = size, .me = me, .ranks = ranks};
    ports->out = calloc(n, sizeof *ports->out);
    ports->in = calloc(n, sizeof *ports->in);
    ports->bells = calloc(n, sizeof *ports->bells);
    ports->sends = calloc(n, sizeof *ports->sends);
    ports->recvs = calloc(n, sizeof *ports->recvs);
    if (!ports->out || !ports->in || !ports->bells || !ports->sends || !ports->recvs) {
        tri_ports_fini(ports);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the ports of %d ranks", size);
    }
    for (int i = 0; i < size; i++) {
        ports->out[i] = (tri_channel *)channels[me] + i;
        ports->in[i] = (tri_channel *)channels[i] + me;
        ports->bells[i] = bells[i];
    }
    return TR_OK;
}

tr_status tri_ports_open(tri_ports *ports, tr_comm *comm, int size, int me, const int *ranks,
                         const char *key, bool rendezvous, tr_error *err)
{
    size_t n = (size_t)size;
    *ports = (tri_ports){.comm = comm, .size = size, .me = me, .ranks = ranks};
    ports->sends = calloc(n, sizeof *ports->sends);
    ports->recvs = calloc(n, sizeof *ports->recvs);
    ports->signals = calloc(n * TR_NUM_SIGNALS, sizeof *ports->signals);
    tr_status status = TR_OK;
    if (!ports->sends || !ports->recvs || !ports->signals)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the ports of %d ranks", size);
    ports->io = comm->transport->io;
    if (status == TR_OK)
        status = ports->io->open(ports, key, rendezvous, err);
    if (status != TR_OK)
        tri_ports_fini(ports);
    return status;
}

static void ring_bell(tri_ports *ports, int member)
{
    tri_eventcount_add(ports->bells[member], 1, 0);
}

void tri_ports_post(tri_ports *ports, tri_port_message *message)
{
    tri_queue *queue = (message->is_send ? ports->sends : ports->recvs) + message->peer;
    message->next = NULL;
    if (ports->broken) {
        message->status = TR_ERROR_RUNTIME;
        snprintf(message->why, sizeof message->why, "an earlier message failed");
        message->done = true;
        return;
    }
    message->number = ++queue->numbered;
    if (queue->last != NULL)
        queue->last->next = message;
    else
        queue->first = message;
    queue->last = message;
}

void tri_ports_finish_first(tri_ports *ports, tri_queue *queue)
{
    tri_port_message *message = queue->first;
    tr_comm *comm = ports->comm;
    queue->first = message->next;
    if (queue->first == NULL)
        queue->last = NULL;
    if (message->status == TR_OK) {
        atomic_fetch_add_explicit(message->is_send ? &comm->messages_sent
                                                   : &comm->messages_received,
                                  1, memory_order_relaxed);
        atomic_fetch_add_explicit(message->is_send ? &comm->bytes_sent : &comm->bytes_received,
                                  message->num_bytes, memory_order_relaxed);
    }
    message->done = true;
}

void tri_port_message_refuse(tri_port_message *message, uint64_t sent, uint64_t expected)
{
    char a[32], b[32];
    message->status = TR_ERROR_RUNTIME;
    snprintf(message->why, sizeof message->why, "the sender has %s bytes, the receiver wants %s",
             tri_grouped_digits(sent, a), tri_grouped_digits(expected, b));
}

static bool post_description(tri_ports *ports, tri_channel *channel, tri_port_message *m)
{
    if (m->number > atomic_load_explicit(&channel->taken, memory_order_acquire) + RING)
        return false;
    struct description *d = &channel->ring[m->number % RING];
    tr_comm *comm = ports->comm;
    *d = (struct description){.num_bytes = m->num_bytes};
    m->is_private =
        m->num_bytes > 0 && !comm->transport->ref(comm->state, m->data, m->num_bytes, &d->ref);
    m->posted = true;
    atomic_store_explicit(&channel->posted, m->number, memory_order_release);
    return true;
}

/* Fills free chunks; true when there was one. */
static bool stage_chunks(tri_channel *channel, tri_port_message *m)
{
    bool moved = false;
    uint64_t staged = atomic_load_explicit(&channel->staged, memory_order_relaxed);
    while (m->moved < m->num_bytes &&
           staged - atomic_load_explicit(&channel->drained, memory_order_acquire) < NUM_CHUNKS) {
        size_t left = m->num_bytes - m->moved;
        size_t n = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        memcpy(channel->chunks[staged % NUM_CHUNKS], m->data + m->moved, n);
        m->moved += n;
        atomic_store_explicit(&channel->staged, ++staged, memory_order_release);
        moved = true;
    }
    return moved;
}

static bool progress_sends(tri_ports *ports, int peer)
{
    tri_queue *queue = &ports->sends[peer];
    tri_channel *channel = ports->out[peer];
    bool moved = false, ended = false;
    while (queue->first != NULL) {
        tri_port_message *m = queue->first;
        uint64_t refused = atomic_load_explicit(&channel->refused, memory_order_acquire);
        if (refused != 0)
            tri_port_message_refuse(m, m->num_bytes, refused - 1);
        else if (atomic_load_explicit(&channel->taken, memory_order_acquire) < m->number)
            break;
        tri_ports_finish_first(ports, queue);
        ended = true;
    }
    for (tri_port_message *m = queue->first; m != NULL; m = m->next) {
        if (!m->posted) {
            if (!post_description(ports, channel, m))
                break;
            moved = true;
        }
        if (!m->is_private || m->moved == m->num_bytes)
            continue;
        moved |= stage_chunks(channel, m);
        if (m->moved < m->num_bytes) /* invariant 2 */
            break;
    }
    if (moved)
        ring_bell(ports, peer);
    return moved || ended;
}

static void deliver(tri_port_message *m, const char *from, size_t n)
{
    if (m->combine)
        tri_combine(m->dtype, m->reduction, m->data + m->moved, from,
                    n / tri_dtype_bytes(m->dtype));
    else
        memcpy(m->data + m->moved, from, n);
    m->moved += n;
}

static bool drain_chunks(tri_channel *channel, tri_port_message *m)
{
    bool moved = false;
    uint64_t drained = atomic_load_explicit(&channel->drained, memory_order_relaxed);
    while (m->moved < m->num_bytes &&
           atomic_load_explicit(&channel->staged, memory_order_acquire) > drained) {
        size_t left = m->num_bytes - m->moved;
        deliver(m, channel->chunks[drained % NUM_CHUNKS], left < CHUNK_BYTES ? left : CHUNK_BYTES);
        atomic_store_explicit(&channel->drained, ++drained, memory_order_release);
        moved = true;
    }
    return moved;
}

static bool pull(tri_ports *ports, tri_port_message *m, const struct description *d)
{
    tr_comm *comm = ports->comm;
    void *from = NULL;
    tr_error detail = {0};
    if (m->num_bytes == 0)
        return true;
    m->status = comm->transport->map(comm->state, ports->ranks[m->peer], d->ref, &from, &detail);
    if (m->status != TR_OK) {
        snprintf(m->why, sizeof m->why, "%.150s", detail.message);
        return true;
    }
    size_t left = m->num_bytes - m->moved;
    deliver(m, (char *)from + m->moved, left < PULL_BYTES ? left : PULL_BYTES);
    return true;
}

/* The first receive of a peer; true when something moved. */
static bool progress_recv(tri_ports *ports, int peer)
{
    tri_queue *queue = &ports->recvs[peer];
    tri_channel *channel = ports->in[peer];
    tri_port_message *m = queue->first;
    if (m == NULL || atomic_load_explicit(&channel->posted, memory_order_acquire) < m->number)
        return false;
    const struct description *d = &channel->ring[m->number % RING];
    bool moved;
    if (d->num_bytes != m->num_bytes) {
        tri_port_message_refuse(m, d->num_bytes, m->num_bytes);
        atomic_store_explicit(&channel->refused, 1 + m->num_bytes, memory_order_release);
        moved = true;
    } else if (d->ref.segment != 0 || d->num_bytes == 0) {
        moved = pull(ports, m, d);
    } else {
        moved = drain_chunks(channel, m);
    }
    if (m->status != TR_OK) {
        tri_ports_finish_first(ports, queue);
    } else if (m->moved == m->num_bytes) {
        atomic_store_explicit(&channel->taken, m->number, memory_order_release);
        tri_ports_finish_first(ports, queue);
    } else if (!moved) {
        return false;
    }
    ring_bell(ports, peer);
    return true;
}

bool tri_ports_progress(tri_ports *ports)
{
    bool moved = false;
    if (ports->io != NULL)
        return ports->io->progress(ports);
    for (int i = 0; i < ports->size; i++) {
        if (ports->sends[i].first != NULL)
            moved |= progress_sends(ports, i);
        if (ports->recvs[i].first != NULL)
            moved |= progress_recv(ports, i);
    }
    return moved;
}

tr_status tri_port_message_failed(tri_ports *ports, const tri_port_message *m, const char *what,
                                  tri_wait_result result, double seconds, tr_error *err)
{
    char bytes[32];
    int peer = ports->ranks[m->peer], rank = ports->comm->boot.rank;
    tri_grouped_digits(m->num_bytes, bytes);
    const char *verb = m->is_send ? "send" : "receive";
    const char *side = m->is_send ? "to" : "from";
    if (m->status != TR_OK)
        return tri_fail(err, m->status, "rank %d: %s %s rank %d, message %llu%s%s: %s", rank, verb,
                        side, peer, (unsigned long long)m->number, *what ? ", " : "", what, m->why);
    if (result == TRI_WAIT_STOPPED)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "rank %d stopped waiting for rank %d after %.1f s (%s of %s bytes, message "
                        "%llu%s%s): %s",
                        rank, peer, seconds, verb, bytes, (unsigned long long)m->number,
                        *what ? ", " : "", what, ports->comm->boot.stop->reason);
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "rank %d did not %s: rank %d waited %.1f s to %s %s bytes, message %llu%s%s",
                    peer, m->is_send ? "receive" : "send", rank, seconds, verb, bytes,
                    (unsigned long long)m->number, *what ? ", " : "", what);
}

static int message_peer(void *context)
{
    return *(int *)context;
}

/* Messages that nobody will end: their owners may forget them. */
static void abandon(tri_ports *ports)
{
    ports->broken = true;
    for (int i = 0; i < 2 * ports->size; i++) {
        tri_queue *queue = i < ports->size ? &ports->sends[i] : &ports->recvs[i - ports->size];
        while (queue->first != NULL) {
            tri_port_message *m = queue->first;
            m->status = TR_ERROR_RUNTIME;
            snprintf(m->why, sizeof m->why, "given up after an earlier failure");
            tri_ports_finish_first(ports, queue);
        }
    }
}

static tri_wait_result wait_for_message(tri_ports *ports, tri_port_message *message, int *peer,
                                        pthread_mutex_t *mutex, double *seconds)
{
    tri_eventcount *bell = ports->bells[ports->me];
    for (;;) {
        uint64_t seen = atomic_load_explicit(&bell->value, memory_order_acquire);
        bool moved = tri_ports_progress(ports);
        if (message->done)
            return TRI_WAIT_DONE;
        if (moved)
            continue;
        if (mutex != NULL)
            pthread_mutex_unlock(mutex);
        tri_wait_result result =
            tri_eventcount_wait(&ports->comm->waiter, bell, seen + 1, message_peer, peer, seconds);
        if (mutex != NULL)
            pthread_mutex_lock(mutex);
        if (result != TRI_WAIT_DONE)
            return result;
    }
}

static bool io_message_done(const void *context)
{
    return ((const tri_port_message *)context)->done;
}

tr_status tri_ports_drive(tri_ports *ports, tri_port_message *message, pthread_mutex_t *mutex,
                          const char *what, tr_error *err)
{
    int peer = ports->ranks[message->peer];
    double seconds = 0;
    tri_wait_result result =
        ports->io ? tri_io_wait(ports, io_message_done, message, peer, mutex, &seconds)
                  : wait_for_message(ports, message, &peer, mutex, &seconds);
    if (result != TRI_WAIT_DONE && !message->done) {
        tr_status status = tri_port_message_failed(ports, message, what, result, seconds, err);
        abandon(ports);
        return status;
    }
    if (message->status != TR_OK)
        return tri_port_message_failed(ports, message, what, TRI_WAIT_DONE, 0, err);
    return TR_OK;
}
