/* The thread pool: every task runs once, results are visible, idle workers cost nothing. */
#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define MAX_TASKS 1000

typedef struct tally {
    int runs[MAX_TASKS]; /* plain memory: the pool must order it */
    atomic_int bad_workers;
    int num_threads;
    int round;
} tally;

static void count_task(void *context, int task, int worker)
{
    tally *t = context;
    if (worker < 0 || worker >= t->num_threads)
        atomic_fetch_add(&t->bad_workers, 1);
    t->runs[task]++;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_ms(int ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000L};
    nanosleep(&t, NULL);
}

static void every_task_runs_once(void **state)
{
    static const int counts[] = {0, 1, 2, 3, 7, 64, MAX_TASKS};
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        tri_pool *pool;
        assert_int_equal(tri_pool_create(threads, &pool, NULL), TR_OK);
        assert_int_equal(tri_pool_threads(pool), threads);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            tally t = {.num_threads = threads};
            for (int round = 1; round <= 20; round++) {
                tri_pool_run(pool, counts[c], count_task, &t);
                for (int i = 0; i < MAX_TASKS; i++)
                    assert_int_equal(t.runs[i], i < counts[c] ? round : 0);
            }
            assert_int_equal(atomic_load(&t.bad_workers), 0);
        }
        tri_pool_destroy(pool);
    }
}

/* Many short jobs of changing size and context, with pauses of all lengths between them: workers
 * are caught spinning, yielding, falling asleep and asleep, and late ones see a newer job. */
static void jobs_back_to_back(void **state)
{
    (void)state;
    tri_pool *pool;
    assert_int_equal(tri_pool_create(3, &pool, NULL), TR_OK);
    tally even = {.num_threads = 3}, odd = {.num_threads = 3};
    int expected_even = 0, expected_odd = 0;
    for (int job = 0; job < 3000; job++) {
        int tasks = 2 + job % 5;
        tri_pool_run(pool, tasks, count_task, job % 2 ? &odd : &even);
        *(job % 2 ? &expected_odd : &expected_even) += tasks;
        if (job % 100 == 99)
            sleep_ms(1);
        else if (job % 10 == 9)
            for (double end = seconds(CLOCK_MONOTONIC) + 1e-6 * (job % 200);
                 seconds(CLOCK_MONOTONIC) < end;)
                continue;
    }
    for (int i = 0; i < MAX_TASKS; i++) {
        expected_even -= even.runs[i];
        expected_odd -= odd.runs[i];
    }
    assert_int_equal(expected_even, 0);
    assert_int_equal(expected_odd, 0);
    tri_pool_destroy(pool);
}

static void slow_task(void *context, int task, int worker)
{
    atomic_int *sum = context;
    (void)worker;
    if (task == 1)
        sleep_ms(20); /* long enough for the others, the caller among them, to block */
    atomic_fetch_add(sum, task);
}

static void caller_waits_for_a_slow_task(void **state)
{
    (void)state;
    tri_pool *pool;
    assert_int_equal(tri_pool_create(4, &pool, NULL), TR_OK);
    for (int round = 0; round < 5; round++) {
        atomic_int sum = 0;
        tri_pool_run(pool, 6, slow_task, &sum);
        assert_int_equal(atomic_load(&sum), 15);
    }
    tri_pool_destroy(pool);
}

typedef struct chain {
    tri_pool *pool;
    _Atomic int64_t done; /* tasks that are through, which go one after the other */
    int order[MAX_TASKS]; /* plain memory */
    int64_t slow;         /* a task that keeps the others waiting until they block */
} chain;

typedef struct chain_wait {
    chain *chain;
    int64_t task;
} chain_wait;

static bool is_next(void *context)
{
    const chain_wait *wait = context;
    return atomic_load(&wait->chain->done) == wait->task;
}

static void chain_task(void *context, int task, int worker)
{
    chain *c = context;
    chain_wait wait = {c, task};
    (void)worker;
    tri_pool_wait(c->pool, is_next, &wait);
    if (task == c->slow)
        sleep_ms(20);
    int64_t place = atomic_load(&c->done);
    c->order[place] = task;
    atomic_store(&c->done, place + 1);
    tri_pool_notify(c->pool);
}

/* Tasks that wait for each other: those who wait are caught spinning, yielding and asleep. */
static void tasks_wait_for_tasks(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        chain c = {0};
        assert_int_equal(tri_pool_create(threads, &c.pool, NULL), TR_OK);
        for (int round = 0; round < 3; round++) {
            c.slow = round * 50;
            atomic_store(&c.done, 0);
            tri_pool_run(c.pool, MAX_TASKS, chain_task, &c);
            for (int i = 0; i < MAX_TASKS; i++)
                assert_int_equal(c.order[i], i);
        }
        tri_pool_destroy(c.pool);
    }
}

static void null_pool_runs_inline(void **state)
{
    (void)state;
    tally t = {.num_threads = 1};
    tri_pool_run(NULL, 5, count_task, &t);
    assert_int_equal(tri_pool_threads(NULL), 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(t.runs[i], 1);
    tri_pool_destroy(NULL);
}

static void wrong_thread_counts_are_refused(void **state)
{
    (void)state;
    tri_pool *pool = (tri_pool *)&pool;
    tr_error err;
    assert_int_equal(tri_pool_create(0, &pool, &err), TR_ERROR_INPUT);
    assert_null(pool);
    assert_non_null(strstr(err.message, "run.threads"));
    assert_int_equal(tri_pool_create(-3, &pool, NULL), TR_ERROR_INPUT);
}

static void idle_workers_use_no_cpu(void **state)
{
    (void)state;
    tri_pool *pool;
    tally t = {.num_threads = 4};
    assert_int_equal(tri_pool_create(4, &pool, NULL), TR_OK);
    tri_pool_run(pool, 8, count_task, &t);
    bool idle = false; /* on a busy machine it takes them long to fall asleep */
    for (int i = 0; i < 100 && !idle; i++) {
        sleep_ms(50);
        double before = seconds(CLOCK_PROCESS_CPUTIME_ID);
        sleep_ms(200);
        idle = seconds(CLOCK_PROCESS_CPUTIME_ID) - before < 0.01;
    }
    assert_true(idle);
    tri_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(jobs_back_to_back),
        cmocka_unit_test(caller_waits_for_a_slow_task),
        cmocka_unit_test(tasks_wait_for_tasks),
        cmocka_unit_test(null_pool_runs_inline),
        cmocka_unit_test(wrong_thread_counts_are_refused),
        cmocka_unit_test(idle_workers_use_no_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
