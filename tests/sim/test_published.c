/* Devices, clusters, links and software as cost: the C functions are those of the Python model that
 * was fitted on published runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/like/step_estimate.h"
#include "sim/link_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "published_cases.h"

static void near_to(double got, double wanted, const char *what)
{
    if (!(fabs(got - wanted) <= 1e-6 * wanted))
        fail_msg("%s: %.9g, and Python has %.9g", what, got, wanted);
}

static tri_device_profile profile_of(const char *name)
{
    const tri_device_spec *device = tri_device_spec_find(name);
    assert_non_null(device);
    return tri_profile_of(device);
}

static tri_cluster cluster_of(const char *text, uint32_t devices)
{
    tri_cluster cluster;
    tr_error err = {0};
    if (tri_cluster_parse(text, devices, &cluster, &err) != TR_OK)
        fail_msg("%s: %s", text, err.message);
    return cluster;
}

static void steps_are_those_of_python(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const published_case *c = &cases[i];
        tri_device_profile profile = profile_of(c->device);
        const tri_software *software = tri_software_find(c->software);
        assert_non_null(software);
        char text[200];
        snprintf(text, sizeof text,
                 "devices_per_node=%u,node_bandwidth=%.0f,cards_per_node=%u,card_bandwidth=%.0f",
                 c->devices_per_node, strstr(c->device, "h100") ? 450e9 : 300e9,
                 c->devices_per_node, c->card_bytes_per_s);
        tri_cluster cluster = cluster_of(text, c->devices);
        tri_step_estimate s = tri_estimate_step(&c->run, software, &profile, &cluster);
        near_to(s.step, c->seconds, c->id);
        assert_true(s.forward > 0 && s.backward > s.forward && s.compute < s.step);
    }
}

static void products_are_those_of_python(void **state)
{
    (void)state;
    tri_device_profile profile = profile_of("a100");
    assert_int_equal(profile.kind, TRI_PROFILE_FITTED);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const product_case *c = &products[i];
        const tri_product_size shape = {.m = c->m,
                                        .n = c->n,
                                        .k = c->k,
                                        .batch = c->batch,
                                        .rate = TRI_RATE_16,
                                        .out_bytes = c->out_bytes,
                                        .slower = 1};
        char what[40];
        snprintf(what, sizeof what, "product %zu", i);
        near_to(tri_profile_product(&profile, &shape, 3e-6), c->seconds, what);
    }
}

/* What is larger never takes less time, on any device of the table. */
static void more_work_takes_longer(void **state)
{
    (void)state;
    const tri_device_spec *device;
    for (size_t i = 0; (device = tri_device_spec_at(i)); i++) {
        tri_device_profile p = tri_profile_of(device);
        assert_non_null(p.from);
        assert_string_equal(p.device.name, device->name);
        assert_true(device->multiprocessors > 0);
        assert_non_null(tri_link_spec_find(device->link));
        double before = 0;
        for (double k = 16; k < 1e5; k *= 4) {
            const tri_product_size shape = {.m = 1000,
                                            .n = 3000,
                                            .k = k,
                                            .batch = 1,
                                            .rate = TRI_RATE_16,
                                            .out_bytes = 2,
                                            .slower = 1};
            double seconds = tri_profile_product(&p, &shape, p.gap_s);
            double floor_s = 2 * shape.m * shape.n * k / device->dense[TRI_RATE_16];
            assert_true(seconds > before && seconds > floor_s && isfinite(seconds));
            before = seconds;
        }
        const tri_flash_size forward = {1, 8, 2048, 2048, 128, true, false, false};
        tri_flash_size backward = forward, full = forward;
        backward.backward = true;
        full.causal = false;
        assert_true(tri_profile_flash(&p, &backward, 0) > tri_profile_flash(&p, &forward, 0));
        assert_true(tri_profile_flash(&p, &full, 0) > tri_profile_flash(&p, &forward, 0));
    }
}

static tri_rank_group group_of(uint32_t size, uint32_t stride)
{
    return (tri_rank_group){
        .size = size, .num_levels = 1, .level = {{.size = size, .stride = stride}}};
}

