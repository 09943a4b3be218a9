/* Training byte-level BPE.
 *
 * The text becomes distinct words with counts. Pairs of neighbours wait in a heap, the one that
 * occurs most often on top, of equals the one with the smallest ids; each carries the list of
 * words it may be found in. Making a merge changes only those words, and only the counts of pairs
 * around the places of the merge. Counts in the heap may be old: an entry whose count is no longer
 * true goes back with the true one, which is never higher than what stands above it deserves.
 *
 * The order of merges is that of Hugging Face tokenizers' BpeTrainer, tie for tie. */
#include "base/arena.h"
#include "data/tokenizer/bpe_words.h"
#include "data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct occurrences { /* words in which a pair occurs */
    uint32_t *word;
    uint32_t num, capacity;
} occurrences;

typedef struct pair_record {
    uint64_t pair;
    int64_t count;
    occurrences fresh; /* found since the heap was last told */
} pair_record;

typedef struct merge_candidate {
    int64_t count;
    uint64_t pair;
    uint32_t record;
    occurrences places;
} merge_candidate;

typedef struct trainer {
    const tri_words *words;
    int32_t *symbol; /* of all words, one after the other */
    size_t *start;   /* of each word in it */
    uint32_t *length;
    pair_record *record;
    size_t num_records, record_capacity;
    uint32_t *slot; /* pair to record + 1 */
    size_t num_slots;
    uint32_t *touched; /* records with fresh places */
    size_t num_touched, touched_capacity;
    merge_candidate *heap;
    size_t num_heap, heap_capacity;
    tri_words tokens; /* texts of tokens, the index is the id; specials have made-up texts */
    tri_merge *merge;
    size_t num_merges, merge_capacity;
    bool failed;
} trainer;

/* ---- pairs ---- */

static size_t pair_hash(uint64_t pair)
{
    return (size_t)tri_mix(pair ^ 0x2545F4914F6CDD1Du, 0x9E3779B97F4A7C15u);
}

static bool enlarge(trainer *t)
{
    size_t num_slots = t->num_slots ? 2 * t->num_slots : 4096;
    uint32_t *slot = calloc(num_slots, sizeof *slot);
    if (!slot)
        return false;
    for (size_t i = 0; i < t->num_records; i++) {
        size_t at = pair_hash(t->record[i].pair) & (num_slots - 1);
        while (slot[at])
            at = (at + 1) & (num_slots - 1);
        slot[at] = (uint32_t)i + 1;
    }
    free(t->slot);
    t->slot = slot;
    t->num_slots = num_slots;
    return true;
}

/* The record of a pair, made if need be; NULL when memory ran out. */
static pair_record *record_of(trainer *t, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (2 * t->num_records >= t->num_slots && !enlarge(t)) {
        t->failed = true;
        return NULL;
    }
    size_t mask = t->num_slots - 1, at = pair_hash(pair) & mask;
    for (; t->slot[at]; at = (at + 1) & mask)
        if (t->record[t->slot[at] - 1].pair == pair)
            return &t->record[t->slot[at] - 1];
    pair_record *grown =
        tri_array_grow(t->record, t->num_records, &t->record_capacity, sizeof *grown);
    if (!grown) {
        t->failed = true;
        return NULL;
    }
    t->record = grown;
    t->record[t->num_records] = (pair_record){.pair = pair};
    t->slot[at] = (uint32_t)++t->num_records;
    return &t->record[t->num_records - 1];
}

static void add_place(trainer *t, pair_record *record, uint32_t word)
{
    occurrences *p = &record->fresh;
    if (p->num > 0 && p->word[p->num - 1] == word)
        return;
    if (p->num == p->capacity) {
        uint32_t capacity = p->capacity ? 2 * p->capacity : 4;
        uint32_t *grown = realloc(p->word, capacity * sizeof *grown);
        if (!grown) {
            t->failed = true;
            return;
        }
        p->word = grown;
        p->capacity = capacity;
    }
    if (p->num == 0) {
        uint32_t *grown =
            tri_array_grow(t->touched, t->num_touched, &t->touched_capacity, sizeof *grown);
        if (!grown) {
            t->failed = true;
            return;
        }
        t->touched = grown;
        t->touched[t->num_touched++] = (uint32_t)(record - t->record);
    }
    p->word[p->num++] = word;
}

