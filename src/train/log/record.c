#include "train/log/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/text.h"
#include "train/ckpt/checkpoint.h"

struct tri_record {
    tri_session *session;
    int fd, rank;
    char *path;
    uint64_t *samples; /* of the step that is being filled */
    size_t num, capacity;
    bool failed, has_failed; /* memory ran out in this step; a failure was reported */
};

static void add_sample(void *context, uint64_t sample)
{
    tri_record *record = context;
    uint64_t *grown =
        tri_array_grow(record->samples, record->num, &record->capacity, sizeof *grown);
    if (!grown) {
        record->failed = true;
        return;
    }
    record->samples = grown;
    record->samples[record->num++] = sample;
}

static char *path_of(const char *dir, int rank)
{
    char name[40];
    snprintf(name, sizeof name, "rank-%d.jsonl", rank);
    return tri_path_join(dir, name);
}

/* Takes away records of ranks that are no more: they are of an earlier run. */
static void clean(const char *dir, int num_ranks)
{
    /* Ranks of one run are numbered without gaps. */
    for (int rank = num_ranks;; rank++) {
        char *path = path_of(dir, rank);
        bool gone = !path || unlink(path) != 0;
        free(path);
        if (gone)
            return;
    }
}

/* Rank r sees to the records of r, r + num_ranks, ...: there may be more of them than ranks now. */
static tr_status trim(const tri_record_config *config, tr_error *err)
{
    for (int rank = config->rank;; rank += config->num_ranks) {
        char *path = path_of(config->dir, rank);
        if (!path)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->dir);
        bool there = tri_path_exists(path);
        tr_status status = there ? tri_jsonl_trim(path, config->step, err) : TR_OK;
        free(path);
        if (status != TR_OK || !there)
            return status;
    }
}

tr_status tri_record_open(const tri_record_config *config, tri_session *session, tri_record **out,
                          tr_error *err)
{
    *out = NULL;
    TRI_TRY(tri_make_dirs(config->dir, err));
    if (config->resumed)
        TRI_TRY(trim(config, err));
    else if (config->rank == 0)
        clean(config->dir, config->num_ranks);
    tri_record *record = calloc(1, sizeof *record);
    if (record)
        *record = (tri_record){.session = session,
                               .fd = -1,
                               .rank = config->rank,
                               .path = path_of(config->dir, config->rank)};
    if (!record || !record->path) {
        free(record);
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->dir);
    }
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (config->resumed ? 0 : O_TRUNC);
    record->fd = open(record->path, flags, 0666);
    if (record->fd < 0) {
        tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", record->path, strerror(errno));
        tri_record_close(record);
        return TR_ERROR_RUNTIME;
    }
    session->sampled = add_sample;
    session->sampled_context = record;
    *out = record;
    return TR_OK;
}

static void add_list(tri_text *line, const tri_record *record, bool windows)
{
    tri_text_add(line, windows ? ",\"windows\":[" : ",\"samples\":[");
    for (size_t i = 0; i < record->num; i++) {
        uint64_t value = record->samples[i];
        if (windows)
            value = tri_data_window(record->session->data, TRI_SPLIT_TRAIN, value);
        tri_text_add(line, "%s%" PRIu64, i ? "," : "", value);
    }
    tri_text_add(line, "]");
}

static int write_all(int fd, const char *data, size_t num_bytes)
{
    while (num_bytes > 0) {
        ssize_t written = write(fd, data, num_bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : ENOSPC;
        data += written;
        num_bytes -= (size_t)written;
    }
    return 0;
}

tr_status tri_record_step(tri_record *record, int64_t step, tr_error *err)
{
    tri_text line;
    tri_text_init(&line);
    tri_text_add(&line, "{\"step\":%" PRId64 ",\"rank\":%d,\"dp\":%d", step, record->rank,
                 record->session->dp_rank);
    add_list(&line, record, false);
    if (record->session->data)
        add_list(&line, record, true);
    tri_text_add(&line, ",\"time\":%.3f}\n", tri_unix_s());
    int reason =
        record->failed || line.failed ? ENOMEM : write_all(record->fd, line.chars, line.length);
    tri_text_fini(&line);
    record->num = 0;
    record->failed = false;
    if (reason == 0 || record->has_failed)
        return TR_OK;
    record->has_failed = true;
    return tri_fail(err, TR_ERROR_RUNTIME, "%s: step %" PRId64 " cannot be written: %s",
                    record->path, step, strerror(reason));
}

void tri_record_close(tri_record *record)
{
    if (!record)
        return;
    if (record->session->sampled_context == record)
        record->session->sampled = NULL;
    if (record->fd >= 0)
        close(record->fd);
    free(record->samples);
    free(record->path);
    free(record);
}
