/* manifest.json of a checkpoint, of all ranks or of one. A whole one is written and read again. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/manifest.h"
#include "manifest_seal.h"

static void read_again(const tri_manifest *manifest, bool partial)
{
    tri_manifest again;
    tri_text text;
    tr_error err = {0};
    tri_text_init(&text);
    tri_manifest_print(manifest, &text);
    fuzz_require(!text.failed, "memory");
    fuzz_require(tri_manifest_parse(text.chars, text.length, "again", partial, &again, &err) ==
                     TR_OK,
                 "a manifest that was written is read");
    fuzz_require(again.num_tensors == manifest->num_tensors &&
                     again.num_shards == manifest->num_shards,
                 "and holds the same");
    for (size_t i = 0; i < again.num_tensors; i++)
        fuzz_require(tri_manifest_find(manifest, again.tensors[i].name) != NULL, "by name");
    tri_manifest_fini(&again);
    tri_text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    char *text = (char *)fuzz_bytes(data, num_bytes);
    manifest_seal(text, num_bytes);
    for (int partial = 0; partial < 2; partial++) {
        tri_manifest manifest;
        tr_error err = {0};
        if (!fuzz_fine(
                tri_manifest_parse(text, num_bytes, "manifest.json", partial, &manifest, &err),
                &err))
            continue;
        tri_manifest_number(&manifest, "seed", 0);
        read_again(&manifest, partial);
        tri_manifest_fini(&manifest);
    }
    free(text);
    return 0;
}