static void change(trainer *t, int32_t left, int32_t right, int64_t by, uint32_t word)
{
    pair_record *record = record_of(t, left, right);
    if (!record)
        return;
    record->count += by;
    if (by > 0)
        add_place(t, record, word);
}

/* ---- the heap ---- */

static bool above(const merge_candidate *a, const merge_candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->pair < b->pair;
}

static void push(trainer *t, merge_candidate item)
{
    merge_candidate *grown = tri_array_grow(t->heap, t->num_heap, &t->heap_capacity, sizeof *grown);
    if (!grown) {
        free(item.places.word);
        t->failed = true;
        return;
    }
    t->heap = grown;
    size_t at = t->num_heap++;
    while (at > 0 && above(&item, &t->heap[(at - 1) / 2])) {
        t->heap[at] = t->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->heap[at] = item;
}

/* Puts item where the top is and lets it sink. */
static void replace_top(trainer *t, merge_candidate item)
{
    size_t at = 0, num = t->num_heap;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= num)
            break;
        if (child + 1 < num && above(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!above(&t->heap[child], &item))
            break;
        t->heap[at] = t->heap[child];
        at = child;
    }
    t->heap[at] = item;
}

static merge_candidate pop(trainer *t)
{
    merge_candidate top = t->heap[0];
    if (--t->num_heap > 0)
        replace_top(t, t->heap[t->num_heap]);
    return top;
}

static void tell_heap(trainer *t)
{
    for (size_t i = 0; i < t->num_touched; i++) {
        pair_record *record = &t->record[t->touched[i]];
        occurrences fresh = record->fresh;
        record->fresh = (occurrences){0};
        if (record->count > 0)
            push(t, (merge_candidate){record->count, record->pair, t->touched[i], fresh});
        else
            free(fresh.word);
    }
    t->num_touched = 0;
}

/* ---- merging ---- */

static void merge_in_word(trainer *t, uint32_t word, const tri_merge *merge)
{
    int32_t *s = t->symbol + t->start[word];
    uint32_t length = t->length[word], to = 0;
    int64_t count = t->words->word[word].count;
    for (uint32_t from = 0; from < length; from++) {
        if (s[from] != merge->left || from + 1 >= length || s[from + 1] != merge->right) {
            s[to++] = s[from];
            continue;
        }
        if (to > 0) {
            change(t, s[to - 1], merge->left, -count, word);
            change(t, s[to - 1], merge->into, count, word);
        }
        if (from + 2 < length) {
            change(t, merge->right, s[from + 2], -count, word);
            change(t, merge->into, s[from + 2], count, word);
        }
        s[to++] = merge->into;
        from++;
    }
    t->length[word] = to;
}

/* The id of the text of two tokens, new or (rarely) one that another pair made before. */
static int32_t join(trainer *t, int32_t left, int32_t right)
{
    const tri_word *a = &t->tokens.word[left], *b = &t->tokens.word[right];
    tri_bytes text = {0};
    tri_bytes_add(&text, t->tokens.blob.data + a->start, a->num_bytes);
    tri_bytes_add(&text, t->tokens.blob.data + b->start, b->num_bytes);
    int64_t id = text.failed ? -1 : tri_words_add(&t->tokens, text.data, text.num, 0);
    tri_bytes_fini(&text);
    return (int32_t)id;
}

static void make_merge(trainer *t, const merge_candidate *top)
{
    int32_t left = (int32_t)(top->pair >> 32), right = (int32_t)(top->pair & 0xFFFFFFFFu);
    tri_merge *grown = tri_array_grow(t->merge, t->num_merges, &t->merge_capacity, sizeof *grown);
    int32_t into = join(t, left, right);
    if (grown)
        t->merge = grown;
    if (!grown || into < 0) {
        t->failed = true;
        return;
    }
    tri_merge merge = {left, right, into};
    t->merge[t->num_merges++] = merge;
    for (uint32_t i = 0; i < top->places.num; i++)
        merge_in_word(t, top->places.word[i], &merge);
    tell_heap(t);
}

