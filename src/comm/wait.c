/* Waiting in three stages: awake while that is cheap, then asleep on a futex.
 *
 * Invariants:
 *   1. A sleeper counts itself in `sleepers` before its last look at the value; whoever changes the
 *      value looks at `sleepers` afterwards. Both sides are sequentially consistent, so one of them
 *      sees the other, and a change costs no system call while nobody sleeps.
 *   2. A sleep lasts SLICE_NS at most: the stop flag is not a futex, and a rank that dies between
 *      changing a value and waking the sleepers must not hold them longer than that.
 *   3. `sleepers` may stay too high after a kill: that costs a system call, never a wake-up. */
#include "comm/wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A wake-up takes 35 to 50 us on small virtual machines: waiting this long awake costs about as
 * much as waking once. The first part keeps the core; the rest offers it between looks, because the
 * rank waited for may have been put on the same core although there is one for each. */
#define SPIN_NS  2000
#define AWAKE_NS 150000
/* When ranks outnumber cores: each yield lets a peer run, which is what we wait for. */
#define NUM_YIELDS 100
#define YIELD_NS   200000
#define SLICE_NS   50000000
/* Two looks this far apart: the process was not run meanwhile. */
#define AWAY_NS 100000000

void tri_cores_read(uint64_t cores[TRI_CORE_WORDS])
{
    cpu_set_t set;
    memset(cores, 0, TRI_CORE_WORDS * sizeof *cores);
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        cores[0] = 1; /* unknown: as if there were one */
        return;
    }
    for (int i = 0; i < TRI_CORE_WORDS * 64 && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cores[i / 64] |= (uint64_t)1 << i % 64;
}

int tri_cores_count(const uint64_t cores[TRI_CORE_WORDS])
{
    int num = 0;
    for (int i = 0; i < TRI_CORE_WORDS; i++)
        num += __builtin_popcountll(cores[i]);
    return num;
}

/* Until the ranks have told each other which cores they have; then comm.c looks at all of them. */
void tri_waiter_init(tri_waiter *waiter, const tri_bootstrap *bootstrap)
{
    uint64_t cores[TRI_CORE_WORDS];
    tri_cores_read(cores);
    *waiter = (tri_waiter){.bootstrap = bootstrap};
    waiter->core_for_each = bootstrap->local_size <= tri_cores_count(cores);
}

bool tri_spent_enter(tri_spent *spent)
{
    uint64_t none = 0;
    return atomic_compare_exchange_strong_explicit(&spent->since_ns, &none, tri_now_ns(),
                                                   memory_order_relaxed, memory_order_relaxed);
}

void tri_spent_leave(tri_spent *spent, bool entered)
{
    if (!entered)
        return;
    uint64_t since = atomic_exchange_explicit(&spent->since_ns, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&spent->calls_ns, tri_now_ns() - since, memory_order_relaxed);
}

tri_wait_span tri_wait_begin(void)
{
    uint64_t now = tri_now_ns();
    return (tri_wait_span){.begin_ns = now, .last_ns = now};
}

uint64_t tri_wait_look(tri_wait_span *span)
{
    uint64_t now = tri_now_ns(), gap = now - span->last_ns;
    if (gap > AWAY_NS)
        span->away_ns += gap - SLICE_NS;
    span->last_ns = now;
    return now;
}

void tri_wait_end(const tri_waiter *waiter, tri_wait_span *span)
{
    tri_spent *spent = waiter->spent;
    uint64_t since = spent ? atomic_load_explicit(&spent->since_ns, memory_order_relaxed) : 0;
    uint64_t end = tri_wait_look(span);
    uint64_t begin = span->begin_ns > since ? span->begin_ns : since;
    if (since == 0 || begin >= end)
        return;
    uint64_t waited = end - begin, away = span->away_ns < waited ? span->away_ns : waited;
    atomic_fetch_add_explicit(&spent->waited_ns, waited - away, memory_order_relaxed);
    atomic_fetch_add_explicit(&spent->away_ns, away, memory_order_relaxed);
}

bool tri_waiter_stopped(const tri_waiter *waiter)
{
    return atomic_load_explicit(&waiter->bootstrap->stop->stopped, memory_order_acquire) ||
           (waiter->given_up && atomic_load_explicit(waiter->given_up, memory_order_relaxed));
}

