/* What counts as a spike, by the series alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "train/health/spike.h"

static float loss_at(int step)
{
    float noise;
    tri_random_normal(3, 0, 1, (uint32_t)step, 5, &noise);
    return 2 + 3 * expf(-(float)step / 100) + 0.05f * noise;
}

/* A curve that falls, with noise: nothing is a spike at six times the spread; a jump is, and the
 * loss after it is not. */
static void a_falling_loss_has_none(void **state)
{
    (void)state;
    tri_spikes s = {0};
    int found = 0;
    for (int i = 0; i < 2000; i++) {
        float limit = tri_spikes_limit(&s, 6), loss = i == 700 ? 4 : loss_at(i);
        assert_true(i < TRI_SPIKE_WINDOW ? isinf(limit) : isfinite(limit) && limit > 2);
        if (loss > limit)
            assert_int_equal(i, 700);
        found += loss > limit;
        if (!(loss > limit))
            tri_spikes_add(&s, loss);
    }
    assert_int_equal(found, 1);
}

/* One that was trained on hides no other. */
static void a_spike_hides_no_other(void **state)
{
    (void)state;
    tri_spikes s = {0};
    for (int i = 0; i < 100; i++)
        tri_spikes_add(&s, i == 97 || i == 98 ? 50 : 2 + 0.01f * (float)(i % 3));
    assert_true(tri_spikes_limit(&s, 6) < 2.5f);
    assert_true(isinf(tri_spikes_limit(&s, 0)));
}

/* Constant losses have no spread: a hundredth of the median stands for it. */
static void a_constant_loss(void **state)
{
    (void)state;
    tri_spikes s = {0};
    for (int i = 0; i < 20; i++)
        tri_spikes_add(&s, 2);
    assert_true(fabsf(tri_spikes_limit(&s, 10) - 2.2f) < 1e-5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_falling_loss_has_none),
        cmocka_unit_test(a_spike_hides_no_other),
        cmocka_unit_test(a_constant_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
