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
#include "comm/layout.h"
#include "comm/reduce.h"
#include "comm/transport/io.h"
#include "comm/transport/mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA = 1, ABOUT, SIGNAL, MOST_TAG = 32767 };

/* One direction of a peer. */
struct mpi_way {
    void *request;  /* of the first message, or NULL */
    void *about;    /* of the tri_about before it, or NULL */
    uint64_t told;  /* call whose tri_about was begun */
    tri_about text; /* while it is on its way */
    bool early;     /* text came before its receive was posted */
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

struct mpi_lane {
    tri_mpi_group base; /* first: mpi_native.c knows only this */
    bool rendezvous;
    struct mpi_way *out, *in;
    struct sent_signal *signals;
};

static void *start(struct mpi_lane *lane, bool sends, void *data, size_t bytes, int peer, int tag)
{
    const tri_mpi_plugin *mpi = lane->base.mpi->plugin;
    tri_mpi_enter(lane->base.mpi);
    void *request =
        sends ? mpi->send(lane->base.group, data, bytes, peer, tag, lane->rendezvous && tag == DATA)
              : mpi->receive(lane->base.group, data, bytes, peer, tag);
    tri_mpi_leave(lane->base.mpi);
    return request;
}

/* 1, 0 or -1 as the plug-in's test; the request is gone unless 0. */
static int look(struct mpi_lane *lane, void **request, size_t *bytes, char *why, size_t capacity)
{
    tri_mpi_enter(lane->base.mpi);
    int result = lane->base.mpi->plugin->test(*request, bytes, why, capacity);
    tri_mpi_leave(lane->base.mpi);
    if (result != 0)
        *request = NULL;
    return result;
}

static void give_up(tri_port_message *m, const char *why)
{
    m->status = TR_ERROR_RUNTIME;
    if (why != m->why)
        snprintf(m->why, sizeof m->why, "%s", why);
}

/* Begins the first message of a queue and, where it is the first of a call, what it is about. */
static void begin(const tri_ports *ports, struct mpi_lane *lane, struct mpi_way *way,
                  tri_port_message *m)
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
    m->posted = true;
    if (about) {
        way->told = m->about->call;
        if (m->is_send)
            way->text = *m->about;
        if (way->early && !tri_port_message_same_call(m, ports->ranks[m->peer], &way->text))
            return;
        if (!way->early)
            way->about = start(lane, m->is_send, &way->text, sizeof way->text, m->peer, ABOUT);
        about = !way->early;
        way->early = false;
    }
    if (data != NULL || m->num_bytes == 0)
        way->request = start(lane, m->is_send, data, m->num_bytes, m->peer, DATA);
    if (way->request == NULL || (about && way->about == NULL))
        give_up(m, "MPI did not take the message");
}

/* What the message is about has come, or gone; true when there is nothing (more) to wait for. */
static bool about_done(const tri_ports *ports, struct mpi_lane *lane, struct mpi_way *way,
                       tri_port_message *m)
{
    size_t bytes = 0;
    char why[120] = "";
    if (way->about == NULL)
        return true;
    int result = look(lane, &way->about, &bytes, why, sizeof why);
    if (result < 0)
        give_up(m, why);
    else if (result > 0 && !m->is_send)
        tri_port_message_same_call(m, ports->ranks[m->peer], &way->text);
    return result != 0;
}

static void take(struct mpi_way *way, tri_port_message *m, size_t bytes)
{
    if (m->is_send)
        return;
    if (bytes != m->num_bytes)
        tri_port_message_refuse(m, bytes, m->num_bytes);
    else if (m->combine && bytes > 0)
        tri_combine(m->dtype, m->reduction, m->data, way->stage, bytes / tri_dtype_bytes(m->dtype));
}

/* A receive of tr_recv: only when the message is there, and has the right size. */
static bool may_receive(struct mpi_lane *lane, tri_port_message *m)
{
    size_t bytes = 0;
    int from = m->peer;
    if (!lane->rendezvous || m->num_bytes > (size_t)1 << 30) /* those come in parts */
        return true;
    tri_mpi_enter(lane->base.mpi);
    int there = lane->base.mpi->plugin->probe(lane->base.group, &from, DATA, &bytes);
    tri_mpi_leave(lane->base.mpi);
    if (there && bytes != m->num_bytes)
        tri_port_message_refuse(m, bytes, m->num_bytes);
    return there && m->status == TR_OK;
}

