/* Messages and signals between ranks, for the user. A caller that waits moves all messages of its
 * rank itself. Started messages must move while nobody waits, too (a send ends when its receive
 * has been issued, not when somebody waits for it), so the first one makes a helper thread that
 * takes over whenever no caller is driving. */
#include "comm/lane.h"
#include "comm/transport/io.h"

#include <stdlib.h>

/* What a rank shows to the others; behind it the channels of its ports. */
struct signal {
    _Alignas(TRI_CACHE_LINE) tri_eventcount event;
};

struct front {
    _Alignas(TRI_CACHE_LINE) tri_eventcount bell;
    struct signal signals[]; /* [size * TR_NUM_SIGNALS]: of each peer */
};

static size_t front_bytes(int size)
{
    size_t bytes = sizeof(struct front) + (size_t)size * TR_NUM_SIGNALS * sizeof(struct signal);
    return (bytes + 4095) / 4096 * 4096;
}

static tr_status join_ports(tr_comm *comm, tr_error *err)
{
    tri_p2p *p2p = &comm->p2p;
    int size = comm->boot.size, rank = comm->boot.rank;
    void *memory = NULL;
    TRI_TRY(tri_comm_exchange(comm, "p2p", p2p->ranks, size, rank,
                              front_bytes(size) + tri_ports_bytes(size), &memory, p2p->members,
                              err));
    void **channels = calloc((size_t)size, sizeof *channels);
    tri_eventcount **bells = calloc((size_t)size, sizeof *bells);
    tr_status status = TR_OK;
    if (channels == NULL || bells == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d peers", size);
    for (int i = 0; status == TR_OK && i < size; i++) {
        bells[i] = &((struct front *)p2p->members[i])->bell;
        channels[i] = (char *)p2p->members[i] + front_bytes(size);
    }
    if (status == TR_OK)
        status = tri_ports_init(&p2p->ports, comm, size, rank, p2p->ranks, channels, bells, err);
    free(channels);
    free(bells);
    return status;
}

tr_status tri_p2p_init(tr_comm *comm, tr_error *err)
{
    tri_p2p *p2p = &comm->p2p;
    pthread_mutex_init(&p2p->mutex, NULL);
    pthread_cond_init(&p2p->wake, NULL);
    p2p->ready = true;
    p2p->ranks = malloc((size_t)comm->boot.size * sizeof *p2p->ranks);
    p2p->members = calloc((size_t)comm->boot.size, sizeof *p2p->members);
    if (p2p->ranks == NULL || p2p->members == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d peers", comm->boot.size);
    for (int i = 0; i < comm->boot.size; i++)
        p2p->ranks[i] = i;
    if (comm->transport->io != NULL)
        return tri_ports_open(&p2p->ports, comm, comm->boot.size, comm->boot.rank, p2p->ranks,
                              "p2p", true, err);
    TRI_TRY(join_ports(comm, err));
    return tri_tick(comm->world, &(tr_collective){.operation = TR_BARRIER}, err);
}

void tri_p2p_fini(tr_comm *comm)
{
    tri_p2p *p2p = &comm->p2p;
    if (!p2p->ready)
        return;
    if (p2p->started) {
        pthread_mutex_lock(&p2p->mutex);
        p2p->stop = true;
        pthread_cond_signal(&p2p->wake);
        pthread_mutex_unlock(&p2p->mutex);
        tri_ports_wake(&p2p->ports);
        pthread_join(p2p->helper, NULL);
    }
    bool shared = p2p->ports.io == NULL;
    tri_ports_fini(&p2p->ports);
    if (p2p->members != NULL && shared && comm->transport->leave != NULL)
        comm->transport->leave(comm->state, p2p->members, comm->boot.size, comm->boot.rank);
    free(p2p->members);
    free(p2p->ranks);
    pthread_cond_destroy(&p2p->wake);
    pthread_mutex_destroy(&p2p->mutex);
    p2p->ready = false;
}

static bool has_messages(const tri_ports *ports)
{
    for (int i = 0; i < ports->size; i++)
        if (ports->sends[i].first != NULL || ports->recvs[i].first != NULL)
            return true;
    return false;
}

static void *helper_main(void *context)
{
    tri_p2p *p2p = context;
    tri_eventcount none = {0}, *bell = p2p->ports.io ? &none : p2p->ports.bells[p2p->ports.me];
    pthread_mutex_lock(&p2p->mutex);
    while (!p2p->stop) {
        if (p2p->drivers > 0 || !has_messages(&p2p->ports)) {
            pthread_cond_wait(&p2p->wake, &p2p->mutex);
            continue;
        }
        uint64_t seen = atomic_load_explicit(&bell->value, memory_order_acquire);
        if (tri_ports_progress(&p2p->ports))
            continue;
        tri_ports_nap(&p2p->ports, seen, &p2p->mutex);
    }
    pthread_mutex_unlock(&p2p->mutex);
    return NULL;
}

/* With the mutex held. */
static tr_status drive(tr_comm *comm, tri_port_message *message, tr_error *err)
{
    tri_p2p *p2p = &comm->p2p;
    p2p->drivers++;
    tr_status status = tri_ports_drive(&p2p->ports, message, &p2p->mutex, "", err);
    p2p->drivers--;
    if (p2p->started && p2p->drivers == 0 && has_messages(&p2p->ports))
        pthread_cond_signal(&p2p->wake);
    return status;
}

static tr_status check_peer(const tr_comm *comm, int peer, tr_error *err)
{
    if (peer < 0 || peer >= comm->boot.size)
        return tri_fail(err, TR_ERROR_INPUT, "rank %d is not in a world of %d", peer,
                        comm->boot.size);
    return TR_OK;
}

static tr_status run_message(tr_comm *comm, tri_port_message *message, tr_error *err)
{
    tri_p2p *p2p = &comm->p2p;
    TRI_TRY(check_peer(comm, message->peer, err));
    tri_comm_doing(comm, message->is_send ? "send" : "receive", NULL, message->num_bytes);
    bool entered = tri_spent_enter(&comm->spent);
    pthread_mutex_lock(&p2p->mutex);
    tri_ports_post(&p2p->ports, message);
    tr_status status = drive(comm, message, err);
    pthread_mutex_unlock(&p2p->mutex);
    tri_spent_leave(&comm->spent, entered);
    return status;
}

tr_status tr_send(tr_comm *comm, int to, const void *data, size_t num_bytes, tr_error *err)
{
    tri_port_message message = {
        .data = (char *)(uintptr_t)data, .num_bytes = num_bytes, .peer = to, .is_send = true};
    return run_message(comm, &message, err);
}

tr_status tr_recv(tr_comm *comm, int from, void *data, size_t num_bytes, tr_error *err)
{
    tri_port_message message = {.data = data, .num_bytes = num_bytes, .peer = from};
    return run_message(comm, &message, err);
}

static tr_status start_message(tr_comm *comm, const tri_port_message *message, tr_request **out,
                               tr_error *err)
{
    tri_p2p *p2p = &comm->p2p;
    *out = NULL;
    TRI_TRY(check_peer(comm, message->peer, err));
    tr_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a request");
    request->comm = comm;
    request->is_message = true;
    request->begin_ns = tri_now_ns();
    request->message = *message;
    tri_comm_doing(comm, message->is_send ? "send" : "receive", NULL, message->num_bytes);
    tr_status status = TR_OK;
    bool entered = tri_spent_enter(&comm->spent);
    pthread_mutex_lock(&p2p->mutex);
    if (!p2p->started) {
        status = tri_thread_start(&p2p->helper, helper_main, p2p, err);
        p2p->started = status == TR_OK;
    }
    if (status == TR_OK) {
        tri_ports_post(&p2p->ports, &request->message);
        tri_ports_progress(&p2p->ports);
        if (!request->message.done && p2p->drivers == 0)
            pthread_cond_signal(&p2p->wake);
        if (!request->message.done && p2p->ports.io != NULL)
            tri_ports_wake(&p2p->ports); /* whoever sleeps there does not wait for this one yet */
    }
    pthread_mutex_unlock(&p2p->mutex);
    tri_spent_leave(&comm->spent, entered);
    if (status != TR_OK) {
        free(request);
        return status;
    }
    *out = request;
    return TR_OK;
}

tr_status tr_send_start(tr_comm *comm, int to, const void *data, size_t num_bytes,
                        tr_request **request, tr_error *err)
{
    tri_port_message message = {
        .data = (char *)(uintptr_t)data, .num_bytes = num_bytes, .peer = to, .is_send = true};
    return start_message(comm, &message, request, err);
}

tr_status tr_recv_start(tr_comm *comm, int from, void *data, size_t num_bytes, tr_request **request,
                        tr_error *err)
{
    tri_port_message message = {.data = data, .num_bytes = num_bytes, .peer = from};
    return start_message(comm, &message, request, err);
}

tr_status tri_port_message_wait(tr_request *request, tr_error *err)
{
    tri_p2p *p2p = &request->comm->p2p;
    pthread_mutex_lock(&p2p->mutex);
    tr_status status = drive(request->comm, &request->message, err);
    pthread_mutex_unlock(&p2p->mutex);
    free(request);
    return status;
}

tr_status tri_port_message_test(tr_request *request, bool *done, tr_error *err)
{
    tri_p2p *p2p = &request->comm->p2p;
    pthread_mutex_lock(&p2p->mutex);
    tri_ports_progress(&p2p->ports);
    *done = request->message.done;
    tr_status status = TR_OK;
    if (*done && request->message.status != TR_OK)
        status = tri_port_message_failed(&p2p->ports, &request->message, "", TRI_WAIT_DONE, 0, err);
    pthread_mutex_unlock(&p2p->mutex);
    if (*done)
        free(request);
    return status;
}

static tr_status check_signal(const tr_comm *comm, int peer, int slot, tr_error *err)
{
    TRI_TRY(check_peer(comm, peer, err));
    if (slot < 0 || slot >= TR_NUM_SIGNALS)
        return tri_fail(err, TR_ERROR_INPUT, "signal %d of %d", slot, TR_NUM_SIGNALS);
    return TR_OK;
}

tr_status tr_signal(tr_comm *comm, int peer, int slot, uint64_t value, tr_error *err)
{
    TRI_TRY(check_signal(comm, peer, slot, err));
    if (comm->transport->io != NULL) {
        pthread_mutex_lock(&comm->p2p.mutex);
        comm->transport->io->signal(&comm->p2p.ports, peer, slot, value);
        pthread_mutex_unlock(&comm->p2p.mutex);
        return TR_OK;
    }
    struct front *front = comm->p2p.members[peer];
    tri_eventcount_raise(&front->signals[comm->boot.rank * TR_NUM_SIGNALS + slot].event, value);
    return TR_OK;
}

static int signal_peer(void *context)
{
    return *(int *)context;
}

tr_status tr_wait_signal(tr_comm *comm, int peer, int slot, uint64_t value, tr_error *err)
{
    TRI_TRY(check_signal(comm, peer, slot, err));
    double seconds = 0;
    tri_wait_result result;
    int at = peer * TR_NUM_SIGNALS + slot;
    tri_comm_doing(comm, "wait for a signal", NULL, 0);
    if (comm->transport->io != NULL) {
        pthread_mutex_lock(&comm->p2p.mutex);
        comm->p2p.drivers++;
        tri_ports_await(&comm->p2p.ports, peer, &comm->p2p.ports.signals[at], value,
                        &comm->p2p.mutex, &result, &seconds);
        comm->p2p.drivers--;
        pthread_mutex_unlock(&comm->p2p.mutex);
    } else {
        struct front *front = comm->p2p.members[comm->boot.rank];
        result = tri_eventcount_wait(&comm->waiter, &front->signals[at].event, value, signal_peer,
                                     &peer, &seconds);
    }
    if (result == TRI_WAIT_STOPPED)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "rank %d stopped waiting for rank %d after %.1f s (signal %d to reach "
                        "%llu): %s",
                        comm->boot.rank, peer, seconds, slot, (unsigned long long)value,
                        comm->boot.stop->reason);
    if (result == TRI_WAIT_EXPIRED)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "rank %d did not raise signal %d to %llu: rank %d waited %.1f s", peer,
                        slot, (unsigned long long)value, comm->boot.rank, seconds);
    return TR_OK;
}
