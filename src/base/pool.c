/* The thread pool.
 *
 * A job is published in one 64-bit word, the ticket: its generation in the high half, the number of
 * tasks that nobody has claimed yet in the low half. A worker claims a task by compare-and-swap on
 * the whole word, so a worker that was delayed since an earlier job can never take a task of a
 * later one with the fields of the earlier.
 *
 * Invariants:
 *   1. The job's fields (fn, context, num_tasks) change only while no task is unclaimed or running.
 *      A claim that succeeds proves that they did not change between reading them and claiming.
 *   2. finished counts tasks that have returned; the caller leaves tri_pool_run when it equals
 *      num_tasks, which orders everything the tasks wrote before what the caller does next.
 *   3. Whoever blocks raises its flag (sleepers, caller_blocked, waiters) before looking again at
 * what it waits for; whoever changes that looks at the flag afterwards. All four accesses are
 *      sequentially consistent, so at least one of the two sees the other. */
#include "base/pool.h"
#include "base/clock.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CACHE_LINE 64

/* A step issues kernels back to back, tens of microseconds apart at most, while a blocked thread
 * takes 35 to 50 us to wake: waiting this long awake costs about as much as waking once. */
#define AWAKE_NS 80000
/* The first part of it keeps the core; the rest offers it to others between looks. */
#define SPIN_NS 5000
/* When threads outnumber cores: spinning would keep the thread waited for from running. */
#define NUM_YIELDS 4

struct worker {
    tri_pool *pool;
    pthread_t thread;
    int index;
};

struct tri_pool {
    int num_threads;
    bool core_for_each;
    struct worker *workers; /* [num_threads - 1]; worker 0 is the caller */
    int num_started;

    pthread_mutex_t mutex; /* taken by those who block and those who wake them, never otherwise */
    pthread_cond_t work;
    pthread_cond_t done;
    pthread_cond_t progress;
    atomic_bool stop;

    _Alignas(CACHE_LINE) _Atomic uint64_t ticket;
    atomic_int sleepers;
    _Atomic(tri_task_fn) fn;
    _Atomic(void *) context;
    atomic_int num_tasks;

    _Alignas(CACHE_LINE) atomic_int finished;
    atomic_bool caller_blocked;

    _Alignas(CACHE_LINE) atomic_int waiters; /* tasks that are blocked in tri_pool_wait */
};

/* How long one wait has lasted so far. */
struct patience {
    bool core_for_each;
    int looks;
    int64_t start_ns;
};

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Called after each look that found nothing; false when it is time to block. */
static bool keep_looking(struct patience *p)
{
    p->looks++;
    if (!p->core_for_each) {
        if (p->looks > NUM_YIELDS)
            return false;
        sched_yield();
        return true;
    }
    if (p->looks % 8 != 1) { /* reading the clock costs about as much as one pause */
        cpu_relax();
        return true;
    }
    int64_t now = (int64_t)tri_now_ns();
    if (p->looks == 1)
        p->start_ns = now;
    int64_t waited = now - p->start_ns;
    if (waited > SPIN_NS)
        sched_yield();
    else
        cpu_relax();
    return waited < AWAKE_NS;
}

static uint32_t unclaimed(uint64_t ticket)
{
    return (uint32_t)ticket;
}

static void wake_caller(tri_pool *pool)
{
    if (!atomic_load(&pool->caller_blocked))
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_signal(&pool->done);
    pthread_mutex_unlock(&pool->mutex);
}

/* Runs tasks until none is left to claim. */
static void run_tasks(tri_pool *pool, int worker)
{
    uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    while (unclaimed(ticket) > 0) {
        tri_task_fn fn = atomic_load_explicit(&pool->fn, memory_order_relaxed);
        void *context = atomic_load_explicit(&pool->context, memory_order_relaxed);
        int num_tasks = atomic_load_explicit(&pool->num_tasks, memory_order_relaxed);
        if (!atomic_compare_exchange_weak_explicit(&pool->ticket, &ticket, ticket - 1,
                                                   memory_order_acq_rel, memory_order_acquire))
            continue;
        fn(context, num_tasks - (int)unclaimed(ticket), worker);
        if (atomic_fetch_add(&pool->finished, 1) + 1 == num_tasks)
            wake_caller(pool);
        ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
    }
}

static bool has_work(tri_pool *pool)
{
    return unclaimed(atomic_load(&pool->ticket)) > 0 || atomic_load(&pool->stop);
}

