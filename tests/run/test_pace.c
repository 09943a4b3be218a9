/* run.pace: a paced action takes what it is to take, however late its sleeps end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "run/executor_parts.h"

/* What counts as own time of an action that is to take so long, with so many pauses that each end
 * so late; the arithmetic of tri_executor_keep_pace without a clock. */
static int64_t paced(int64_t wanted, int pauses, const int64_t *late_by)
{
    int64_t own = 0, late = 0;
    for (int i = 1; i <= pauses; i++) {
        int64_t until = wanted * i / pauses;
        late = tri_paced_late(late, own, until);
        if (own < until) {
            own = until + late_by[i - 1];
            late += late_by[i - 1];
        }
    }
    return own - late;
}

static void test_late_sleeps(void **state)
{
    (void)state;
    assert_int_equal(paced(24, 4, (int64_t[]){0, 0, 0, 0}), 24);
    assert_int_equal(paced(24, 4, (int64_t[]){0, 0, 0, 9}),
                     24); /* the last one: nobody catches up */
    assert_int_equal(paced(24, 4, (int64_t[]){5, 0, 3, 0}), 24); /* caught up */
    assert_int_equal(paced(24, 4, (int64_t[]){2, 8, 0, 1}), 24); /* a pause left out altogether */
    assert_int_equal(paced(24, 4, (int64_t[]){30, 0, 0, 0}), 24);
}

static void test_slow_work(void **state)
{
    (void)state;
    /* Ten beyond what was wanted, six of them slept: four are the rank's own. */
    assert_int_equal(tri_paced_late(6, 34, 24), 6);
    assert_int_equal(tri_paced_late(6, 27, 24), 3);
    assert_int_equal(tri_paced_late(6, 20, 24), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_late_sleeps),
        cmocka_unit_test(test_slow_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
