/* What follows from figures of links that are given: cards, racks, oversubscription; and that a
 * file of it is read as the cluster that was measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "mesh/cluster_found.h"
#include "sim/machine_costs.h"
#include "temp_dir.h"

enum { PER = 8 };

/* Sixteen nodes of eight devices that share cards of 25 GB/s, in racks whose switches pass a share
 * on; everything a few percent off. */
static tri_cluster_found measured(uint32_t nodes, double cards, uint32_t rack, double over)
{
    tri_cluster_found f = {.nodes = nodes,
                           .devices_per_node = PER,
                           .latency_s = 4e-6,
                           .pair_bytes_per_s = 210e9,
                           .node_bytes_per_s = 190e9};
    if (nodes == 1)
        return f;
    f.cross_latency_s = 9e-6;
    f.cross_pair_bytes_per_s = 24.6e9;
    f.cross_bytes_per_s = 25.1e9 * cards;
    for (uint32_t d = 1; nodes > 2 && d < nodes; d *= 2)
        f.distance_bytes_per_s[f.num_distances++] =
            f.cross_bytes_per_s * (d % 4 ? 0.97 : 1.02) / (d >= rack ? over : 1);
    return f;
}

static void cards_follow_from_pairs(void **state)
{
    (void)state;
    for (uint32_t cards = 1; cards <= PER; cards *= 2) {
        tri_cluster_found f = measured(2, cards, 2, 1);
        tri_cluster_spec spec;
        tri_cluster_derive(&f, &spec);
        assert_int_equal(spec.cards_per_node, cards);
        assert_float_equal(spec.card_bytes_per_s, 25.1e9, 1);
        assert_int_equal(spec.rack_nodes, 0);
    }
    /* One pair does not fill its card; all together get no more than one; less than one. */
    static const struct {
        double times;
        uint32_t cards;
    } rows[] = {{6.3, 8}, {5.2, 4}, {3.1, 4}, {1.2, 1}, {0.7, 1}, {11, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tri_cluster_found f = measured(2, 1, 2, 1);
        tri_cluster_spec spec;
        f.cross_bytes_per_s = f.cross_pair_bytes_per_s * rows[i].times;
        tri_cluster_derive(&f, &spec);
        assert_int_equal(spec.cards_per_node, rows[i].cards);
        assert_float_equal(spec.cards_per_node * spec.card_bytes_per_s, f.cross_bytes_per_s, 1);
    }
}

static void racks_end_where_it_gets_slow(void **state)
{
    (void)state;
    for (uint32_t rack = 1; rack < 16; rack *= 2) {
        tri_cluster_found f = measured(16, 4, rack, 3);
        tri_cluster_spec spec;
        tri_cluster_derive(&f, &spec);
        assert_int_equal(spec.rack_nodes, rack);
        assert_true(fabs(spec.oversubscription / 3 - 1) < 0.05);
    }
    tri_cluster_found even = measured(16, 4, 4, 1.1), one = measured(1, 0, 1, 1);
    tri_cluster_spec spec;
    tri_cluster_derive(&even, &spec);
    assert_int_equal(spec.rack_nodes, 0);
    tri_cluster_derive(&one, &spec);
    assert_int_equal(spec.cards_per_node, 0);
}

static tri_cluster read_back(const temp_dir *dir, const tri_cluster_found *found,
                             const char *device)
{
    tri_cluster_spec spec;
    tri_cluster cluster;
    tri_text text;
    tr_error err = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/found.cluster", dir->path);
    tri_cluster_derive(found, &spec);
    spec.device = device;
    tri_text_init(&text);
    tri_text_add(&text, "# trireme doctor --cluster\n#   within a node: 4 us, node_bandwidth=1\n");
    tri_cluster_write_lines(&spec, found->nodes, &text);
    assert_int_equal(tri_file_replace(path, text.chars, text.length, &err), TR_OK);
    tri_text_fini(&text);
    if (tri_cluster_parse(path, found->nodes * PER, &cluster, &err) != TR_OK)
        fail_msg("%s", err.message);
    return cluster;
}

static void a_file_is_the_cluster(void **state)
{
    tri_cluster_found f = measured(16, 4, 4, 3);
    tri_cluster c = read_back(*state, &f, "h200");
    assert_string_equal(c.device, "h200");
    assert_true(c.measured);
    assert_int_equal(c.nodes, 16);
    assert_int_equal(c.num_tiers, 3);
    assert_int_equal(c.tier[1].devices, 4 * PER);
    assert_float_equal(c.tier[0].bytes_per_s, 190e9, 1);
    assert_float_equal(c.tier[0].latency_s, 4e-6, 1e-12);
    assert_float_equal(c.tier[1].bytes_per_s, 4 * 25.1e9 / PER, 1);
    assert_float_equal(c.tier[1].latency_s, 9e-6, 1e-12);
    assert_true(fabs(c.tier[1].bytes_per_s / c.tier[2].bytes_per_s / 3 - 1) < 0.05);
    f = measured(16, 4, 1, 3); /* every node leaves its switch */
    c = read_back(*state, &f, NULL);
    assert_null(c.device);
    assert_int_equal(c.num_tiers, 2);
    assert_true(fabs(c.tier[1].bytes_per_s * 3 / (4 * 25.1e9 / PER) - 1) < 0.05);
    f = measured(1, 0, 1, 1);
    c = read_back(*state, &f, NULL);
    assert_int_equal(c.num_tiers, 1);
}

/* What was measured is not what a profile takes its share of. */
static void measured_rates_count_whole(void **state)
{
    tri_cluster_found f = measured(2, 8, 2, 1);
    tri_cluster c = read_back(*state, &f, "h100");
    const tri_device_spec *device = tri_device_spec_find("h100");
    tri_machine_model model = tri_machine_model_of(device, &c, TRI_RATE_16);
    assert_float_equal(model.terms.near_share, 1, 0);
    assert_float_equal(model.terms.far_share, 1, 0);
    c.measured = false;
    model = tri_machine_model_of(device, &c, TRI_RATE_16);
    assert_true(model.terms.near_share < 1 && model.terms.far_share < 1);
    tr_error err = {0};
    assert_int_equal(
        tri_cluster_parse("devices_per_node=8,node_bandwidth=1G,device=h2000", 8, &c, &err),
        TR_ERROR_INPUT);
    assert_non_null(strstr(err.message, "there is no device \"h2000\""));
}

static void paths_and_names(void **state)
{
    (void)state;
    static const char *const paths[] = {"./a", "a.cluster", "/a:b", "dir/a,b"};
    static const char *const names[] = {"a", "dgx-h100:3", "a:b.c", "nodes=1.5", "a,b/c"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_true(tri_cluster_is_path(paths[i]));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(tri_cluster_is_path(names[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_follow_from_pairs), cmocka_unit_test(racks_end_where_it_gets_slow),
        cmocka_unit_test(a_file_is_the_cluster),   cmocka_unit_test(measured_rates_count_whole),
        cmocka_unit_test(paths_and_names),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}
