/* Where a text may be cut so that its parts encode to the ids of the whole. */
#include <string.h>

#include "data/tokenizer/tokenizer_parts.h"

static bool is_letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_single_tokens(const tri_tokenizer *t) /* bytes and characters */
{
    return t->pretokenizer.num == 0 && t->normalizer.num == 0 && t->model == TRI_MODEL_BPE &&
           t->bpe.num_merges == 0;
}

bool tri_tokenizer_cuttable(const tri_tokenizer *t)
{
    if (!tri_normalize_cuttable(&t->normalizer) || !t->added.cuttable)
        return false;
    const tri_pretokenizer *p = &t->pretokenizer;
    if (is_single_tokens(t) || tri_pretokenizer_cuttable(p))
        return true;
    /* Llama 2: a space has become U+2581 by the time the model sees it. */
    bool spaces_go = p->num == 1 && p->cut[0].kind == TRI_CUT_METASPACE;
    for (int i = 0; i < t->normalizer.num && p->num == 0; i++) {
        const tri_text_step *step = &t->normalizer.step[i];
        size_t num = 0;
        const char *literal = step->pattern ? tri_pattern_literal(step->pattern, &num) : NULL;
        spaces_go = spaces_go || (literal && num == 1 && *literal == ' ' && step->text_bytes == 3 &&
                                  memcmp(step->text, "\xE2\x96\x81", 3) == 0);
    }
    return spaces_go && t->bpe.cut_at_metaspace;
}

size_t tri_find_cut(const char *text, size_t num_bytes, size_t from, size_t to)
{
    for (size_t i = to < num_bytes ? to : num_bytes; i > from + 1; i--)
        if (i + 1 < num_bytes && text[i] == ' ' && is_letter((unsigned char)text[i - 1]) &&
            is_letter((unsigned char)text[i + 1]))
            return i;
    return 0;
}

/* ---- texts without blanks ---- */

/* Letters that normal form C leaves alone, so that nothing grows behind them. */
static bool is_plain_letter(uint32_t c)
{
    return is_letter(c) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30A1 && c <= 0x30FA) ||
           (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0xAC00 && c <= 0xD7A3);
}

/* No letter, no mark, and nothing that combines with what is before it. */
static bool ends_letters(uint32_t c)
{
    return (c < 0x80 && !is_letter(c)) || (c >= 0x3000 && c <= 0x3003) ||
           (c >= 0x3008 && c <= 0x3011) || (c >= 0xFF01 && c <= 0xFF0F) ||
           (c >= 0xFF1A && c <= 0xFF20);
}

/* The three well-known patterns end a word where a run of letters does, whatever follows, and look
 * at nothing behind it. */
static bool ends_words_with_letters(const tri_tokenizer *t)
{
    for (int i = 0; i < t->normalizer.num; i++)
        if (t->normalizer.step[i].kind != TRI_STEP_FORM ||
            t->normalizer.step[i].number != TRI_FORM_NFC)
            return false;
    return t->pretokenizer.num > 0 && t->pretokenizer.cut[0].kind == TRI_CUT_SCAN;
}

/* Whether an added token lies across the place; one that looks at its neighbours must not end or
 * begin there either. */
static bool is_within_added(const tri_tokenizer *t, const char *text, size_t num_bytes, size_t at)
{
    for (size_t k = 0; k < t->added.num; k++) {
        const tri_added *token = &t->added.item[k];
        size_t num = token->num_bytes, first = token->single_word ? 0 : 1;
        size_t last = token->single_word || token->rstrip ? num : num - 1;
        for (size_t before = first; before <= last && before <= at; before++)
            if (at - before + num <= num_bytes &&
                memcmp(text + at - before, token->content, num) == 0)
                return true;
    }
    return false;
}

static bool is_ascii(const char *text, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* The longest added token; 0: one of them may lie where its bytes do not. */
static size_t longest_added(const tri_tokenizer *t, bool anywhere)
{
    size_t longest = 4; /* a whole character at least */
    for (size_t k = 0; k < t->added.num; k++) {
        const tri_added *token = &t->added.item[k];
        if (anywhere && (token->lstrip || token->rstrip)) /* in the midst of what it strips */
            return 0;
        if (token->normalized && t->normalizer.num > 0 &&
            !is_ascii(token->content, token->num_bytes))
            return 0;
        longest = token->num_bytes > longest ? token->num_bytes : longest;
    }
    return longest;
}

static size_t character_before(const char *text, size_t at)
{
    size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && ((unsigned char)text[begin] & 0xC0) == 0x80)
        begin--;
    return begin;
}

static bool is_border(const char *text, size_t num_bytes, size_t at)
{
    const char *before = text + character_before(text, at), *behind = text + at;
    const char *ends_at = before;
    uint32_t last = tri_utf8_next(&ends_at, text + at);
    return ends_at == behind && is_plain_letter(last) &&
           ends_letters(tri_utf8_next(&behind, text + num_bytes));
}

/* Chinese, base64 and the like: at the end of a run of letters; for bytes and characters anywhere
 * between two of them. */
static size_t find_dense_cut(const tri_tokenizer *t, const char *text, size_t num_bytes)
{
    bool anywhere = is_single_tokens(t);
    size_t longest = longest_added(t, anywhere);
    if (longest == 0 || num_bytes < longest || (!anywhere && !ends_words_with_letters(t)))
        return 0;
    for (size_t at = num_bytes - longest; at > 0; at--) {
        bool between = ((unsigned char)text[at] & 0xC0) != 0x80;
        if (between && (anywhere || is_border(text, num_bytes, at)) &&
            !is_within_added(t, text, num_bytes, at))
            return at;
    }
    return 0;
}

size_t tri_tokenizer_cut(const tri_tokenizer *t, const char *text, size_t num_bytes)
{
    if (!tri_tokenizer_cuttable(t) || !t->added.blocks)
        return 0;
    size_t cut = tri_find_cut(text, num_bytes, 0, num_bytes);
    return cut > 0 ? cut : find_dense_cut(t, text, num_bytes);
}
