/* Calls: checked, run inline or queued for the lane of their group, a thread that runs started
 * calls one after another in the order of starting. The thread is made with the first started call.
 * Whoever waits for a call that nobody has begun yet runs it, and those before it, by itself, which
 * saves waking two threads. Requests of both kinds (calls and messages) end here. */
#include "comm/lane.h"
#include "comm/layout.h"
#include "comm/transport/io.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

tr_status tri_lane_init(tri_lane *lane, tr_error *err)
{
    (void)err;
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->work, NULL);
    pthread_cond_init(&lane->done, NULL);
    lane->ready = true;
    return TR_OK;
}

void tri_lane_fini(tri_lane *lane)
{
    if (!lane->ready)
        return;
    if (lane->started) {
        pthread_mutex_lock(&lane->mutex);
        lane->stop = true;
        pthread_cond_signal(&lane->work);
        pthread_mutex_unlock(&lane->mutex);
        pthread_join(lane->thread, NULL);
    }
    while (lane->spare != NULL) {
        tr_request *next = lane->spare->next;
        free(lane->spare);
        lane->spare = next;
    }
    pthread_cond_destroy(&lane->done);
    pthread_cond_destroy(&lane->work);
    pthread_mutex_destroy(&lane->mutex);
    lane->ready = false;
}

static tr_status check_operands(const tr_group *group, const tr_collective *call, tr_error *err)
{
    const char *name = tri_coll_name((tri_coll)call->operation);
    if (tri_coll_rooted(call->operation) && (call->root < 0 || call->root >= group->size))
        return tri_fail(err, TR_ERROR_INPUT, "%s with root %d in a group of %d", name, call->root,
                        group->size);
    if (call->operation == TR_ALL_TO_ALL &&
        (call->send_counts == NULL) != (call->recv_counts == NULL))
        return tri_fail(err, TR_ERROR_INPUT,
                        "all_to_all needs both send_counts and recv_counts, or neither");
    for (int i = 0; call->room > 0 && i < group->size; i++)
        if (call->send_counts == NULL || call->send_counts[i] > call->room ||
            call->recv_counts[i] > call->room)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s with a room of %llu elements needs counts that are no larger", name,
                            (unsigned long long)call->room);
    if (tri_send_elements(group, call) > 0 && call->send == NULL)
        return tri_fail(err, TR_ERROR_INPUT, "%s needs a send buffer on rank %d", name,
                        group->comm->boot.rank);
    if (tri_recv_elements(group, call) > 0 && call->recv == NULL)
        return tri_fail(err, TR_ERROR_INPUT, "%s needs a recv buffer on rank %d", name,
                        group->comm->boot.rank);
    return TR_OK;
}