static void groups_share_the_cards_of_a_node(void **state)
{
    (void)state;
    tri_cluster c = cluster_of("dgx-a100:8", 64);
    const tri_link_terms whole = {.near_share = 1, .far_share = 1};
    double bytes = 64e9, tp, one, eight;
    tri_rank_group all = group_of(64, 1), apart = group_of(8, 8), node = group_of(8, 1);
    tp = tri_link_collective(&c, &node, TRI_COLL_ALL_GATHER, bytes, &whole);
    assert_float_equal(tp, bytes * 7 / 8 / 300e9 + 4 * 8e-6, 1e-9);
    /* One member a node has its own card; eight have eight. */
    one = tri_link_collective(&c, &apart, TRI_COLL_ALL_GATHER, bytes, &whole);
    assert_float_equal(one, bytes * 7 / 8 / 25e9 + 4 * 8e-6, 1e-9);
    eight = tri_link_collective(&c, &all, TRI_COLL_ALL_GATHER, bytes, &whole);
    assert_float_equal(eight, bytes * 63 / 64 / 200e9 + 7 * 8e-6, 1e-3);
    double sum = tri_link_collective(&c, &all, TRI_COLL_ALL_REDUCE, bytes, &whole);
    assert_float_equal(sum, 2 * eight, 1e-9);
    assert_true(tri_link_send(&c, 0, 8, 1e9, &whole) > 10 * tri_link_send(&c, 0, 7, 1e9, &whole));
    tri_rank_group alone = group_of(1, 1);
    assert_float_equal(tri_link_collective(&c, &alone, TRI_COLL_ALL_REDUCE, 1e9, &whole), 0, 0);
    /* By name: in a flat ring one rank of a node sends through its card, in a torus all do. */
    tri_link_terms ring = whole, levels = whole;
    ring.algorithm = tri_algorithm_find("ring");
    levels.algorithm = tri_algorithm_find("torus2d");
    double flat = tri_link_collective(&c, &all, TRI_COLL_ALL_REDUCE, bytes, &ring);
    double two = tri_link_collective(&c, &all, TRI_COLL_ALL_REDUCE, bytes, &levels);
    if (!(two < flat && two > sum / 2))
        fail_msg("torus %g, ring %g, all cards %g", two, flat, sum);
}

static void software_differs_as_it_should(void **state)
{
    (void)state;
    tri_device_profile p = profile_of("a100");
    const tri_software *w, *kept = tri_software_find("megatron-2021"),
                           *flash = tri_software_find("megatron-core");
    const tri_core_size core = {.rows = 1, .tokens = 2048, .heads = 12, .width = 128, .ranks = 1};
    tri_core_size odd = core;
    odd.width = 108;
    for (int back = 0; back < 2; back++) {
        double scores = tri_software_attention(kept, &p, &core, back).seconds;
        assert_true(scores > tri_software_attention(flash, &p, &core, back).seconds);
        assert_true(tri_software_attention(kept, &p, &odd, back).seconds > scores);
    }
    assert_float_equal(tri_software_accumulate(flash, &p, 1e9).seconds, 0, 0);
    for (size_t i = 0; (w = tri_software_at(i)); i++) {
        assert_ptr_equal(tri_software_find(w->name), w);
        assert_true(w->gap_s > 0 && w->host_s > 0 && w->passes > 0.5 && w->attention > 0);
        assert_true(w->dp_shown > 0 && w->tp_hides < 1 && w->network > 0 && w->gradient > 0);
        /* A few tokens: the host is what takes time. */
        assert_true(tri_software_pace(w, 1e-9, 100, 1) >= 100 * w->host_s);
        assert_true(tri_software_pace(w, 9, 100, 8) >= 9);
    }
    assert_null(tri_software_find("megatron"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_python),
        cmocka_unit_test(products_are_those_of_python),
        cmocka_unit_test(more_work_takes_longer),
        cmocka_unit_test(groups_share_the_cards_of_a_node),
        cmocka_unit_test(software_differs_as_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
