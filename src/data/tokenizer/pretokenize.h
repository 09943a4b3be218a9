/* Cutting normalized text into the words that a model encodes one by one. */
#ifndef TRI_DATA_TOKENIZER_PRETOKENIZE_H
#define TRI_DATA_TOKENIZER_PRETOKENIZE_H

#include "base/error.h"
#include "data/unicode/unicode.h"

/* ---- patterns (pretokenize_pattern.c) ---- */

/* A literal, or a regular expression compiled by Oniguruma. */
typedef struct tri_pattern tri_pattern;

/* What one thread needs to match; zeroed is ready but has no time. */
typedef struct tri_matcher {
    void *region, *param;
    int64_t deadline_ns; /* of the thread's processor time */
    unsigned attempts;
    const tri_pattern *gave_up; /* a pattern that took too long, or too much of the stack */
    bool failed;                /* no memory */
} tri_matcher;

tr_status tri_pattern_create(const char *text, size_t num_bytes, bool is_regex,
                             tri_pattern **pattern, tr_error *err);
void tri_pattern_destroy(tri_pattern *pattern);
/* The text of a literal, or NULL. */
const char *tri_pattern_literal(const tri_pattern *pattern, size_t *num_bytes);
const char *tri_pattern_text(const tri_pattern *pattern); /* as it was given */

/* Before a text of so many bytes: forgets what failed, and gives the patterns time. */
void tri_matcher_begin(tri_matcher *matcher, size_t num_bytes);
void tri_matcher_allow(tri_matcher *matcher, int64_t ns); /* from now on */
void tri_matcher_fini(tri_matcher *matcher);

/* The matches in a text, one after the other, as Hugging Face tokenizers finds them: those of
 * nothing count too, but not where the last match ended. A byte that is not UTF-8 is matched as
 * U+FFFD. */
typedef struct tri_matches {
    const tri_pattern *pattern;
    tri_matcher *matcher;
    const char *text;
    size_t num, at, done, last_match;
    tri_bytes copy; /* is_copy: of a text with broken bytes, and how far it was compared with it */
    bool is_copy;
    const char *source;
    size_t source_num, source_at, copy_at;
} tri_matches;

void tri_matches_begin(tri_matches *matches, const tri_pattern *pattern, tri_matcher *matcher,
                       const char *text, size_t num_bytes);
bool tri_matches_next(tri_matches *matches, size_t *begin, size_t *end);
void tri_matches_end(tri_matches *matches);

/* pattern_translate.c: a pattern for Oniguruma with Unicode 16, in terms of an older one. */
tr_status tri_pattern_translate(const char *text, size_t num_bytes, tri_bytes *out, tr_error *err);

/* ---- the three well-known patterns, by hand (pretokenize_scan.c) ---- */

/* The end of the word that begins at p < end. */
typedef const char *(*tri_scan_fn)(const tri_unicode *unicode, const char *p, const char *end);

extern const char tri_pattern_gpt2[], tri_pattern_llama3[], tri_pattern_qwen[];
const char *tri_scan_gpt2(const tri_unicode *unicode, const char *p, const char *end);
const char *tri_scan_llama3(const tri_unicode *unicode, const char *p, const char *end);
const char *tri_scan_qwen(const tri_unicode *unicode, const char *p, const char *end);
/* By the text of the pattern; NULL when it is none of the three. name is set to a short one. */
tri_scan_fn tri_scan_find(const char *pattern, size_t num_bytes, const char **name);

/* ---- steps ---- */

typedef enum tri_word_cut_kind {
    TRI_CUT_SCAN,    /* scan: every word is a piece */
    TRI_CUT_PATTERN, /* pattern, behaviour, invert */
    TRI_CUT_PREFIX,  /* a space before the piece unless it has one */
    TRI_CUT_BYTES,   /* cuts nothing: each byte becomes the letter that stands for it */
    TRI_CUT_SPACES,  /* at white space, which goes away */
    TRI_CUT_WORDS,   /* runs of word characters and of others; white space goes away */
    TRI_CUT_PUNCTUATION,
    TRI_CUT_DIGITS,   /* individual: each digit, or each run */
    TRI_CUT_METASPACE /* spaces become text; prepend; split */
} tri_word_cut_kind;

typedef enum tri_behaviour {
    TRI_REMOVED,
    TRI_ISOLATED,
    TRI_MERGED_WITH_PREVIOUS,
    TRI_MERGED_WITH_NEXT,
    TRI_CONTIGUOUS
} tri_behaviour;

typedef enum tri_prepend { TRI_PREPEND_NEVER, TRI_PREPEND_FIRST, TRI_PREPEND_ALWAYS } tri_prepend;

typedef struct tri_word_cut {
    tri_word_cut_kind kind;
    tri_scan_fn scan;
    const char *scan_name;
    tri_pattern *pattern;
    tri_behaviour behaviour;
    bool invert, individual, split;
    tri_prepend prepend;
    char text[8]; /* the character that stands for a space */
    int text_bytes;
} tri_word_cut;

enum { TRI_MAX_CUTS = 8 };

typedef struct tri_pretokenizer {
    tri_word_cut cut[TRI_MAX_CUTS];
    int num;
} tri_pretokenizer;

/* Called for each word in turn; the bytes are good during the call only. */
typedef void (*tri_word_fn)(void *context, const char *word, size_t num_bytes);

typedef struct tri_pretokenize {
    const tri_pretokenizer *pretokenizer;
    const tri_unicode *unicode;
    tri_matcher *matcher;
    tri_bytes *buffer; /* TRI_MAX_CUTS of them: one for each step that changes text */
    tri_word_fn word;
    void *context;
    size_t first; /* bytes at the beginning that come from the first character of the user's text */
} tri_pretokenize;

void tri_pretokenize_run(tri_pretokenize *run, const char *text, size_t num_bytes);
void tri_pretokenizer_fini(tri_pretokenizer *pretokenizer);

/* Does every way of cutting have a border between an ASCII letter and a space with a letter behind
 * it, whatever stands before? Then text may be cut there into parts that are encoded alone. */
bool tri_pretokenizer_cuttable(const tri_pretokenizer *pretokenizer);

#endif
