/* Cutting normalized text into the words that a model encodes one by one. */
#ifndef TRI_DATA_PRETOKENIZE_H
#define TRI_DATA_PRETOKENIZE_H

#include "base/error.h"
#include "data/unicode.h"

/* ---- patterns (pretokenize_pattern.c) ---- */

/* A literal, or a regular expression compiled by PCRE2 (with its JIT where there is one). */
typedef struct tri_pattern tri_pattern;
/* What one thread needs to match; zeroed is ready. */
typedef struct tri_matcher {
    void *match_data;
    bool failed; /* PCRE2 gave up: no memory, or a pattern that takes too long */
} tri_matcher;

tr_status tri_pattern_create(const char *text, size_t num_bytes, bool is_regex,
                             tri_pattern **pattern, tr_error *err);
void tri_pattern_destroy(tri_pattern *pattern);
/* The text of a literal, or NULL. */
const char *tri_pattern_literal(const tri_pattern *pattern, size_t *num_bytes);
/* The first match at or after `from`; false when there is none. Empty matches are passed over. */
bool tri_pattern_find(const tri_pattern *pattern, tri_matcher *matcher, const char *text,
                      size_t num_bytes, size_t from, size_t *begin, size_t *end);
void tri_matcher_fini(tri_matcher *matcher);

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

typedef enum tri_cut_kind {
    TRI_CUT_SCAN,    /* scan: every word is a piece */
    TRI_CUT_PATTERN, /* pattern, behaviour, invert */
    TRI_CUT_PREFIX,  /* a space before the piece unless it has one */
    TRI_CUT_SPACES,  /* at white space, which goes away */
    TRI_CUT_PUNCTUATION,
    TRI_CUT_DIGITS,   /* individual: each digit, or each run */
    TRI_CUT_METASPACE /* spaces become text; prepend; split */
} tri_cut_kind;

typedef enum tri_behaviour {
    TRI_REMOVED,
    TRI_ISOLATED,
    TRI_MERGED_WITH_PREVIOUS,
    TRI_MERGED_WITH_NEXT,
    TRI_CONTIGUOUS
} tri_behaviour;

typedef enum tri_prepend { TRI_PREPEND_NEVER, TRI_PREPEND_FIRST, TRI_PREPEND_ALWAYS } tri_prepend;

typedef struct tri_cut {
    tri_cut_kind kind;
    tri_scan_fn scan;
    const char *scan_name;
    tri_pattern *pattern;
    tri_behaviour behaviour;
    bool invert, individual, split;
    tri_prepend prepend;
    char text[8]; /* the character that stands for a space */
    int text_bytes;
} tri_cut;

enum { TRI_MAX_CUTS = 8 };

typedef struct tri_pretokenizer {
    tri_cut cut[TRI_MAX_CUTS];
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
    bool first; /* the text begins where the user's text begins */
} tri_pretokenize;

void tri_pretokenize_run(tri_pretokenize *run, const char *text, size_t num_bytes);
void tri_pretokenizer_fini(tri_pretokenizer *pretokenizer);

/* Does every way of cutting have a border between an ASCII letter and a space with a letter behind
 * it, whatever stands before? Then text may be cut there into parts that are encoded alone. */
bool tri_pretokenizer_cuttable(const tri_pretokenizer *pretokenizer);

#endif
