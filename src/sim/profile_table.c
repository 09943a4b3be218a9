/* Constants of devices. Those of a device that nobody fitted are its nearest kin's. */
#include "sim/device_profile.h"

#include <string.h>

typedef struct profile_row {
    const char *devices; /* separated by commas */
    tri_device_profile constants;
} profile_row;

/* A recorded step has no host between its kernels; so much passes all the same. */
#define GAP .gap_s = 1.5e-6

static const profile_row rows[] = {
    {"a100,a100-40",
     {.kind = TRI_PROFILE_FITTED,
      .from = "917 published runs on A100, eight softwares; tests/reference/fit_published.py",
      .product = 0.838,
      .product8 = 0.5735,
      .k_start = 112.3,
      .small_tile = 0.3412,
      .whole_waves = 0.4291,
      .memory = 0.8069,
      .flash = 0.6,
      .flash_back = 0.45,
      .portable = 0.5404,
      .portable_back = 0.2799,
      .flash_narrow = 1.01,
      .flash_start = 309.5,
      .link = 0.8363,
      GAP}},
    {"h100",
     {.kind = TRI_PROFILE_FITTED,
      .from = "49 published runs on H100, two softwares; tests/reference/fit_published.py",
      .product = 0.6689,
      .product8 = 0.5735,
      .k_start = 108.4,
      .small_tile = 0.3412,
      .whole_waves = 0.4291,
      .memory = 0.8069,
      .flash = 0.5,
      .flash_back = 0.38,
      .portable = 0.3308,
      .portable_back = 0.1565,
      .flash_narrow = 0.85,
      .flash_start = 309.5,
      .link = 0.8363,
      GAP}},
    /* In a step the card's power limits it: alone, a product of 8192 makes 773 TFLOP/s, in 8 bits
     * 1,506, and a copy 4.3 TB/s. */
    {"h200",
     {.kind = TRI_PROFILE_FITTED,
      .from = "eight steps of ours on one H200: GPT-2 and Llama, 16 and 8 bits",
      .product = 0.715,
      .product8 = 0.625,
      .k_start = 112,
      .small_tile = 0.3336,
      .whole_waves = 0.4102,
      .memory = 0.89,
      .flash = 0.49,
      .flash_back = 0.37,
      .portable = 0.3377,
      .portable_back = 0.1576,
      .flash_narrow = 0.85,
      .flash_start = 293,
      .link = 0.8887,
      GAP}},
};

/* Of all others: A100's where the clock is not throttled by power, H100's from Hopper on. */
static const char hopper[] = "h100-pcie,h100-nvl,h800,b200,b300,gb200,gb300";

/* Whether the list has the name. */
static bool lists(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; *at;) {
        size_t word = strcspn(at, ",");
        if (word == length && memcmp(at, name, word) == 0)
            return true;
        at += word + (at[word] == ',');
    }
    return false;
}

tri_device_profile tri_profile_of(const tri_device_spec *device)
{
    tri_device_profile profile = rows[lists(hopper, device->name) ? 1 : 0].constants;
    profile.kind = TRI_PROFILE_DATASHEET;
    profile.from = lists(hopper, device->name) ? "its datasheet, with the constants of the H100"
                                               : "its datasheet, with the constants of the A100";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (lists(rows[i].devices, device->name))
            profile = rows[i].constants;
    profile.device = *device;
    return profile;
}
