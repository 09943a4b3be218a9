/* safetensors: the header of a file, and that every tensor it promises lies in the file. */
#include "fuzz.h"

#include <stdlib.h>

#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    uint8_t *bytes = fuzz_bytes(data, num_bytes);
    tri_safetensors *file;
    tr_error err = {0};
    if (fuzz_fine(tri_safetensors_parse(bytes, num_bytes, "input", &file, &err), &err)) {
        volatile unsigned sum = 0;
        size_t total = 0;
        for (size_t i = 0; i < tri_safetensors_num(file); i++) {
            const tri_safetensor *t = tri_safetensors_at(file, i);
            const unsigned char *at = t->data;
            for (size_t k = 0; k < t->num_bytes; k++)
                sum = sum + at[k];
            total += t->num_bytes;
            fuzz_require(tri_safetensors_find(file, t->name) == t, "a tensor is found by its name");
        }
        fuzz_require(total <= num_bytes, "tensors do not overlap");
        tri_safetensors_metadata(file, "format");
        tri_safetensors_close(file);
    }
    free(bytes);
    return 0;
}
