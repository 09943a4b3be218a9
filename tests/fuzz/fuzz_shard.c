/* A token shard, ours or llm.c's. */
#include "fuzz.h"

#include <stdlib.h>

#include "data/prepare/shard.h"

/* The checksum of the header fits, so that inputs get past it. */
static void seal(uint8_t *bytes, size_t num_bytes)
{
    if (num_bytes < TRI_SHARD_HEADER_BYTES)
        return;
    uint64_t sum = htole64(tri_checksum_bytes(bytes, TRI_SHARD_HEADER_BYTES - 8));
    memcpy(bytes + TRI_SHARD_HEADER_BYTES - 8, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    uint8_t *bytes = fuzz_bytes(data, num_bytes);
    seal(bytes, num_bytes);
    tri_shard shard = {0};
    tr_error err = {0};
    if (fuzz_fine(tri_shard_parse("input.tok", bytes, num_bytes, &shard, &err), &err)) {
        volatile uint32_t sum = 0;
        for (uint64_t i = 0; i < shard.num_tokens; i++)
            sum = sum + tri_shard_token(&shard, i);
        fuzz_fine(tri_shard_verify(&shard, &err), &err);
    }
    tri_shard_close(&shard);
    free(bytes);
    return 0;
}
