#include "cli/doc/devices_page.h"

#include <stdio.h>

#include "mesh/cluster.h"
#include "sim/like/software.h"

/* "8 x 25 GB/s", what a node has to the network. */
static const char *cards(const tri_cluster_spec *c, char text[32])
{
    if (c->cards_per_node == 0)
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, "%u x %.4g", c->cards_per_node, c->card_bytes_per_s * 1e-9);
    return text;
}

void tri_cli_list_costs(tri_text *text)
{
    const tri_device_spec *device;
    const tri_cluster_spec *cluster;
    const tri_software *software;
    char word[32];
    tri_text_add(text, "\nProfiles: what of the datasheet is reached; products in 16 and 8 bits, "
                       "memory, attention forward and backward, links\n\n");
    for (size_t i = 0; (device = tri_device_spec_at(i)); i++) {
        tri_device_profile p = tri_profile_of(device);
        tri_text_add(text, "  %-10s %5.2f %5.2f %5.2f %5.2f %5.2f %5.2f  %-10s %s\n", device->name,
                     p.product, p.product8, p.memory, p.flash, p.flash_back, p.link,
                     tri_profile_kind_name(p.kind), p.from);
    }
    tri_text_add(text, "\nClusters: devices of a node, GB/s of a device within it, cards of a node "
                       "x GB/s of a card\n\n");
    for (size_t i = 0; (cluster = tri_cluster_spec_at(i)); i++)
        tri_text_add(text, "  %-14s %5u %6.4g  %-12s %-38s %s\n", cluster->name,
                     cluster->devices_per_node, cluster->node_bytes_per_s * 1e-9,
                     cards(cluster, word), cluster->title, cluster->source);
    tri_text_add(text, "\nSoftware, and what its constants were fitted on\n\n");
    for (size_t i = 0; (software = tri_software_at(i)); i++)
        tri_text_add(text, "  %-19s %s; %s\n", software->name, software->title, software->from);
}

static const char top[] =
    "# Devices, clusters and software\n\n"
    "What the simulator knows of machines. This page is printed by the program:\n\n"
    "    build/trireme place --devices --markdown\n\n"
    "Rates are dense ones of datasheets, in TFLOP/s; GB is 10⁹ bytes. A dash: the device has none, "
    "or its source gives none. 16-bit is bf16, on the P100 and the V100 f16.\n\n"
    "## Devices\n\n"
    "| name | | f32 | tf32 | 16-bit | fp8 | int8 | GB | GB/s | units | link | source |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|\n";

static const char describe_device[] =
    "\nA device that is not listed is described in a line, `peak=312T,memory=80G,bandwidth=2039G`, "
    "or as another one with changes, `a100,memory=40G`. Further keys are `f32`, `tf32`, `fp8`, "
    "`int8`, `sparse`, `multiprocessors` and `link`.\n\n";

static const char profiles[] =
    "## Profiles\n\n"
    "No device reaches its datasheet. A profile says what it does reach, in a few constants:\n\n"
    "- A product is cut into tiles, which the multiprocessors (*units* above) run in waves. Each "
    "tile has a start-up of so many steps of k. Large tiles have the share *products* of the peak, "
    "smaller ones less. Of a last wave that not all units have, a part counts whole.\n"
    "- Work on memory reaches the share *memory* of its rate.\n"
    "- Attention that keeps no scores has the shares *attention* of the peak of products, forward "
    "and backward; short rows less. Kernels that were not written for the device (in Triton, say) "
    "have the shares *portable*.\n"
    "- Messages within a node reach the share *links*.\n\n"
    "Constants of a profile are *measured* on the device, *fitted* on step times that others "
    "published, or those of a device of its kind (*datasheet*).\n\n"
    "| device | products | 8-bit | memory | attention | backward | links | | from |\n"
    "|---|---|---|---|---|---|---|---|---|\n";

static const char clusters[] =
    "\n## Clusters\n\n"
    "Nodes of devices, and tiers of links between them. Axes of the mesh are mapped from the "
    "inside out: ranks whose numbers are close share a node. A group with eight members in a node "
    "uses its eight cards at once; a group with one there has one, since other groups use the "
    "others meanwhile. Where a node has fewer cards than devices, each device has its share.\n\n"
    "| name | | devices of a node | GB/s within | cards × GB/s | source "
    "|\n|---|---|---|---|---|---|"
    "\n";

static const char describe_cluster[] =
    "\n`dgx-h100:32` is 32 nodes; without a number there are as many as the layout needs. "
    "`dgx-h100:32,rack_nodes=8,oversubscription=2` changes some of it, and a file has the same "
    "keys, one a line:\n\n"
    "    like: dgx-a100\n    nodes: 16\n    cards_per_node: 4\n    card_bandwidth: 12.5G\n\n"
    "| key | |\n|---|---|\n"
    "| `like` | a ready cluster to begin with |\n"
    "| `device` | what its nodes have, by a name of the table above |\n"
    "| `nodes`, `devices_per_node` | |\n"
    "| `node_bandwidth`, `node_latency` | bytes/s of a device within its node, one way; seconds of "
    "a message |\n"
    "| `cards_per_node`, `card_bandwidth`, `card_latency` | network cards of a node, and each |\n"
    "| `torus_axes` | 1 to 3: devices of a node form a torus |\n"
    "| `rack_nodes`, `oversubscription` | nodes that share a switch; what leaves it is so many "
    "times slower |\n"
    "| `measured` | 1: bandwidths are what messages reach, so no share of a profile comes off |\n";