static void run(trainer *t, int32_t vocab, int64_t min_frequency)
{
    while (t->tokens.num < (size_t)vocab && t->num_heap > 0 && !t->failed) {
        int64_t now = t->record[t->heap[0].record].count;
        if (t->heap[0].count != now) {
            merge_candidate item = t->heap[0];
            item.count = now;
            replace_top(t, item);
            continue;
        }
        merge_candidate top = pop(t);
        bool enough = top.count >= 1 && top.count >= min_frequency;
        if (enough)
            make_merge(t, &top);
        free(top.places.word);
        if (!enough)
            break; /* the rest is rarer still */
    }
}

/* ---- beginning and end ---- */

/* Specials first, then the bytes in the order of the characters that GPT-2 writes them as. */
static void add_first_tokens(trainer *t, const tri_train_config *config, int32_t byte_id[256])
{
    for (int i = 0; i < config->num_specials; i++) {
        char text[64]; /* longer than one byte and never made by a merge of bytes: see finish */
        int num = snprintf(text, sizeof text, "%c%c special %d", 0xFF, 0xFE, i);
        tri_words_add(&t->tokens, text, (size_t)num, 0);
    }
    for (uint32_t c = 0; c < 256 + 68; c++) {
        int byte = tri_char_to_byte(c);
        char one = (char)byte;
        if (byte >= 0)
            byte_id[byte] = (int32_t)tri_words_add(&t->tokens, &one, 1, 0);
    }
    t->failed = t->failed || t->tokens.failed;
}

static bool lay_out(trainer *t, const int32_t byte_id[256])
{
    const tri_words *w = t->words;
    t->symbol = malloc((w->blob.num + 1) * sizeof *t->symbol);
    t->start = malloc((w->num + 1) * sizeof *t->start);
    t->length = malloc((w->num + 1) * sizeof *t->length);
    t->failed = !t->symbol || !t->start || !t->length;
    if (t->failed)
        return false;
    size_t at = 0;
    for (size_t i = 0; i < w->num; i++) {
        const char *text = w->blob.data + w->word[i].start;
        uint32_t num = w->word[i].num_bytes;
        t->start[i] = at;
        t->length[i] = num;
        for (uint32_t k = 0; k < num; k++) {
            t->symbol[at + k] = byte_id[(unsigned char)text[k]];
            if (k > 0)
                change(t, t->symbol[at + k - 1], t->symbol[at + k], w->word[i].count, (uint32_t)i);
        }
        at += num;
    }
    tell_heap(t);
    return !t->failed;
}

static void trainer_fini(trainer *t)
{
    for (size_t i = 0; i < t->num_records; i++)
        free(t->record[i].fresh.word);
    for (size_t i = 0; i < t->num_heap; i++)
        free(t->heap[i].places.word);
    free(t->symbol);
    free(t->start);
    free(t->length);
    free(t->record);
    free(t->slot);
    free(t->touched);
    free(t->heap);
    free(t->merge);
    tri_words_fini(&t->tokens);
}

/* From the tokens and merges to a tokenizer. */
static tr_status finish(trainer *t, const tri_train_config *config, tri_tokenizer **tokenizer,
                        tr_error *err)
{
    TRI_TRY(tri_tokenizer_create("(trained)", tokenizer, err));
    tri_tokenizer *out = *tokenizer;
    json_t *root = tri_style_root(config->style);
    bool failed = !root;
    for (int i = 0; i < config->num_specials && !failed; i++) {
        tri_vocab_add(&out->spelling, config->specials[i], strlen(config->specials[i]));
        failed = !tri_style_add_special(root, config->specials[i], i);
    }
    tri_bytes text = {0};
    for (size_t id = (size_t)config->num_specials; id < t->tokens.num; id++) {
        const tri_word *word = &t->tokens.word[id];
        text.num = 0;
        for (uint32_t k = 0; k < word->num_bytes; k++)
            tri_bytes_add_char(
                &text, tri_byte_to_char((unsigned char)t->tokens.blob.data[word->start + k]));
        tri_vocab_add(&out->spelling, text.data, text.num);
    }
    out->bpe.merge = t->merge;
    out->bpe.num_merges = t->num_merges;
    out->bpe.capacity = t->merge_capacity;
    t->merge = NULL;
    failed = failed || text.failed || out->spelling.failed;
    tri_bytes_fini(&text);
    if (failed) {
        json_decref(root);
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while training a tokenizer");
    }
    return tri_tokenizer_from_parts(out, root, err);
}