/* Fills in what the caller may leave out. No algorithm: the transport's own. */
static tr_status prepare(tr_group *group, const tr_collective *given, tr_collective *call,
                         const tri_algorithm **algorithm, tri_coll_shape *shape, tr_error *err)
{
    *call = *given;
    *shape = group->shape;
    if ((unsigned)call->operation >= TRI_NUM_COLLS || (unsigned)call->dtype > TR_U8 ||
        (unsigned)call->reduction >= TRI_NUM_REDUCTIONS)
        return tri_fail(err, TR_ERROR_INPUT, "no such operation, type or reduction: %d, %d, %d",
                        (int)call->operation, (int)call->dtype, (int)call->reduction);
    const char *name = tri_coll_name((tri_coll)call->operation);
    if (tri_coll_reduces(call->operation) && call->dtype == TR_U8)
        return tri_fail(err, TR_ERROR_INPUT, "%s of bytes: u8 has no reductions", name);
    if (call->operation == TR_BROADCAST && (call->send == NULL || group->rank != call->root))
        call->send = call->recv;
    if (call->operation == TR_BARRIER)
        call->count = 0;
    if (call->algorithm != NULL && strcmp(call->algorithm, "native") == 0) {
        if (group->comm->transport->io != NULL && group->comm->transport->io->native != NULL)
            return check_operands(group, call, err);
        return tri_fail(err, TR_ERROR_INPUT,
                        "algorithm native is that of an MPI library; transport %s has none",
                        group->comm->transport->name);
    }
    if (call->algorithm == NULL || strcmp(call->algorithm, "auto") == 0)
        *algorithm = tri_choose(group, call);
    else
        TRI_TRY(tri_algorithm_parse(call->algorithm, algorithm, shape, err));
    if (!tri_algorithm_supports(*algorithm, (tri_coll)call->operation, shape))
        return tri_algorithm_refuse(*algorithm, (tri_coll)call->operation, shape, err);
    if ((*algorithm)->needs_shared_memory && group->comm->transport->io != NULL)
        return tri_fail(err, TR_ERROR_INPUT,
                        "algorithm %s reads the memory of others, which transport %s cannot; "
                        "choose another, or leave the choice open",
                        (*algorithm)->name, group->comm->transport->name);
    TRI_TRY(check_operands(group, call, err));
    if (call->operation == TR_ALL_TO_ALL && call->send_counts != NULL && (*algorithm)->relays)
        return tri_fail(err, TR_ERROR_INPUT,
                        "all_to_all by %s passes blocks through other ranks, so they must be of "
                        "one size; use pairwise for blocks of different sizes",
                        (*algorithm)->name);
    return TR_OK;
}

static tr_status run_alone(const tr_group *group, const tr_collective *call)
{
    uint64_t elements = tri_recv_elements(group, call);
    if (call->recv != call->send && elements > 0)
        memmove(call->recv, call->send, elements * tri_dtype_bytes((tri_dtype)call->dtype));
    return TR_OK;
}

/* The library waits where nobody sees it: all of it counts as waiting. */
static tr_status run_native(tr_group *group, const tr_collective *call, tr_error *err)
{
    tri_wait_span span = tri_wait_begin();
    tr_status status = group->comm->transport->io->native(&group->ports, group, call, err);
    span.last_ns = tri_now_ns();
    tri_wait_end(group->waiter, &span);
    return status;
}

/* Runs one call to its end on this thread: checks, announces, chooses. */
static tr_status run_call(tr_group *group, const tr_collective *given, tr_error *err)
{
    tr_collective call;
    const tri_algorithm *algorithm = NULL;
    if (group->broken) {
        if (err != NULL)
            *err = group->error;
        return TR_ERROR_RUNTIME;
    }
    tri_coll_shape shape;
    TRI_TRY(prepare(group, given, &call, &algorithm, &shape, err));
    group->call++;
    tri_count(&group->calls, 1);
    if (group->size == 1)
        return run_alone(group, &call);
    if (group->cells != NULL) { /* without shared memory the messages tell */
        tri_announce(group, &call, tri_algorithm_number(algorithm));
        if (algorithm->needs_shared_memory)
            return tri_direct_run(group, &call, err);
        TRI_TRY(tri_tick(group, &call, err));
        TRI_TRY(tri_compare(group, &call, err));
    }
    tr_status status = algorithm ? tri_rounds_run(group, &call, algorithm, &shape, err)
                                 : run_native(group, &call, err);
    if (status != TR_OK) {
        group->broken = true;
        if (err != NULL)
            group->error = *err;
    }
    return status;
}

/* Takes the first call of the queue and runs it on this thread. With the mutex held, and given up
 * meanwhile. */
static void run_first(tri_lane *lane, const tri_waiter *waiter)
{
    tr_request *request = lane->first;
    lane->first = request->next;
    lane->running = true;
    pthread_mutex_unlock(&lane->mutex);
    request->group->waiter = waiter;
    request->begin_ns = tri_now_ns();
    tr_status status = run_call(request->group, &request->call, &request->error);
    request->end_ns = tri_now_ns();
    pthread_mutex_lock(&lane->mutex);
    request->status = status;
    request->done = true;
    lane->running = false;
    pthread_cond_broadcast(&lane->done);
}