static const char own_cluster[] =
    "\n### Your own cluster\n\n"
    "`trireme doctor --cluster FILE` measures the links of the ranks that are there, and writes "
    "such a file. `sim --cluster FILE` reads it:\n\n"
    "    build/trireme doctor --cluster ours.cluster                 # this machine, a rank for "
    "each "
    "core\n"
    "    build/trireme doctor --cluster ours.cluster --ranks 8 --set run.device=cuda     # its "
    "GPUs\n"
    "    srun build/trireme doctor --cluster ours.cluster --set run.device=cuda    # all ranks of "
    "a "
    "job\n"
    "    build/trireme sim tiny --cluster ours.cluster --device h100\n\n"
    "| key | what is measured |\n|---|---|\n"
    "| `node_latency` | half a round trip of 8 bytes between neighbours of a node |\n"
    "| `node_bandwidth` | what a device sends while all of its node gather 16 MiB |\n"
    "| `card_latency` | half a round trip between two nodes |\n"
    "| `cards_per_node`, `card_bandwidth` | messages from one node to another: of one pair of "
    "ranks, and of all pairs at once |\n"
    "| `rack_nodes`, `oversubscription` | the same of all nodes at once, each to the node 1, 2, 4 "
    "... places on |\n"
    "| `device` | the GPU's name, where the table has it |\n\n"
    "Each figure is the median of five tries. It takes a second or two, and each node must have "
    "equally many ranks. Messages go as those of a run with this `run.transport`: by NCCL where "
    "every rank has a GPU of its own, otherwise through the hosts.\n\n"
    "Nobody sees network cards, but bandwidth tells how many there are in effect. If all pairs "
    "together get four times what one pair gets, the node has four cards. The number is rounded to "
    "a divisor of the devices of a node, and `card_bandwidth` is what all pairs get, divided by "
    "it. If all nodes at once get less than 80 % of what two nodes alone get, from some distance "
    "on, then racks end there. Two nodes cannot tell, and have one switch.\n\n"
    "The head of the file says when, where and by which messages it was measured, what the figures "
    "were, and what is assumed. A file that `doctor` did not write is left alone.\n";

static const char softwares[] =
    "\n## Software\n\n"
    "The same model takes another time under another software. A row says what it fuses, how often "
    "it passes over memory, how long its host takes to start a kernel, and which messages it hides "
    "behind arithmetic. [What they predict](records/published.md), and how well.\n\n"
    "| name | | fitted on | host, a kernel | between kernels | passes over memory | scores kept | "
    "network | tp hidden | dp hidden |\n|---|---|---|---|---|---|---|---|---|---|\n";

static void add_device_row(const tri_device_spec *d, tri_text *text)
{
    tri_text_add(text, "| `%s`", d->name);
    for (const char *at = d->aliases; at && *at;) {
        size_t length = 0;
        while (at[length] && at[length] != ',')
            length++;
        tri_text_add(text, ", `%.*s`", (int)length, at);
        at += length + (at[length] == ',');
    }
    tri_text_add(text, " | %s", d->title);
    for (int rate = 0; rate < TRI_NUM_RATES; rate++) {
        if (d->dense[rate] > 0)
            tri_text_add(text, " | %.5g", d->dense[rate] * 1e-12);
        else
            tri_text_add(text, " | -");
    }
    tri_text_add(text, " | %.4g | %.4g | %d | `%s` | %s |\n", d->memory_bytes * 1e-9,
                 d->memory_bytes_per_s * 1e-9, d->multiprocessors, d->link, d->source);
}

static void add_software_row(const tri_software *w, tri_text *text)
{
    tri_text_add(
        text, "| `%s` | %s | %s | %.3g µs | %.3g µs | %.3g | %s | %.0f %% | %.0f %% | %.0f %% |\n",
        w->name, w->title, w->from, w->host_s * 1e6, w->gap_s * 1e6, w->passes,
        w->flash ? "no" : "yes", w->network * 100, w->tp_hides * 100, (1 - w->dp_shown) * 100);
}

void tri_cli_write_devices_page(tri_text *text)
{
    const tri_device_spec *device;
    const tri_link_spec *link;
    const tri_cluster_spec *cluster;
    const tri_software *software;
    char word[32];
    tri_text_add(text, "%s", top);
    for (size_t i = 0; (device = tri_device_spec_at(i)); i++)
        add_device_row(device, text);
    tri_text_add(text, "%s%s", describe_device, profiles);
    for (size_t i = 0; (device = tri_device_spec_at(i)); i++) {
        tri_device_profile p = tri_profile_of(device);
        tri_text_add(text, "| `%s` | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f | %s | %s |\n",
                     device->name, p.product, p.product8, p.memory, p.flash, p.flash_back, p.link,
                     tri_profile_kind_name(p.kind), p.from);
    }
    tri_text_add(text, "\n## Links\n\n| name | | GB/s of a device, one way | source |\n"
                       "|---|---|---|---|\n");
    for (size_t i = 0; (link = tri_link_spec_at(i)); i++)
        tri_text_add(text, "| `%s` | %s | %.4g%s | %s |\n", link->name, link->title,
                     link->bytes_per_s * 1e-9,
                     link->torus_axes ? ", both ways at once, on each axis" : "", link->source);
    tri_text_add(text, "%s", clusters);
    for (size_t i = 0; (cluster = tri_cluster_spec_at(i)); i++)
        tri_text_add(text, "| `%s` | %s | %u | %.4g | %s | %s |\n", cluster->name, cluster->title,
                     cluster->devices_per_node, cluster->node_bytes_per_s * 1e-9,
                     cards(cluster, word), cluster->source);
    tri_text_add(text, "%s%s%s", describe_cluster, own_cluster, softwares);
    for (size_t i = 0; (software = tri_software_at(i)); i++)
        add_software_row(software, text);
}
