/* From the parts of all ranks to a checkpoint.
 *
 * Ranks write into one directory and tell each other nothing: a rank's report appears there, whole,
 * after its data is on the disk. Whoever commits waits for the reports. So writing needs no
 * messages between ranks, which may be deep in the next step meanwhile. */
#include "ckpt/ckpt_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/staged_dir.h"
#include "ckpt/rank_file.h"

/* When the run ends. */
#define LAST_PATIENCE_S 1.0

/* What the directory holds now. Progress is any change of it. */
typedef struct progress {
    int num_reports;
    int64_t bytes;
} progress;

static tr_status part_failed(const tri_ckpt_commit *c, int rank, const char *path, tr_error *err)
{
    tri_mapping mapping = {0};
    tr_status status = tri_mapping_open(&mapping, path, NULL);
    int length = status == TR_OK && mapping.num_bytes < 400 ? (int)mapping.num_bytes : 0;
    if (length > 0)
        tri_fail(err, TR_ERROR_RUNTIME, "%.*s", length, (const char *)mapping.data);
    else
        tri_fail(err, TR_ERROR_RUNTIME, "rank %d could not write its part of %s", rank, c->temp);
    tri_mapping_close(&mapping);
    return TR_ERROR_RUNTIME;
}

static tr_status look(const tri_ckpt_commit *c, progress *now, tr_error *err)
{
    *now = (progress){0};
    tri_file_list list;
    TRI_TRY(tri_file_list_read(&list, c->temp, err));
    tr_status status = TR_OK;
    for (size_t i = 0; i < list.num && status == TR_OK; i++) {
        int rank = -1, end = 0;
        char *path = tri_path_join(c->temp, list.name[i]);
        struct stat info;
        if (path && stat(path, &info) == 0)
            now->bytes += (int64_t)info.st_size;
        if (sscanf(list.name[i], "rank-%d.report.json%n", &rank, &end) == 1 && end > 0)
            now->num_reports++;
        end = 0;
        if (sscanf(list.name[i], "rank-%d.failed%n", &rank, &end) == 1 && end > 0)
            status = part_failed(c, rank, path ? path : "", err);
        free(path);
    }
    tri_file_list_free(&list);
    return status;
}

static int first_missing(const tri_ckpt_commit *c)
{
    for (int rank = 0; rank < c->num_ranks; rank++) {
        char name[64];
        if (!tri_dir_has(c->temp, tri_rank_file_report_name(rank, name)))
            return rank;
    }
    return -1;
}

/* What is missing, and what to do about it, by what has been seen of it. */
static tr_status missing_part(const tri_ckpt_commit *c, tr_error *err)
{
    int rank = first_missing(c);
    char name[64], size[16];
    char *path = tri_path_join(c->temp, tri_rank_file_name(rank, name));
    struct stat info;
    bool begun = path && stat(path, &info) == 0;
    free(path);
    if (!begun)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "%s: the part of rank %d has not appeared for %.3g s (ckpt.patience_s); "
                        "run.dir must be on a file system that all ranks share",
                        c->temp, rank, c->patience_s);
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "%s: rank %d has written %s and nothing more for %.3g s: the disk is slow or "
                    "does not answer; a larger ckpt.patience_s waits longer, a larger ckpt.every "
                    "writes less often",
                    c->temp, rank, tri_text_bytes((double)info.st_size, size), c->patience_s);
}

static tr_status wait_for_reports(const tri_ckpt_commit *c, tr_error *err)
{
    progress before = {0}, now;
    double since = tri_now_s();
    for (long pause_ms = 1;; pause_ms = pause_ms < 50 ? 2 * pause_ms : 50) {
        TRI_TRY(look(c, &now, err));
        if (now.num_reports >= c->num_ranks)
            return TR_OK;
        if (now.num_reports != before.num_reports || now.bytes != before.bytes)
            since = tri_now_s();
        before = now;
        if (c->give_up && atomic_load(c->give_up) && tri_now_s() - since > LAST_PATIENCE_S)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: the run ended before it was complete",
                            c->temp);
        if (tri_now_s() - since > c->patience_s)
            return missing_part(c, err);
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
    }
}

/* A file of the run that whoever uses the checkpoint will want too. */
static tr_status copy_extra(const tri_ckpt_commit *c, const char *name, tri_manifest *whole,
                            tr_error *err)
{
    char *from = tri_path_join(c->extras_from, name), *to = tri_path_join(c->temp, name);
    tri_mapping mapping = {0};
    tr_status status = from && to ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    bool there = status == TR_OK && tri_path_exists(from);
    if (there)
        status = tri_mapping_open(&mapping, from, err);
    if (there && status == TR_OK)
        status = tri_file_replace(to, mapping.data ? (const void *)mapping.data : "",
                                  mapping.num_bytes, err);
    tri_ckpt_file entry = {.name = name,
                           .bytes = (int64_t)mapping.num_bytes,
                           .checked_bytes = (int64_t)mapping.num_bytes};
    if (there && status == TR_OK) {
        entry.checksum = tri_checksum_bytes(mapping.data, mapping.num_bytes);
        if (!tri_manifest_add_file(whole, &entry))
            status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
    }
    tri_mapping_close(&mapping);
    free(from);
    free(to);
    return status;
}