static void block_until_work(tri_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_work(pool))
        pthread_cond_wait(&pool->work, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    tri_pool *pool = self->pool;
    while (!atomic_load(&pool->stop)) {
        run_tasks(pool, self->index);
        struct patience patience = {.core_for_each = pool->core_for_each};
        while (!has_work(pool)) {
            if (!keep_looking(&patience))
                block_until_work(pool);
        }
    }
    return NULL;
}

static int count_cores(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static tr_status start_workers(tri_pool *pool, tr_error *err)
{
    /* Signals belong to the thread that created the pool: handlers there expect to run there. */
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    int failure = 0;
    for (int i = 1; i < pool->num_threads && failure == 0; i++) {
        struct worker *worker = &pool->workers[i - 1];
        *worker = (struct worker){.pool = pool, .index = i};
        failure = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (failure == 0)
            pool->num_started++;
    }
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    if (failure != 0)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "cannot start thread %d of %d: %s; lower run.threads or raise ulimit -u",
                        pool->num_started + 2, pool->num_threads, strerror(failure));
    return TR_OK;
}

tr_status tri_pool_create(int num_threads, tri_pool **out, tr_error *err)
{
    *out = NULL;
    if (num_threads < 1)
        return tri_fail(err, TR_ERROR_INPUT, "run.threads is %d; it must be at least 1",
                        num_threads);
    tri_pool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    struct worker *workers = calloc((size_t)num_threads, sizeof *workers);
    if (pool == NULL || workers == NULL) {
        free(pool);
        free(workers);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a pool of %d threads", num_threads);
    }
    memset(pool, 0, sizeof *pool);
    pool->num_threads = num_threads;
    pool->core_for_each = num_threads <= count_cores();
    pool->workers = workers;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pthread_cond_init(&pool->progress, NULL);
    tr_status status = start_workers(pool, err);
    if (status != TR_OK) {
        tri_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return TR_OK;
}

void tri_pool_destroy(tri_pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->stop, true);
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->num_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->progress);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->workers);
    free(pool);
}

int tri_pool_threads(const tri_pool *pool)
{
    return pool != NULL ? pool->num_threads : 1;
}

static void publish(tri_pool *pool, int num_tasks, tri_task_fn fn, void *context)
{
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->context, context, memory_order_relaxed);
    atomic_store_explicit(&pool->num_tasks, num_tasks, memory_order_relaxed);
    atomic_store_explicit(&pool->finished, 0, memory_order_relaxed);
    uint64_t old = atomic_load_explicit(&pool->ticket, memory_order_relaxed);
    assert(unclaimed(old) == 0); /* not reentrant */
    uint64_t generation = (old >> 32) + 1;
    atomic_store(&pool->ticket, generation << 32 | (uint32_t)num_tasks);
    int wanted = atomic_load(&pool->sleepers);
    if (wanted == 0)
        return;
    if (wanted > num_tasks - 1)
        wanted = num_tasks - 1;
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < wanted; i++)
        pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

static bool all_finished(tri_pool *pool, int num_tasks)
{
    return atomic_load(&pool->finished) == num_tasks;
}

static void block_until_finished(tri_pool *pool, int num_tasks)
{
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->caller_blocked, true);
    while (!all_finished(pool, num_tasks))
        pthread_cond_wait(&pool->done, &pool->mutex);
    atomic_store(&pool->caller_blocked, false);
    pthread_mutex_unlock(&pool->mutex);
}

void tri_pool_run(tri_pool *pool, int num_tasks, tri_task_fn fn, void *context)
{
    if (pool == NULL || pool->num_threads == 1 || num_tasks <= 1) {
        for (int task = 0; task < num_tasks; task++)
            fn(context, task, 0);
        return;
    }
    publish(pool, num_tasks, fn, context);
    run_tasks(pool, 0);
    struct patience patience = {.core_for_each = pool->core_for_each};
    while (!all_finished(pool, num_tasks)) {
        if (!keep_looking(&patience))
            block_until_finished(pool, num_tasks);
    }
}

void tri_pool_wait(tri_pool *pool, tri_ready_fn ready, void *context)
{
    struct patience patience = {.core_for_each = pool->core_for_each};
    while (!ready(context)) {
        if (keep_looking(&patience))
            continue;
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_add(&pool->waiters, 1);
        while (!ready(context))
            pthread_cond_wait(&pool->progress, &pool->mutex);
        atomic_fetch_sub(&pool->waiters, 1);
        pthread_mutex_unlock(&pool->mutex);
    }
}

void tri_pool_notify(tri_pool *pool)
{
    if (pool == NULL || atomic_load(&pool->waiters) == 0)
        return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->progress);
    pthread_mutex_unlock(&pool->mutex);
}
