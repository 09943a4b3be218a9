/* The arithmetic of whole runs, beside the figures that papers and courses print. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "sim/run_sums.h"

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%.10g, not %.10g", value, expected);
}

/* 175 B parameters and 300 B tokens in 30 days at 160 TFLOP/s: 759.5 devices. */
static void devices_of_gpt3(void **state)
{
    (void)state;
    tri_run_facts facts = {.flops = tri_run_flops(175e9, 300e9), .rate = 160e12, .days = 30};
    assert_near(facts.flops, 3.15e23, 1e-12);
    tri_run_sums sums = tri_run_sums_of(&facts);
    assert_near(sums.petaflop_days, 3645.83, 1e-5);
    assert_near(sums.num_devices, 759.55, 1e-4);
    assert_near(sums.seconds, 30 * 86400.0, 1e-12);
    assert_near(sums.device_hours, 546875, 1e-9);
    assert_true(sums.kwh < 0 && sums.money < 0); /* not asked for */
    /* The other way round. */
    facts.days = 0;
    facts.num_devices = sums.num_devices;
    assert_near(tri_run_sums_of(&facts).seconds, 30 * 86400.0, 1e-12);
}

static void arithmetic_of_llama3(void **state)
{
    (void)state;
    tri_run_facts facts = {.flops = tri_run_flops(405e9, 15.6e12)};
    assert_near(facts.flops, 3.79e25, 1e-3);
    tri_run_sums sums = tri_run_sums_of(&facts);
    assert_near(sums.petaflop_days, 438750, 1e-9);
    assert_true(sums.num_devices < 0 && sums.seconds < 0 && sums.device_hours < 0);
}

/* Llama 3 70B on v5p: 16 M tokens in a batch, 850 a chip. */
static void chips_of_llama3(void **state)
{
    (void)state;
    const tri_device_spec *v5p = tri_device_spec_find("v5p");
    const tri_link_spec *link = tri_link_spec_find(v5p->link);
    double tokens = tri_fsdp_tokens(v5p, link, 3, TRI_RATE_16, 2);
    assert_near(tokens, 850, 1e-9);
    assert_near(tri_fsdp_tokens(v5p, link, 1, TRI_RATE_16, 2), 2550, 1e-9);
    tri_run_facts facts = {.flops = tri_run_flops(70e9, 15e12),
                           .rate = v5p->dense[TRI_RATE_16] * 0.5,
                           .num_devices = floor(16e6 / tokens)};
    assert_near(facts.num_devices, 18823, 0);
    tri_run_sums sums = tri_run_sums_of(&facts);
    assert_near(facts.flops, 6.3e24, 1e-12);
    assert_near(sums.seconds, 1.458e6, 1e-3);
    assert_near(sums.seconds / 86400, 16.9, 2e-3);
}

static void bounds_of_devices(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double dense, sparse;
    } rows[] = {{"h100", 295, 591}, {"v6e", 560, 0}, {"v5p", 166, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tri_device_spec *d = tri_device_spec_find(rows[i].name);
        assert_near(tri_roofline_rows(d, TRI_RATE_16, 2, false), rows[i].dense, 2e-3);
        if (rows[i].sparse > 0)
            assert_near(tri_roofline_rows(d, TRI_RATE_16, 2, true), rows[i].sparse, 2e-3);
    }
    const tri_device_spec *v5p = tri_device_spec_find("v5p");
    const tri_link_spec *link = tri_link_spec_find(v5p->link);
    assert_near(tri_tensor_devices(v5p, link, 1, TRI_RATE_16, 2, 30000), 11.76, 1e-3);
    assert_near(tri_tensor_devices(v5p, link, 2, TRI_RATE_16, 2, 30000), 23.53, 1e-3);
}

/* bf16: a dot product, and products of n x n matrices. */
static void intensities(void **state)
{
    (void)state;
    assert_near(tri_product_intensity(1, 1, 1e9, 2), 0.5, 1e-6);
    assert_near(tri_product_intensity(1024, 1024, 1024, 2), 341.3, 1e-3);
    assert_near(tri_product_intensity(4096, 4096, 4096, 2), 1365.3, 1e-4);
}

/* Amdahl: with a tenth undivided, 8 ranks are 1 / (0.1 + 0.9 / 8) times as fast. */
static void serial_parts(void **state)
{
    (void)state;
    assert_near(tri_serial_part(1 / (0.1 + 0.9 / 8), 8), 0.1, 1e-12);
    assert_near(tri_serial_part(4, 4) + 1, 1, 1e-12);
    assert_near(tri_serial_part(1, 16), 1, 1e-12);
}

static void energy_and_money(void **state)
{
    (void)state;
    const char *source = NULL;
    static const struct {
        const char *name;
        double watts;
    } rows[] = {{"v100", 300}, {"a100", 400}, {"H100", 700}, {"h200", 700}, {"v5p", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_near(tri_device_watts(rows[i].name, NULL), rows[i].watts, 0);
    assert_true(tri_device_watts("a100", &source) > 0 && source && *source);
    /* 1e18 FLOP at 1e12 a second: a million seconds of one device, 277.8 hours. */
    tri_run_facts facts = {.flops = 1e18, .rate = 1e12, .watts = 400, .overhead = 1.1, .price = 2};
    tri_run_sums sums = tri_run_sums_of(&facts);
    assert_near(sums.device_hours, 277.78, 1e-4);
    assert_near(sums.kwh, 277.78 * 0.4 * 1.1, 1e-4);
    assert_near(sums.money, 555.56, 1e-4);
    assert_true(sums.num_devices < 0 && sums.seconds < 0);
    facts.overhead = 0; /* not given: none */
    assert_near(tri_run_sums_of(&facts).kwh, 277.78 * 0.4, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_of_gpt3),  cmocka_unit_test(arithmetic_of_llama3),
        cmocka_unit_test(chips_of_llama3),  cmocka_unit_test(bounds_of_devices),
        cmocka_unit_test(energy_and_money), cmocka_unit_test(intensities),
        cmocka_unit_test(serial_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
