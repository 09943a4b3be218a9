#include "cli/runs/run_find.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/settings/nearest.h"

enum { DEEPEST = 8 }; /* folders in folders */

/* Whether a directory holds what a run writes: its settings and something beside them, or both of
 * its logs. */
static bool is_run_dir(const char *dir)
{
    bool metrics = tri_dir_has(dir, "metrics.jsonl"), events = tri_dir_has(dir, "events.jsonl");
    return (metrics && events) ||
           (tri_dir_has(dir, "config.yaml") && (metrics || events || tri_dir_has(dir, "ckpt") ||
                                                tri_dir_has(dir, "weights.safetensors")));
}

void tri_run_list_free(tri_run_list *list)
{
    for (size_t i = 0; i < list->num; i++)
        free(list->dirs[i]);
    free(list->dirs);
    *list = (tri_run_list){0};
}

/* A link and what it points to are one run. */
static bool is_listed(const tri_run_list *list, const struct stat *info)
{
    struct stat other;
    for (size_t i = 0; i < list->num; i++)
        if (stat(list->dirs[i], &other) == 0 && other.st_ino == info->st_ino &&
            other.st_dev == info->st_dev)
            return true;
    return false;
}

static tr_status add(tri_run_list *list, const char *dir, tr_error *err)
{
    struct stat info;
    if (stat(dir, &info) != 0 || is_listed(list, &info))
        return TR_OK;
    if (list->num == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 32;
        char **dirs = realloc(list->dirs, capacity * sizeof *dirs);
        if (!dirs)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
        list->dirs = dirs;
        list->capacity = capacity;
    }
    char *copy = strdup(dir);
    if (!copy)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
    size_t length = strlen(copy);
    while (length > 1 && copy[length - 1] == '/')
        copy[--length] = 0;
    list->dirs[list->num++] = copy;
    return TR_OK;
}

/* links: those that lead to runs, in a second turn, so that a run has its own name in the list. */
static tr_status walk(tri_run_list *list, const char *folder, bool links, int depth, tr_error *err)
{
    DIR *handle = depth < DEEPEST ? opendir(folder) : NULL;
    const struct dirent *entry;
    tr_status status = TR_OK;
    while (handle && status == TR_OK && (entry = readdir(handle))) {
        if (entry->d_name[0] == '.')
            continue;
        char *path = tri_path_join(folder, entry->d_name);
        struct stat info;
        if (!path)
            status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of runs");
        else if (lstat(path, &info) != 0) /* gone meanwhile */
            status = TR_OK;
        else if (S_ISLNK(info.st_mode))
            status = links && is_run_dir(path) ? add(list, path, err) : TR_OK;
        else if (S_ISDIR(info.st_mode) && !is_run_dir(path))
            status = walk(list, path, links, depth + 1, err);
        else if (S_ISDIR(info.st_mode) && !links)
            status = add(list, path, err);
        free(path);
    }
    if (handle)
        closedir(handle);
    return status;
}

tr_status tri_runs_find(tri_run_list *list, const char *folder, tr_error *err)
{
    if (is_run_dir(folder))
        return add(list, folder, err);
    DIR *handle = opendir(folder);
    int reason = errno;
    if (!handle && reason == ENOTDIR)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: is not a directory; name a run directory or a folder of them", folder);
    if (!handle)
        return tri_fail_open(err, folder, reason);
    closedir(handle);
    TRI_TRY(walk(list, folder, false, 0, err));
    return walk(list, folder, true, 0, err);
}

/* ---- one run, by name ---- */

static const char *base_of(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    return slash ? slash + 1 : dir;
}

static tr_status unknown(const char *name, tr_error *err)
{
    tri_run_list list = {0};
    const char *best = NULL;
    if (tri_path_is_dir(TRI_RUNS_FOLDER))
        (void)tri_runs_find(&list, TRI_RUNS_FOLDER, NULL);
    for (size_t i = 0; i < list.num; i++)
        if (!best || tri_edit_distance(base_of(name), base_of(list.dirs[i])) <
                         tri_edit_distance(base_of(name), base_of(best)))
            best = list.dirs[i];
    bool slip = best && tri_is_slip(base_of(name), base_of(best));
    tr_status status =
        tri_fail(err, TR_ERROR_INPUT,
                 "there is no run %s; %s%s%s`trireme runs` lists those in " TRI_RUNS_FOLDER "/",
                 name, slip ? "did you mean " : "", slip ? best : "", slip ? "? " : "");
    tri_run_list_free(&list);
    return status;
}

tr_status tri_run_dir_of(const char *name, char **dir, tr_error *err)
{
    struct stat info;
    *dir = NULL;
    if (!*name)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the name of a run is empty; `trireme runs` lists them");
    *dir = strdup(name);
    if (*dir && stat(*dir, &info) != 0 && !strchr(name, '/')) {
        free(*dir);
        *dir = tri_path_join(TRI_RUNS_FOLDER, name);
    }
    if (!*dir)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    size_t length = strlen(*dir);
    while (length > 1 && (*dir)[length - 1] == '/')
        (*dir)[--length] = 0;
    tr_status status = TR_OK;
    if (stat(*dir, &info) != 0)
        status = errno == ENOENT || errno == ENOTDIR ? unknown(name, err)
                                                     : tri_fail_open(err, *dir, errno);
    else if (!S_ISDIR(info.st_mode))
        status =
            tri_fail(err, TR_ERROR_INPUT,
                     "%s: is a file, not the directory of a run; name the run.dir of a run", *dir);
    else if (!is_run_dir(*dir))
        status = tri_fail(err, TR_ERROR_INPUT,
                          "%s: is not the directory of a run: it has neither config.yaml with "
                          "results beside it nor metrics.jsonl and events.jsonl; `trireme runs %s` "
                          "lists the runs in it",
                          *dir, *dir);
    if (status != TR_OK) {
        free(*dir);
        *dir = NULL;
    }
    return status;
}