static tr_status merge_reports(const tri_ckpt_commit *c, tri_manifest *whole, tr_error *err)
{
    tri_manifest *reports = calloc((size_t)c->num_ranks, sizeof *reports);
    const tri_manifest **list = calloc((size_t)c->num_ranks, sizeof *list);
    tr_status status =
        reports && list ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
    int num = 0;
    while (num < c->num_ranks && status == TR_OK) {
        char name[64];
        char *path = tri_path_join(c->temp, tri_rank_file_report_name(num, name));
        status = path ? tri_manifest_read(path, true, &reports[num], err)
                      : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
        free(path);
        list[num] = &reports[num];
        num += status == TR_OK;
    }
    if (status == TR_OK)
        status = tri_manifest_merge(whole, list, (size_t)num, err);
    for (int i = 0; i < num; i++)
        tri_manifest_fini(&reports[i]);
    free(reports);
    free(list);
    return status;
}

static tr_status write_manifest(const tri_ckpt_commit *c, const tri_manifest *whole, tr_error *err)
{
    char *path = tri_path_join(c->temp, TRI_CKPT_MANIFEST);
    tri_text text;
    tri_text_init(&text);
    tri_manifest_print(whole, &text);
    tr_status status = path && !text.failed
                           ? tri_file_replace(path, text.chars, text.length, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
    tri_text_fini(&text);
    free(path);
    return status;
}

static void remove_reports(const tri_ckpt_commit *c)
{
    for (int rank = 0; rank < c->num_ranks; rank++) {
        char name[64];
        char *path = tri_path_join(c->temp, tri_rank_file_report_name(rank, name));
        if (path)
            (void)unlink(path);
        free(path);
    }
}

/* Its name is on the disk afterwards, or it has none: others are removed on the strength of it. */
static tr_status give_name(const tri_ckpt_commit *c, tr_error *err)
{
    TRI_TRY(tri_sync_dir(c->temp, err));
    char *path = tri_ckpt_path(c->dir, c->step);
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status status = TR_OK;
    if (rename(c->temp, path) != 0) {
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path, strerror(errno));
    } else {
        status = tri_sync_dir(c->dir, err);
        if (status != TR_OK)
            (void)rename(path, c->temp);
    }
    free(path);
    return status;
}

/* Once more, before it gets a name that says it is complete. */
static tr_status check_files(const tri_ckpt_commit *c, const tri_manifest *whole, tr_error *err)
{
    for (size_t i = 0; i < whole->num_files; i++) {
        char *path = tri_path_join(c->temp, whole->files[i].name);
        struct stat info;
        bool good = path && stat(path, &info) == 0 && info.st_size == whole->files[i].bytes;
        free(path);
        if (!good)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: %s is not there in its full size", c->temp,
                            whole->files[i].name);
    }
    return TR_OK;
}

static tr_status assemble(const tri_ckpt_commit *c, tri_manifest *whole, tr_error *err)
{
    TRI_TRY(wait_for_reports(c, err));
    TRI_TRY(merge_reports(c, whole, err));
    for (int i = 0; c->extras && c->extras[i]; i++)
        TRI_TRY(copy_extra(c, c->extras[i], whole, err));
    whole->step = c->step;
    for (size_t i = 0; i < c->num_numbers; i++)
        if (!tri_manifest_add_number(whole, c->numbers[i].name, c->numbers[i].value))
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the manifest");
    TRI_TRY(tri_manifest_check_tiling(whole, c->temp, err));
    for (int i = 0; c->needed && c->needed[i]; i++)
        if (!tri_manifest_find(whole, c->needed[i]))
            return tri_fail(err, TR_ERROR_INTERNAL, "%s: no rank has written %s", c->temp,
                            c->needed[i]);
    TRI_TRY(check_files(c, whole, err));
    TRI_TRY(write_manifest(c, whole, err));
    remove_reports(c);
    return give_name(c, err);
}

tr_status tri_ckpt_commit_run(const tri_ckpt_commit *commit, tr_error *err)
{
    tri_manifest whole;
    tri_manifest_init(&whole);
    tr_status status = assemble(commit, &whole, err);
    tri_manifest_fini(&whole);
    if (status != TR_OK)
        tri_remove_dir(commit->temp);
    return status;
}
