/* Learning-rate schedules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/schedule_lr.h"

#include <math.h>

static void assert_rate(const tri_lr_schedule *s, int64_t step, double expected)
{
    double rate = tri_lr_at(s, step);
    if (fabs(rate - expected) > 1e-12 * fabs(s->lr))
        fail_msg("%s at step %lld: %.17g, expected %.17g", s->def->kind, (long long)step, rate,
                 expected);
}

static void warm_up_is_the_same_in_all(void **state)
{
    (void)state;
    for (size_t kind = 0; tri_lr_def_at(kind); kind++) {
        tri_lr_schedule s = {
            .def = tri_lr_def_at(kind), .lr = 3e-3, .steps = 100, .warmup_steps = 10};
        for (int step = 0; step < 10; step++)
            assert_rate(&s, step, 3e-3 * (step + 1) / 10);
        assert_rate(&s, 10, 3e-3);
    }
}

static void all_but_constant_end_at_the_minimum(void **state)
{
    (void)state;
    static const int64_t warmup[] = {0, 1, 10, 98, 99};
    for (size_t kind = 1; tri_lr_def_at(kind); kind++)
        for (int i = 0; i < 5; i++) {
            tri_lr_schedule s = {.def = tri_lr_def_at(kind),
                                 .lr = 2,
                                 .min_ratio = 0.1,
                                 .steps = 100,
                                 .warmup_steps = warmup[i]};
            assert_rate(&s, 99, 0.2);
            assert_rate(&s, 100, 0.2); /* and stay there */
            assert_rate(&s, INT64_MAX, 0.2);
            for (int64_t step = warmup[i]; step < 99; step++)
                assert_true(tri_lr_at(&s, step) >= tri_lr_at(&s, step + 1));
        }
}

static void constant_stays(void **state)
{
    (void)state;
    tri_lr_schedule s = {
        .def = tri_lr_def_find("constant"), .lr = 1e-4, .min_ratio = 0.1, .steps = 10};
    for (int step = 0; step < 20; step++)
        assert_rate(&s, step, 1e-4);
}

static void linear_and_cosine_by_hand(void **state)
{
    (void)state;
    tri_lr_schedule s = {.def = tri_lr_def_find("linear"), .lr = 1, .steps = 101};
    for (int step = 0; step <= 100; step++)
        assert_rate(&s, step, 1 - step / 100.0);
    s.def = tri_lr_def_find("cosine");
    s.min_ratio = 0.5;
    assert_rate(&s, 0, 1);
    assert_rate(&s, 25, 0.5 + 0.5 * (0.5 + 0.5 * sqrt(0.5)));
    assert_rate(&s, 50, 0.75);
    assert_rate(&s, 75, 0.5 + 0.5 * (0.5 - 0.5 * sqrt(0.5)));
    assert_rate(&s, 100, 0.5);
}

static void wsd_by_hand(void **state)
{
    (void)state;
    tri_lr_schedule s = {.def = tri_lr_def_find("wsd"), .lr = 1, .steps = 100, .warmup_steps = 5};
    for (int step = 5; step < 80; step++) /* the last fifth decays: 20 steps */
        assert_rate(&s, step, 1);
    for (int step = 80; step < 100; step++)
        assert_rate(&s, step, 1 - (step - 79) / 20.0);
    s.decay_steps = 4;
    assert_rate(&s, 95, 1);
    assert_rate(&s, 96, 0.75);
    assert_rate(&s, 98, 0.25);
    assert_rate(&s, 99, 0);
    s.decay_steps = 1000; /* more than there is: all that the warm-up leaves */
    assert_rate(&s, 5, 1);
    assert_rate(&s, 52, 0.5);
}

static void short_runs_have_a_rate(void **state)
{
    (void)state;
    for (size_t kind = 0; tri_lr_def_at(kind); kind++)
        for (int64_t steps = 1; steps <= 8; steps++)
            for (int64_t warmup = 0; warmup <= 10; warmup++) {
                tri_lr_schedule s = {.def = tri_lr_def_at(kind),
                                     .lr = 1,
                                     .min_ratio = 0.01,
                                     .steps = steps,
                                     .warmup_steps = warmup};
                for (int64_t step = 0; step < steps; step++) {
                    double rate = tri_lr_at(&s, step);
                    assert_true(rate > 0 && rate <= 1);
                }
            }
    tri_lr_schedule one = {.def = tri_lr_def_find("cosine"), .lr = 1, .steps = 1};
    assert_rate(&one, 0, 1);
}

static void names(void **state)
{
    (void)state;
    for (size_t kind = 0; tri_lr_def_at(kind); kind++) {
        const tri_lr_def *def = tri_lr_def_at(kind);
        assert_ptr_equal(tri_lr_def_find(def->kind), def);
    }
    assert_null(tri_lr_def_find("exponential"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_is_the_same_in_all),
        cmocka_unit_test(all_but_constant_end_at_the_minimum),
        cmocka_unit_test(constant_stays),
        cmocka_unit_test(linear_and_cosine_by_hand),
        cmocka_unit_test(wsd_by_hand),
        cmocka_unit_test(short_runs_have_a_rate),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
