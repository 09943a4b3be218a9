#include "data/tokenizer/bpe_words.h"

#include "base/arena.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 18 };

/* ---- the table ---- */

static bool enlarge(tri_words *w)
{
    size_t num_slots = w->num_slots ? 2 * w->num_slots : 1024;
    uint32_t *slot = calloc(num_slots, sizeof *slot);
    if (!slot)
        return false;
    for (size_t i = 0; i < w->num; i++) {
        size_t at = w->word[i].hash & (num_slots - 1);
        while (slot[at])
            at = (at + 1) & (num_slots - 1);
        slot[at] = (uint32_t)i + 1;
    }
    free(w->slot);
    w->slot = slot;
    w->num_slots = num_slots;
    return true;
}

static int64_t look(const tri_words *w, const char *text, size_t num_bytes, uint32_t hash,
                    size_t *free_slot)
{
    size_t mask = w->num_slots - 1, at = hash & mask;
    for (; w->slot[at]; at = (at + 1) & mask) {
        const tri_word *word = &w->word[w->slot[at] - 1];
        if (word->hash == hash && word->num_bytes == num_bytes &&
            memcmp(w->blob.data + word->start, text, num_bytes) == 0)
            return (int64_t)w->slot[at] - 1;
    }
    *free_slot = at;
    return -1;
}

int64_t tri_words_find(const tri_words *w, const char *text, size_t num_bytes)
{
    size_t at;
    if (w->num_slots == 0 || num_bytes == 0)
        return -1;
    return look(w, text, num_bytes, (uint32_t)tri_hash_bytes(text, num_bytes), &at);
}

int64_t tri_words_add(tri_words *w, const char *text, size_t num_bytes, int64_t count)
{
    uint32_t hash = (uint32_t)tri_hash_bytes(text, num_bytes);
    size_t at = 0;
    if (2 * w->num >= w->num_slots && !enlarge(w)) {
        w->failed = true;
        return -1;
    }
    int64_t found = look(w, text, num_bytes, hash, &at);
    if (found >= 0) {
        w->word[found].count += count;
        return found;
    }
    tri_word *grown = tri_array_grow(w->word, w->num, &w->capacity, sizeof *grown);
    if (grown)
        w->word = grown;
    if (!grown || num_bytes >= UINT32_MAX || w->num >= UINT32_MAX - 1) {
        w->failed = true;
        return -1;
    }
    w->word[w->num] = (tri_word){w->blob.num, (uint32_t)num_bytes, hash, count};
    tri_bytes_add(&w->blob, text, num_bytes);
    w->slot[at] = (uint32_t)++w->num;
    w->failed = w->failed || w->blob.failed;
    return (int64_t)w->num - 1;
}

void tri_words_fini(tri_words *w)
{
    tri_bytes_fini(&w->blob);
    free(w->word);
    free(w->slot);
    *w = (tri_words){0};
}

/* ---- counting ---- */

typedef struct counter {
    tri_words words;
    tri_bytes normal[2];
    tri_bytes cut[TRI_MAX_CUTS];
    tri_matcher matcher;
} counter;

typedef struct count_job {
    const tri_tokenizer *tokenizer;
    const char *text;
    size_t num_bytes;
    const tri_train_config *config;
    size_t *border;   /* of chunk i: border[i] .. border[i + 1] */
    counter *counter; /* one for each worker */
} count_job;

