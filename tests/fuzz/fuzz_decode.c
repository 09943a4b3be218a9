/* Any ids: decoded at once and as a stream with stop strings, whose pieces are the text as far as a
 * stop string. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "serve/stream.h"

static tri_vocabulary vocabularies[2];

static void close_all(void)
{
    for (int i = 0; i < 2; i++)
        tri_vocabulary_close(&vocabularies[i]);
}

static void open_all(void)
{
    static const char *const names[2] = {"tokenizer_llama2.json", "tokenizer_trained.json"};
    if (vocabularies[0].tokenizer)
        return;
    for (int i = 0; i < 2; i++) {
        tr_error err = {0};
        char *path = fuzz_fixture(names[i]);
        fuzz_require(tri_tokenizer_open(path, &vocabularies[i].tokenizer, &err) == TR_OK, path);
        vocabularies[i].num_tokens = tri_tokenizer_vocab(vocabularies[i].tokenizer);
        free(path);
    }
    atexit(close_all);
}

static void add_piece(void *context, const char *bytes, size_t num_bytes)
{
    tri_bytes_add(context, bytes, num_bytes);
}

static void stream(const tri_vocabulary *vocabulary, const tri_ids *ids)
{
    static const char *const stops[] = {"the", "\n\n", "a b"};
    tri_bytes pieces = {0};
    tri_text_stream s = {
        .vocabulary = vocabulary, .stops = {stops, 3}, .context = &pieces, .piece = add_piece};
    tr_error err = {0};
    bool more = true;
    size_t at = ids->num < 3 ? 0 : 2;
    tri_text_stream_begin(&s, ids->id, at);
    for (; more && at < ids->num; at++)
        if (!fuzz_fine(tri_text_stream_add(&s, ids->id[at], &more, &err), &err))
            break;
    tri_text_stream_finish(&s);
    fuzz_require(pieces.num == s.text.num &&
                     (pieces.num == 0 || memcmp(pieces.data, s.text.data, pieces.num) == 0),
                 "the pieces are the text");
    fuzz_require(pieces.num == 0 || !memmem(pieces.data, pieces.num, "the", 3),
                 "and hold no stop string");
    tri_bytes_fini(&pieces);
    tri_text_stream_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    open_all();
    const tri_vocabulary *vocabulary = &vocabularies[num_bytes % 2];
    tri_ids ids = {0};
    tri_bytes bytes = {0};
    tr_error err = {0};
    int32_t vocab = tri_tokenizer_vocab(vocabulary->tokenizer);
    for (size_t i = 0; i + 1 < num_bytes; i += 2) {
        int32_t id = (int32_t)(data[i] | data[i + 1] << 8);
        id = id < 0xff00 ? id % vocab : 0xff00 - id; /* most are of the vocabulary, some are not */
        tri_ids_add(&ids, &id, 1);
    }
    fuzz_fine(tri_tokenizer_decode(vocabulary->tokenizer, ids.id, ids.num, TRI_DECODE_SKIP_SPECIAL,
                                   &bytes, &err),
              &err);
    stream(vocabulary, &ids);
    tri_ids_fini(&ids);
    tri_bytes_fini(&bytes);
    return 0;
}
