/* Devices and clusters as people describe them, and how groups of ranks lie on clusters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mesh/cluster.h"
#include "mesh/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void devices_have_names_and_aliases(void **state)
{
    (void)state;
    const tri_device_spec *device;
    char word[64];
    for (size_t i = 0; (device = tri_device_spec_at(i)); i++) {
        tri_device_spec spec;
        tr_error err = {0};
        assert_int_equal(tri_device_spec_parse(device->name, &spec, &err), TR_OK);
        assert_string_equal(spec.name, device->name);
        assert_ptr_equal(tri_device_spec_find(device->name), device);
        for (const char *at = device->aliases; at && *at;) {
            size_t length = strcspn(at, ",");
            snprintf(word, sizeof word, "%.*s", (int)length, at);
            assert_ptr_equal(tri_device_spec_find(word), device);
            at += length + (at[length] == ',');
        }
        for (int rate = 0; rate < TRI_NUM_RATES; rate++)
            assert_true(device->sparse[rate] == 0 || device->sparse[rate] > device->dense[rate]);
    }
    assert_string_equal(tri_device_spec_find("A100-80")->name, "a100");
    assert_null(tri_device_spec_find("a100-8"));
}

static void devices_are_described(void **state)
{
    (void)state;
    tri_device_spec spec;
    tr_error err = {0};
    const char *whole =
        "peak=500T,fp8=1P,memory=64G,bandwidth=3e12,multiprocessors=60,link=nvlink4";
    assert_int_equal(tri_device_spec_parse(whole, &spec, &err), TR_OK);
    assert_float_equal(spec.dense[TRI_RATE_16], 500e12, 0);
    assert_float_equal(spec.dense[TRI_RATE_FP8], 1e15, 0);
    assert_float_equal(spec.memory_bytes, 64e9, 0);
    assert_float_equal(spec.memory_bytes_per_s, 3e12, 0);
    assert_int_equal(spec.multiprocessors, 60);
    assert_string_equal(spec.link, "nvlink4");
    assert_int_equal(tri_device_spec_parse("a100,memory=40G", &spec, &err), TR_OK);
    assert_float_equal(spec.memory_bytes, 40e9, 0);
    assert_float_equal(spec.dense[TRI_RATE_16], 312e12, 0);
    static const char *const wrong[][2] = {
        {"h1000", "did you mean h100"},
        {"", "there is no device"},
        {"peak=1T", "no memory"},
        {"peak=1T,memory=1G", "no bandwidth"},
        {"memory=1G,bandwidth=1G", "no peak"},
        {"a100,memroy=40G", "the nearest is memory"},
        {"a100,40G", "no key=value"},
        {"a100,memory=-1", "no positive number"},
        {"a100,memory=40Q", "no positive number"},
        {"a100,memory=nan", "no positive number"},
        {"a100,multiprocessors=0.5", "give 1 to"},
        {"a100,link=nvlink9", "no link"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tri_device_spec_parse(wrong[i][0], &spec, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], err.message);
    }
}

static tri_cluster parse(const char *text, uint32_t devices)
{
    tri_cluster cluster;
    tr_error err = {0};
    if (tri_cluster_parse(text, devices, &cluster, &err) != TR_OK)
        fail_msg("%s: %s", text, err.message);
    return cluster;
}

static void every_cluster_of_the_table_has_two_nodes(void **state)
{
    (void)state;
    const tri_cluster_spec *spec;
    for (size_t i = 0; (spec = tri_cluster_spec_at(i)); i++) {
        tri_cluster one = parse(spec->name, 1);
        assert_int_equal(one.nodes, 1);
        assert_int_equal(one.num_tiers, 1);
        assert_true(!spec->device || tri_device_spec_find(spec->device));
        if (spec->cards_per_node == 0)
            continue;
        tri_cluster two = parse(spec->name, spec->devices_per_node + 1);
        assert_int_equal(two.nodes, 2);
        assert_int_equal(two.num_tiers, 2);
        assert_int_equal(two.tier[1].devices, 2 * spec->devices_per_node);
        assert_true(two.tier[1].bytes_per_s < two.tier[0].bytes_per_s);
    }
    tri_cluster zay = parse("jean-zay-a100:48", 384); /* 4 cards for 8 devices */
    assert_float_equal(zay.tier[1].bytes_per_s, 6.25e9, 1);
}

