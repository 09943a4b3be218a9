/* The memory of training by the textbook, and the tables of devices and links, as text. */
#include "place/calc/calc.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct recipe {
    const char *name;
    double weights, gradients, optimizer; /* bytes a parameter */
} recipe;

static const recipe recipes[] = {
    {"mixed precision (16-bit weights and gradients; fp32 copy and two moments)", 2, 2, 12},
    {"fp32 (weights, gradients, two moments)", 4, 4, 8},
};

tr_status tri_calc_states(const tri_calc *calc, double num_params, int64_t group,
                          tri_calc_state rows[TRI_CALC_STATES], int64_t *shard_group, tr_error *err)
{
    int devices = tri_calc_devices(calc, ~0u);
    int64_t shard = *shard_group = group ? group : devices;
    if (shard > devices || devices % shard != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "--shard-group is %" PRId64 ", which does not divide the %d devices of the "
                        "mesh; give a divisor",
                        group, devices);
    for (int i = 0; i < TRI_CALC_STATES; i++) {
        const recipe *r = &recipes[i / 4];
        int zero = i % 4;
        double ranks = (double)shard;
        rows[i] =
            (tri_calc_state){.recipe = r->name,
                             .zero = zero,
                             .weights = num_params * r->weights / (zero >= 3 ? ranks : 1),
                             .gradients = num_params * r->gradients / (zero >= 2 ? ranks : 1),
                             .optimizer = num_params * r->optimizer / (zero >= 1 ? ranks : 1)};
    }
    return TR_OK;
}

static void write_state_row(const tri_calc *calc, const tri_calc_state *row, bool one_group,
                            tri_text *text)
{
    static const char *const traffic[] = {"2", "2", "m + 1", "3m"};
    int zero = row->zero;
    double weights = row->weights, gradients = row->gradients, optimizer = row->optimizer;
    double all = weights + gradients + optimizer;
    tri_text_add(text, "  zero %d  %10.4g %10.4g %10.4g %12.4g %12.4g", zero, weights * 1e-9,
                 gradients * 1e-9, optimizer * 1e-9, all * 1e-9, all / (1024.0 * 1024 * 1024));
    if (one_group)
        tri_text_add(text, "   %s", traffic[zero]);
    if (calc->device && all > calc->device->memory_bytes)
        tri_text_add(text, "   does not fit: %s has %.4g GB", calc->device->name,
                     calc->device->memory_bytes * 1e-9);
    tri_text_add(text, "\n");
}

tr_status tri_calc_report_state(const tri_calc *calc, double num_params, int64_t group,
                                tri_text *text, tr_error *err)
{
    int devices = tri_calc_devices(calc, ~0u);
    int64_t shard;
    char count[16];
    tri_calc_state rows[TRI_CALC_STATES];
    TRI_TRY(tri_calc_states(calc, num_params, group, rows, &shard, err));
    tri_text_add(text, "%s parameters over %d device%s", tri_text_count(num_params, count), devices,
                 devices == 1 ? "" : "s");
    if (shard < devices)
        tri_text_add(text,
                     ": %d sharding groups of %" PRId64 ", %" PRId64 " replication groups of %d",
                     (int)(devices / shard), shard, shard, (int)(devices / shard));
    tri_text_add(text, "\n");
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++) {
        const recipe *recipe = &recipes[r];
        tri_text_add(text, "\n%s: %g + %g + %g bytes a parameter\n", recipe->name, recipe->weights,
                     recipe->gradients, recipe->optimizer);
        tri_text_add(text, "          %10s %10s %10s %12s %12s%s\n", "weights", "gradients",
                     "optimizer", "a device GB", "GiB", shard == devices ? "   traffic" : "");
        for (int zero = 0; zero <= 3; zero++)
            write_state_row(calc, &rows[4 * r + (size_t)zero], shard == devices, text);
    }
    if (shard == devices)
        tri_text_add(text, "\ntraffic: bytes that a device sends in a step of m micro-batches, in "
                           "units of\n(N-1)/N of the weights; zero 3 with layout.keep_gathered "
                           "m + 1, with whole weights\nbeside the pieces while a step lasts\n");
    return TR_OK;
}

/* "989.5 (1979)"; "-" when there is none. */
static void write_rates(const tri_device_spec *device, tri_text *text)
{
    for (int rate = 0; rate < TRI_NUM_RATES; rate++) {
        tri_text entry;
        tri_text_init(&entry);
        if (device->dense[rate] <= 0)
            tri_text_add(&entry, "-");
        else
            tri_text_add(&entry, "%.5g", device->dense[rate] * 1e-12);
        if (device->sparse[rate] > 0)
            tri_text_add(&entry, " (%.5g)", device->sparse[rate] * 1e-12);
        tri_text_add(text, " %13s", entry.chars ? entry.chars : "");
        text->failed |= entry.failed;
        tri_text_fini(&entry);
    }
}

void tri_calc_report_devices(tri_text *text)
{
    tri_text_add(text,
                 "Devices: TFLOP/s of products, dense (sparse); memory; FLOP for each byte "
                 "of memory traffic in 16 bits\n\n  %-10s",
                 "name");
    for (int rate = 0; rate < TRI_NUM_RATES; rate++)
        tri_text_add(text, " %13s", tri_rate_name((tri_rate)rate));
    tri_text_add(text, " %7s %7s %11s  %-10s %s\n", "GB", "GB/s", "FLOP/byte", "link", "source");
    for (size_t i = 0; tri_device_spec_at(i); i++) {
        const tri_device_spec *d = tri_device_spec_at(i);
        char ratio[32], sparse[16] = "";
        if (d->sparse[TRI_RATE_16] > 0)
            snprintf(sparse, sizeof sparse, " (%.0f)",
                     d->sparse[TRI_RATE_16] / d->memory_bytes_per_s);
        snprintf(ratio, sizeof ratio, "%.0f%s", d->dense[TRI_RATE_16] / d->memory_bytes_per_s,
                 sparse);
        tri_text_add(text, "  %-10s", d->name);
        write_rates(d, text);
        tri_text_add(text, " %7.4g %7.4g %11s  %-10s %s\n", d->memory_bytes * 1e-9,
                     d->memory_bytes_per_s * 1e-9, ratio, d->link, d->source);
    }
    tri_text_add(text,
                 "\n16-bit is bf16 (f16 on the P100 and V100); a dash: the device has none, or "
                 "its source gives none\n\nLinks: GB/s of a device, one way\n\n");
    for (size_t i = 0; tri_link_spec_at(i); i++) {
        const tri_link_spec *l = tri_link_spec_at(i);
        tri_text_add(text, "  %-10s %6.4g  %-34s %s%s\n", l->name, l->bytes_per_s * 1e-9, l->title,
                     l->source, l->torus_axes ? "; both ways at once, on each axis" : "");
    }
}
