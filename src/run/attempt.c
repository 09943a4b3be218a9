#include "run/attempt.h"

#include <signal.h>
#include <stddef.h>

/* Whether a step was done: it was in a later one than the first after those it began with. */
static bool has_advanced(const tri_attempt *a)
{
    return a->step > a->from_step + 1;
}

static bool same_failure(const tri_attempt *a, const tri_attempt *b)
{
    return a->rank == b->rank && a->signal == b->signal && a->code == b->code && a->step == b->step;
}

const char *tri_attempt_hopeless(const tri_attempt *before, const tri_attempt *now)
{
    /* SIGKILL comes from outside: that it came is chance, or a matter of memory that another time
     * may not have. It tells nothing of the run; run.restarts says how often to believe that. */
    if (!before || before->signal == SIGKILL || now->signal == SIGKILL)
        return NULL;
    if (!has_advanced(before) && !has_advanced(now))
        return "it failed twice in a row without having done a step";
    if (same_failure(before, now))
        return "the same rank failed in the same way at the same step again";
    return NULL;
}
