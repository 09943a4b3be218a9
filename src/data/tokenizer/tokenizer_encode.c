/* Text to ids: the text is cut at added tokens, long stretches between them into chunks at places
 * that end a word in any case, and each chunk goes through normalizer, pre-tokenizer and model on
 * a worker of its own. Where chunks begin depends on the text alone. */
#include "data/tokenizer/bpe_cache.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 18 };

/* What one thread needs while it encodes; idle ones wait in the tokenizer with a warm cache. */
struct tri_scratch {
    tri_scratch *next;
    tri_bpe_scratch bpe;
    tri_cache cache;
    tri_matcher matcher;
    tri_bytes normal[2];
    tri_bytes cut[TRI_MAX_CUTS];
    tri_text_segments segments;
    const tri_tokenizer *tokenizer;
    tri_ids *out;
};

static tri_scratch *take_scratch(const tri_tokenizer *t)
{
    tri_tokenizer *owner = (tri_tokenizer *)(uintptr_t)t; /* the list is its only moving part */
    pthread_mutex_lock(&owner->lock);
    tri_scratch *s = owner->idle;
    if (s)
        owner->idle = s->next;
    pthread_mutex_unlock(&owner->lock);
    if (!s)
        s = calloc(1, sizeof *s);
    if (s)
        s->tokenizer = t;
    return s;
}

static void give_scratch(const tri_tokenizer *t, tri_scratch *s)
{
    tri_tokenizer *owner = (tri_tokenizer *)(uintptr_t)t;
    s->bpe.failed = s->segments.failed = false;
    s->bpe.unknown = 0;
    for (int i = 0; i < 2; i++)
        s->normal[i].failed = false;
    for (int i = 0; i < TRI_MAX_CUTS; i++)
        s->cut[i].failed = false;
    pthread_mutex_lock(&owner->lock);
    s->next = owner->idle;
    owner->idle = s;
    pthread_mutex_unlock(&owner->lock);
}

void tri_scratch_destroy_all(tri_scratch *s)
{
    while (s) {
        tri_scratch *next = s->next;
        tri_bpe_scratch_fini(&s->bpe);
        tri_cache_fini(&s->cache);
        tri_matcher_fini(&s->matcher);
        for (int i = 0; i < 2; i++)
            tri_bytes_fini(&s->normal[i]);
        for (int i = 0; i < TRI_MAX_CUTS; i++)
            tri_bytes_fini(&s->cut[i]);
        free(s->segments.item);
        free(s);
        s = next;
    }
}

/* ---- words ---- */

static bool reserve_ids(tri_ids *ids, size_t more)
{
    if (ids->capacity - ids->num >= more)
        return true;
    size_t capacity = ids->capacity + ids->capacity / 2 + more + 256;
    int32_t *grown = realloc(ids->id, capacity * sizeof *grown);
    if (!grown) {
        ids->failed = true;
        return false;
    }
    ids->id = grown;
    ids->capacity = capacity;
    return true;
}

void tri_ids_add(tri_ids *ids, const int32_t *id, size_t num)
{
    if (num == 0 || !reserve_ids(ids, num))
        return;
    memcpy(ids->id + ids->num, id, num * sizeof *id);
    ids->num += num;
}

void tri_ids_fini(tri_ids *ids)
{
    free(ids->id);
    *ids = (tri_ids){0};
}

static void encode_new_word(tri_scratch *s, const char *word, size_t num_bytes)
{
    const tri_tokenizer *t = s->tokenizer;
    size_t num = t->model == TRI_MODEL_WORDPIECE
                     ? tri_wordpiece_encode(&t->wordpiece, &s->bpe, word, num_bytes)
                     : tri_bpe_encode(&t->bpe, &s->bpe, word, num_bytes);
    if (s->bpe.failed || s->bpe.unknown || !reserve_ids(s->out, num))
        return; /* a word with a character left out must not be remembered */
    for (size_t i = 0; i < num; i++)
        s->out->id[s->out->num++] = s->bpe.symbol[i].id;
    tri_cache_put(&s->cache, word, num_bytes, s->bpe.symbol, num);
}

