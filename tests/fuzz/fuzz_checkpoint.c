/* The directory of a checkpoint: opened, verified, and every tensor read whole. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/checkpoint.h"
#include "manifest_seal.h"

enum { MOST_ELEMENTS = 1 << 16 };

static void read_tensor(tri_checkpoint *ckpt, const tri_ckpt_tensor *tensor)
{
    tri_region whole = tri_region_whole(tensor->num_dims, tensor->dim);
    tr_error err = {0};
    if (whole.count > MOST_ELEMENTS)
        return;
    float *to = calloc((size_t)whole.count + 1, sizeof *to);
    fuzz_require(to != NULL, "memory");
    fuzz_fine(tri_checkpoint_read(ckpt, tensor->name, &whole, to, &err), &err);
    free(to);
}

static void fill(const uint8_t *data, size_t num_bytes)
{
    static const char mark[] = "\n#file ";
    char *copy = (char *)fuzz_bytes(data, num_bytes), *end = copy + num_bytes;
    char *manifest = memmem(copy, num_bytes, TRI_MANIFEST_OPENING, sizeof TRI_MANIFEST_OPENING - 1);
    if (manifest) {
        char *next = memmem(manifest, (size_t)(end - manifest), mark, sizeof mark - 1);
        manifest_seal(manifest, (size_t)((next ? next : end) - manifest));
    }
    fuzz_dir_fill((uint8_t *)copy, num_bytes);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    fill(data, num_bytes);
    tri_checkpoint ckpt;
    tr_error err = {0};
    if (!fuzz_fine(tri_checkpoint_open(&ckpt, fuzz_dir(), &err), &err))
        return 0;
    for (int part = 0; part < 2; part++)
        fuzz_fine(tri_checkpoint_verify(&ckpt, TRI_VERIFY_ALL, part, 2, NULL, &err), &err);
    for (size_t i = 0; i < ckpt.manifest.num_tensors; i++)
        read_tensor(&ckpt, &ckpt.manifest.tensors[i]);
    tri_checkpoint_close(&ckpt);
    return 0;
}
