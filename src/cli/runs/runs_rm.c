/* trireme runs rm. A run goes whole: it gets a hidden name first, so that nobody finds half of it,
 * and is held by its lock until it is gone. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/temporary.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/runs/run_find.h"
#include "cli/runs/run_row.h"
#include "cli/runs/runs_verbs.h"
#include "config/settings_table.h"

/* A run that is to go. */
typedef struct doomed_run {
    char *dir, *real;
    int fd; /* its lock, or -1 */
    double frees;
    char what[200];   /* "done, 200 of 200 steps, 1.2 MiB" */
    char others[200]; /* names of files that no run writes, or "" */
} doomed_run;

/* ---- what must not be removed ---- */

static tr_status refuse(const char *dir, const char *why, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT, "%s is not removed: %s", dir, why);
}

static bool lies_in(const char *path, const char *dir)
{
    size_t length = strlen(dir);
    return strncmp(path, dir, length) == 0 && (path[length] == 0 || path[length] == '/');
}

static tr_status check_place(const doomed_run *run, tr_error *err)
{
    struct stat info, above;
    if (lstat(run->dir, &info) == 0 && S_ISLNK(info.st_mode))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is not removed: it is a link to %s; name that, or remove the link with "
                        "`rm %s`",
                        run->dir, run->real, run->dir);
    char *here = realpath(".", NULL), *parent = tri_path_join(run->real, "..");
    const char *home = getenv("HOME");
    bool inside = here && lies_in(here, run->real), homes = home && lies_in(home, run->real);
    bool mounted = parent && stat(run->real, &info) == 0 && stat(parent, &above) == 0 &&
                   info.st_dev != above.st_dev;
    free(here);
    free(parent);
    if (inside)
        return refuse(run->dir, "the working directory is in it", err);
    if (homes)
        return refuse(run->dir, "your home directory is in it", err);
    if (mounted)
        return refuse(run->dir, "it is a mount point", err);
    static const char *const projects[] = {".git", ".hg", ".svn"};
    for (int i = 0; i < 3; i++)
        if (tri_dir_has(run->real, projects[i]))
            return refuse(run->dir, "it holds the repository of a project", err);
    return TR_OK;
}

