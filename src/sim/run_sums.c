#include "sim/run_sums.h"

#include <strings.h>

/* Watts are the makers' figures for the whole module: "max thermal design power" and the like.
 * Google prints none for its TPUs. */
static const struct {
    const char *name;
    double watts;
    const char *source;
} power[] = {
    {"v100", 300, "NVIDIA V100 datasheet"},
    {"a100", 400, "NVIDIA A100 datasheet"},
    {"a100-40", 400, "NVIDIA A100 datasheet"},
    {"a100-pcie", 300, "NVIDIA A100 datasheet"},
    {"h100", 700, "NVIDIA H100 datasheet"},
    {"h100-pcie", 350, "NVIDIA H100 PCIe datasheet"},
    {"h200", 700, "NVIDIA H200 datasheet"},
    {"b200", 1000, "NVIDIA Blackwell datasheet"},
    {"l4", 72, "NVIDIA L4 datasheet"},
    {"l40s", 350, "NVIDIA L40S datasheet"},
    {"t4", 70, "NVIDIA T4 datasheet"},
    {"mi250x", 560, "AMD Instinct MI250X datasheet"},
    {"mi300x", 750, "AMD Instinct MI300X datasheet"},
};

double tri_device_watts(const char *name, const char **source)
{
    for (size_t i = 0; i < sizeof power / sizeof *power; i++)
        if (strcasecmp(power[i].name, name) == 0) {
            if (source)
                *source = power[i].source;
            return power[i].watts;
        }
    return 0;
}

double tri_run_flops(double num_params, double num_tokens)
{
    return 6 * num_params * num_tokens;
}

tri_run_sums tri_run_sums_of(const tri_run_facts *facts)
{
    const double day = 86400;
    tri_run_sums s = {facts->flops / (1e15 * day), -1, -1, -1, -1, -1};
    if (facts->rate <= 0)
        return s;
    double seconds = facts->flops / facts->rate; /* of one device */
    s.device_hours = seconds / 3600;
    if (facts->num_devices > 0)
        s.num_devices = facts->num_devices;
    else if (facts->days > 0)
        s.num_devices = seconds / (facts->days * day);
    if (s.num_devices > 0)
        s.seconds = seconds / s.num_devices;
    if (facts->watts > 0)
        s.kwh = s.device_hours * facts->watts * 1e-3 * (facts->overhead > 0 ? facts->overhead : 1);
    if (facts->price > 0)
        s.money = s.device_hours * facts->price;
    return s;
}

double tri_fsdp_tokens(const tri_device_spec *device, const tri_link_spec *link, int num_axes,
                       tri_rate rate, double element_bytes)
{
    return element_bytes / 2 * device->dense[rate] / tri_link_ring_bytes_per_s(link, num_axes);
}

double tri_tensor_devices(const tri_device_spec *device, const tri_link_spec *link, int num_axes,
                          tri_rate rate, double element_bytes, double width)
{
    double ratio = tri_fsdp_tokens(device, link, num_axes, rate, element_bytes);
    return ratio > 0 ? width / ratio : 0;
}

double tri_roofline_rows(const tri_device_spec *device, tri_rate rate, double element_bytes,
                         bool sparse)
{
    double flops = sparse ? device->sparse[rate] : device->dense[rate];
    return flops / device->memory_bytes_per_s * element_bytes / 2;
}

double tri_product_intensity(double m, double n, double k, double element_bytes)
{
    return 2 * m * n * k / (element_bytes * (m * k + k * n + m * n));
}

double tri_serial_part(double speed_up, int num_ranks)
{
    return (1 / speed_up - 1.0 / num_ranks) / (1 - 1.0 / num_ranks);
}
