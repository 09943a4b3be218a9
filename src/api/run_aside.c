#include "api/run_aside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "ckpt/ckpt_dir.h"
#include "config/settings_table.h"
#include "train/log/events.h"

#define WAYS_OUT                                                                                   \
    "continue that run (--set run.resume=true), give another run.dir, or move or delete what is "  \
    "there"

/* ---- what is there ---- */

static tr_status has(const char *dir, const char *name, bool *there, tr_error *err)
{
    char *path = tri_path_join(dir, name);
    struct stat info;
    int failed = path ? lstat(path, &info) : -1, reason = path ? errno : ENOMEM;
    free(path);
    *there = failed == 0;
    if (failed == 0 || reason == ENOENT)
        return TR_OK;
    return tri_fail(err, TR_ERROR_RUNTIME, "%s/%s: cannot be looked at: %s", dir, name,
                    strerror(reason));
}

/* Whether config.yaml holds settings of ours: many programs have a file of that name. */
static tr_status has_settings(const char *dir, bool *ours, tr_error *err)
{
    TRI_TRY(has(dir, "config.yaml", ours, err));
    if (!*ours)
        return TR_OK;
    tr_settings *settings;
    char *path = tri_path_join(dir, "config.yaml");
    tr_error why = {0};
    tr_status status = path ? tr_settings_create(&settings, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    if (status == TR_OK) {
        tr_status loaded = tri_settings_look(settings, path, &why);
        *ours = loaded == TR_OK;
        if (loaded != TR_OK && loaded != TR_ERROR_INPUT)
            status = tri_fail(err, loaded, "%s", why.message);
        tr_settings_destroy(settings);
    }
    free(path);
    return status;
}

/* What a run replaces. It adds to events.jsonl, log and data, or finds them useful. */
static const char *const replaced[] = {
    "config.yaml",   "metrics.jsonl", "metrics.csv",   "metrics.prom", "weights.safetensors",
    "ckpt",          "samples",       "samples.jsonl", "trace.json",   "special_tokens_map.json",
    "tokenizer.json"};
enum { NUM_REPLACED = sizeof replaced / sizeof *replaced };
/* What, beside its settings, only a run has. */
static const char *const signs[] = {"metrics.jsonl", "weights.safetensors", "ckpt", "events.jsonl"};
enum { NUM_SIGNS = sizeof signs / sizeof *signs };

static tr_status has_checkpoints(const char *dir, bool *any, tr_error *err)
{
    tri_ckpt_steps steps = {0};
    char *path = tri_path_join(dir, "ckpt");
    tr_status status = path ? tri_ckpt_steps_read(&steps, path, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    *any = steps.num > 0 || steps.num_damaged > 0;
    tri_ckpt_steps_free(&steps);
    free(path);
    return status;
}

/* Whether it is a run's; wrong input when it is not, and holds what a run would replace. */
static tr_status look(const char *dir, bool *is_run, tr_error *err)
{
    bool settings, there;
    *is_run = false;
    TRI_TRY(has_settings(dir, &settings, err));
    for (int i = 0; i < NUM_SIGNS && settings && !*is_run; i++)
        TRI_TRY(has(dir, signs[i], is_run, err));
    for (int i = 0; i < NUM_REPLACED && !*is_run; i++) {
        TRI_TRY(strcmp(replaced[i], "ckpt") == 0 ? has_checkpoints(dir, &there, err)
                                                 : has(dir, replaced[i], &there, err));
        if (there)
            return tri_fail(err, TR_ERROR_INPUT,
                            "%s/%s: is there, and a run would replace it; %s is not the directory "
                            "of an earlier run, so it is left alone: give another run.dir, or move "
                            "that away",
                            dir, replaced[i], dir);
    }
    return TR_OK;
}

/* ---- what cannot be moved ---- */

static bool lies_in(const char *path, const char *dir)
{
    size_t length = strlen(dir);
    return strncmp(path, dir, length) == 0 && (path[length] == 0 || path[length] == '/');
}

/* Whether one of the words of a setting is a path in the directory: "a:0.7,b:0.3", "csv:FILE". */
static tr_status names_inside(const char *value, const char *dir, bool *found, tr_error *err)
{
    bool inside = false, no_memory = false;
    char *copy = strdup(value), *rest = copy, *word;
    while (rest && !inside && (word = strsep(&rest, ","))) {
        char *colon = strrchr(word, ':');
        const char *tries[] = {word, colon ? colon + 1 : "", word};
        for (int i = 0; i < 3 && !inside; i++) {
            if (i == 2 && colon)
                *colon = 0; /* what stands before a weight */
            char *real = tries[i][0] ? realpath(tries[i], NULL) : NULL;
            no_memory |= tries[i][0] && !real && errno == ENOMEM;
            inside = real && lies_in(real, dir);
            free(real);
        }
    }
    *found = inside;
    no_memory |= !copy;
    free(copy);
    return no_memory ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path") : TR_OK;
}

/* real: without symbolic links, so it is what they point to that is moved. */
static tr_status may_move(const tr_settings *settings, const char *real, tr_error *err)
{
    const char *dir = tr_settings_string(settings, "run.dir");
    char *here = realpath(".", NULL);
    if (!here && errno == ENOMEM)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    bool below = here && lies_in(here, real);
    free(here);
    const char *home = getenv("HOME"), *why = below ? "the working directory is in it" : NULL;
    if (!why && home && strcmp(home, real) == 0)
        why = "it is your home directory";
    static const char *const projects[] = {".git", ".hg", ".svn"};
    for (int i = 0; i < 3 && !why; i++) {
        bool there;
        TRI_TRY(has(real, projects[i], &there, err));
        why = there ? "it holds the repository of a project" : NULL;
    }
    if (why)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.dir is %s, which holds an earlier run and is not moved aside: %s; "
                        "" WAYS_OUT,
                        dir, why);
    const tri_table *table = tri_settings_table(settings);
    for (int i = 0; i < table->num; i++) {
        const tri_setting *row = table->row[i];
        bool inside = false;
        if (row->type == TRI_SETTING_STRING && strcmp(row->name, "run.dir") != 0 &&
            strcmp(row->name, "run.tuning") != 0)
            TRI_TRY(names_inside(tr_settings_string(settings, row->name), real, &inside, err));
        if (inside)
            return tri_fail(
                err, TR_ERROR_INPUT,
                "%s is %s, which is part of the earlier run in run.dir (%s); that would "
                "move aside and the new run would not find it: give another run.dir",
                row->name, tr_settings_string(settings, row->name), dir);
    }
    return TR_OK;
}

/* What is to be done; *real (on the heap) is the directory to move, or NULL. */
static tr_status judge(const tr_settings *settings, char **real, tr_error *err)
{
    const char *dir = tr_settings_string(settings, "run.dir");
    bool goes_on = false, is_run;
    *real = NULL;
    if (!tri_path_is_dir(dir))
        return TR_OK;
    if (strcmp(tr_settings_string(settings, "run.resume"), "false") != 0)
        TRI_TRY(has_checkpoints(dir, &goes_on, err));
    if (goes_on)
        return TR_OK;
    TRI_TRY(look(dir, &is_run, err));
    if (!is_run)
        return TR_OK;
    *real = realpath(dir, NULL);
    tr_status status =
        *real ? may_move(settings, *real, err)
              : tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be found: %s", dir, strerror(errno));
    if (status != TR_OK) {
        free(*real);
        *real = NULL;
    }
    return status;
}

tr_status tri_run_aside_check(const tr_settings *settings, tr_error *err)
{
    char *real;
    tr_status status = judge(settings, &real, err);
    free(real);
    return status;
}

/* ---- moving ---- */

/* Both directories have the same files then, as long as neither replaces its own: as much as can be
 * had, since all of it can be made again. */
static void share(const char *from, const char *to)
{
    struct stat info;
    if (lstat(from, &info) != 0)
        return;
    if (S_ISREG(info.st_mode))
        (void)!link(from, to);
    if (!S_ISDIR(info.st_mode) || mkdir(to, info.st_mode & 07777) != 0)
        return;
    DIR *handle = opendir(from);
    const struct dirent *entry;
    while (handle && (entry = readdir(handle))) {
        const char *dot = strrchr(entry->d_name, '.');
        if (entry->d_name[0] == '.' || (dot && strcmp(dot, ".lock") == 0))
            continue;
        char *below = tri_path_join(from, entry->d_name), *copy = tri_path_join(to, entry->d_name);
        if (below && copy)
            share(below, copy);
        free(below);
        free(copy);
    }
    if (handle)
        closedir(handle);
}

static const char *const useful[] = {"data", "tuning.json"};
enum { NUM_USEFUL = sizeof useful / sizeof *useful };

static void share_useful(const char *from, const char *to)
{
    for (int i = 0; i < NUM_USEFUL; i++) {
        char *old = tri_path_join(from, useful[i]), *new = tri_path_join(to, useful[i]);
        if (old && new)
            share(old, new);
        free(old);
        free(new);
    }
}

/* A new directory under the first free name, "REAL.1" and so on; NULL with errno set. */
static char *make_next(const char *real, int *number)
{
    char *path = NULL;
    for (*number = 1; *number < 1000000; ++*number) {
        free(path);
        if (asprintf(&path, "%s.%d", real, *number) < 0) {
            errno = ENOMEM;
            return NULL;
        }
        if (mkdir(path, 0777) == 0)
            return path;
        if (errno != EEXIST)
            break;
    }
    int reason = errno;
    free(path);
    errno = reason;
    return NULL;
}

/* The two directories change names, at one moment where the file system can do that; a crash leaves
 * both of them under some name everywhere. 0, or -1 with errno set. */
static int exchange(const char *old, const char *new)
{
    if (renameat2(AT_FDCWD, old, AT_FDCWD, new, RENAME_EXCHANGE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        return -1;
    char *between = NULL;
    if (asprintf(&between, "%s.new", new) < 0)
        return -1;
    int failed = rename(new, between);
    if (failed == 0 && (failed = rename(old, new)) != 0) {
        int reason = errno;
        (void)rename(between, new);
        errno = reason;
    }
    if (failed == 0 && (failed = rename(between, old)) != 0) {
        int reason = errno;
        if (rename(new, old) == 0)
            (void)rename(between, new);
        errno = reason;
    }
    free(between);
    return failed;
}

static void take_away(const char *path)
{
    DIR *handle = opendir(path);
    const struct dirent *entry;
    while (handle && (entry = readdir(handle))) {
        char *below = tri_path_join(path, entry->d_name);
        if (below && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlink(below) != 0)
            take_away(below);
        free(below);
    }
    if (handle)
        closedir(handle);
    (void)rmdir(path);
}

/* fd receives the locked new directory. */
static tr_status move(const char *real, const char *dir, int *number, int *fd, tr_error *err)
{
    struct stat info;
    char *next = make_next(real, number);
    if (!next || stat(real, &info) != 0) {
        int reason = errno;
        free(next);
        return tri_fail(err,
                        reason == EACCES || reason == EPERM || reason == EROFS ? TR_ERROR_INPUT
                                                                               : TR_ERROR_RUNTIME,
                        "%s: holds an earlier run and cannot be moved aside: %s; " WAYS_OUT, dir,
                        strerror(reason));
    }
    (void)!chmod(next, info.st_mode & 07777);
    share_useful(real, next);
    *fd = open(next, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd >= 0)
        (void)flock(*fd, LOCK_EX | LOCK_NB);
    tr_status status = TR_OK;
    if (exchange(real, next) != 0) {
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: holds an earlier run and cannot be moved aside: %s%s; " WAYS_OUT,
                          dir, strerror(errno), errno == EBUSY ? " (is it a mount point?)" : "");
        take_away(next);
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
    }
    free(next);
    return status;
}

/* "runs/demo.1" for "runs/demo/", as a person would say it; a link's target for a link. */
static char *name_of_moved(const char *dir, const char *real, int number)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    char *plain = strndup(dir, length), *name = NULL;
    struct stat info;
    bool link = !plain || lstat(plain, &info) != 0 || S_ISLNK(info.st_mode);
    if (asprintf(&name, "%s.%d", link ? real : plain, number) < 0)
        name = NULL;
    free(plain);
    return name;
}

tr_status tri_run_aside(tri_run_lock *lock, const tr_settings *settings, char **moved,
                        tr_error *err)
{
    char *real;
    int number = 0, fd = -1;
    *moved = NULL;
    TRI_TRY(judge(settings, &real, err));
    if (!real)
        return TR_OK;
    const char *dir = tr_settings_string(settings, "run.dir");
    tri_events_add_missing_end(dir);
    tr_status status = move(real, dir, &number, &fd, err);
    if (status == TR_OK) {
        if (lock->fd >= 0)
            close(lock->fd);
        lock->fd = fd;
        *moved = name_of_moved(dir, real, number);
    }
    free(real);
    return status;
}
