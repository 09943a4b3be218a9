/* The files of a tokenizer: tokenizer.json alone, or a directory of the older kinds. One that opens
 * encodes a text with something of everything, and decodes what came out. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer.h"

static void use(const tri_tokenizer *tokenizer)
{
    static const char text[] = "It's  a [MASK] t\xC3\xA9st\n\xFF <mask> 123 \xE8\xAA\x9E newword "
                               "\xE0\xA4\xB9\xE0\xA4\xBF</s>";
    tri_ids ids = {0};
    tri_bytes bytes = {0};
    tri_post_item items[TRI_MAX_POST_ITEMS];
    tr_error err = {0};
    char description[160];
    if (fuzz_fine(tri_tokenizer_encode(tokenizer, NULL, text, sizeof text - 1, TRI_ENCODE_SPECIAL,
                                       &ids, &err),
                  &err)) {
        for (size_t i = 0; i < ids.num; i++)
            fuzz_require(ids.id[i] >= 0 && ids.id[i] < tri_tokenizer_vocab(tokenizer),
                         "ids are of the vocabulary");
        fuzz_fine(tri_tokenizer_decode(tokenizer, ids.id, ids.num, 0, &bytes, &err), &err);
    }
    fuzz_require(tri_tokenizer_cut(tokenizer, text, sizeof text - 1) <= sizeof text - 1,
                 "a cut lies in the text");
    fuzz_require(tri_tokenizer_post(tokenizer, true, items) <= TRI_MAX_POST_ITEMS, "items fit");
    for (int k = 0; k < TRI_NUM_SPECIAL; k++)
        fuzz_require(tri_tokenizer_special(tokenizer, (tri_special)k) <
                         tri_tokenizer_vocab(tokenizer),
                     "special tokens are of the vocabulary");
    tri_tokenizer_describe(tokenizer, description, sizeof description);
    uint64_t fingerprint;
    (void)tri_tokenizer_fingerprint(tokenizer, &fingerprint, NULL);
    tri_ids_fini(&ids);
    tri_bytes_fini(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    const char *path;
    tri_tokenizer *tokenizer;
    tr_error err = {0};
    if (num_bytes > 0 && data[0] == '#') {
        fuzz_dir_fill(data, num_bytes);
        path = fuzz_dir();
    } else {
        path = fuzz_file(data, num_bytes);
    }
    if (fuzz_fine(tri_tokenizer_open(path, &tokenizer, &err), &err)) {
        use(tokenizer);
        tri_tokenizer_close(tokenizer);
    }
    return 0;
}
