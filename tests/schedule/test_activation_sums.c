/* Activations by the published formulas, beside the figures that papers and courses print. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "sim/activation_sums.h"

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%.10g, not %.10g", value, expected);
}

/* GPT-3: h 12288, a 96, rows of 2048, 96 layers. */
static const tri_layer_sizes gpt3 = {
    .tokens = 2048, .seq_len = 2048, .width = 12288, .heads = 96, .element_bytes = 2, .tp = 1};

static void one_sequence(void **state)
{
    (void)state;
    double layer = tri_activation_bytes(&gpt3, TRI_KEPT_ALL);
    assert_near(layer, 34.0 * 2048 * 12288 + 5.0 * 96 * 2048 * 2048, 1e-12);
    assert_near(layer, 2.869e9, 1e-3);
    assert_near(96 * layer, 275.4e9, 1e-3);
    assert_near(96 * tri_activation_bytes(&gpt3, TRI_KEPT_INPUT), 4.83e9, 1e-3);
    assert_near(tri_activation_bytes(&gpt3, TRI_KEPT_SELECTIVE), 34.0 * 2048 * 12288, 1e-12);
}

static void a_batch(void **state)
{
    (void)state;
    tri_layer_sizes batch = gpt3;
    batch.tokens = 3.2e6;
    assert_near(96 * tri_activation_bytes(&batch, TRI_KEPT_ALL), 430.3e12, 1e-3);
}

/* Tensor parallelism leaves 10 s b h on every rank, sequence parallelism nothing. */
static void divided(void **state)
{
    (void)state;
    double sbh = 2048.0 * 12288, scores = 96.0 * 2048 * 2048;
    tri_layer_sizes tp = gpt3;
    tp.tp = 8;
    assert_near(tri_activation_bytes(&tp, TRI_KEPT_ALL), sbh * (10 + 24.0 / 8) + 5 * scores / 8,
                1e-12);
    assert_near(tri_activation_bytes(&tp, TRI_KEPT_SELECTIVE), sbh * (10 + 24.0 / 8), 1e-12);
    assert_near(tri_activation_bytes(&tp, TRI_KEPT_INPUT), 2 * sbh, 1e-12);
    tp.sp = true;
    assert_near(tri_activation_bytes(&tp, TRI_KEPT_ALL), (34 * sbh + 5 * scores) / 8, 1e-12);
    assert_near(tri_activation_bytes(&tp, TRI_KEPT_SELECTIVE), 34 * sbh / 8, 1e-12);
    assert_near(tri_activation_bytes(&tp, TRI_KEPT_INPUT), 2 * sbh / 8, 1e-12);
}

/* Masks take a byte whatever numbers do. */
static void wide_numbers(void **state)
{
    (void)state;
    tri_layer_sizes wide = gpt3;
    wide.element_bytes = 4;
    assert_near(tri_activation_bytes(&wide, TRI_KEPT_ALL),
                66.0 * 2048 * 12288 + 9.0 * 96 * 2048 * 2048, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sequence),
        cmocka_unit_test(a_batch),
        cmocka_unit_test(divided),
        cmocka_unit_test(wide_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