static tr_status train(const tri_train_config *config, tri_pool *pool, const char *text,
                       size_t num_bytes, const tri_tokenizer *cutter, trainer *t, tri_words *words,
                       tr_error *err)
{
    int32_t byte_id[256] = {0};
    bool merges = strcmp(config->style, "bytes") != 0;
    if (merges)
        TRI_TRY(tri_words_count(cutter, config, pool, text, num_bytes, words, err));
    t->words = words;
    add_first_tokens(t, config, byte_id);
    if (!t->failed && merges && lay_out(t, byte_id))
        run(t, config->vocab, config->min_frequency > 0 ? config->min_frequency : 2);
    if (t->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "out of memory while training a tokenizer");
    return TR_OK;
}

static tr_status check_config(const tri_train_config *config, tr_error *err)
{
    static const char *const known[] = {"gpt2", "llama3", "qwen", "bytes"};
    bool found = false;
    for (int i = 0; i < 4; i++)
        found = found || strcmp(config->style, known[i]) == 0;
    if (!found)
        return tri_fail(err, TR_ERROR_INPUT,
                        "unknown tokenizer style \"%.60s\"; there are gpt2, llama3, qwen and bytes",
                        config->style);
    if (config->vocab < 256 + config->num_specials)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a vocabulary of %d is too small: the bytes and special tokens are %d",
                        config->vocab, 256 + config->num_specials);
    for (int i = 0; i < config->num_specials; i++)
        for (int k = 0; k <= i; k++)
            if (!*config->specials[i] ||
                (k < i && !strcmp(config->specials[i], config->specials[k])))
                return tri_fail(err, TR_ERROR_INPUT,
                                "the special token \"%.60s\" is empty or twice",
                                config->specials[i]);
    return TR_OK;
}

tr_status tri_tokenizer_train(const tri_train_config *given, tri_pool *pool, const char *text,
                              size_t num_bytes, tri_tokenizer **tokenizer, tr_error *err)
{
    static const char *const end_of_text[] = {"<|endoftext|>"};
    static const char *const llama3[] = {"<|begin_of_text|>", "<|end_of_text|>"};
    tri_train_config config = *given;
    *tokenizer = NULL;
    if (!config.specials && strcmp(config.style, "bytes") != 0) {
        bool two = strcmp(config.style, "llama3") == 0;
        config.specials = two ? llama3 : end_of_text;
        config.num_specials = two ? 2 : 1;
    }
    TRI_TRY(check_config(&config, err));
    /* A tokenizer of plain bytes has the style's way to cut text into words. */
    tri_tokenizer *cutter;
    TRI_TRY(tri_tokenizer_create("(training)", &cutter, err));
    for (int byte = 0; byte < 256; byte++) {
        char one[4];
        int num = tri_utf8_put(tri_byte_to_char((unsigned char)byte), one);
        tri_vocab_add(&cutter->spelling, one, (size_t)num);
    }
    trainer t = {0};
    tri_words words = {0};
    tr_status status = tri_tokenizer_from_parts(cutter, tri_style_root(config.style), err);
    if (status == TR_OK)
        status = train(&config, pool, text, num_bytes, cutter, &t, &words, err);
    if (status == TR_OK)
        status = finish(&t, &config, tokenizer, err);
    trainer_fini(&t);
    tri_words_fini(&words);
    tri_tokenizer_close(cutter);
    if (status != TR_OK) {
        tri_tokenizer_close(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}
