/* The inside of a tokenizer: what its files share.
 *
 *   text -> added tokens cut out -> normalizer -> pre-tokenizer -> model -> post-processor -> ids
 *
 * Each of normalizer, pre-tokenizer and decoder is a list of steps, as tokenizer.json has them. */
#ifndef TRI_DATA_TOKENIZER_TOKENIZER_PARTS_H
#define TRI_DATA_TOKENIZER_TOKENIZER_PARTS_H

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pretokenize.h"
#include "data/tokenizer/tokenizer.h"

#include <jansson.h>
#include <pthread.h>

/* ---- steps ---- */

typedef enum tri_text_step_kind {
    /* normalizers */
    TRI_STEP_FORM, /* number: tri_form */
    TRI_STEP_LOWERCASE,
    TRI_STEP_STRIP_ACCENTS,
    TRI_STEP_PREPEND, /* text */
    TRI_STEP_REPLACE, /* pattern, text; also a decoder */
    TRI_STEP_STRIP,   /* number: 1 left, 2 right */
    TRI_STEP_BERT,    /* number: bits of TRI_BERT_ */
    TRI_STEP_LETTERS, /* each byte becomes the letter that stands for it */
    /* decoders */
    TRI_STEP_BYTE_LEVEL,
    TRI_STEP_BYTE_FALLBACK,
    TRI_STEP_FUSE,
    TRI_STEP_STRIP_TOKEN, /* text; number and more: how many at the start and at the end */
    TRI_STEP_WORDPIECE,   /* text: the prefix; number: clean up */
    TRI_STEP_METASPACE    /* text: the replacement; number: a space was put before the text */
} tri_text_step_kind;

enum { TRI_BERT_CLEAN = 1, TRI_BERT_CJK = 2, TRI_BERT_ACCENTS = 4, TRI_BERT_LOWER = 8 };

typedef struct tri_text_step {
    tri_text_step_kind kind;
    int number, more;
    char *text;
    size_t text_bytes;
    tri_pattern *pattern;
} tri_text_step;

enum { TRI_MAX_STEPS = 16 };

typedef struct tri_text_steps {
    tri_text_step step[TRI_MAX_STEPS];
    int num;
} tri_text_steps;

void tri_text_steps_fini(tri_text_steps *steps);

/* tokenizer_normalize.c: text through all steps; the result is in one of the two buffers, or is
 * the text itself. prepends: Prepend does, for a segment begins here; begins: the user's text does.
 * Returns how many bytes at its beginning come from the first character of the user's text. */
size_t tri_normalize(const tri_text_steps *steps, const tri_unicode *unicode, const char **text,
                     size_t *num_bytes, bool prepends, bool begins, tri_bytes buffer[2],
                     tri_matcher *matcher);
bool tri_normalize_cuttable(const tri_text_steps *steps);

/* ---- tokens found in the text itself ---- */

typedef struct tri_added {
    char *content;
    size_t num_bytes;
    char *shown; /* what it decodes to, when normalization changes it; otherwise NULL */
    size_t shown_bytes;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
} tri_added;

typedef struct tri_trie_node {
    int32_t child, sibling; /* 0 for none */
    int32_t token;          /* that ends here, or -1 */
    unsigned char byte;
} tri_trie_node;

typedef struct tri_trie {
    tri_trie_node *node;
    size_t num, capacity;
    bool begins[256];
    bool failed;
} tri_trie;

typedef struct tri_added_list {
    tri_added *item;
    size_t num, capacity;
    tri_trie raw, normalized; /* searched before and after normalization */
    bool any_shown;
    bool cuttable; /* none of the second kind contains a space or reaches beyond itself */
    bool blocks;   /* and none of the first kind is cut apart by tri_tokenizer_cut */
} tri_added_list;

/* A part of a text: id >= 0 for a token, otherwise text. */
typedef struct tri_text_segment {
    const char *text;
    size_t num_bytes;
    int32_t id;
    size_t first; /* bytes of it that come from the first character of the user's text */
} tri_text_segment;

typedef struct tri_text_segments {
    tri_text_segment *item;
    size_t num, capacity;
    bool failed;
} tri_text_segments;

void tri_trie_add(tri_trie *trie, const char *text, size_t num_bytes, int32_t token);
void tri_added_split(const tri_added_list *list, const tri_trie *trie, const tri_unicode *unicode,
                     const char *text, size_t num_bytes, bool skip_special, size_t first,
                     tri_text_segments *out);
void tri_added_fini(tri_added_list *list);

/* ---- the whole ---- */

typedef struct tri_scratch tri_scratch;

typedef enum tri_model_kind { TRI_MODEL_BPE, TRI_MODEL_WORDPIECE } tri_model_kind;

