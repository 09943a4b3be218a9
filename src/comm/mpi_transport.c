/* Ranks under mpirun or srun over whatever network their MPI knows: its messages carry our
 * algorithms, and its own collectives are the algorithm "native".
 *
 * Every set of members has a communicator of its own. A message of ours is one of MPI's with tag
 * DATA; what call it belongs to travels before the first of a call to each peer with tag ABOUT, and
 * is compared when it arrives. tr_send is a synchronous send, which ends when its receive has
 * begun; its receiver looks at the size before it receives, since a message that is too long would
 * be an error of MPI's.
 *
 * MPI moves messages only while somebody calls it, so waiting is trying again. */
#include "comm/comm_internal.h"
#include "comm/io.h"
#include "comm/layout.h"
#include "comm/mpi.h"
#include "comm/reduce.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA = 1, ABOUT, SIGNAL, MOST_TAG = 32767 };

/* One direction of a peer. */
struct way {
    void *request;  /* of the first message, or NULL */
    void *about;    /* of the tri_about before it, or NULL */
    uint64_t told;  /* call whose tri_about was begun */
    tri_about text; /* while it is on its way */
    char *stage;    /* what will be combined */
    size_t stage_bytes;
};

struct signal_frame {
    uint64_t slot, value;
};

struct sent_signal {
    void *request;
    struct signal_frame frame;
    struct sent_signal *next;
};

struct lane {
    tri_mpi *mpi;
    void *group;
    bool rendezvous;
    struct way *out, *in;
    struct sent_signal *signals;
};

static void enter(struct lane *lane)
{
    if (!lane->mpi->world.threads)
        pthread_mutex_lock(&lane->mpi->mutex);
}

static void leave(struct lane *lane)
{
    if (!lane->mpi->world.threads)
        pthread_mutex_unlock(&lane->mpi->mutex);
}

static void *start(struct lane *lane, bool sends, void *data, size_t bytes, int peer, int tag)
{
    const tri_mpi_plugin *mpi = lane->mpi->plugin;
    enter(lane);
    void *request =
        sends ? mpi->send(lane->group, data, bytes, peer, tag, lane->rendezvous && tag == DATA)
              : mpi->receive(lane->group, data, bytes, peer, tag);
    leave(lane);
    return request;
}

/* 1, 0 or -1 as the plug-in's test; the request is gone unless 0. */
static int look(struct lane *lane, void **request, size_t *bytes, char *why, size_t capacity)
{
    enter(lane);
    int result = lane->mpi->plugin->test(*request, bytes, why, capacity);
    leave(lane);
    if (result != 0)
        *request = NULL;
    return result;
}

static void give_up(tri_message *m, const char *why)
{
    m->status = TR_ERROR_RUNTIME;
    if (why != m->why)
        snprintf(m->why, sizeof m->why, "%s", why);
}

/* Begins the first message of a queue and, where it is the first of a call, what it is about. */
static void begin(struct lane *lane, struct way *way, tri_message *m)
{
    bool about = m->about != NULL && way->told != m->about->call;
    char *data = m->data;
    if (!m->is_send && m->combine && m->num_bytes > way->stage_bytes) {
        free(way->stage);
        way->stage = malloc(m->num_bytes);
        way->stage_bytes = way->stage ? m->num_bytes : 0;
    }
    if (!m->is_send && m->combine && m->num_bytes > 0)
        data = way->stage;
    if (about) {
        way->told = m->about->call;
        if (m->is_send)
            way->text = *m->about;
        way->about = start(lane, m->is_send, &way->text, sizeof way->text, m->peer, ABOUT);
    }
    m->posted = true;
    if (data != NULL || m->num_bytes == 0)
        way->request = start(lane, m->is_send, data, m->num_bytes, m->peer, DATA);
    if (way->request == NULL || (about && way->about == NULL))
        give_up(m, "MPI did not take the message");
}

/* What the message is about has come, or gone; true when there is nothing (more) to wait for. */
static bool about_done(struct lane *lane, struct way *way, tri_message *m)
{
    size_t bytes = 0;
    char why[120] = "";
    if (way->about == NULL)
        return true;
    int result = look(lane, &way->about, &bytes, why, sizeof why);
    if (result < 0)
        give_up(m, why);
    else if (result > 0 && !m->is_send)
        tri_message_same_call(m, &way->text);
    return result != 0;
}