static bool move_queue(tri_ports *ports, struct mpi_lane *lane, struct mpi_way *way,
                       tri_queue *queue)
{
    bool moved = false;
    while (queue->first != NULL) {
        tri_port_message *m = queue->first;
        size_t bytes = 0;
        if (!m->posted) {
            if (m->is_send || may_receive(lane, m))
                begin(ports, lane, way, m);
            else if (m->status == TR_OK)
                return moved;
            moved = true;
        }
        if (m->status == TR_OK && !about_done(ports, lane, way, m))
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

static bool take_signals(tri_ports *ports, struct mpi_lane *lane)
{
    bool moved = false;
    for (;;) {
        struct signal_frame frame = {0};
        size_t bytes = 0;
        int from = -1;
        char why[80];
        tri_mpi_enter(lane->base.mpi);
        int there = lane->base.mpi->plugin->probe(lane->base.group, &from, SIGNAL, &bytes);
        tri_mpi_leave(lane->base.mpi);
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
    struct mpi_lane *lane = ports->io_state;
    bool moved = lane->rendezvous && take_signals(ports, lane);
    for (int i = 0; i < ports->size; i++) {
        moved |= move_queue(ports, lane, &lane->out[i], &ports->sends[i]);
        moved |= move_queue(ports, lane, &lane->in[i], &ports->recvs[i]);
    }
    return moved;
}

/* As in tcp_lane.c: what others sent tells whether they are in the same call. */
static void look_around(tri_ports *ports, struct mpi_lane *lane)
{
    tri_port_message *m = tri_ports_expecting(ports);
    size_t bytes = 0;
    int from = -1;
    char why[80];
    if (m == NULL)
        return;
    tri_mpi_enter(lane->base.mpi);
    int there = lane->base.mpi->plugin->probe(lane->base.group, &from, ABOUT, &bytes);
    tri_mpi_leave(lane->base.mpi);
    struct mpi_way *way = there ? &lane->in[from] : NULL;
    if (way == NULL || bytes != sizeof way->text || way->early || way->about != NULL ||
        ports->recvs[from].first != NULL)
        return;
    void *request = start(lane, false, &way->text, sizeof way->text, from, ABOUT);
    while (request != NULL && look(lane, &request, &bytes, why, sizeof why) == 0) {
    } /* it is there */
    way->early = true;
    if (way->text.call == m->about->call &&
        !tri_port_message_same_call(m, ports->ranks[from], &way->text))
        tri_ports_finish_first(ports, &ports->recvs[m->peer]);
}

static int mpi_interest(tri_ports *ports, struct pollfd *polls)
{
    struct mpi_lane *lane = ports->io_state;
    (void)polls;
    if (!lane->rendezvous)
        look_around(ports, lane);
    return 0;
}

static void mpi_wake(tri_ports *ports)
{
    (void)ports; /* naps are short */
}

static void mpi_signal(tri_ports *ports, int peer, int slot, uint64_t value)
{
    struct mpi_lane *lane = ports->io_state;
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
    struct mpi_lane *lane = ports->io_state;
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
    struct mpi_lane *lane = calloc(1, sizeof *lane);
    ports->io_state = lane;
    if (lane != NULL) {
        lane->base.mpi = ports->comm->boot.mpi;
        lane->rendezvous = rendezvous;
        lane->out = calloc((size_t)ports->size, sizeof *lane->out);
        lane->in = calloc((size_t)ports->size, sizeof *lane->in);
    }
    if (lane == NULL || lane->out == NULL || lane->in == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d peers", ports->size);
    tri_mpi_enter(lane->base.mpi);
    lane->base.group = lane->base.mpi->plugin->group(ports->ranks, ports->size, tag_of(key));
    tri_mpi_leave(lane->base.mpi);
    if (lane->base.group == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "MPI made no communicator of %d ranks", ports->size);
    return TR_OK;
}

static const tri_io_def mpi_io = {
    .open = mpi_open_lane,
    .close = mpi_close,
    .progress = mpi_progress,
    .interest = mpi_interest,
    .wake = mpi_wake,
    .signal = mpi_signal,
    .native = tri_mpi_native,
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