static inline void encode_word(tri_scratch *s, const char *word, size_t num_bytes)
{
    size_t num;
    const int32_t *ids =
        num_bytes <= TRI_CACHE_MAX_BYTES ? tri_cache_get(&s->cache, word, num_bytes, &num) : NULL;
    if (!ids) {
        encode_new_word(s, word, num_bytes);
        return;
    }
    if (!reserve_ids(s->out, num + 4))
        return;
    int32_t *out = s->out->id + s->out->num;
    if (num <= 3)
        memcpy(out, ids, 3 * sizeof *ids); /* always three: no branch, and there is room */
    else
        memcpy(out, ids, num * sizeof *ids);
    s->out->num += num;
}

/* A long stretch without borders, cut before each U+2581 that follows something else. */
static void encode_at_metaspace(tri_scratch *s, const char *word, size_t num_bytes)
{
    const char *end = word + num_bytes, *from = word;
    while (word < end) {
        const char *found =
            from < end ? tri_find(from, (size_t)(end - from), "\xE2\x96\x81", 3) : NULL;
        if (!found) {
            encode_word(s, word, (size_t)(end - word));
            return;
        }
        bool after_another = found - word >= 3 && memcmp(found - 3, "\xE2\x96\x81", 3) == 0;
        if (found > word && !after_another) {
            encode_word(s, word, (size_t)(found - word));
            word = found;
        }
        from = found + 3;
    }
}

static void take_word(void *context, const char *word, size_t num_bytes)
{
    tri_scratch *s = context;
    if (num_bytes > 24 && s->tokenizer->bpe.cut_at_metaspace)
        encode_at_metaspace(s, word, num_bytes);
    else
        encode_word(s, word, num_bytes);
}

/* ---- chunks ---- */

typedef struct chunk {
    const char *text;
    size_t num_bytes;
    int32_t id;         /* an added token, when >= 0 */
    bool text_start;    /* of the user's text */
    bool segment_start; /* of what stands between two added tokens */
    tri_ids ids;
    uint32_t unknown;            /* a character that the vocabulary does not have; 0 for none */
    const tri_pattern *too_hard; /* a pattern that was given up; NULL for none */
} chunk;

typedef struct encode_job {
    const tri_tokenizer *tokenizer;
    chunk *item;
    size_t num, capacity;
    bool plain;
    bool failed;
} encode_job;

/* Through normalizer, pre-tokenizer and model; appends to out. */
static void encode_chunk(tri_scratch *s, const chunk *c, bool plain, tri_ids *out)
{
    const tri_tokenizer *t = s->tokenizer;
    const char *text = c->text;
    size_t num_bytes = c->num_bytes;
    tri_matcher_begin(&s->matcher, num_bytes);
    size_t first = tri_normalize(&t->normalizer, t->unicode, &text, &num_bytes, c->segment_start,
                                 c->text_start, s->normal, &s->matcher);
    s->out = out;
    s->segments.num = 0;
    tri_added_split(&t->added, &t->added.normalized, t->unicode, text, num_bytes, plain, first,
                    &s->segments);
    for (size_t i = 0; i < s->segments.num; i++) {
        const tri_text_segment *part = &s->segments.item[i];
        if (part->id >= 0) {
            tri_ids_add(out, &part->id, 1);
            continue;
        }
        tri_pretokenize run = {&t->pretokenizer, t->unicode, &s->matcher, s->cut,
                               take_word,        s,          part->first};
        tri_pretokenize_run(&run, part->text, part->num_bytes);
    }
    bool failed = s->bpe.failed || s->segments.failed || s->matcher.failed;
    for (int i = 0; i < 2; i++)
        failed = failed || s->normal[i].failed;
    for (int i = 0; i < TRI_MAX_CUTS; i++)
        failed = failed || s->cut[i].failed;
    out->failed = out->failed || failed;
}

static void run_chunk(void *context, int task, int worker)
{
    (void)worker;
    encode_job *j = context;
    chunk *c = &j->item[task];
    if (c->id >= 0) {
        tri_ids_add(&c->ids, &c->id, 1);
        return;
    }
    tri_scratch *s = take_scratch(j->tokenizer);
    if (!s) {
        c->ids.failed = true;
        return;
    }
    encode_chunk(s, c, j->plain, &c->ids);
    c->unknown = s->bpe.unknown;
    c->too_hard = s->matcher.gave_up;
    give_scratch(j->tokenizer, s);
}

