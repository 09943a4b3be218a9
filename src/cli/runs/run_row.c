#include "cli/runs/run_row.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/fs.h"
#include "config/settings_table.h"

const char *tri_run_state_name(tri_run_state state)
{
    static const char *const names[TRI_NUM_RUN_STATES] = {
        [TRI_RUN_IS_RUNNING] = "running", [TRI_RUN_IS_STALLED] = "stalled",
        [TRI_RUN_IS_DONE] = "done",       [TRI_RUN_IS_STOPPED] = "stopped",
        [TRI_RUN_IS_FAILED] = "failed",
    };
    return names[state];
}

/* A lock for readers, which is given back at once: a run that begins in this moment takes it for
 * that of ranks that are just ending, and tries again (train/run/run_lock.c). */
tri_run_lock_state tri_run_lock_look(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tri_run_lock_state state = TRI_LOCK_UNKNOWN;
    if (fd < 0)
        return state;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0)
        state = TRI_LOCK_FREE;
    else if (errno == EWOULDBLOCK)
        state = TRI_LOCK_HELD;
    close(fd);
    return state;
}

/* The descriptor is closed. */
static double used_below(int fd, bool shared)
{
    DIR *handle = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;
    double sum = 0;
    while (handle && (entry = readdir(handle))) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(handle), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISDIR(info.st_mode))
            sum += used_below(openat(dirfd(handle), entry->d_name,
                                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                              shared);
        if (S_ISDIR(info.st_mode) || info.st_nlink == 1 || shared)
            sum += 512.0 * (double)info.st_blocks;
    }
    if (handle)
        closedir(handle);
    else if (fd >= 0) {
        sum = errno == ENOMEM ? NAN : 0;
        close(fd);
    }
    return sum;
}

double tri_disk_used(const char *dir, bool shared)
{
    return used_below(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), shared);
}

/* Longer than this without a line is no slow step any more: many steps, and longer than the longest
 * evaluation or save of late. NAN: the pace is not known yet. */
static double patience(const tri_run_summary *s)
{
    const double least_s = 30, steps = 20, slow_ones = 3;
    return isnan(s->gap_s) ? NAN : fmax(least_s, fmax(steps * s->gap_s, slow_ones * s->slow_gap_s));
}

static tri_run_state judge(const tri_run_row *row, tri_run_lock_state lock, bool same_host,
                           bool has_weights, double now)
{
    const tri_run_story *story = &row->story;
    bool open = story->started && !story->ended;
    /* Elsewhere on a shared disk: locks need not reach so far, but lines do. */
    bool elsewhere = open && !same_host && lock != TRI_LOCK_HELD;
    bool silent = now - row->updated > patience(&row->metrics);
    if (lock == TRI_LOCK_HELD)
        return silent ? TRI_RUN_IS_STALLED : TRI_RUN_IS_RUNNING;
    if (elsewhere || (open && lock == TRI_LOCK_UNKNOWN))
        return silent || isnan(row->metrics.gap_s) ? TRI_RUN_IS_STALLED : TRI_RUN_IS_RUNNING;
    if (open)
        return TRI_RUN_IS_FAILED;
    if (!story->started)
        return has_weights || (row->total > 0 && row->metrics.step >= row->total)
                   ? TRI_RUN_IS_DONE
                   : TRI_RUN_IS_STOPPED;
    if (story->exit_code == TRI_EXIT_OK)
        return TRI_RUN_IS_DONE;
    return tri_exit_is_good((int)story->exit_code) ? TRI_RUN_IS_STOPPED : TRI_RUN_IS_FAILED;
}

static void note(tri_run_row *row, const char *text)
{
    if (!*row->why)
        snprintf(row->why, sizeof row->why, "%.*s", (int)strcspn(text, "\n"), text);
}

