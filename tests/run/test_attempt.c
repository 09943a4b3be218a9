/* When starting again is of no use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/attempt.h"

#include <signal.h>
#include <string.h>

#define ENDED(by, who, from, at)                                                                   \
    &(tri_attempt)                                                                                 \
    {                                                                                              \
        .rank = who, .signal = by, .code = 1, .step = at, .from_step = from                        \
    }
#define KILLED(who, from, at)  ENDED(SIGKILL, who, from, at)
#define CRASHED(who, from, at) ENDED(SIGSEGV, who, from, at)

static void progress_is_worth_another_try(void **state)
{
    (void)state;
    assert_null(tri_attempt_hopeless(NULL, KILLED(0, 0, -1)));
    assert_null(tri_attempt_hopeless(NULL, KILLED(0, 0, 0)));
    assert_null(tri_attempt_hopeless(KILLED(1, 0, 57), KILLED(1, 50, 61))); /* further */
    assert_null(tri_attempt_hopeless(KILLED(1, 0, 57), KILLED(1, 50, 52))); /* elsewhere */
    assert_null(tri_attempt_hopeless(KILLED(1, 0, 57), KILLED(2, 50, 57))); /* another */
    assert_null(tri_attempt_hopeless(KILLED(1, 0, 57), KILLED(1, 50, 50))); /* bad luck, once */
    assert_null(tri_attempt_hopeless(KILLED(1, 0, 57), KILLED(1, 50, 57))); /* from outside */
    assert_null(tri_attempt_hopeless(CRASHED(1, 50, 51), CRASHED(1, 50, 52)));
    assert_null(tri_attempt_hopeless(CRASHED(1, 0, 57), CRASHED(1, 50, 58)));
}

/* Whoever kills it before its first step may do so twice; run.restarts counts. */
static void kills_from_outside_tell_nothing(void **state)
{
    (void)state;
    assert_null(tri_attempt_hopeless(KILLED(0, 0, -1), KILLED(1, 0, -1)));
    assert_null(tri_attempt_hopeless(KILLED(0, 50, 51), KILLED(0, 50, 51)));
    assert_null(tri_attempt_hopeless(CRASHED(0, 0, -1), KILLED(0, 0, -1)));
    assert_null(tri_attempt_hopeless(KILLED(0, 0, -1), CRASHED(0, 0, -1)));
}

static void no_progress_is_not(void **state)
{
    (void)state;
    const char *why = tri_attempt_hopeless(CRASHED(0, 0, -1), CRASHED(1, 0, -1));
    assert_non_null(why);
    assert_non_null(strstr(why, "without having done a step"));
    assert_non_null(tri_attempt_hopeless(CRASHED(0, 50, 51), CRASHED(1, 50, -1)));
    assert_non_null(tri_attempt_hopeless(CRASHED(0, 50, 51), CRASHED(0, 50, 51)));
    tri_attempt crash = {.rank = 1, .signal = SIGSEGV, .code = 1, .step = 57}, again = crash;
    again.from_step = 50;
    why = tri_attempt_hopeless(&crash, &again);
    assert_non_null(why);
    assert_non_null(strstr(why, "at the same step again"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(progress_is_worth_another_try),
        cmocka_unit_test(kills_from_outside_tell_nothing),
        cmocka_unit_test(no_progress_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