static void take(struct way *way, tri_message *m, size_t bytes)
{
    if (m->is_send)
        return;
    if (bytes != m->num_bytes)
        tri_message_refuse(m, bytes, m->num_bytes);
    else if (m->combine && bytes > 0)
        tri_combine(m->dtype, m->reduction, m->data, way->stage, bytes / tri_dtype_bytes(m->dtype));
}

/* A receive of tr_recv: only when the message is there, and has the right size. */
static bool may_receive(struct lane *lane, tri_message *m)
{
    size_t bytes = 0;
    int from = m->peer;
    if (!lane->rendezvous || m->num_bytes > (size_t)1 << 30) /* those come in parts */
        return true;
    enter(lane);
    int there = lane->mpi->plugin->probe(lane->group, &from, DATA, &bytes);
    leave(lane);
    if (there && bytes != m->num_bytes)
        tri_message_refuse(m, bytes, m->num_bytes);
    return there && m->status == TR_OK;
}

static bool move_queue(tri_ports *ports, struct lane *lane, struct way *way, tri_queue *queue)
{
    bool moved = false;
    while (queue->first != NULL) {
        tri_message *m = queue->first;
        size_t bytes = 0;
        if (!m->posted) {
            if (m->is_send || may_receive(lane, m))
                begin(lane, way, m);
            else if (m->status == TR_OK)
                return moved;
            moved = true;
        }
        if (m->status == TR_OK && !about_done(lane, way, m))
            return moved;
        if (m->status == TR_OK && way->request != NULL) {
            int result = look(lane, &way->request, &bytes, m->why, sizeof m->why);
            if (result == 0)
                return moved;
            if (result < 0)
                give_up(m, m->why);
            else
                take(way, m, bytes);
        }
        tri_ports_finish_first(ports, queue);
        moved = true;
    }
    return moved;
}

static bool take_signals(tri_ports *ports, struct lane *lane)
{
    bool moved = false;
    for (;;) {
        struct signal_frame frame = {0};
        size_t bytes = 0;
        int from = -1;
        char why[80];
        enter(lane);
        int there = lane->mpi->plugin->probe(lane->group, &from, SIGNAL, &bytes);
        leave(lane);
        if (!there || bytes != sizeof frame)
            break;
        void *request = start(lane, false, &frame, sizeof frame, from, SIGNAL);
        while (request != NULL && look(lane, &request, &bytes, why, sizeof why) == 0) {
        } /* it is there */
        if (frame.slot < TR_NUM_SIGNALS) {
            _Atomic uint64_t *at = &ports->signals[from * TR_NUM_SIGNALS + (int)frame.slot];
            uint64_t old = atomic_load_explicit(at, memory_order_relaxed);
            while (old < frame.value && !atomic_compare_exchange_weak(at, &old, frame.value)) {
            }
        }
        moved = true;
    }
    for (struct sent_signal **at = &lane->signals; *at != NULL;) {
        struct sent_signal *s = *at;
        size_t bytes;
        char why[80];
        if (look(lane, &s->request, &bytes, why, sizeof why) == 0) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free(s);
    }
    return moved;
}

static bool mpi_progress(tri_ports *ports)
{
    struct lane *lane = ports->io_state;
    bool moved = lane->rendezvous && take_signals(ports, lane);
    for (int i = 0; i < ports->size; i++) {
        moved |= move_queue(ports, lane, &lane->out[i], &ports->sends[i]);
        moved |= move_queue(ports, lane, &lane->in[i], &ports->recvs[i]);
    }
    return moved;
}

static int mpi_interest(tri_ports *ports, struct pollfd *polls)
{
    (void)ports;
    (void)polls;
    return 0;
}

static void mpi_wake(tri_ports *ports)
{
    (void)ports; /* naps are short */
}

static void mpi_signal(tri_ports *ports, int peer, int slot, uint64_t value)
{
    struct lane *lane = ports->io_state;
    struct sent_signal *s = calloc(1, sizeof *s);
    if (s == NULL)
        return;
    s->frame = (struct signal_frame){(uint64_t)slot, value};
    s->request = start(lane, true, &s->frame, sizeof s->frame, peer, SIGNAL);
    if (s->request == NULL) {
        free(s);
        return;
    }
    s->next = lane->signals;
    lane->signals = s;
}