/* Sizes from the settings; a run of epochs tells how many steps one has when it ends. */
static tr_status read_settings(tri_run_row *row, tr_error *err)
{
    char *path = tri_path_join(row->dir, "config.yaml");
    if (!path)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_settings *settings = NULL;
    tr_error why = {0};
    tr_status status = TR_OK;
    if (tri_path_exists(path)) {
        status = tr_settings_create(&settings, err);
        tr_status loaded = status == TR_OK ? tri_settings_look(settings, path, &why) : status;
        if (status == TR_OK && loaded == TR_ERROR_RUNTIME)
            status = tri_fail(err, loaded, "%s", why.message);
        if (loaded == TR_OK) {
            row->total = tr_settings_int(settings, "train.steps");
            int64_t epochs = tr_settings_int(settings, "train.epochs");
            if (epochs > 0 && row->metrics.epoch > 0)
                row->total = row->metrics.epoch_step / row->metrics.epoch * epochs;
            row->dp = tr_settings_int(settings, "layout.dp");
            row->cp = tr_settings_int(settings, "layout.cp");
            row->tp = tr_settings_int(settings, "layout.tp");
            row->pp = tr_settings_int(settings, "layout.pp");
        } else if (status == TR_OK) {
            note(row, why.message);
        }
    }
    tr_settings_destroy(settings);
    free(path);
    return status;
}

static double changed_at(const char *dir, const char *name)
{
    char *path = tri_path_join(dir, name);
    struct stat info;
    double when = path && stat(path, &info) == 0 ? (double)info.st_mtim.tv_sec : 0;
    free(path);
    return when;
}

static bool is_this_host(const char *host)
{
    char here[256] = "";
    gethostname(here, sizeof here - 1);
    return strcmp(here, host) == 0;
}

tr_status tri_run_row_read(tri_run_row *row, const char *dir, double now, tr_error *err)
{
    tr_error why = {0};
    *row = (tri_run_row){.dir = dir, .left_s = NAN};
    tri_run_lock_state lock = tri_run_lock_look(dir); /* first: what ends meanwhile says so below */
    TRI_TRY(tri_events_read(dir, &row->story, err));
    tr_status status = tri_run_summary_read(dir, &row->metrics, &why);
    if (status == TR_ERROR_RUNTIME)
        return tri_fail(err, status, "%s", why.message);
    if (status != TR_OK)
        note(row, why.message);
    TRI_TRY(read_settings(row, err));
    const tri_run_story *story = &row->story;
    const tri_run_summary *m = &row->metrics;
    if (row->dp <= 0 && story->dp > 0) {
        row->dp = story->dp;
        row->cp = story->cp;
        row->tp = story->tp;
        row->pp = story->pp;
    }
    row->began = story->began > 0 ? story->began : m->first_time;
    if (!(row->began > 0))
        row->began = changed_at(dir, "config.yaml");
    row->updated = fmax(isnan(m->time) ? changed_at(dir, "metrics.jsonl") : m->time,
                        fmax(story->last_event, row->began));
    row->state =
        judge(row, lock, is_this_host(story->host), tri_dir_has(dir, "weights.safetensors"), now);
    bool works = row->state == TRI_RUN_IS_RUNNING || row->state == TRI_RUN_IS_STALLED;
    if (row->state == TRI_RUN_IS_DONE && row->total < m->step)
        row->total = m->step;
    if (works && row->total >= m->step)
        row->left_s = (double)(row->total - m->step) * m->gap_s;
    if (row->state == TRI_RUN_IS_FAILED)
        note(row, *story->reason ? story->reason
                  : story->ended
                      ? "it ended with an error; log/rank-0.log and the terminal say which"
                      : "it ended without a word: killed, or its machine went down");
    row->disk_bytes = tri_disk_used(dir, true);
    return isnan(row->disk_bytes) ? tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory to list it", dir)
                                  : TR_OK;
}

int tri_run_row_compare(const void *left, const void *right)
{
    const tri_run_row *a = left, *b = right;
    bool a_works = a->state <= TRI_RUN_IS_STALLED, b_works = b->state <= TRI_RUN_IS_STALLED;
    if (a_works != b_works)
        return a_works ? -1 : 1;
    if (a->updated != b->updated)
        return a->updated > b->updated ? -1 : 1;
    return strcmp(a->dir, b->dir);
}
