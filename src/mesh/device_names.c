#include "mesh/device_names.h"

#include <string.h>

/* The first that fits: longer names of a family stand before the shorter ones. A product without a
 * row in the table of devices is found as soon as it gets one. */
static const struct {
    const char *product, *name;
} names[] = {
    {"A100-SXM4-40GB", "a100-40"},
    {"A100-SXM4-80GB", "a100"},
    {"A100-SXM-80GB", "a100"},
    {"A100 80GB PCIe", "a100-pcie"},
    {"A800-SXM4-80GB", "a800"},
    {"RTX A6000", "a6000"},
    {"V100-SXM2", "v100"},
    {"H100 PCIe", "h100-pcie"},
    {"H100 80GB HBM3", "h100"},
    {"H100 SXM", "h100"},
    {"H100 NVL", "h100-nvl"},
    {"H800", "h800"},
    {"H200 NVL", "h200-nvl"},
    {"H200", "h200"},
    {"GB300", "gb300"},
    {"GB200", "gb200"},
    {"B300", "b300"},
    {"B200", "b200"},
    {"L40S", "l40s"},
    {"RTX 4090", "rtx4090"},
};

const tri_device_spec *tri_device_spec_in(const char *text)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(text, names[i].product))
            return tri_device_spec_find(names[i].name);
    return NULL;
}
