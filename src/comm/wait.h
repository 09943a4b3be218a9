/* Waiting for a word in memory shared between ranks, with a deadline and a stop flag. */
#ifndef TRI_COMM_WAIT_H
#define TRI_COMM_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "comm/control/bootstrap.h"

#define TRI_CACHE_LINE 128 /* two lines: the neighbour is fetched along with one */

/* A number that only grows, and how many sleep until it does. Whoever has one aligns it, so that it
 * shares its line only with what is read along with it. */
typedef struct tri_eventcount {
    _Atomic uint64_t value;
    _Atomic uint32_t sleepers;
} tri_eventcount;

/* What a rank spends in messages. The caller's thread is in one from entering to leaving; a wait of
 * any of the rank's threads counts as far as the caller was in one meanwhile. */
typedef struct tri_spent {
    _Atomic uint64_t since_ns;  /* when the caller entered; 0: it is in no message */
    _Atomic uint64_t calls_ns;  /* in messages */
    _Atomic uint64_t waited_ns; /* of that, for other ranks */
    _Atomic uint64_t away_ns;   /* of that, neither waiting nor at work: see tri_wait_span */
} tri_spent;

/* Whether this call is the one that leaves: another thread may be in a message already. */
bool tri_spent_enter(tri_spent *spent);
void tri_spent_leave(tri_spent *spent, bool entered);

/* How this rank waits. */
typedef struct tri_waiter {
    const tri_bootstrap *bootstrap;
    bool core_for_each;          /* local ranks: spinning keeps nobody from running */
    bool in_background;          /* sleeps almost at once: the cores belong to the computation */
    const _Atomic int *given_up; /* NULL, or set when this rank will not go on */
    tri_spent *spent;            /* NULL: waits are not counted */
} tri_waiter;

typedef enum tri_wait_result { TRI_WAIT_DONE, TRI_WAIT_STOPPED, TRI_WAIT_EXPIRED } tri_wait_result;

/* Who is being waited for, as a world rank; asked only once waiting is no longer brief. */
typedef int (*tri_missing_fn)(void *context);

/* A wait, from its first look on. Whoever waits looks again and again; where two looks lie much
 * further apart than a sleep lasts, the process was not run in between (stopped, starved, swapped
 * out): it is others then who wait for this rank. */
typedef struct tri_wait_span {
    uint64_t begin_ns, last_ns, away_ns;
} tri_wait_span;

tri_wait_span tri_wait_begin(void);
uint64_t tri_wait_look(tri_wait_span *span); /* the time */
void tri_wait_end(const tri_waiter *waiter, tri_wait_span *span);

void tri_waiter_init(tri_waiter *waiter, const tri_bootstrap *bootstrap);

/* Whether the job must end, or this rank has given up. */
bool tri_waiter_stopped(const tri_waiter *waiter);

/* The cores that this process may use, as bits; how many there are in a set. */
#define TRI_CORE_WORDS 16
void tri_cores_read(uint64_t cores[TRI_CORE_WORDS]);
int tri_cores_count(const uint64_t cores[TRI_CORE_WORDS]);

/* Wakes all who sleep, for whoever stored the value by itself a while ago. */
void tri_eventcount_wake(tri_eventcount *event);
/* Raises the value to at least this and wakes all who sleep. */
void tri_eventcount_raise(tri_eventcount *event, uint64_t value);
/* Adds, and wakes when the sum has reached wake_at. */
void tri_eventcount_add(tri_eventcount *event, uint64_t n, uint64_t wake_at);

/* Waits until the value is at least `value`. *seconds is how long it took, when it was not done. */
tri_wait_result tri_eventcount_wait(const tri_waiter *waiter, tri_eventcount *event, uint64_t value,
                                    tri_missing_fn missing, void *context, double *seconds);

/* Sleeps until the value changes from what a caller has `seen`, for 50 ms at most; no deadline. */
void tri_eventcount_nap(tri_eventcount *event, uint64_t seen);

static inline bool tri_eventcount_reached(tri_eventcount *event, uint64_t value)
{
    return atomic_load_explicit(&event->value, memory_order_acquire) >= value;
}

#endif
