/* Own time of a rank, while it runs a program: a clock around each call of the timeline, less what
 * went by in messages, which the communicator counts, and in copies. */
#include <errno.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "run/executor_parts.h"

/* A rank that is to keep a pace wakes up so long before the moment and stays awake. Where cores are
 * busy it is late all the same; that is not counted as own time, so that a paced action takes what
 * it is to take on any machine. */
#define AWAKE_NS 500000

static uint64_t in_messages(const tri_executor *executor)
{
    const tri_exchange *exchange = executor->exchange;
    return exchange && exchange->spent ? exchange->spent(exchange->context).calls_ns : 0;
}

void tri_executor_own_begin(tri_executor *executor)
{
    executor->mark = (tri_own_mark){.at_ns = tri_now_ns(),
                                    .messages_ns = in_messages(executor),
                                    .copies_ns = executor->own.ns[TRI_OWN_COPIES],
                                    .waited_ns = executor->own.waited_ns};
}

/* Since the mark, at a moment: neither in messages nor waiting. */
static int64_t own_until(const tri_executor *executor, uint64_t now)
{
    const tri_own_mark *mark = &executor->mark;
    return (int64_t)(now - mark->at_ns) - (int64_t)(in_messages(executor) - mark->messages_ns) -
           (executor->own.waited_ns - mark->waited_ns);
}

void tri_executor_own_add(tri_executor *executor, tri_own_kind kind)
{
    tri_own_mark before = executor->mark;
    tri_executor_own_begin(executor);
    const tri_own_mark *now = &executor->mark;
    int64_t own = (int64_t)(now->at_ns - before.at_ns) -
                  (int64_t)(now->messages_ns - before.messages_ns) -
                  (now->copies_ns - before.copies_ns) - (now->waited_ns - before.waited_ns) -
                  (int64_t)before.late_ns;
    executor->own.ns[kind] += own > 0 ? own : 0;
}

static void sleep_until(uint64_t until)
{
    struct timespec when = {.tv_sec = (time_t)((until - AWAKE_NS) / 1000000000),
                            .tv_nsec = (long)((until - AWAKE_NS) % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
    while (tri_now_ns() < until)
        sched_yield();
}

int64_t tri_paced_late(int64_t late_ns, int64_t own_ns, int64_t wanted_ns)
{
    int64_t behind = own_ns > wanted_ns ? own_ns - wanted_ns : 0;
    return late_ns < behind ? late_ns : behind;
}

/* Sleeps until this call has had so much own time; its pace alone asked for `least` of it. */
static void sleep_for(tri_executor *executor, int64_t own, int64_t least, int64_t wanted)
{
    executor->mark.late_ns = (uint64_t)tri_paced_late((int64_t)executor->mark.late_ns, own, least);
    if (wanted <= own)
        return;
    uint64_t until = tri_now_ns() + (uint64_t)(wanted - own);
    sleep_until(until);
    executor->mark.late_ns += tri_now_ns() - until;
}

static double factor_of(const tri_executor *executor)
{
    return executor->brake > 1 ? executor->brake : 1;
}

void tri_executor_end_pace(tri_executor *executor)
{
    const tri_paced *paced = &executor->paced;
    double factor = factor_of(executor);
    int64_t own = own_until(executor, tri_now_ns()), least = (int64_t)(paced->least * 1e9);
    int64_t wanted = (int64_t)((double)(own > least ? own : least) * factor);
    if (paced->done > 0) /* it was braked behind each product */
        least = wanted = (int64_t)((double)least * factor);
    sleep_for(executor, own, least, wanted);
}

void tri_executor_begin_pace(tri_executor *executor, uint32_t c)
{
    tri_paced *paced = &executor->paced;
    *paced = (tri_paced){0};
    paced->least = tri_calls_pace(executor->program, c, executor->pace, &paced->num);
}

void tri_executor_pace_instr(tri_executor *executor, const tri_instr *instr)
{
    tri_paced *paced = &executor->paced;
    if (!tri_op_multiplies(instr->op) || !(paced->least > 0))
        return;
    paced->done++;
    int64_t wanted = (int64_t)(1e9 * paced->least * factor_of(executor) * paced->done / paced->num);
    sleep_for(executor, own_until(executor, tri_now_ns()), wanted, wanted);
}
