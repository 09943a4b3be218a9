/* tuning.json, as both who keep something in it read it. */
#include "fuzz.h"

#include <string.h>

#include "comm/tuning/tuning.h"
#include "device/product_choices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    const char *path = fuzz_file(data, num_bytes);
    tri_tuning tuning = {.transport = "tcp", .num_ranks = 4, .num_machines = 1};
    tri_product_choices choices = {.gpu = "some GPU", .library = 120000};
    tr_error err = {0};
    bool found;
    if (fuzz_fine(tri_tuning_load(path, &tuning, &found, &err), &err) && found) {
        const tri_coll_shape shape = tri_shape_flat(4);
        for (size_t i = 0; tri_algorithm_at(i); i++)
            if (tri_algorithm_at(i)->cost && !tri_algorithm_at(i)->fits)
                tri_tuning_time(&tuning, tri_algorithm_at(i), TRI_COLL_ALL_REDUCE, &shape, 1e6);
    }
    if (fuzz_fine(tri_product_choices_read(&choices, path, &err), &err)) {
        tri_product_key key = {.m = 64, .n = 64, .k = 64};
        tri_product_choices_find(&choices, &key);
    }
    tri_product_choices_fini(&choices);
    return 0;
}
