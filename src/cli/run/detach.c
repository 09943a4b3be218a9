#include "cli/run/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/signals.h"
#include "cli/text.h"

typedef struct detach_word {
    enum { OUTPUT, BEGUN } kind;
    int64_t offset; /* OUTPUT: where this run's part of the file begins */
} detach_word;

/* ---- the child ---- */

static void leave(void)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    setsid();
    if (nothing >= 0) {
        dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
}

static void say(const tri_detach *d, const detach_word *word)
{
    if (d->pipe >= 0)
        (void)!write(d->pipe, word, sizeof *word);
}

void tri_detach_take_output(const tri_detach *d, const char *run_dir)
{
    if (d->pipe < 0)
        return;
    char *path = tri_path_join(run_dir, TRI_RUN_OUTPUT);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    int reason = path ? errno : ENOMEM;
    free(path);
    fflush(stdout);
    fflush(stderr);
    if (fd < 0) { /* the run is worth more than its words */
        tri_cli_error("note: %s/" TRI_RUN_OUTPUT " cannot be written (%s); log/rank-0.log has what "
                      "the run prints",
                      run_dir, strerror(reason));
        fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    } else {
        say(d, &(detach_word){.kind = OUTPUT, .offset = lseek(fd, 0, SEEK_END)});
    }
    if (fd >= 0) {
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        close(fd);
    }
}

static void tell(void *context, const tri_run_news *news)
{
    tri_detach *d = context;
    if (news->moment != TRI_RUN_BEGINS || d->pipe < 0)
        return;
    say(d, &(detach_word){.kind = BEGUN});
    close(d->pipe);
    d->pipe = -1;
}

tri_observer tri_detach_observer(tri_detach *d)
{
    return (tri_observer){"detach", tell, NULL, d};
}

/* ---- the command ---- */

static void print_from(int fd, int64_t offset)
{
    char bytes[4096];
    ssize_t num;
    while (fd >= 0 && (num = pread(fd, bytes, sizeof bytes, offset)) > 0) {
        tri_terminal_write(stderr, bytes, (size_t)num);
        offset += num;
    }
}

static void tell_begun(const char *dir, pid_t pid)
{
    int width = (int)strlen(dir);
    tri_text_print(stdout,
                   "%s runs in the background, as process %d\n"
                   "  trireme runs         %*s  how it goes\n"
                   "  trireme runs attach %s  follow it; Ctrl-C leaves it running\n"
                   "  trireme runs stop %s    finish the step, save and end\n"
                   "  %s/" TRI_RUN_OUTPUT "%*s  what it prints\n",
                   dir, (int)pid, width - 1, "", dir, dir, dir, 9, "");
}

/* What is caught here goes on to the run, which ends then. */
static bool hear(int pipe, pid_t child, detach_word *word)
{
    enum { TICK_MS = 100 };
    for (bool passed = false;;) {
        struct pollfd ready = {.fd = pipe, .events = POLLIN};
        int caught = tri_signals_caught();
        if (caught && !passed)
            kill(child, caught);
        passed |= caught != 0;
        if (poll(&ready, 1, TICK_MS) > 0)
            return read(pipe, word, sizeof *word) == (ssize_t)sizeof *word;
    }
}

static int await_begin(int pipe, pid_t child, const char *dir)
{
    detach_word word = {.kind = OUTPUT};
    int output = -1, status;
    int64_t offset = 0;
    bool begun = false;
    tri_signals_catch();
    while (!begun && hear(pipe, child, &word)) {
        begun = word.kind == BEGUN;
        char *path = begun ? NULL : tri_path_join(dir, TRI_RUN_OUTPUT);
        if (path) {
            output = open(path, O_RDONLY | O_CLOEXEC);
            offset = word.offset;
        }
        free(path);
    }
    if (begun) {
        tell_begun(dir, child);
    } else { /* it has ended, or is about to */
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        print_from(output, offset);
    }
    if (output >= 0)
        close(output);
    return begun ? TRI_EXIT_OK : WIFEXITED(status) ? WEXITSTATUS(status) : TRI_EXIT_FAILED;
}

bool tri_detach_begin(tri_detach *d, const tri_cli *cli, int *code)
{
    int ends[2];
    *d = (tri_detach){.pipe = -1};
    if (!tri_cli_flag(cli, "detach"))
        return true;
    fflush(stdout);
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child < 0) {
        tri_cli_error("--detach: no process can be started: %s", strerror(errno));
        *code = TRI_EXIT_FAILED;
        return false;
    }
    if (child == 0) {
        close(ends[0]);
        leave();
        d->pipe = ends[1];
        return true;
    }
    close(ends[1]);
    *code = await_begin(ends[0], child, tr_settings_string(cli->settings, "run.dir"));
    close(ends[0]);
    return false;
}
