/* Ready clusters. Bandwidths are the datasheets', one way; what of it a software reaches is a share
 * in its profile. Latencies are those that published runs were fitted with. */
#include "mesh/cluster.h"

#include <strings.h>

#define GIGA   1e9
#define FITTED 8e-6

static const tri_cluster_spec clusters[] = {
    {"dgx-a100", "DGX A100, 8 HDR cards", "a100", 8, 300 * GIGA, 8, 25 * GIGA, FITTED, FITTED, 0, 0,
     1, "NVIDIA DGX A100 datasheet"},
    {"hgx-a100-4hdr", "8 A100, 4 HDR cards", "a100", 8, 300 * GIGA, 4, 25 * GIGA, FITTED, FITTED, 0,
     0, 1, "vTrain, arXiv 2312.12391"},
    {"jean-zay-a100", "8 A100, 4 Omni-Path cards", "a100", 8, 300 * GIGA, 4, 12.5 * GIGA, FITTED,
     FITTED, 0, 0, 1, "BigScience, chronicles of tr11-176B"},
    {"dgx-h100", "DGX H100, 8 NDR cards", "h100", 8, 450 * GIGA, 8, 50 * GIGA, FITTED, FITTED, 0, 0,
     1, "NVIDIA DGX H100 datasheet"},
    {"hgx-h200", "8 H200, 8 NDR cards", "h200", 8, 450 * GIGA, 8, 50 * GIGA, FITTED, FITTED, 0, 0,
     1, "NVIDIA DGX H200 datasheet"},
    {"dgx-b200", "DGX B200, 8 NDR cards", "b200", 8, 900 * GIGA, 8, 50 * GIGA, FITTED, FITTED, 0, 0,
     1, "NVIDIA DGX B200 datasheet"},
    {"hgx-b300", "8 B300, 8 XDR cards", "b300", 8, 900 * GIGA, 8, 100 * GIGA, FITTED, FITTED, 0, 0,
     1, "NVIDIA HGX B300 datasheet"},
    {"gb200-nvl72", "racks of 72 GB200", "gb200", 72, 900 * GIGA, 72, 50 * GIGA, FITTED, FITTED, 0,
     0, 1, "NVIDIA GB200 NVL72 datasheet"},
    {"gb300-nvl72", "racks of 72 GB300", "gb300", 72, 900 * GIGA, 72, 100 * GIGA, FITTED, FITTED, 0,
     0, 1, "NVIDIA GB300 NVL72 datasheet"},
    {"v5p-torus", "pods of 8,960 TPU v5p, hosts of 4", "v5p", 8960, 90 * GIGA, 2240, 25 * GIGA,
     1e-6, 20e-6, 3, 0, 1, "How to Scale Your Model, 2025"},
    {"v5e-torus", "pods of 256 TPU v5e, hosts of 8", "v5e", 256, 45 * GIGA, 32, 25 * GIGA, 1e-6,
     20e-6, 2, 0, 1, "How to Scale Your Model, 2025"},
    {"v6e-torus", "pods of 256 TPU v6e, hosts of 8", "v6e", 256, 90 * GIGA, 32, 25 * GIGA, 1e-6,
     20e-6, 2, 0, 1, "How to Scale Your Model, 2025"},
    {"ethernet-100g", "8 devices on PCIe 4, one 100 Gb/s card", NULL, 8, 32 * GIGA, 1, 12.5 * GIGA,
     10e-6, 30e-6, 0, 0, 1, "PCIe 4.0 and IEEE 802.3"},
    {"local", "ranks of one machine, through its memory", NULL, 64, 5 * GIGA, 0, 0, 1e-6, 0, 0, 0,
     1, "an order of magnitude; `trireme bench comm` measures"},
};

const tri_cluster_spec *tri_cluster_spec_at(size_t i)
{
    return i < sizeof clusters / sizeof *clusters ? &clusters[i] : NULL;
}

const tri_cluster_spec *tri_cluster_spec_find(const char *name)
{
    const tri_cluster_spec *spec;
    for (size_t i = 0; (spec = tri_cluster_spec_at(i)); i++)
        if (strcasecmp(spec->name, name) == 0)
            return spec;
    return NULL;
}
