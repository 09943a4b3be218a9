#include "mesh/cluster_found.h"

#include <math.h>

/* Less than this of what two nodes alone get is the doing of a switch, not noise. */
static const double even_share = 0.8;

/* Of the numbers that divide `devices`, the one whose ratio to `seen` is closest to 1. */
static uint32_t nearest_divisor(uint32_t devices, double seen)
{
    uint32_t best = 1;
    for (uint32_t cards = 1; cards <= devices; cards++)
        if (devices % cards == 0 && fabs(log(cards / seen)) < fabs(log(best / seen)))
            best = cards;
    return best;
}

static void derive_switches(const tri_cluster_found *found, tri_cluster_spec *spec)
{
    double alone = found->cross_bytes_per_s, least = alone;
    for (uint32_t d = 0; d < found->num_distances; d++) {
        double seen = found->distance_bytes_per_s[d];
        if (spec->rack_nodes == 0 && seen < even_share * alone)
            spec->rack_nodes = 1u << d;
        least = seen < least ? seen : least;
    }
    if (spec->rack_nodes > 0)
        spec->oversubscription = alone / least;
}

void tri_cluster_derive(const tri_cluster_found *found, tri_cluster_spec *spec)
{
    *spec = (tri_cluster_spec){.devices_per_node = found->devices_per_node,
                               .node_bytes_per_s = found->node_bytes_per_s,
                               .latency_s = found->latency_s};
    if (found->nodes == 1)
        return;
    spec->cards_per_node = nearest_divisor(
        found->devices_per_node, found->cross_bytes_per_s / found->cross_pair_bytes_per_s);
    spec->card_bytes_per_s = found->cross_bytes_per_s / spec->cards_per_node;
    spec->card_latency_s = found->cross_latency_s;
    derive_switches(found, spec);
}

static void add_rate(tri_text *text, const char *key, double value)
{
    if (value >= 1e9)
        tri_text_add(text, "%s: %.4gG\n", key, value * 1e-9);
    else if (value > 0)
        tri_text_add(text, "%s: %.4gM\n", key, value * 1e-6);
}

static void add_count(tri_text *text, const char *key, uint32_t value)
{
    if (value > 0)
        tri_text_add(text, "%s: %u\n", key, value);
}

static void add_seconds(tri_text *text, const char *key, double value)
{
    if (value > 0)
        tri_text_add(text, "%s: %.3ge-6\n", key, value * 1e6);
}

void tri_cluster_write_lines(const tri_cluster_spec *spec, uint32_t nodes, tri_text *text)
{
    if (spec->device)
        tri_text_add(text, "device: %s\n", spec->device);
    add_count(text, "nodes", nodes);
    add_count(text, "devices_per_node", spec->devices_per_node);
    add_rate(text, "node_bandwidth", spec->node_bytes_per_s);
    add_seconds(text, "node_latency", spec->latency_s);
    add_count(text, "cards_per_node", spec->cards_per_node);
    add_rate(text, "card_bandwidth", spec->card_bytes_per_s);
    add_seconds(text, "card_latency", spec->card_latency_s);
    add_count(text, "rack_nodes", spec->rack_nodes);
    if (spec->rack_nodes > 0)
        tri_text_add(text, "oversubscription: %.3g\n", spec->oversubscription);
    tri_text_add(text, "measured: 1\n");
}
