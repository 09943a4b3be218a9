/* Tokenizers that are made from the text that they are for. */
#include "base/arena.h"
#include "data/prepare/prepare.h"
#include "data/prepare/texts.h"

#include <stdlib.h>
#include <string.h>

static const char CHARS[] = "chars", BPE[] = "bpe:";

/* Of a text this much is enough to count pairs in. */
#define MAX_TRAIN_BYTES ((size_t)1 << 30)

tr_status tri_prepare_is_made(const char *name, bool *made, int64_t *vocab, tr_error *err)
{
    enum { LEAST = 257, MOST = 1 << 24 };
    char *end;
    if (vocab)
        *vocab = 0;
    *made = strcmp(name, CHARS) == 0;
    if (*made || strncmp(name, BPE, strlen(BPE)) != 0)
        return TR_OK;
    long long wanted = strtoll(name + strlen(BPE), &end, 10);
    if (*end || wanted < LEAST || wanted > MOST)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the tokenizer \"%.60s\" must say how many tokens to make, from %d to %d: "
                        "bpe:4096",
                        name, LEAST, MOST);
    *made = true;
    if (vocab)
        *vocab = wanted;
    return TR_OK;
}

/* What becomes of the text: characters seen, or all of it. */
typedef struct gathered {
    bool *seen;
    tri_text_sample *sample;
} gathered;

static tr_status add_chars(gathered *g, const char *path, const char *p, size_t num, tr_error *err)
{
    for (const char *end = p + num; p < end;) {
        uint32_t c = tri_utf8_next(&p, end);
        if (c >= TRI_BROKEN)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: holds bytes that are no UTF-8, so it has no characters; use the "
                            "tokenizer bytes or bpe:4096",
                            path);
        g->seen[c] = true;
    }
    return TR_OK;
}

static tr_status add_text(tri_text_sample *sample, const char *path, const char *p, size_t num,
                          bool ends, tr_error *err)
{
    size_t room = MAX_TRAIN_BYTES - sample->text.num;
    sample->cut = num > room;
    tri_bytes_add(&sample->text, p, num < room ? num : room);
    bool failed = sample->text.failed;
    if (ends || sample->cut) {
        size_t *grown = tri_array_grow(sample->end, sample->num, &sample->capacity, sizeof *grown);
        failed = failed || !grown;
        if (grown) {
            sample->end = grown;
            grown[sample->num++] = sample->text.num;
        }
    }
    return failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path) : TR_OK;
}

static tr_status gather(gathered *g, const tri_unit *unit, const char *field, tr_error *err)
{
    tr_status status = TR_OK;
    for (size_t i = 0; status == TR_OK && i < unit->num && !(g->sample && g->sample->cut); i++) {
        const char *text;
        size_t num;
        json_t *object;
        status = tri_unit_text(unit, &unit->piece[i], field, &text, &num, &object, err);
        if (status == TR_OK)
            status = g->seen ? add_chars(g, unit->path, text, num, err)
                             : add_text(g->sample, unit->path, text, num, unit->piece[i].ends, err);
        json_decref(object);
    }
    return status;
}

static tr_status gather_all(gathered *g, const char *const *inputs, int num_inputs,
                            const char *field, tr_error *err)
{
    tri_texts *texts;
    tri_unit unit = {0};
    TRI_TRY(tri_texts_open(inputs, num_inputs, NULL, &texts, err));
    tr_status status;
    do {
        status = tri_texts_next(texts, &unit, err);
        if (status == TR_OK)
            status = gather(g, &unit, field ? field : "text", err);
    } while (status == TR_OK && unit.num > 0 && !(g->sample && g->sample->cut));
    tri_unit_fini(&unit);
    tri_texts_close(texts);
    return status;
}

tr_status tri_text_sample_read(const char *const *inputs, int num_inputs, const char *field,
                               tri_text_sample *sample, tr_error *err)
{
    *sample = (tri_text_sample){0};
    return gather_all(&(gathered){.sample = sample}, inputs, num_inputs, field, err);
}

void tri_text_sample_fini(tri_text_sample *sample)
{
    tri_bytes_fini(&sample->text);
    free(sample->end);
    *sample = (tri_text_sample){0};
}

static tr_status train(const char *const *inputs, int num_inputs, const char *field, int64_t vocab,
                       tri_pool *pool, tri_tokenizer **tokenizer, tr_error *err)
{
    tri_text_sample sample;
    tr_status status = tri_text_sample_read(inputs, num_inputs, field, &sample, err);
    tri_train_config config = {.style = "gpt2",
                               .vocab = (int32_t)vocab,
                               .min_frequency = 2,
                               .ends = sample.end,
                               .num_ends = sample.num};
    if (status == TR_OK)
        status = tri_tokenizer_train(&config, pool, sample.text.num ? sample.text.data : "",
                                     sample.text.num, tokenizer, err);
    tri_text_sample_fini(&sample);
    return status;
}

tr_status tri_prepare_tokenizer(const char *name, const char *const *inputs, int num_inputs,
                                const char *field, tri_pool *pool, tri_tokenizer **tokenizer,
                                tr_error *err)
{
    bool made;
    int64_t vocab;
    *tokenizer = NULL;
    TRI_TRY(tri_prepare_is_made(name, &made, &vocab, err));
    if (!made)
        return tri_tokenizer_open(name, tokenizer, err);
    if (vocab > 0)
        return train(inputs, num_inputs, field, vocab, pool, tokenizer, err);
    bool *seen = calloc(TRI_NUM_CODE_POINTS, sizeof *seen);
    if (!seen)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a table of characters");
    tr_status status = gather_all(&(gathered){.seen = seen}, inputs, num_inputs, field, err);
    if (status == TR_OK)
        status = tri_tokenizer_of_chars(seen, tokenizer, err);
    free(seen);
    return status;
}