static void *lane_main(void *context)
{
    tr_group *group = context;
    tri_lane *lane = &group->lane;
    pthread_mutex_lock(&lane->mutex);
    for (;;) {
        while ((lane->first == NULL || lane->running) && !lane->stop)
            pthread_cond_wait(&lane->work, &lane->mutex);
        if (lane->first == NULL)
            break;
        run_first(lane, &group->comm->lane_waiter);
    }
    pthread_mutex_unlock(&lane->mutex);
    return NULL;
}

tr_status tri_thread_start(pthread_t *thread, void *(*fn)(void *), void *context, tr_error *err)
{
    sigset_t all, previous; /* signals belong to the rank's own thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    int failure = pthread_create(thread, NULL, fn, context);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    if (failure != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "cannot start a communication thread: %s",
                        strerror(failure));
    return TR_OK;
}

/* A request that has ended, with room for what a new one copies. */
static tr_request *take_spare(tri_lane *lane, size_t room)
{
    pthread_mutex_lock(&lane->mutex);
    tr_request **at = &lane->spare, *found;
    while (*at != NULL && (*at)->room < room)
        at = &(*at)->next;
    found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&lane->mutex);
    return found;
}

/* A request with its own copy of what the caller's pointers say. */
static tr_request *copy_call(tr_group *group, const tr_collective *call)
{
    size_t list = (size_t)group->size * sizeof(uint64_t);
    size_t label = call->label ? strlen(call->label) + 1 : 0;
    size_t algorithm = call->algorithm ? strlen(call->algorithm) + 1 : 0;
    size_t room = 2 * list + label + algorithm;
    tr_request *request = take_spare(&group->lane, room);
    if (request == NULL)
        request = calloc(1, sizeof *request + room);
    if (request == NULL)
        return NULL;
    *request = (tr_request){.room = request->room > room ? request->room : room};
    char *extra = (char *)(request + 1);
    request->comm = group->comm;
    request->group = group;
    request->call = *call;
    if (call->send_counts != NULL)
        request->call.send_counts = memcpy(extra, call->send_counts, list);
    if (call->recv_counts != NULL)
        request->call.recv_counts = memcpy(extra + list, call->recv_counts, list);
    if (call->label != NULL)
        request->call.label = memcpy(extra + 2 * list, call->label, label);
    if (call->algorithm != NULL)
        request->call.algorithm = memcpy(extra + 2 * list + label, call->algorithm, algorithm);
    return request;
}

static uint64_t call_bytes(const tr_group *group, const tr_collective *call)
{
    if ((unsigned)call->dtype > TR_U8)
        return 0;
    return tri_send_elements(group, call) * tri_dtype_bytes((tri_dtype)call->dtype);
}