static void clusters_are_described(void **state)
{
    (void)state;
    tri_cluster c = parse("dgx-h100:16,rack_nodes=4,oversubscription=2", 128);
    assert_int_equal(c.num_tiers, 3);
    assert_int_equal(c.tier[1].devices, 32);
    assert_float_equal(c.tier[1].bytes_per_s, 50e9, 1);
    assert_float_equal(c.tier[2].bytes_per_s, 25e9, 1);
    assert_int_equal(c.tier[2].devices, 128);
    c = parse("dgx-h100:16,rack_nodes=1,oversubscription=2",
              128); /* every node leaves its switch */
    assert_int_equal(c.num_tiers, 2);
    assert_float_equal(c.tier[1].bytes_per_s, 25e9, 1);
    assert_false(c.measured);
    c = parse("devices_per_node=8,node_bandwidth=1G,device=h200,measured=1", 8);
    assert_string_equal(c.device, "h200");
    assert_string_equal(c.name, "measured");
    assert_true(c.measured);
    char path[] = "/tmp/trireme-cluster-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *text = "# ours\nlike: dgx-a100\nnodes = 4\n\ncards_per_node: 2   # of HDR\r\n"
                       "card_latency=2e-5\n";
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    c = parse(path, 32);
    unlink(path);
    assert_string_equal(c.name, "dgx-a100");
    assert_int_equal(c.nodes, 4);
    assert_float_equal(c.tier[1].bytes_per_s, 2 * 25e9 / 8, 1);
    assert_float_equal(c.tier[1].latency_s, 2e-5, 0);
    static const char *const wrong[][2] = {
        {"dgx-a10", "the nearest is dgx-a100"},
        {"dgx-a100:0", "no positive number"},
        {"dgx-a100:1.5", "whole number"},
        {"dgx-a100:2", "has 2 nodes of 8 devices, and 64 are asked for"},
        {"dgx-a100,card=2", "the nearest is"},
        {"nodes=8", "no devices_per_node"},
        {"devices_per_node=8", "no node_bandwidth"},
        {"devices_per_node=8,node_bandwidth=1G", "no network"},
        {"dgx-a100,oversubscription=0.5", "less than 1"},
        {"dgx-a100,device=h2000", "no device \"h2000\""},
        {"dgx-a100,torus_axes=4", "more than 3 axes"},
        {"/nowhere/cluster.yaml", "/nowhere/cluster.yaml"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tr_error err = {0};
        assert_int_equal(tri_cluster_parse(wrong[i][0], 64, &c, &err), TR_ERROR_INPUT);
        if (!strstr(err.message, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], err.message);
    }
}

static tri_group_span span_of(const tri_cluster *c, uint32_t first, uint32_t size, uint32_t stride)
{
    const tri_rank_group group = {
        .size = size, .first = first, .num_levels = 1, .level = {{.size = size, .stride = stride}}};
    return tri_cluster_span(c, &group);
}

static void groups_cross_the_right_tier(void **state)
{
    (void)state;
    tri_cluster c = parse("dgx-h100:16,rack_nodes=4,oversubscription=2", 128);
    static const struct {
        uint32_t first, size, stride, tier, inside[2];
    } rows[] = {
        {0, 8, 1, 0, {8, 8}},    /* tp 8 */
        {8, 4, 2, 0, {4, 4}},    /* every other of a node */
        {4, 8, 1, 1, {4, 8}},    /* across the border of two nodes */
        {0, 4, 8, 1, {1, 4}},    /* one of each node of a rack */
        {0, 16, 8, 2, {1, 4}},   /* one of each node */
        {3, 32, 4, 2, {2, 8}},   /* dp beside tp 4 */
        {0, 128, 1, 2, {8, 32}}, /* all */
        {5, 1, 1, 0, {1, 1}},    /* alone */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_group_span span = span_of(&c, rows[i].first, rows[i].size, rows[i].stride);
        assert_int_equal(span.tier, rows[i].tier);
        assert_int_equal(span.inside[0], rows[i].inside[0]);
        assert_int_equal(span.inside[1], rows[i].inside[1]);
    }
    /* Two levels: 4 neighbours in each of 2 nodes. */
    const tri_rank_group both = {
        .size = 8, .num_levels = 2, .level = {{.size = 4, .stride = 1}, {.size = 2, .stride = 8}}};
    tri_group_span span = tri_cluster_span(&c, &both);
    assert_int_equal(span.tier, 1);
    assert_int_equal(span.inside[0], 4);
    assert_int_equal(tri_cluster_tier_between(&c, 0, 7), 0);
    assert_int_equal(tri_cluster_tier_between(&c, 7, 8), 1);
    assert_int_equal(tri_cluster_tier_between(&c, 0, 127), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_names_and_aliases),
        cmocka_unit_test(devices_are_described),
        cmocka_unit_test(every_cluster_of_the_table_has_two_nodes),
        cmocka_unit_test(clusters_are_described),
        cmocka_unit_test(groups_cross_the_right_tier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
