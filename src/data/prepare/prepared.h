/* Tokens to train on, as they lie on disk: a directory of `trireme data prepare`, a directory of
 * shards, or one shard. */
#ifndef TRI_DATA_PREPARE_PREPARED_H
#define TRI_DATA_PREPARE_PREPARED_H

#include "data/data.h"
#include "data/prepare/shard.h"

typedef struct tri_prepared {
    tri_shard *shard[2]; /* by tri_split */
    size_t num[2];
    uint64_t tokens[2], documents[2];
    int32_t vocab, separator;
    bool separator_first;
    uint64_t fingerprint; /* of the tokenizer; 0: not known */
    char *tokenizer;      /* the directory, when it holds its tokenizer; or NULL */
} tri_prepared;

/* Whether a path is any of these. Looks at names and first bytes only. */
bool tri_prepared_is(const char *path);

/* In a directory without a list of shards, those are training data whose names do not contain
 * "val" or "eval"; they come in the order of their names. */
tr_status tri_prepared_open(const char *path, tri_prepared *prepared, tr_error *err);
void tri_prepared_close(tri_prepared *prepared);

/* The "fingerprint" of a directory's list: what it was made from; 0 when it has none. */
uint64_t tri_prepared_made_from(const char *dir);

#endif