static tr_status start_call(tr_group *group, const tr_collective *call, tr_request **out,
                            tr_error *err)
{
    tri_lane *lane = &group->lane;
    *out = NULL;
    tr_request *request = copy_call(group, call);
    if (request == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a request");
    tr_status status = TR_OK;
    pthread_mutex_lock(&lane->mutex);
    if (!lane->started) {
        status = tri_thread_start(&lane->thread, lane_main, group, err);
        lane->started = status == TR_OK;
    }
    if (status == TR_OK) {
        if (lane->first != NULL)
            lane->last->next = request;
        else
            lane->first = request;
        lane->last = request;
        pthread_cond_signal(&lane->work);
    }
    pthread_mutex_unlock(&lane->mutex);
    if (status != TR_OK) {
        free(request);
        return status;
    }
    tri_comm_doing(group->comm, tri_coll_name((tri_coll)call->operation), call->label,
                   call_bytes(group, call));
    *out = request;
    return TR_OK;
}

tr_status tr_collective_start(tr_group *group, const tr_collective *call, tr_request **out,
                              tr_error *err)
{
    bool entered = tri_spent_enter(&group->comm->spent);
    tr_status status = start_call(group, call, out, err);
    tri_spent_leave(&group->comm->spent, entered);
    return status;
}

static bool lane_busy(tri_lane *lane)
{
    if (!lane->started)
        return false;
    pthread_mutex_lock(&lane->mutex);
    bool busy = lane->first != NULL || lane->running;
    pthread_mutex_unlock(&lane->mutex);
    return busy;
}

tr_status tr_collective_run(tr_group *group, const tr_collective *call, tr_error *err)
{
    if (lane_busy(&group->lane)) {
        tr_request *request;
        TRI_TRY(tr_collective_start(group, call, &request, err));
        return tr_request_wait(request, err);
    }
    tri_comm_doing(group->comm, tri_coll_name((tri_coll)call->operation), call->label,
                   call_bytes(group, call));
    bool entered = tri_spent_enter(&group->comm->spent);
    group->waiter = &group->comm->waiter;
    tr_status status = run_call(group, call, err);
    tri_spent_leave(&group->comm->spent, entered);
    atomic_store_explicit(&group->comm->boot.status->bytes, 0, memory_order_relaxed);
    return status;
}

static tr_status end_call(tr_request *request, tr_error *err)
{
    tri_lane *lane = &request->group->lane;
    tr_status status = request->status;
    if (status != TR_OK && err != NULL)
        *err = request->error;
    pthread_mutex_lock(&lane->mutex);
    request->next = lane->spare;
    lane->spare = request;
    pthread_mutex_unlock(&lane->mutex);
    return status;
}

static tr_status wait_for(tr_request *request, uint64_t *begin_ns, uint64_t *end_ns, tr_error *err)
{
    if (request->is_message) {
        *begin_ns = request->begin_ns;
        tr_status status = tri_port_message_wait(request, err);
        *end_ns = tri_now_ns();
        return status;
    }
    tri_lane *lane = &request->group->lane;
    const tr_collective *call = &request->call;
    tri_comm_doing(request->comm, "waiting for the end",
                   call->label ? call->label : tri_coll_name((tri_coll)call->operation),
                   call_bytes(request->group, call));
    pthread_mutex_lock(&lane->mutex);
    while (!request->done)
        if (!lane->running)
            run_first(lane, &request->comm->waiter);
        else
            pthread_cond_wait(&lane->done, &lane->mutex);
    if (lane->first != NULL)
        pthread_cond_signal(&lane->work); /* the lane may have slept while this thread ran it */
    pthread_mutex_unlock(&lane->mutex);
    atomic_store_explicit(&request->comm->boot.status->bytes, 0, memory_order_relaxed);
    *begin_ns = request->begin_ns;
    *end_ns = request->end_ns;
    return end_call(request, err);
}

tr_status tri_request_wait(tr_request *request, uint64_t *begin_ns, uint64_t *end_ns, tr_error *err)
{
    tri_spent *spent = &request->comm->spent; /* the request is freed */
    bool entered = tri_spent_enter(spent);
    tr_status status = wait_for(request, begin_ns, end_ns, err);
    tri_spent_leave(spent, entered);
    return status;
}

tr_status tr_request_wait(tr_request *request, tr_error *err)
{
    uint64_t begin_ns, end_ns;
    return tri_request_wait(request, &begin_ns, &end_ns, err);
}

tr_status tr_request_test(tr_request *request, bool *done, tr_error *err)
{
    if (request->is_message)
        return tri_port_message_test(request, done, err);
    tri_lane *lane = &request->group->lane;
    pthread_mutex_lock(&lane->mutex);
    *done = request->done;
    pthread_mutex_unlock(&lane->mutex);
    return *done ? end_call(request, err) : TR_OK;
}
