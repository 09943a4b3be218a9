/* The tables. GB is 10^9. Each row names what it was taken from; a figure that the source does not
 * give is left out. NVIDIA prints the bandwidth of NVLink and PCIe for both directions together:
 * half of it stands here. */
#include "mesh/devices.h"

#include <strings.h>

#define TERA 1e12
#define GIGA 1e9

static const tri_device_spec devices[] = {
    {"v100",
     "NVIDIA V100 SXM2 32 GB",
     {15.7 * TERA, 0, 125 * TERA, 0, 0},
     {0},
     32 * GIGA,
     900 * GIGA,
     "nvlink2",
     "NVIDIA V100 datasheet"},
    {"a100-40",
     "NVIDIA A100 SXM 40 GB",
     {19.5 * TERA, 156 * TERA, 312 * TERA, 0, 624 * TERA},
     {0, 312 * TERA, 624 * TERA, 0, 1248 * TERA},
     40 * GIGA,
     1555 * GIGA,
     "nvlink3",
     "NVIDIA A100 datasheet"},
    {"a100",
     "NVIDIA A100 SXM 80 GB",
     {19.5 * TERA, 156 * TERA, 312 * TERA, 0, 624 * TERA},
     {0, 312 * TERA, 624 * TERA, 0, 1248 * TERA},
     80 * GIGA,
     2039 * GIGA,
     "nvlink3",
     "NVIDIA A100 80GB datasheet"},
    /* The sheets of the Hopper cards print sparse figures only; dense is half. */
    {"h100",
     "NVIDIA H100 SXM",
     {67 * TERA, 494.5 * TERA, 989.5 * TERA, 1979 * TERA, 1979 * TERA},
     {0, 989 * TERA, 1979 * TERA, 3958 * TERA, 3958 * TERA},
     80 * GIGA,
     3350 * GIGA,
     "nvlink4",
     "NVIDIA H100 datasheet"},
    {"h100-pcie",
     "NVIDIA H100 PCIe",
     {51 * TERA, 378 * TERA, 756.5 * TERA, 1513 * TERA, 1513 * TERA},
     {0, 756 * TERA, 1513 * TERA, 3026 * TERA, 3026 * TERA},
     80 * GIGA,
     2000 * GIGA,
     "pcie5",
     "NVIDIA H100 PCIe datasheet"},
    {"h200",
     "NVIDIA H200 SXM",
     {67 * TERA, 494.5 * TERA, 989.5 * TERA, 1979 * TERA, 1979 * TERA},
     {0, 989 * TERA, 1979 * TERA, 3958 * TERA, 3958 * TERA},
     141 * GIGA,
     4800 * GIGA,
     "nvlink4",
     "NVIDIA H200 datasheet"},
    {"l40s",
     "NVIDIA L40S",
     {91.6 * TERA, 183 * TERA, 362 * TERA, 733 * TERA, 733 * TERA},
     {0, 366 * TERA, 733 * TERA, 1466 * TERA, 1466 * TERA},
     48 * GIGA,
     864 * GIGA,
     "pcie4",
     "NVIDIA L40S datasheet"},
    {"v5p",
     "Google TPU v5p",
     {0, 0, 459 * TERA, 459 * TERA, 918 * TERA},
     {0},
     95 * GIGA,
     2765 * GIGA,
     "ici-v5p",
     "Google Cloud TPU documentation, v5p"},
    {"v6e",
     "Google TPU v6e (Trillium)",
     {0, 0, 918 * TERA, 0, 1836 * TERA},
     {0},
     32 * GIGA,
     1640 * GIGA,
     "ici-v6e",
     "Google Cloud TPU documentation, v6e"},
};

static const tri_link_spec links[] = {
    {"nvlink2", "NVLink 2, 6 links", 150 * GIGA, 0, "NVIDIA V100 datasheet: 300 GB/s both ways"},
    {"nvlink3", "NVLink 3, 12 links", 300 * GIGA, 0, "NVIDIA A100 datasheet: 600 GB/s both ways"},
    {"nvlink4", "NVLink 4, 18 links", 450 * GIGA, 0, "NVIDIA H100 datasheet: 900 GB/s both ways"},
    {"nvlink5", "NVLink 5, 18 links", 900 * GIGA, 0, "NVIDIA Blackwell brief: 1.8 TB/s both ways"},
    {"pcie4", "PCIe 4.0 x16", 32 * GIGA, 0, "NVIDIA L40S datasheet: 64 GB/s both ways"},
    {"pcie5", "PCIe 5.0 x16", 64 * GIGA, 0, "NVIDIA H100 datasheet: 128 GB/s both ways"},
    {"ib400", "InfiniBand NDR, 400 Gb/s", 50 * GIGA, 0, "NVIDIA ConnectX-7 datasheet: 400 Gb/s"},
    /* Google prints 1,200 GB/s for a v5p chip: six links, both ways, so 100 each way. What the book
     * works with is a little less. */
    {"ici-v5p", "TPU v5p interconnect, 3-d torus", 90 * GIGA, 3, "How to Scale Your Model, 2025"},
    {"ici-v6e", "TPU v6e interconnect, 2-d torus", 90 * GIGA, 2, "How to Scale Your Model, 2025"},
};

const char *tri_rate_name(tri_rate rate)
{
    static const char *const names[TRI_NUM_RATES] = {"f32", "tf32", "16-bit", "fp8", "int8"};
    return names[rate];
}

const tri_device_spec *tri_device_spec_at(size_t i)
{
    return i < sizeof devices / sizeof *devices ? &devices[i] : NULL;
}

const tri_device_spec *tri_device_spec_find(const char *name)
{
    for (size_t i = 0; tri_device_spec_at(i); i++)
        if (strcasecmp(devices[i].name, name) == 0)
            return &devices[i];
    return NULL;
}

const tri_link_spec *tri_link_spec_at(size_t i)
{
    return i < sizeof links / sizeof *links ? &links[i] : NULL;
}

const tri_link_spec *tri_link_spec_find(const char *name)
{
    for (size_t i = 0; tri_link_spec_at(i); i++)
        if (strcasecmp(links[i].name, name) == 0)
            return &links[i];
    return NULL;
}

double tri_link_ring_bytes_per_s(const tri_link_spec *link, int num_axes)
{
    if (link->torus_axes == 0)
        return link->bytes_per_s;
    int axes = num_axes < link->torus_axes ? num_axes : link->torus_axes;
    return 2 * link->bytes_per_s * (axes > 1 ? axes : 1);
}