/* Communicators stay until MPI is finalised: freeing one is collective, and members leave when they
 * like. */
static void mpi_close(tri_ports *ports)
{
    struct lane *lane = ports->io_state;
    if (lane == NULL)
        return;
    for (int i = 0; lane->in != NULL && i < ports->size; i++)
        free(lane->in[i].stage);
    free(lane->in);
    free(lane->out);
    free(lane); /* signals on their way keep their frames */
    ports->io_state = NULL;
}

static int tag_of(const char *key)
{
    uint32_t hash = 2166136261u;
    for (; *key != '\0'; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return (int)(hash % MOST_TAG);
}

static tr_status mpi_open_lane(tri_ports *ports, const char *key, bool rendezvous, tr_error *err)
{
    struct lane *lane = calloc(1, sizeof *lane);
    ports->io_state = lane;
    if (lane != NULL) {
        lane->mpi = ports->comm->boot.mpi;
        lane->rendezvous = rendezvous;
        lane->out = calloc((size_t)ports->size, sizeof *lane->out);
        lane->in = calloc((size_t)ports->size, sizeof *lane->in);
    }
    if (lane == NULL || lane->out == NULL || lane->in == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d peers", ports->size);
    enter(lane);
    lane->group = lane->mpi->plugin->group(ports->ranks, ports->size, tag_of(key));
    leave(lane);
    if (lane->group == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "MPI made no communicator of %d ranks", ports->size);
    return TR_OK;
}

/* ---- native ---- */

static tr_status fill_counts(const uint64_t *counts, int size, int **out, tr_error *err)
{
    int *list = malloc(2 * (size_t)size * sizeof *list);
    uint64_t at = 0;
    *out = list;
    if (list == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d counts", size);
    for (int i = 0; i < size; i++) {
        if (counts[i] > INT_MAX || at > INT_MAX)
            return tri_fail(err, TR_ERROR_INPUT,
                            "MPI counts up to %d elements; choose another algorithm than native",
                            INT_MAX);
        list[i] = (int)counts[i];
        list[size + i] = (int)at;
        at += counts[i];
    }
    return TR_OK;
}

/* Where MPI wants MPI_IN_PLACE, send is NULL; where results go elsewhere first, *block is made. */
static tr_status place(const tr_group *group, const tr_collective *call, tri_mpi_collective *c,
                       void **block, tr_error *err)
{
    uint64_t element = tri_dtype_bytes((tri_dtype)call->dtype);
    const uint64_t *counts = tri_block_counts(call);
    uint64_t own_at = tri_block_first(counts, call->count, group->rank) * element;
    bool root = group->rank == call->root;
    const char *send = call->send, *recv = call->recv;
    c->send = call->send;
    c->recv = call->recv;
    switch (call->operation) {
    case TR_BROADCAST:
        if (root && send != recv && call->count > 0)
            memcpy(call->recv, send, call->count * element);
        break;
    case TR_ALL_REDUCE:
        c->send = send == recv ? NULL : send;
        break;
    case TR_REDUCE:
        c->send = root && send == recv ? NULL : send;
        break;
    case TR_GATHER:
        c->send = root && send == recv + own_at ? NULL : send;
        break;
    case TR_ALL_GATHER:
        c->send = send == recv + own_at ? NULL : send;
        break;
    case TR_SCATTER:
        c->recv = root && recv == send + own_at ? NULL : call->recv;
        break;
    case TR_REDUCE_SCATTER:
        if (recv != send + own_at)
            break;
        *block = malloc(tri_recv_elements(group, call) * element + 1);
        if (*block == NULL)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a block");
        c->recv = *block;
        break;
    default:
        break;
    }
    return TR_OK;
}

static tr_status run_native(tri_ports *ports, const tr_group *group, const tr_collective *call,
                            tri_mpi_collective *c, void *block, tr_error *err)
{
    struct lane *lane = ports->io_state;
    char why[300] = "";
    static const char nothing; /* an empty block is not "in place" */
    uint64_t elements = tri_recv_elements(group, call);
    if (c->send == NULL && call->send == NULL)
        c->send = &nothing;
    if (c->recv == NULL && call->recv == NULL && call->operation == TR_SCATTER)
        c->recv = (void *)(uintptr_t)&nothing;
    enter(lane);
    int wrong = lane->mpi->plugin->collective(lane->group, c, why, sizeof why);
    leave(lane);
    if (wrong != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d: MPI's own %s, call %llu of group %s: %s",
                        group->comm->boot.rank, tri_coll_name((tri_coll)call->operation),
                        (unsigned long long)group->call, group->name, why);
    if (block != NULL && elements > 0)
        memcpy(call->recv, block, elements * tri_dtype_bytes((tri_dtype)call->dtype));
    if (tri_coll_reduces(call->operation) && call->reduction == TR_MEAN && elements > 0)
        tri_divide((tri_dtype)call->dtype, call->recv, elements, group->size);
    return TR_OK;
}

static tr_status mpi_native(tri_ports *ports, const tr_group *group, const tr_collective *call,
                            tr_error *err)
{
    tri_mpi_collective c = {.operation = (int)call->operation,
                            .reduction = (int)call->reduction,
                            .dtype = (int)call->dtype,
                            .root = call->root};
    int *counts = NULL, *counts2 = NULL;
    void *block = NULL;
    tr_status status = TR_OK;
    const uint64_t *list = tri_block_counts(call);
    uint64_t count = list ? list[group->rank] : call->count;
    if (tri_coll_reduces(call->operation) && (call->dtype == TR_BF16 || call->dtype == TR_F16))
        return tri_fail(err, TR_ERROR_INPUT,
                        "MPI has no sums of %s; choose another algorithm than native",
                        tri_dtype_name((tri_dtype)call->dtype));
    if (count > INT_MAX)
        return tri_fail(err, TR_ERROR_INPUT,
                        "MPI counts up to %d elements; choose another algorithm than native",
                        INT_MAX);
    c.count = (int)count;
    if (call->operation == TR_ALL_TO_ALL)
        list = call->send_counts;
    if (list != NULL)
        status = fill_counts(list, group->size, &counts, err);
    if (status == TR_OK && call->operation == TR_ALL_TO_ALL && call->recv_counts != NULL)
        status = fill_counts(call->recv_counts, group->size, &counts2, err);
    c.counts = counts;
    c.displs = counts ? counts + group->size : NULL;
    c.counts2 = counts2;
    c.displs2 = counts2 ? counts2 + group->size : NULL;
    if (status == TR_OK)
        status = place(group, call, &c, &block, err);
    if (status == TR_OK)
        status = run_native(ports, group, call, &c, block, err);
    free(block);
    free(counts);
    free(counts2);
    return status;
}

static const tri_io_def mpi_io = {
    .open = mpi_open_lane,
    .close = mpi_close,
    .progress = mpi_progress,
    .interest = mpi_interest,
    .wake = mpi_wake,
    .signal = mpi_signal,
    .native = mpi_native,
};

/* ---- the transport ---- */

static tr_status mpi_create(const tri_bootstrap *bootstrap, void **state, tr_error *err)
{
    const tri_mpi *mpi = bootstrap->mpi;
    *state = NULL;
    if (mpi == NULL)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.transport=mpi is for ranks that mpirun or srun started: mpirun -n %d "
                        "trireme ...; without them use shm or tcp",
                        bootstrap->size);
    if (mpi->world.size != bootstrap->size || mpi->world.rank != bootstrap->rank)
        return tri_fail(err, TR_ERROR_INPUT,
                        "MPI says rank %d of %d, but this is rank %d of %d; start the ranks with "
                        "the mpirun of %s",
                        mpi->world.rank, mpi->world.size, bootstrap->rank, bootstrap->size,
                        mpi->world.library);
    return TR_OK;
}

static void mpi_destroy(void *state)
{
    (void)state;
}

static tr_status mpi_alloc(void *state, size_t num_bytes, void **memory, tr_error *err)
{
    return tri_transport_tcp.alloc(state, num_bytes, memory, err);
}

static void mpi_free(void *state, void *memory)
{
    tri_transport_tcp.free(state, memory);
}

const tri_transport tri_transport_mpi = {
    .name = "mpi",
    .create = mpi_create,
    .destroy = mpi_destroy,
    .alloc = mpi_alloc,
    .free = mpi_free,
    .io = &mpi_io,
};