struct tri_tokenizer {
    char *name; /* for messages: the path it came from */
    tri_model_kind model;
    bool byte_level;   /* words are bytes, and spellings stand for them */
    bool *is_special;  /* by id */
    bool *added_only;  /* by id: not in the model's own vocabulary; NULL when all are */
    int32_t num_holes; /* ids without a token, below others that have one */
    bool nul_names;    /* in the JSON of its vocabulary, while that is read */
    tri_vocab spelling;
    tri_vocab bytes; /* byte-level: what spellings stand for; empty otherwise */
    tri_bpe bpe;
    tri_wordpiece wordpiece;
    tri_text_steps normalizer, decoder;
    tri_pretokenizer pretokenizer;
    tri_added_list added;
    int32_t *prefix, *suffix; /* of the post-processor */
    int num_prefix, num_suffix;
    tri_post_item pair[TRI_MAX_POST_ITEMS]; /* of the post-processor, for two texts */
    int num_pair;                           /* 0: it has no form for them */
    int32_t special[TRI_NUM_SPECIAL];
    json_t *skeleton; /* tokenizer.json without vocabulary and merges: what save writes again */
    tri_unicode *unicode;
    pthread_mutex_t lock; /* guards the list of idle scratch, the only thing that changes */
    tri_scratch *idle;
};

/* Building, in this order; every function may fail, and then close takes down what there is. */
tr_status tri_tokenizer_create(const char *name, tri_tokenizer **tokenizer, tr_error *err);

/* tokenizer_json.c: a whole tokenizer.json. */
tr_status tri_tokenizer_read_json(tri_tokenizer *t, const char *text, size_t num_bytes,
                                  tr_error *err);
/* One whose vocabulary (spelling, not yet indexed) and merges are in t already. root is a
 * tokenizer.json without the two, and becomes t's. */
tr_status tri_tokenizer_from_parts(tri_tokenizer *t, json_t *root, tr_error *err);
/* Puts a merge of two spellings behind the others; where says which one it is, for messages. The
 * spelling must be indexed. */
tr_status tri_add_merge(tri_tokenizer *t, const char *left, size_t num_left, const char *right,
                        size_t num_right, const char *what, size_t where, tr_error *err);
/* Parses, with file and line in the message. nul_names (may be NULL) as in base/python_json.h. */
tr_status tri_json_parse(const char *name, const char *text, size_t num_bytes, json_t **json,
                         bool *nul_names, tr_error *err);
/* tokenizer_vocabulary.c: the ids of an object {"token": id, ...} and of root's added_tokens. */
tr_status tri_read_vocabulary(tri_tokenizer *t, json_t *vocab, json_t *added, tr_error *err);
tr_status tri_read_added(tri_tokenizer *t, json_t *added, tr_error *err);

/* tokenizer_components.c: the four small parts of the skeleton. */
tr_status tri_read_normalizer(tri_tokenizer *t, json_t *json, int depth, tr_error *err);
tr_status tri_read_pretokenizer(tri_tokenizer *t, json_t *json,
                                tr_error *err); /* normalizer first */
tr_status tri_read_decoder(tri_tokenizer *t, json_t *json, int depth, tr_error *err);
tr_status tri_read_postprocessor(tri_tokenizer *t, json_t *json, int depth, tr_error *err);
/* tokenizer_pair.c: the form for two texts, of a post-processor that was read already. */
tr_status tri_read_pair_form(tri_tokenizer *t, json_t *json, const char *type, tr_error *err);
tr_status tri_json_bool(const tri_tokenizer *t, json_t *json, const char *key, bool otherwise,
                        bool *value, tr_error *err);
tr_status tri_json_text(const tri_tokenizer *t, json_t *json, const char *key, const char **value,
                        size_t *num_bytes, tr_error *err); /* NULL when absent or null */

/* tokenizer_files.c */
tr_status tri_tokenizer_open_dir(tri_tokenizer *t, const char *dir, tr_error *err);
tr_status tri_tokenizer_open_chars(tri_tokenizer *t, const char *path, tr_error *err);
tr_status tri_tokenizer_open_bytes(tri_tokenizer *t, tr_error *err);
void tri_tokenizer_guess_specials(tri_tokenizer *t);

/* tokenizer_style.c: a tokenizer.json without vocabulary and merges, for one of "gpt2", "llama3",
 * "qwen", "bytes", "chars", "bert"; NULL when the style is not known or there is no memory. */
json_t *tri_style_root(const char *style);
/* Adds to root's added_tokens. */
bool tri_style_add_special(json_t *root, const char *content, int32_t id);

/* tokenizer_encode.c */
void tri_scratch_destroy_all(tri_scratch *scratch);

/* ---- cutting (tokenizer_blocks.c) ---- */

/* Whether words end at a blank between two letters, in any text. */
bool tri_tokenizer_cuttable(const tri_tokenizer *t);
/* The last such place at or before `to`, and behind `from`; 0 for none. */
size_t tri_find_cut(const char *text, size_t num_bytes, size_t from, size_t to);

#endif
