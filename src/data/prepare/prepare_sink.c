#include "data/prepare/prepare_sink.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const split_name[2] = {"train", "eval"};

tr_status tri_sink_init(tri_sink *sink, tr_error *err)
{
    for (int s = 0; s < 2; s++) {
        sink->writer[s] = (tri_shard_writer){.fd = -1};
        sink->names[s] = json_array();
    }
    return sink->names[0] && sink->names[1]
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", sink->dir);
}

static tr_status begin(tri_sink *sink, tri_split split, tr_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%05" PRIu64 TRI_SHARD_SUFFIX, split_name[split],
             sink->result->shards[split]);
    char *path = tri_path_join(sink->dir, name);
    if (!path || json_array_append_new(sink->names[split], json_string(name)) != 0) {
        free(path);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", sink->dir);
    }
    tr_status status = tri_shard_begin(&sink->writer[split], path, sink->vocab, sink->separator,
                                       sink->fingerprint, err);
    free(path);
    sink->result->shards[split]++;
    return status;
}

static tr_status end(tri_sink *sink, tri_split split, tr_error *err)
{
    sink->result->tokens[split] += sink->writer[split].num_tokens;
    return tri_shard_end(&sink->writer[split], err);
}

tr_status tri_sink_write(tri_sink *sink, tri_split split, const int32_t *ids, size_t num,
                         tr_error *err)
{
    tri_shard_writer *writer = &sink->writer[split];
    while (num > 0) {
        if (!writer->path)
            TRI_TRY(begin(sink, split, err));
        uint64_t room = (uint64_t)sink->shard_tokens - writer->num_tokens;
        size_t take = num < room ? num : (size_t)room;
        TRI_TRY(tri_shard_write(writer, ids, take, err));
        ids += take;
        num -= take;
        if (writer->num_tokens == (uint64_t)sink->shard_tokens)
            TRI_TRY(end(sink, split, err));
    }
    return TR_OK;
}

tr_status tri_sink_end(tri_sink *sink, tr_error *err)
{
    for (int s = 0; s < 2; s++)
        if (sink->writer[s].path)
            TRI_TRY(end(sink, (tri_split)s, err));
    return TR_OK;
}

void tri_sink_fini(tri_sink *sink)
{
    for (int s = 0; s < 2; s++) {
        tri_shard_abandon(&sink->writer[s]);
        json_decref(sink->names[s]);
        sink->names[s] = NULL;
    }
}