static bool is_runs_own(const char *name)
{
    static const char *const names[] = {"config.yaml",
                                        "metrics.jsonl",
                                        "events.jsonl",
                                        "log",
                                        "ckpt",
                                        "data",
                                        "samples",
                                        "tuning.json",
                                        "weights.safetensors",
                                        "tokenizer.json",
                                        "special_tokens_map.json",
                                        "hf_config.json",
                                        "tokenizer_config.json",
                                        "generation_config.json",
                                        "chat_template.jinja",
                                        "tensorboard",
                                        "wandb",
                                        "metrics.csv",
                                        "metrics.prom",
                                        "loss.svg",
                                        "samples.jsonl",
                                        "status",
                                        "output.log"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return name[0] == '.' || strncmp(name, "trace", 5) == 0;
}

/* Names what a person has put there; other runs in it are refused. */
static tr_status look_inside(doomed_run *run, tr_error *err)
{
    DIR *handle = opendir(run->real);
    const struct dirent *entry;
    size_t length = 0, more = 0;
    bool runs = false;
    while (handle && (entry = readdir(handle))) {
        if (is_runs_own(entry->d_name))
            continue;
        tri_run_list list = {0};
        char *path = tri_path_join(run->real, entry->d_name);
        if (path && tri_path_is_dir(path) && tri_runs_find(&list, path, NULL) == TR_OK)
            runs |= list.num > 0;
        tri_run_list_free(&list);
        free(path);
        if (length + strlen(entry->d_name) + 3 < sizeof run->others - 24)
            length += (size_t)snprintf(run->others + length, sizeof run->others - length, "%s%s",
                                       length ? ", " : "", entry->d_name);
        else
            more++;
    }
    if (more > 0)
        snprintf(run->others + length, sizeof run->others - length, " and %zu more", more);
    if (handle)
        closedir(handle);
    return runs ? refuse(run->dir, "it holds other runs; name those", err) : TR_OK;
}

/* Files of that name are not enough: they must be of a run. */
static bool is_really(const tri_run_row *row, const char *dir)
{
    tr_settings *settings = NULL;
    char *path = tri_path_join(dir, "config.yaml");
    bool ours = row->story.started || row->metrics.num_lines > 0;
    if (!ours && path && tr_settings_create(&settings, NULL) == TR_OK)
        ours = tri_path_exists(path) && tri_settings_look(settings, path, NULL) == TR_OK;
    tr_settings_destroy(settings);
    free(path);
    return ours;
}

static tr_status take_lock(doomed_run *run, const tri_run_row *row, tr_error *err)
{
    bool works = row->state == TRI_RUN_IS_RUNNING || row->state == TRI_RUN_IS_STALLED;
    run->fd = open(run->real, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (run->fd < 0)
        return tri_fail_open(err, run->dir, errno);
    if (flock(run->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is not removed: a run is at work there; `trireme runs stop %s` ends it",
                        run->dir, run->dir);
    if (works)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is not removed: it may be at work on %s, from where no end has been "
                        "told; when it is not, remove the directory by hand",
                        run->dir, row->story.host);
    return TR_OK;
}

/* Run number i; those before it have been checked. */
static tr_status check(doomed_run *runs, int i, const char *name, tr_error *err)
{
    doomed_run *run = &runs[i];
    tri_run_row row;
    char bytes[16];
    TRI_TRY(tri_run_dir_of(name, &run->dir, err));
    run->real = realpath(run->dir, NULL);
    if (!run->real)
        return tri_fail_open(err, run->dir, errno);
    for (int k = 0; k < i; k++)
        if (strcmp(runs[k].real, run->real) == 0)
            return tri_fail(err, TR_ERROR_INPUT, "%s is named twice; name it once", run->dir);
    TRI_TRY(check_place(run, err));
    TRI_TRY(tri_run_row_read(&row, run->real, tri_unix_s(), err));
    if (!is_really(&row, run->real))
        return refuse(run->dir, "its files are named like those of a run, and are none", err);
    TRI_TRY(look_inside(run, err));
    TRI_TRY(take_lock(run, &row, err));
    run->frees = tri_disk_used(run->real, false);
    snprintf(run->what, sizeof run->what, "%s, %" PRId64 " steps, %s",
             tri_run_state_name(row.state), row.metrics.step, tri_text_bytes(run->frees, bytes));
    return TR_OK;
}

/* ---- removing ---- */

/* What is in a directory, on its own disk; false when something is left. errno says why. */
static bool empty_dir(int fd, dev_t device)
{
    DIR *handle = fdopendir(fd);
    const struct dirent *entry;
    bool gone = handle != NULL;
    int reason = errno;
    if (!handle)
        close(fd);
    while (handle && (entry = readdir(handle))) {
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        bool known = fstatat(dirfd(handle), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0;
        bool is_dir = known && S_ISDIR(info.st_mode);
        if (is_dir && info.st_dev == device) {
            int below = openat(dirfd(handle), entry->d_name,
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below >= 0)
                (void)empty_dir(below, device); /* what is left keeps its directory */
        }
        if (!known || unlinkat(dirfd(handle), entry->d_name, is_dir ? AT_REMOVEDIR : 0) != 0) {
            gone = false;
            reason = errno;
        }
    }
    if (handle)
        closedir(handle);
    errno = reason;
    return gone;
}

static tr_status remove_run(const doomed_run *run, tr_error *err)
{
    char *parent = strdup(run->real), *slash = parent ? strrchr(parent, '/') : NULL, *hidden = NULL;
    struct stat info;
    if (slash)
        slash[slash == parent] = 0;
    for (int i = 0; slash && i < 100; i++) { /* the first name that is free */
        free(hidden);
        hidden = tri_temporary_path(parent, i);
        if (!hidden || lstat(hidden, &info) != 0)
            break;
    }
    tr_status status = TR_OK;
    if (!slash || !hidden)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to remove %s", run->dir);
    else if (fstat(run->fd, &info) != 0 || rename(run->real, hidden) != 0)
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s cannot be removed: %s", run->dir, strerror(errno));
    else if (!empty_dir(openat(run->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), info.st_dev) ||
             rmdir(hidden) != 0)
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s cannot be removed whole: %s; what is left is %s",
                     run->dir, strerror(errno), hidden);
    free(parent);
    free(hidden);
    return status;
}

/* Whether somebody at the terminal says yes. */
static bool asks(const doomed_run *run)
{
    char answer[16] = "";
    tri_text_print(stdout, "remove %s (%s)%s%s? [y/N] ", run->dir, run->what,
                   *run->others ? " with what no run wrote: " : "", run->others);
    fflush(stdout);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static tr_status remove_all(doomed_run *runs, int num, bool yes, tr_error *err)
{
    for (int i = 0; i < num; i++) {
        char bytes[16];
        if (!yes && !asks(&runs[i])) {
            tri_text_print(stdout, "%s stays\n", runs[i].dir);
            continue;
        }
        TRI_TRY(remove_run(&runs[i], err));
        tri_text_print(stdout, "removed %s%s%s, which frees %s\n", runs[i].dir,
                       *runs[i].others ? " with " : "", runs[i].others,
                       tri_text_bytes(runs[i].frees, bytes));
    }
    return TR_OK;
}

int tri_runs_rm(const char *const *names, int num, bool yes)
{
    tr_error err = {0};
    doomed_run *runs = calloc((size_t)num, sizeof *runs);
    tr_status status = runs ? TR_OK : tri_fail(&err, TR_ERROR_RUNTIME, "no memory for names");
    for (int i = 0; runs && i < num; i++)
        runs[i].fd = -1;
    for (int i = 0; i < num && status == TR_OK; i++)
        status = check(runs, i, names[i], &err);
    if (status == TR_OK && !yes && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)))
        status = tri_fail(&err, TR_ERROR_INPUT,
                          "nothing is removed: there is no terminal to ask on; add --yes to remove "
                          "%s%s",
                          runs[0].dir, num > 1 ? " and the others" : "");
    if (status == TR_OK)
        status = remove_all(runs, num, yes, &err);
    for (int i = 0; runs && i < num; i++) {
        if (runs[i].fd >= 0)
            close(runs[i].fd);
        free(runs[i].dir);
        free(runs[i].real);
    }
    free(runs);
    return status == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
