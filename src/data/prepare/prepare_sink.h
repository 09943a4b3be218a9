/* Where the tokens of documents go: shards of two splits, and the list of them. */
#ifndef TRI_DATA_PREPARE_PREPARE_SINK_H
#define TRI_DATA_PREPARE_PREPARE_SINK_H

#include "data/prepare/prepare.h"
#include "data/prepare/shard.h"

#include <jansson.h>

typedef struct tri_sink {
    const char *dir;
    int64_t shard_tokens;
    int32_t vocab, separator;
    uint64_t fingerprint;
    tri_shard_writer writer[2]; /* by tri_split; path NULL: none is open */
    json_t *names[2];           /* of the shards that are finished */
    tri_prepare_result *result;
} tri_sink;

tr_status tri_sink_init(tri_sink *sink, tr_error *err); /* the first five fields are given */
tr_status tri_sink_write(tri_sink *sink, tri_split split, const int32_t *ids, size_t num,
                         tr_error *err);
tr_status tri_sink_end(tri_sink *sink, tr_error *err); /* ends the last shards */
void tri_sink_fini(tri_sink *sink);

#endif