static void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The low half of the value: where a futex can look. */
static uint32_t *futex_word(tri_eventcount *event)
{
    uint32_t *half = (uint32_t *)(void *)&event->value;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    half++;
#endif
    return half;
}

static void wake(tri_eventcount *event)
{
    if (atomic_load(&event->sleepers) > 0)
        syscall(SYS_futex, futex_word(event), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tri_eventcount_wake(tri_eventcount *event)
{
    atomic_thread_fence(memory_order_seq_cst);
    wake(event);
}

void tri_eventcount_raise(tri_eventcount *event, uint64_t value)
{
    uint64_t old = atomic_load_explicit(&event->value, memory_order_relaxed);
    while (old < value && !atomic_compare_exchange_weak(&event->value, &old, value)) {
    }
    wake(event);
}

void tri_eventcount_add(tri_eventcount *event, uint64_t n, uint64_t wake_at)
{
    if (atomic_fetch_add(&event->value, n) + n >= wake_at)
        wake(event);
}

/* The awake part; true when the value came. */
static bool look_awhile(const tri_waiter *waiter, tri_eventcount *event, uint64_t value,
                        tri_wait_span *span)
{
    uint64_t start = 0;
    for (unsigned looks = 1;; looks++) {
        if (tri_eventcount_reached(event, value))
            return true;
        if (waiter->core_for_each) {
            cpu_relax();
            if (looks % 64 != 0) /* the clock costs more than a look */
                continue;
        } else {
            if (looks > NUM_YIELDS)
                return false;
            sched_yield();
            tri_wait_look(span);
            if (looks % 8 != 0)
                continue;
        }
        uint64_t now = tri_wait_look(span);
        if (start == 0)
            start = now;
        uint64_t waited = now - start;
        if (waiter->in_background && waited > SPIN_NS)
            return false;
        if (waited > (waiter->core_for_each ? AWAKE_NS : YIELD_NS))
            return false;
        if (waiter->core_for_each && waited > SPIN_NS)
            sched_yield();
    }
}

static void sleep_once(tri_eventcount *event, uint64_t value)
{
    atomic_fetch_add(&event->sleepers, 1);
    uint64_t seen = atomic_load(&event->value);
    if (seen < value) {
        struct timespec slice = {.tv_nsec = SLICE_NS};
        syscall(SYS_futex, futex_word(event), FUTEX_WAIT, (uint32_t)seen, &slice, NULL, 0);
    }
    atomic_fetch_sub(&event->sleepers, 1);
}

void tri_eventcount_nap(tri_eventcount *event, uint64_t seen)
{
    sleep_once(event, seen + 1);
}

tri_wait_result tri_eventcount_wait(const tri_waiter *waiter, tri_eventcount *event, uint64_t value,
                                    tri_missing_fn missing, void *context, double *seconds)
{
    if (tri_eventcount_reached(event, value))
        return TRI_WAIT_DONE;
    const tri_bootstrap *boot = waiter->bootstrap;
    tri_wait_span span = tri_wait_begin();
    if (look_awhile(waiter, event, value, &span)) {
        tri_wait_end(waiter, &span);
        return TRI_WAIT_DONE;
    }
    uint64_t start = tri_wait_look(&span);
    tri_rank_status *status = boot->status;
    atomic_store_explicit(&status->waiting_since_ns, start, memory_order_relaxed);
    tri_wait_result result = TRI_WAIT_DONE;
    while (!tri_eventcount_reached(event, value)) {
        *seconds = (double)(tri_wait_look(&span) - start) * 1e-9;
        if (tri_waiter_stopped(waiter)) {
            result = TRI_WAIT_STOPPED;
            break;
        }
        if (*seconds > boot->deadline_s) {
            result = TRI_WAIT_EXPIRED;
            break;
        }
        if (missing != NULL)
            atomic_store_explicit(&status->peer, missing(context), memory_order_relaxed);
        sleep_once(event, value);
    }
    tri_wait_end(waiter, &span);
    if (result == TRI_WAIT_DONE) { /* otherwise the report wants to know */
        atomic_store_explicit(&status->peer, -1, memory_order_relaxed);
        atomic_store_explicit(&status->waiting_since_ns, 0, memory_order_relaxed);
    }
    return result;
}
