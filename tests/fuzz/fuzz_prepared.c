/* A directory of prepared tokens: tokens.json and its shards. */
#include "fuzz.h"

#include "data/prepare/prepared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    fuzz_dir_fill(data, num_bytes);
    tri_prepared prepared;
    tr_error err = {0};
    tri_prepared_made_from(fuzz_dir());
    if (tri_prepared_is(fuzz_dir()) &&
        fuzz_fine(tri_prepared_open(fuzz_dir(), &prepared, &err), &err))
        tri_prepared_close(&prepared);
    return 0;
}
