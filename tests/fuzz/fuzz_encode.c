/* Any bytes as text: encoded by tokenizers of each kind. Those of bytes give the text back, and a
 * text that is cut where the tokenizer says has the ids of the whole. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer.h"

enum { NUM = 6 };
static const char *const names[NUM] = {"tokenizer_trained.json",   "tokenizer_llama3.json",
                                       "tokenizer_llama2.json",    "tokenizer_metaspace.json",
                                       "tokenizer_wordpiece.json", "tokenizer_qwen.json"};
static const bool exact[NUM] = {true, false, false, false, false, false};
static tri_tokenizer *tokenizers[NUM];

static void close_all(void)
{
    for (int i = 0; i < NUM; i++)
        tri_tokenizer_close(tokenizers[i]);
}

static void open_all(void)
{
    if (tokenizers[0])
        return;
    for (int i = 0; i < NUM; i++) {
        tr_error err = {0};
        char *path = fuzz_fixture(names[i]);
        fuzz_require(tri_tokenizer_open(path, &tokenizers[i], &err) == TR_OK, names[i]);
        free(path);
    }
    atexit(close_all);
}

static void check(int which, const char *text, size_t num_bytes, unsigned flags)
{
    const tri_tokenizer *tokenizer = tokenizers[which];
    tri_ids ids = {0}, parts = {0};
    tri_bytes bytes = {0};
    tr_error err = {0};
    if (fuzz_fine(tri_tokenizer_encode(tokenizer, NULL, text, num_bytes, flags, &ids, &err),
                  &err)) {
        fuzz_require(tri_tokenizer_decode(tokenizer, ids.id, ids.num, 0, &bytes, &err) == TR_OK,
                     "what was encoded is decoded");
        fuzz_require(!exact[which] ||
                         (bytes.num == num_bytes &&
                          (num_bytes == 0 || memcmp(bytes.data, text, num_bytes) == 0)),
                     "bytes come back");
        size_t cut = tri_tokenizer_cut(tokenizer, text, num_bytes);
        fuzz_require(cut <= num_bytes, "a cut lies in the text");
        if (cut > 0) {
            fuzz_fine(tri_tokenizer_encode(tokenizer, NULL, text, cut, flags, &parts, &err), &err);
            fuzz_fine(tri_tokenizer_encode(tokenizer, NULL, text + cut, num_bytes - cut,
                                           flags | TRI_ENCODE_CONTINUE, &parts, &err),
                      &err);
            fuzz_require(parts.num == ids.num &&
                             memcmp(parts.id, ids.id, ids.num * sizeof *ids.id) == 0,
                         "a text that was cut has the ids of the whole");
        }
    }
    tri_ids_fini(&ids);
    tri_ids_fini(&parts);
    tri_bytes_fini(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    open_all();
    char *text = (char *)fuzz_bytes(data, num_bytes);
    for (int i = 0; i < NUM; i++)
        check(i, text, num_bytes, num_bytes % 2 ? TRI_ENCODE_PLAIN : 0);
    free(text);
    return 0;
}
