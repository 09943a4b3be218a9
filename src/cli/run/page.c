#include "cli/run/page.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"

enum { PATIENCE_MS = 5000, END_MS = 2000, TICK_MS = 20 };

/* In the child. It is no part of the terminal's job, so that Ctrl-C, which asks the run to save and
 * end, leaves the page until that is done; and it goes when the run is killed. */
_Noreturn static void become(const char *dir, int64_t port, pid_t parent, int output)
{
    char number[16], path[4200];
    snprintf(number, sizeof number, "%lld", (long long)port);
    snprintf(path, sizeof path, "%s%s", *dir == '/' ? "" : "./", dir);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(0);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close_range(3, ~0u, 0); /* the run's own files, and whatever was given to it */
    execl("/proc/self/exe", "trireme", "watch", path, "--port", number, (char *)NULL);
    fprintf(stderr, "trireme: this program cannot be started again: %s\n", strerror(errno));
    _exit(1);
}

/* The first line that it prints. */
static void read_line(int fd, char *line, size_t size)
{
    size_t num = 0;
    double until = tri_now_s() + 1e-3 * PATIENCE_MS;
    *line = 0;
    while (num + 1 < size && !strchr(line, '\n')) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        double left = until - tri_now_s();
        if (left <= 0 || (poll(&ready, 1, (int)(left * 1e3)) < 0 && errno != EINTR))
            break;
        ssize_t got = ready.revents ? read(fd, line + num, size - 1 - num) : -1;
        if (got == 0)
            break;
        num += got > 0 ? (size_t)got : 0;
        line[num] = 0;
    }
    line[strcspn(line, "\n")] = 0;
}

static void warn(const char *why)
{
    static const char prefix[] = "trireme: ";
    bool prefixed = strncmp(why, prefix, sizeof prefix - 1) == 0;
    tri_cli_error("warning: the page of the run cannot be shown, and the run goes on without: %s",
                  !*why      ? "it did not start in time"
                  : prefixed ? why + sizeof prefix - 1
                             : why);
}

void tri_run_page_begin(tri_run_page *page, const tr_settings *settings, bool quiet)
{
    int64_t port = tr_settings_int(settings, "run.page");
    int ends[2];
    char line[600];
    pid_t parent = getpid();
    *page = (tri_run_page){0};
    if (port == 0)
        return;
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        warn(strerror(errno));
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(tr_settings_string(settings, "run.dir"), port, parent, ends[1]);
    int reason = errno;
    close(ends[1]);
    if (pid > 0)
        read_line(ends[0], line, sizeof line);
    close(ends[0]);
    page->pid = pid > 0 ? pid : 0;
    if (pid < 0) {
        warn(strerror(reason));
    } else if (strncmp(line, "http", 4) != 0) {
        warn(line);
        tri_run_page_end(page);
    } else if (!quiet) {
        printf("page    %s shows this run in a browser until it ends\n", line);
        fflush(stdout);
    }
}

void tri_run_page_end(tri_run_page *page)
{
    int status;
    if (page->pid == 0)
        return;
    kill(page->pid, SIGTERM);
    for (int waited = 0; waited < END_MS; waited += TICK_MS) {
        if (waitpid(page->pid, &status, WNOHANG) != 0) {
            page->pid = 0;
            return;
        }
        usleep(TICK_MS * 1000);
    }
    kill(page->pid, SIGKILL);
    waitpid(page->pid, &status, 0);
    page->pid = 0;
}