/* Which document a byte is in. */
static size_t document_at(const tri_train_config *config, size_t at)
{
    size_t low = 0, high = config->num_ends;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (config->ends[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t document_end(const count_job *j, size_t document)
{
    return document < j->config->num_ends ? j->config->ends[document] : j->num_bytes;
}

static void count_word(void *context, const char *word, size_t num_bytes)
{
    tri_words_add(context, word, num_bytes, 1);
}

static void count_part(const count_job *j, counter *c, const char *text, size_t num_bytes)
{
    const tri_tokenizer *t = j->tokenizer;
    tri_matcher_begin(&c->matcher, num_bytes);
    tri_normalize(&t->normalizer, t->unicode, &text, &num_bytes, true, true, c->normal,
                  &c->matcher);
    tri_pretokenize run = {&t->pretokenizer, t->unicode, &c->matcher, c->cut,
                           count_word,       &c->words,  true};
    tri_pretokenize_run(&run, text, num_bytes);
    c->words.failed = c->words.failed || c->normal[0].failed || c->normal[1].failed;
}

static void count_chunk(void *context, int task, int worker)
{
    const count_job *j = context;
    counter *c = &j->counter[worker];
    size_t at = j->border[task], end = j->border[task + 1];
    for (size_t document = document_at(j->config, at); at < end; document++) {
        size_t stop = document_end(j, document) < end ? document_end(j, document) : end;
        while (at < stop) {
            const char *p = j->text + at;
            const char *line = j->config->whole_text ? NULL : memchr(p, '\n', stop - at);
            size_t num = line ? (size_t)(line + 1 - p) : stop - at;
            count_part(j, c, p, num);
            at += num;
        }
    }
}

/* The end of the chunk that begins at `at`: behind documents, or where a word of a long one ends in
 * any case; where each line stands alone, behind a line. */
static size_t chunk_end(const count_job *j, size_t at)
{
    size_t to = at + CHUNK_BYTES;
    if (j->num_bytes - at <= CHUNK_BYTES)
        return j->num_bytes;
    if (!j->config->whole_text) {
        const char *line = memchr(j->text + to, '\n', j->num_bytes - to);
        return line ? (size_t)(line + 1 - j->text) : j->num_bytes;
    }
    size_t document = document_at(j->config, to);
    if (document > 0 && j->config->ends[document - 1] > at)
        return j->config->ends[document - 1];
    size_t cut = tri_tokenizer_cut(j->tokenizer, j->text + at, to - at);
    return cut ? at + cut : document_end(j, document);
}

static int64_t find_borders(count_job *j)
{
    size_t most = j->num_bytes / CHUNK_BYTES + 2, num = 0, at = 0;
    j->border = malloc((most + 1) * sizeof *j->border);
    if (!j->border)
        return -1;
    while (at < j->num_bytes) {
        j->border[num++] = at;
        /* When borders came close together, the rest is one chunk. */
        at = num == most ? j->num_bytes : chunk_end(j, at);
    }
    j->border[num] = j->num_bytes;
    return (int64_t)num;
}

typedef struct sort_item {
    const char *text;
    uint32_t num_bytes;
    int64_t count;
} sort_item;

static int by_bytes(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    size_t least = x->num_bytes < y->num_bytes ? x->num_bytes : y->num_bytes;
    int order = memcmp(x->text, y->text, least);
    return order ? order : (x->num_bytes > y->num_bytes) - (x->num_bytes < y->num_bytes);
}

static void put_together(counter *counters, int num_counters, tri_words *words)
{
    tri_words all = {0};
    for (int k = 0; k < num_counters; k++) {
        const tri_words *part = &counters[k].words;
        all.failed = all.failed || part->failed;
        for (size_t i = 0; i < part->num; i++)
            tri_words_add(&all, part->blob.data + part->word[i].start, part->word[i].num_bytes,
                          part->word[i].count);
    }
    sort_item *item = malloc((all.num + 1) * sizeof *item);
    for (size_t i = 0; item && i < all.num; i++)
        item[i] = (sort_item){all.blob.data + all.word[i].start, all.word[i].num_bytes,
                              all.word[i].count};
    if (item)
        qsort(item, all.num, sizeof *item, by_bytes);
    for (size_t i = 0; item && i < all.num; i++)
        tri_words_add(words, item[i].text, item[i].num_bytes, item[i].count);
    words->failed = words->failed || all.failed || !item;
    free(item);
    tri_words_fini(&all);
}

tr_status tri_words_count(const tri_tokenizer *t, const tri_train_config *config, tri_pool *pool,
                          const char *text, size_t num_bytes, tri_words *words, tr_error *err)
{
    int num_workers = pool ? tri_pool_threads(pool) : 1;
    count_job j = {t,      text, num_bytes,
                   config, NULL, calloc((size_t)num_workers, sizeof *j.counter)};
    int64_t num_chunks = j.counter ? find_borders(&j) : -1;
    if (num_chunks >= 0 && num_chunks <= INT32_MAX) {
        tri_pool_run(pool, (int)num_chunks, count_chunk, &j);
        put_together(j.counter, num_workers, words);
    }
    for (int k = 0; j.counter && k < num_workers; k++) {
        tri_words_fini(&j.counter[k].words);
        tri_matcher_fini(&j.counter[k].matcher);
        for (int i = 0; i < 2; i++)
            tri_bytes_fini(&j.counter[k].normal[i]);
        for (int i = 0; i < TRI_MAX_CUTS; i++)
            tri_bytes_fini(&j.counter[k].cut[i]);
    }
    free(j.counter);
    free(j.border);
    if (num_chunks < 0 || words->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while counting words");
    return TR_OK;
}
