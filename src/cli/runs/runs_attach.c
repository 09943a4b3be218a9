/* trireme runs attach: what a run prints, from the file that has it, until the run ends. It only
 * reads, so whoever leaves leaves nothing behind. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/cli.h"
#include "cli/run/detach.h"
#include "cli/runs/run_find.h"
#include "cli/runs/run_row.h"
#include "cli/runs/runs_verbs.h"
#include "cli/signals.h"
#include "cli/text.h"

enum { LINE = 4000, TICK_MS = 100, LAST_LINES = 20, LAST_BYTES = 16 << 10 };

typedef struct followed_file {
    int fd;
    int64_t at;
    char line[LINE]; /* the last one, until it ends */
    size_t length;
} followed_file;

/* ---- lines ---- */

/* A progress bar is drawn over itself: what stands behind the last return counts. Sequences that
 * command a terminal are left out, and whatever else would is spelt out. */
static void print_line(char *line)
{
    char *from = strrchr(line, '\r'), *to = line;
    for (from = from ? from + 1 : line; *from; from++) {
        if (from[0] == '\033' && from[1] == '[') {
            from += 2 + strspn(from + 2, "0123456789;?");
            if (!*from)
                break;
            continue;
        }
        *to++ = *from;
    }
    *to = 0;
    tri_text_print(stdout, "%s\n", line);
}

static void add_byte(followed_file *f, char byte)
{
    if (byte == '\r')
        f->length = 0;
    else if (byte != '\n' && f->length + 1 < sizeof f->line)
        f->line[f->length++] = byte;
    if (byte != '\n')
        return;
    f->line[f->length] = 0;
    f->length = 0;
    print_line(f->line);
}

static void print_new(followed_file *f)
{
    char bytes[4096];
    ssize_t num;
    while (f->fd >= 0 && (num = pread(f->fd, bytes, sizeof bytes, f->at)) > 0) {
        f->at += num;
        for (ssize_t i = 0; i < num; i++)
            add_byte(f, bytes[i]);
    }
    fflush(stdout);
}

/* Where its last lines begin. */
static int64_t last_lines(int fd)
{
    static char bytes[LAST_BYTES];
    struct stat info;
    int64_t size = fstat(fd, &info) == 0 ? info.st_size : 0;
    int64_t begin = size > LAST_BYTES ? size - LAST_BYTES : 0;
    ssize_t num = pread(fd, bytes, sizeof bytes, begin);
    int lines = 0;
    for (ssize_t i = num - 1; i >= 0; i--)
        if (bytes[i] == '\n' && ++lines > LAST_LINES)
            return begin + i + 1;
    for (ssize_t i = 0; i < num && begin > 0; i++)
        if (bytes[i] == '\n')
            return begin + i + 1;
    return begin;
}

/* ---- which file ---- */

/* That of a detached run, when it belongs to this start; else what rank 0 printed. */
static tr_status output_of(const char *dir, const tri_run_story *story, char **path, tr_error *err)
{
    struct stat info;
    char *detached = tri_path_join(dir, TRI_RUN_OUTPUT);
    const double second = 2; /* events have whole ones */
    *path = tri_path_join(dir, "log/rank-0.log");
    tr_status status = detached && *path
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: no memory for a path", dir);
    if (status == TR_OK && stat(detached, &info) == 0 &&
        (double)info.st_mtime + second >= story->last_start) {
        free(*path);
        *path = detached;
        return TR_OK;
    }
    free(detached);
    return status;
}

/* A new start may have another file, or have begun it anew. */
static tr_status look(followed_file *f, const char *dir, const tri_run_story *story, bool first,
                      tr_error *err)
{
    struct stat named, open_one;
    char *path;
    tr_status status = output_of(dir, story, &path, err);
    bool same = f->fd >= 0 && status == TR_OK && stat(path, &named) == 0 &&
                fstat(f->fd, &open_one) == 0 && named.st_ino == open_one.st_ino &&
                named.st_dev == open_one.st_dev;
    if (same && open_one.st_size < f->at)
        f->at = 0;
    if (!same && status == TR_OK) {
        print_new(f);
        if (f->fd >= 0)
            close(f->fd);
        f->fd = open(path, O_RDONLY | O_CLOEXEC);
        f->at = first && f->fd >= 0 ? last_lines(f->fd) : 0;
        f->length = 0;
    }
    free(path);
    return status;
}

/* ---- following ---- */

static bool is_over(const char *dir, const tri_run_story *story)
{
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    bool here = strcmp(host, story->host) == 0;
    return story->ended || (here && tri_run_lock_look(dir) == TRI_LOCK_FREE);
}

static int say_end(const char *dir, const tri_run_story *story)
{
    if (!story->ended) {
        tri_cli_error("%s: ended without a word: it was killed, or its machine went down", dir);
        return TRI_EXIT_FAILED;
    }
    tri_text_print(stdout, "%s: %s", dir,
                   story->exit_code == TRI_EXIT_OK           ? "done"
                   : tri_exit_is_good((int)story->exit_code) ? "stopped"
                                                             : "failed");
    if (story->steps >= 0)
        printf(" after step %" PRId64, story->steps);
    printf("\n");
    return (int)story->exit_code;
}

static tr_status follow(followed_file *f, const char *dir, int *code, tr_error *err)
{
    tri_run_story story;
    TRI_TRY(tri_events_read(dir, &story, err));
    bool over = is_over(dir, &story);
    if (!over)
        tri_text_print(stdout, "%s: process %" PRId64 " is at work; Ctrl-C leaves it running\n",
                       dir, story.pid);
    TRI_TRY(look(f, dir, &story, true, err));
    for (print_new(f); !over && !tri_signals_caught() && !ferror(stdout); print_new(f)) {
        usleep(TICK_MS * 1000);
        bool free = tri_run_lock_look(dir) == TRI_LOCK_FREE; /* its end is written before that */
        TRI_TRY(tri_events_read(dir, &story, err));
        over = is_over(dir, &story) && (story.ended || free);
        TRI_TRY(look(f, dir, &story, false, err));
    }
    if (over) {
        *code = say_end(dir, &story);
        return TR_OK;
    }
    tri_text_print(stdout, "%s: goes on; `trireme runs attach %s` follows it again\n", dir, dir);
    *code = tri_signals_caught() == SIGINT ? TRI_EXIT_INTERRUPTED : TRI_EXIT_STOPPED;
    return TR_OK;
}

int tri_runs_attach(const char *name)
{
    tr_error err = {0};
    char *dir = NULL;
    int code = TRI_EXIT_OK;
    followed_file f = {.fd = -1};
    tr_status status = tri_run_dir_of(name, &dir, &err);
    tri_signals_catch();
    if (status == TR_OK)
        status = follow(&f, dir, &code, &err);
    if (f.fd >= 0)
        close(f.fd);
    free(dir);
    return status == TR_OK ? code : tri_cli_fail(&err);
}
