/* Waiting where nothing is shared: try, try again for a moment, then sleep until the transport has
 * something to read or to write. As everywhere, with a deadline and a look at the stop flag. */
#include "comm/comm_internal.h"
#include "comm/transport/io.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Awake as long as a wake-up costs, where there is a core for each rank; otherwise that many turns
 * for the others: with fewer (8), who sleeps makes the others wait until they sleep, too, and a
 * ring of four ranks on two cores takes twice as long, or not, as it happens. The first part keeps
 * the core; the rest offers it between looks: ranks may have been put on one core although there is
 * one for each, and would stay there if the one that waits kept the other from running, and slept
 * when it is done. */
#define SPIN_NS    5000
#define AWAKE_NS   100000
#define NUM_YIELDS 32
#define SLICE_MS   50
#define NAP_US     100 /* where there is nothing to poll on */

static void release(pthread_mutex_t *mutex)
{
    if (mutex != NULL)
        pthread_mutex_unlock(mutex);
}

static void retake(pthread_mutex_t *mutex)
{
    if (mutex != NULL)
        pthread_mutex_lock(mutex);
}

void tri_ports_nap(tri_ports *ports, uint64_t seen, pthread_mutex_t *mutex)
{
    if (ports->io == NULL) {
        release(mutex);
        tri_eventcount_nap(ports->bells[ports->me], seen);
        retake(mutex);
        return;
    }
    struct pollfd few[16], *polls = few;
    if ((size_t)ports->size + 1 > sizeof few / sizeof *few)
        polls = malloc(((size_t)ports->size + 1) * sizeof *polls);
    int num = polls != NULL ? ports->io->interest(ports, polls) : 0;
    release(mutex);
    if (num > 0)
        poll(polls, (nfds_t)num, SLICE_MS);
    else
        usleep(NAP_US);
    retake(mutex);
    if (polls != few)
        free(polls);
}

void tri_ports_wake(tri_ports *ports)
{
    if (ports->io == NULL)
        tri_eventcount_add(ports->bells[ports->me], 1, 0);
    else
        ports->io->wake(ports);
}

/* The awake part; true when something moved or it is done. */
static bool try_awhile(tri_ports *ports, bool (*done)(const void *), const void *context,
                       pthread_mutex_t *mutex, tri_wait_span *span)
{
    bool own_core = ports->comm->waiter.core_for_each;
    uint64_t begin = tri_now_ns(), waited = 0;
    for (int i = 0; own_core ? waited < AWAKE_NS : i < NUM_YIELDS; i++) {
        if (own_core)
            waited = tri_now_ns() - begin;
        if (!own_core || waited > SPIN_NS ||
            mutex != NULL) { /* others want the core, or the mutex */
            release(mutex);
            sched_yield();
            retake(mutex);
            tri_wait_look(span);
        }
        if (done(context) || ports->io->progress(ports))
            return true;
    }
    return false;
}

static void end_span(const tri_waiter *waiter, tri_wait_span *span)
{
    if (span->begin_ns != 0)
        tri_wait_end(waiter, span);
    *span = (tri_wait_span){0};
}

tri_wait_result tri_io_wait(tri_ports *ports, bool (*done)(const void *context),
                            const void *context, int peer_rank, pthread_mutex_t *mutex,
                            double *seconds)
{
    const tri_bootstrap *boot = &ports->comm->boot;
    const tri_waiter *waiter = &ports->comm->waiter;
    tri_wait_span span = {0}; /* since something moved */
    uint64_t start = 0;
    tri_wait_result result = TRI_WAIT_DONE;
    while (!done(context)) {
        bool moved = ports->io->progress(ports);
        if (!moved && span.begin_ns == 0)
            span = tri_wait_begin();
        if (moved || (start == 0 && try_awhile(ports, done, context, mutex, &span))) {
            end_span(waiter, &span);
            start = 0;
            continue;
        }
        if (done(context))
            break;
        uint64_t now = tri_wait_look(&span);
        if (start == 0) {
            start = now;
            atomic_store_explicit(&boot->status->waiting_since_ns, start, memory_order_relaxed);
            atomic_store_explicit(&boot->status->peer, peer_rank, memory_order_relaxed);
        }
        *seconds = (double)(now - start) * 1e-9;
        if (tri_waiter_stopped(waiter))
            result = TRI_WAIT_STOPPED;
        else if (*seconds > boot->deadline_s)
            result = TRI_WAIT_EXPIRED;
        if (result != TRI_WAIT_DONE)
            return result; /* the status stays: the report wants to know */
        tri_ports_nap(ports, 0, mutex);
    }
    end_span(waiter, &span);
    atomic_store_explicit(&boot->status->peer, -1, memory_order_relaxed);
    atomic_store_explicit(&boot->status->waiting_since_ns, 0, memory_order_relaxed);
    return result;
}

struct awaited {
    _Atomic uint64_t *value;
    uint64_t least;
};

static bool reached(const void *context)
{
    const struct awaited *a = context;
    return atomic_load_explicit(a->value, memory_order_acquire) >= a->least;
}

tr_status tri_ports_await(tri_ports *ports, int peer, _Atomic uint64_t *value, uint64_t least,
                          pthread_mutex_t *mutex, tri_wait_result *result, double *seconds)
{
    struct awaited a = {value, least};
    *result = tri_io_wait(ports, reached, &a, ports->ranks[peer], mutex, seconds);
    return *result == TRI_WAIT_DONE ? TR_OK : TR_ERROR_RUNTIME;
}

tri_port_message *tri_ports_expecting(const tri_ports *ports)
{
    for (int i = 0; i < ports->size; i++)
        if (ports->recvs[i].first != NULL && ports->recvs[i].first->about != NULL)
            return ports->recvs[i].first;
    return NULL;
}

bool tri_port_message_same_call(tri_port_message *m, int their_rank, const tri_about *theirs)
{
    if (m->about == NULL)
        return true;
    tri_descriptor ours, other;
    tri_about_descriptor(m->about, &ours);
    tri_about_descriptor(theirs, &other);
    if (m->about->call == theirs->call && tri_same_call(&ours, &other))
        return true;
    char a[80], b[80];
    tri_describe(&other, a, sizeof a);
    tri_describe(&ours, b, sizeof b);
    m->status = TR_ERROR_RUNTIME;
    snprintf(m->why, sizeof m->why, "rank %d called %.60s (call %llu), this rank %.60s", their_rank,
             a, (unsigned long long)theirs->call, b);
    return false;
}
