#include "comm/control/control_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns < to_ns ? 1e-9 * (double)(to_ns - from_ns) : 0;
}

/* ---- not all came ---- */

static void look_for_missing(const tri_control_watch *w, tri_control_failure *failure)
{
    if (seconds(w->created_ns, w->now_ns) <= w->config->join_s)
        return;
    char list[160] = "";
    size_t used = 0;
    int num = 0;
    for (int r = 0; r < w->config->size; r++) {
        if (w->ranks[r].state != TRI_RANK_ABSENT)
            continue;
        if (used < sizeof list - 16)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", num ? ", " : "", r);
        else if (used < sizeof list - 4)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s", " ...");
        num++;
    }
    failure->cause = TRI_CAUSE_MISSING;
    failure->rank = -1;
    snprintf(failure->reason, sizeof failure->reason,
             "only %d of %d ranks joined within %.3g s; missing: %s %s", w->config->size - num,
             w->config->size, w->config->join_s, num == 1 ? "rank" : "ranks", list);
}

/* ---- somebody is gone ---- */

static void look_for_gone(const tri_control_watch *w, tri_control_failure *failure)
{
    const double hiccup_s = 0.5; /* a busy machine is not a dead one, however short the deadline */
    double longest_s = w->config->deadline_s > hiccup_s ? w->config->deadline_s : hiccup_s;
    for (int r = 0; r < w->config->size && failure->cause == TRI_CAUSE_NONE; r++) {
        const tri_control_rank *rank = &w->ranks[r];
        failure->rank = r;
        if (rank->state == TRI_RANK_LOST &&
            seconds(rank->lost_ns, w->now_ns) >= w->config->lost_grace_s) {
            failure->cause = TRI_CAUSE_LOST;
            snprintf(failure->reason, sizeof failure->reason,
                     "rank %d (process %lld on %s) ended without a word", r, (long long)rank->pid,
                     rank->host);
        } else if (w->welcomed && rank->state == TRI_RANK_PRESENT &&
                   seconds(rank->heard_ns, w->now_ns) > longest_s) {
            failure->cause = TRI_CAUSE_SILENT;
            snprintf(failure->reason, sizeof failure->reason,
                     "rank %d (process %lld on %s) was not heard from for %.1f s", r,
                     (long long)rank->pid, rank->host, seconds(rank->heard_ns, w->now_ns));
        }
    }
}

/* ---- somebody does not move ---- */

/* How long a rank has been waiting, its last heartbeat carried on to now. */
static double waits(const tri_control_watch *w, int r)
{
    const tri_control_rank *rank = &w->ranks[r];
    if (rank->state != TRI_RANK_PRESENT || rank->where.waiting_s <= 0)
        return 0;
    return rank->where.waiting_s + seconds(rank->heard_ns, w->now_ns);
}

static bool in_world(const tri_control_watch *w, int r)
{
    return r >= 0 && r < w->config->size;
}

static void blame(const tri_control_watch *w, int waiter, int rank, tri_control_failure *failure)
{
    const double missed_beat_s = 0.3;
    const tri_control_rank *at = &w->ranks[rank];
    double still = seconds(at->moved_ns, w->now_ns);
    if (at->state != TRI_RANK_ENDED && still <= w->config->deadline_s)
        return;
    /* One that is not heard from does not move either, but silence is what there is to report. */
    if (at->state == TRI_RANK_PRESENT && seconds(at->heard_ns, w->now_ns) > missed_beat_s)
        return;
    failure->cause = TRI_CAUSE_STUCK;
    failure->rank = rank;
    if (at->state == TRI_RANK_ENDED)
        snprintf(failure->reason, sizeof failure->reason,
                 "rank %d has ended, and rank %d has been waiting for it for %.1f s", rank, waiter,
                 waits(w, waiter));
    else
        snprintf(failure->reason, sizeof failure->reason,
                 "rank %d has not moved for %.1f s, and rank %d waits for it", rank, still, waiter);
}

/* For one that waits for many, or does not say for whom: a rank that neither waits nor moves. When
 * there is none, the wait of the rank itself will end it. */
