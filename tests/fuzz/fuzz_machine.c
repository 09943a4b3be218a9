/* A device as a line, a cluster as a line and as a file. What is read has sizes that costs can be
 * counted with. */
#include "fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mesh/cluster.h"
#include "mesh/devices.h"

static void check_cluster(const char *text, uint32_t devices)
{
    tri_cluster c;
    tr_error err = {0};
    if (!fuzz_fine(tri_cluster_parse(text, devices, &c, &err), &err))
        return;
    fuzz_require(c.num_tiers >= 1 && c.num_tiers <= TRI_CLUSTER_TIERS, "tiers");
    fuzz_require(c.tier[c.num_tiers - 1].devices >= devices, "room for all devices");
    fuzz_require(memchr(c.name, 0, sizeof c.name) != NULL, "a name that ends");
    for (uint32_t t = 0; t < c.num_tiers; t++) {
        fuzz_require(c.tier[t].bytes_per_s > 0 && isfinite(c.tier[t].bytes_per_s), "a bandwidth");
        fuzz_require(t == 0 || c.tier[t].devices > c.tier[t - 1].devices, "wider and wider");
    }
    const tri_rank_group all = {
        .size = devices, .num_levels = 1, .level = {{.size = devices, .stride = 1}}};
    fuzz_require(tri_cluster_span(&c, &all).tier < c.num_tiers, "a tier of the group");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    tr_error err = {0};
    tri_device_spec device;
    char *line = fuzz_line(&data, &num_bytes);
    if (fuzz_fine(tri_device_spec_parse(line, &device, &err), &err)) {
        fuzz_require(device.dense[TRI_RATE_16] > 0 && device.memory_bytes_per_s > 0, "rates");
        fuzz_require(device.multiprocessors >= 1 && tri_link_spec_find(device.link), "a link");
    }
    free(line);
    line = fuzz_line(&data, &num_bytes);
    /* Paths of the machine are not to be read. */
    if (!strpbrk(line, "/.") || strcspn(line, ",:=") < strcspn(line, "/."))
        check_cluster(line, 24);
    free(line);
    check_cluster(fuzz_file(data, num_bytes), 24);
    return 0;
}
