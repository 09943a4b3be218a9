/* trireme runs stop. events.jsonl names the process that began the run; it gets SIGTERM only when
 * it is surely that one: on this machine, older than the event, and with the directory open whose
 * lock is held. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/runs/run_find.h"
#include "cli/runs/run_row.h"
#include "cli/runs/runs_verbs.h"

/* Whether a process has the directory open. errno says why it cannot be told. */
static bool has_open(int64_t pid, const char *dir)
{
    char path[64];
    struct stat wanted, info;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd", pid);
    DIR *handle = stat(dir, &wanted) == 0 ? opendir(path) : NULL;
    const struct dirent *entry;
    bool found = false;
    while (handle && !found && (entry = readdir(handle)))
        found = fstatat(dirfd(handle), entry->d_name, &info, 0) == 0 &&
                info.st_ino == wanted.st_ino && info.st_dev == wanted.st_dev;
    if (handle) {
        closedir(handle);
        errno = 0;
    }
    return found;
}

/* When a process began, seconds since 1970; 0: not known. */
static double began_at(int64_t pid)
{
    char path[64], line[1024] = "";
    long long ticks = 0, boot = 0;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *file = fopen(path, "re");
    size_t num = file ? fread(line, 1, sizeof line - 1, file) : 0;
    if (file)
        fclose(file);
    line[num] = 0;
    char *at = strrchr(line, ')'); /* the name before it may hold anything */
    for (int i = 0; i < 20 && at; i++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoll(at, NULL, 10);
    file = fopen("/proc/stat", "re");
    while (file && boot == 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "btime %lld", &boot) != 1)
            boot = 0;
    if (file)
        fclose(file);
    return ticks > 0 && boot > 0 ? (double)boot + (double)ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

static tr_status find_process(const char *dir, tri_run_story *story, tr_error *err)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    tri_run_lock_state lock = tri_run_lock_look(dir);
    TRI_TRY(tri_events_read(dir, story, err));
    if (lock == TRI_LOCK_FREE &&
        (story->ended || !story->started || strcmp(host, story->host) == 0))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: no run is at work there, so there is none to stop", dir);
    if (!story->started || story->ended || story->pid <= 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: its events.jsonl does not say which process is at work there; a run "
                        "that is just beginning can be stopped in a moment",
                        dir);
    if (strcmp(host, story->host) != 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: process %" PRId64 " on %s is at work there, and this is %s; stop it "
                        "from there",
                        dir, story->pid, story->host, host);
    bool open = has_open(story->pid, dir);
    if (!open && errno == EACCES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: process %" PRId64 " belongs to another user; ask them to stop it", dir,
                        story->pid);
    const double second = 2; /* events have whole ones */
    if (!open || !(began_at(story->pid) <= story->last_start + second))
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: a process is at work there, but it is not process %" PRId64
                        " that events.jsonl names, so nothing is stopped",
                        dir, story->pid);
    return TR_OK;
}

/* Says what became of it; fails when it did not end in time, or not well. */
static tr_status await(const char *dir, int64_t patience_s, tr_error *err)
{
    enum { TICK_MS = 50 };
    tri_run_story story;
    for (int64_t waited = 0; waited < patience_s * 1000; waited += TICK_MS) {
        if (tri_run_lock_look(dir) != TRI_LOCK_HELD)
            break;
        usleep(TICK_MS * 1000);
    }
    bool works = tri_run_lock_look(dir) == TRI_LOCK_HELD;
    TRI_TRY(tri_events_read(dir, &story, err));
    if (works && patience_s == 0)
        return TR_OK;
    if (works)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "%s: is still at work after %" PRId64 " s; it ends when its step is done "
                        "and saved: `trireme runs` shows it",
                        dir, patience_s);
    if (!story.ended || !tri_exit_is_good((int)story.exit_code))
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: has ended, but not in good order: %s", dir,
                        *story.reason ? story.reason : "events.jsonl does not say why");
    tri_text_print(stdout, "%s: %s after step %" PRId64, dir,
                   story.exit_code == TRI_EXIT_OK ? "was done" : "stopped", story.steps);
    if (story.saved >= 0)
        printf(", saved in ckpt/step-%" PRId64 "; to go on: the same command with --set "
               "run.resume=true",
               story.saved);
    printf("\n");
    return TR_OK;
}

static tr_status stop(const char *dir, int64_t patience_s, tr_error *err)
{
    tri_run_story story;
    TRI_TRY(find_process(dir, &story, err));
    if (kill((pid_t)story.pid, SIGTERM) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "%s: process %" PRId64 " cannot be asked to stop: %s", dir, story.pid,
                        strerror(errno));
    tri_text_print(stdout, "%s: asked process %" PRId64 " to finish its step, save and end\n", dir,
                   story.pid);
    fflush(stdout);
    return await(dir, patience_s, err);
}

int tri_runs_stop(const char *const *names, int num, int64_t patience_s)
{
    int code = TRI_EXIT_OK;
    for (int i = 0; i < num; i++) {
        tr_error err = {0};
        char *dir = NULL;
        tr_status status = tri_run_dir_of(names[i], &dir, &err);
        if (status == TR_OK)
            status = stop(dir, patience_s, &err);
        if (status != TR_OK)
            code = tri_cli_fail(&err);
        free(dir);
    }
    return code;
}
