#include "data/prepare/text_cache.h"
#include "base/checksum.h"
#include "base/fs.h"
#include "data/lines.h"
#include "data/prepare/prepare.h"
#include "data/prepare/prepared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static bool is_compressed(const char *path)
{
    unsigned char head[4] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t num = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (fd >= 0)
        close(fd);
    return num == sizeof head &&
           (memcmp(head, "\x1f\x8b", 2) == 0 || memcmp(head, "\x28\xb5\x2f\xfd", 4) == 0);
}

static bool is_packed(const char *path)
{
    return tri_is_jsonl_name(path) || is_compressed(path);
}

bool tri_text_cache_needed(const tri_data_config *config)
{
    if (config->task != TRI_DATA_LM) /* whose sources read their entries themselves */
        return false;
    if (config->tokenizer && *config->tokenizer && strcmp(config->tokenizer, "bytes") != 0)
        return true;
    if (!tri_path_is_dir(config->source))
        return is_packed(config->source);
    tri_file_list list;
    bool packed = false;
    if (tri_file_list_read(&list, config->source, NULL) != TR_OK)
        return false;
    for (size_t i = 0; i < list.num && !packed; i++) {
        char *path = tri_path_join(config->source, list.name[i]);
        packed = path && is_packed(path);
        free(path);
    }
    tri_file_list_free(&list);
    return packed;
}

/* "CACHE/data/NAME-1f2e3d4c": the name for people, the number for two sources of one name. */
static char *cache_dir(const tri_data_config *config, const char *tokenizer)
{
    tri_checksum sum;
    tri_checksum_init(&sum);
    tri_checksum_add(&sum, config->source, strlen(config->source) + 1);
    tri_checksum_add(&sum, tokenizer, strlen(tokenizer));
    size_t length = strlen(config->source);
    while (length > 1 && config->source[length - 1] == '/')
        length--;
    size_t begin = length;
    while (begin > 0 && config->source[begin - 1] != '/')
        begin--;
    char *dir = NULL;
    return asprintf(&dir, "%s/data/%.*s-%08x", config->cache,
                    (int)(length - begin < 100 ? length - begin : 100), config->source + begin,
                    (unsigned)tri_checksum_end(&sum)) < 0
               ? NULL
               : dir;
}

static bool is_done(const char *dir, uint64_t fingerprint)
{
    tri_prepared found; /* a list alone proves nothing: are the shards there? */
    if (tri_prepared_made_from(dir) != fingerprint || tri_prepared_open(dir, &found, NULL) != TR_OK)
        return false;
    tri_prepared_close(&found);
    return true;
}

/* Before what may take a while. */
static void announce(const tri_data_config *config, const char *format, const char *name)
{
    char text[600];
    snprintf(text, sizeof text, format, name, config->source);
    if (config->progress)
        config->progress(config->progress_context, &(tri_prepare_progress){.doing = text});
}

/* A tokenizer that is made from the text is made only where the text has to be prepared. */
static tr_status prepare(const tri_data_config *config, const char *name, const char *dir,
                         tr_error *err)
{
    tri_prepare_config wanted = {.inputs = &config->source,
                                 .num_inputs = 1,
                                 .out = dir,
                                 .field = config->field,
                                 .separator = TRI_SEPARATOR_USUAL,
                                 .force = true,
                                 .progress = config->progress,
                                 .context = config->progress_context};
    bool made;
    tri_tokenizer *tokenizer = NULL;
    tri_pool *pool = NULL;
    tri_prepare_result result;
    TRI_TRY(tri_prepare_is_made(name, &made, NULL, err));
    if (!made)
        TRI_TRY(tri_tokenizer_open(name, &tokenizer, err));
    tr_status status = tri_prepare_fingerprint(&wanted, tokenizer, name, &wanted.made_from, err);
    bool done = status == TR_OK && is_done(dir, wanted.made_from);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = config->num_threads > 0 ? config->num_threads : cores > 0 ? (int)cores : 1;
    if (status == TR_OK && !done)
        status = tri_pool_create(threads, &pool, err);
    if (status == TR_OK && !done && made)
        announce(config, "making the tokenizer %.100s from %.300s, once", name);
    if (status == TR_OK && !done && made)
        status =
            tri_prepare_tokenizer(name, &config->source, 1, config->field, pool, &tokenizer, err);
    if (status == TR_OK && !done)
        announce(config, "turning text into tokens with %.100s, once: %.300s", name);
    if (status == TR_OK && !done)
        status = tri_prepare(&wanted, tokenizer, pool, &result, err);
    tri_pool_destroy(pool);
    tri_tokenizer_close(tokenizer);
    return status;
}

/* Others who want the same wait here. The lock goes with the process, whatever happens to it. */
static tr_status lock(const char *dir, int *fd, tr_error *err)
{
    char *path = NULL, *parent = strndup(dir, (size_t)(strrchr(dir, '/') - dir));
    tr_status status = parent && asprintf(&path, "%s.lock", dir) > 0
                           ? tri_make_dirs(parent, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
    *fd = status == TR_OK ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (status == TR_OK && *fd < 0)
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path, strerror(errno));
    while (status == TR_OK && flock(*fd, LOCK_EX) != 0 && errno == EINTR)
        continue;
    free(parent);
    free(path);
    return status;
}

tr_status tri_text_cache_fill(const tri_data_config *config, char **dir, tr_error *err)
{
    const char *name = config->tokenizer && *config->tokenizer ? config->tokenizer : "bytes";
    *dir = NULL;
    if (!config->cache || !*config->cache)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: must be prepared before it can be trained on; use `trireme data "
                        "prepare`",
                        config->source);
    if (!tri_path_exists(config->source))
        return tri_fail_missing(err, config->source,
                                "data.source must name text, prepared tokens, a list of them, or "
                                "be synthetic");
    int fd = -1;
    *dir = cache_dir(config, name);
    tr_status status = *dir ? lock(*dir, &fd, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    if (status == TR_OK)
        status = prepare(config, name, *dir, err);
    if (fd >= 0)
        close(fd);
    if (status != TR_OK) {
        free(*dir);
        *dir = NULL;
    }
    return status;
}