static void blame_anyone(const tri_control_watch *w, int waiter, tri_control_failure *failure)
{
    for (int r = 0; r < w->config->size && failure->cause == TRI_CAUSE_NONE; r++)
        if (w->ranks[r].state == TRI_RANK_PRESENT && waits(w, r) <= 0)
            blame(w, waiter, r, failure);
}

/* Follows who waits for whom from a rank that has waited too long to one that waits for nobody: it
 * is to blame if it does not move. More steps than ranks mean a circle. */
static void follow(const tri_control_watch *w, int waiter, tri_control_failure *failure)
{
    int last = waiter, at = w->ranks[waiter].where.peer;
    for (int i = 0; i <= w->config->size; i++) {
        if (!in_world(w, at)) {
            blame_anyone(w, last, failure);
            return;
        }
        if (waits(w, at) <= 0) {
            blame(w, last, at, failure);
            return;
        }
        last = at;
        at = w->ranks[at].where.peer;
    }
    if (waits(w, last) <= w->config->deadline_s || waits(w, at) <= w->config->deadline_s)
        return;
    failure->cause = TRI_CAUSE_STUCK;
    failure->rank = last;
    snprintf(failure->reason, sizeof failure->reason,
             "ranks wait for each other in a circle: rank %d for rank %d, rank %d for rank %d",
             last, at, at, w->ranks[at].where.peer);
}

void tri_control_watch_look(const tri_control_watch *w, tri_control_failure *failure)
{
    failure->cause = TRI_CAUSE_NONE;
    if (!w->welcomed)
        look_for_missing(w, failure);
    if (failure->cause == TRI_CAUSE_NONE)
        look_for_gone(w, failure);
    for (int r = 0; w->welcomed && failure->cause == TRI_CAUSE_NONE && r < w->config->size; r++)
        if (waits(w, r) > w->config->deadline_s)
            follow(w, r, failure);
}

/* ---- the server on a thread ---- */

struct tri_control_thread {
    tri_control_server *server;
    pthread_t thread;
    pthread_mutex_t lock; /* of the server, but for its descriptor */
    bool joined;
};

static void *serve(void *argument)
{
    tri_control_thread *t = argument;
    enum { SLICE_MS = 100 };
    for (bool done = false; !done;) {
        struct pollfd ready = {.fd = tri_control_server_fd(t->server), .events = POLLIN};
        poll(&ready, 1, SLICE_MS);
        pthread_mutex_lock(&t->lock);
        tri_control_server_step(t->server, 0);
        done = tri_control_server_done(t->server);
        pthread_mutex_unlock(&t->lock);
    }
    return NULL;
}

int tri_control_thread_look(tri_control_thread *t, tri_control_rank *ranks, int num_ranks)
{
    pthread_mutex_lock(&t->lock);
    int failed = tri_control_server_failure(t->server)->rank;
    for (int r = 0; r < num_ranks; r++)
        ranks[r] = *tri_control_server_rank(t->server, r);
    pthread_mutex_unlock(&t->lock);
    return failed;
}

tr_status tri_control_thread_start(tri_control_server *server, tri_control_thread **thread,
                                   tr_error *err)
{
    *thread = calloc(1, sizeof **thread);
    if (!*thread)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the control server");
    (*thread)->server = server;
    pthread_mutex_init(&(*thread)->lock, NULL);
    sigset_t all, old; /* signals are for the rank's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int wrong = pthread_create(&(*thread)->thread, NULL, serve, *thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (wrong == 0)
        return TR_OK;
    free(*thread);
    *thread = NULL;
    return tri_fail(err, TR_ERROR_RUNTIME, "no thread for the control server: %s", strerror(wrong));
}

void tri_control_thread_wait(tri_control_thread *thread)
{
    if (thread && !thread->joined)
        pthread_join(thread->thread, NULL);
    if (thread)
        thread->joined = true;
}

void tri_control_thread_end(tri_control_thread *thread)
{
    if (!thread)
        return;
    tri_control_thread_wait(thread);
    pthread_mutex_destroy(&thread->lock);
    free(thread);
}