static void add_chunk(encode_job *j, chunk c)
{
    if (j->num == j->capacity) {
        size_t capacity = j->capacity ? 2 * j->capacity : 16;
        chunk *grown = realloc(j->item, capacity * sizeof *grown);
        if (!grown) {
            j->failed = true;
            return;
        }
        j->item = grown;
        j->capacity = capacity;
    }
    j->item[j->num++] = c;
}

static void add_chunks(encode_job *j, const tri_text_segment *segment, bool cuttable,
                       bool continued)
{
    size_t done = 0;
    while (cuttable && segment->num_bytes - done > 2 * CHUNK_BYTES) {
        size_t cut = tri_find_cut(segment->text, segment->num_bytes, done, done + CHUNK_BYTES);
        if (cut <= done)
            cut = tri_find_cut(segment->text, segment->num_bytes, done + CHUNK_BYTES,
                               segment->num_bytes - CHUNK_BYTES);
        if (cut <= done)
            break;
        bool start = done == 0 && !continued;
        add_chunk(j, (chunk){.text = segment->text + done,
                             .num_bytes = cut - done,
                             .id = -1,
                             .text_start = start && segment->first,
                             .segment_start = start});
        done = cut;
    }
    bool start = done == 0 && !continued;
    add_chunk(j, (chunk){.text = segment->text + done,
                         .num_bytes = segment->num_bytes - done,
                         .id = segment->id,
                         .text_start = start && segment->first,
                         .segment_start = start});
}

/* Puts the results together; with an error ids keep their old length. */
static tr_status collect(const encode_job *j, unsigned flags, tri_ids *ids, tr_error *err)
{
    const tri_tokenizer *t = j->tokenizer;
    size_t before = ids->num;
    bool failed = j->failed;
    if (flags & TRI_ENCODE_SPECIAL)
        tri_ids_add(ids, t->prefix, (size_t)t->num_prefix);
    for (size_t i = 0; i < j->num; i++) {
        const chunk *c = &j->item[i];
        if (c->unknown) {
            ids->num = before;
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: has no token for the character U+%04X, which the text contains",
                            t->name, (unsigned)(c->unknown & ~TRI_BROKEN));
        }
        if (c->too_hard) {
            ids->num = before;
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s: its pattern \"%.200s\" takes too long on this text and was given "
                            "up; use a tokenizer with a simpler one",
                            t->name, tri_pattern_text(c->too_hard));
        }
        failed = failed || c->ids.failed;
        tri_ids_add(ids, c->ids.id, c->ids.num);
    }
    if (flags & TRI_ENCODE_SPECIAL)
        tri_ids_add(ids, t->suffix, (size_t)t->num_suffix);
    if (!failed && !ids->failed)
        return TR_OK;
    ids->num = before;
    ids->failed = false;
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory while encoding", t->name);
}

tr_status tri_tokenizer_encode(const tri_tokenizer *t, tri_pool *pool, const char *text,
                               size_t num_bytes, unsigned flags, tri_ids *ids, tr_error *err)
{
    encode_job j = {.tokenizer = t, .plain = flags & TRI_ENCODE_PLAIN};
    bool cuttable = tri_tokenizer_cuttable(t), continued = flags & TRI_ENCODE_CONTINUE;
    tri_text_segments segments = {0};
    tri_added_split(&t->added, &t->added.raw, t->unicode, text, num_bytes, j.plain, !continued,
                    &segments);
    for (size_t i = 0; i < segments.num; i++) {
        const tri_text_segment *segment = &segments.item[i];
        add_chunks(&j, segment, cuttable && segment->id < 0, continued && i == 0);
    }
    j.failed = j.failed || segments.failed || j.num > INT32_MAX;
    if (!j.failed)
        tri_pool_run(j.num > 1 ? pool : NULL, (int)j.num, run_chunk, &j);
    tr_status status = collect(&j, flags, ids, err);
    for (size_t i = 0; i < j.num; i++)
        tri_ids_fini(&j.item[i].ids);
    free(j.item);
    free(segments.item);
    return status;
}
