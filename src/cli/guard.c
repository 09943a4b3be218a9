#include "cli/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/temporary.h"

/* In the process that waits: away from the terminal and from everything that this one has open, so
 * that nobody waits for it, and nothing stays locked because of it. */
static void leave(int pipe)
{
    setsid();
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3 && nothing >= 0; fd++)
        dup2(nothing, fd);
    if (pipe != 3)
        dup2(pipe, 3);
    closefrom(4);
}

/* A byte means that all is well; the end of the pipe without one, that nobody could write it. */
static _Noreturn void wait_and_clean(int pipe, const char *path, pid_t pid)
{
    char well;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    leave(pipe);
    if (read(3, &well, 1) != 1 && dir)
        tri_temporaries_remove(dir, pid, 0);
    _exit(0);
}

void tri_guard_begin(tri_guard *g, const char *path)
{
    int ends[2];
    *g = (tri_guard){.pipe = -1};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    char *name = strndup(path, length); /* "out/" lies beside "out" */
    pid_t own = getpid();
    if (name && pipe2(ends, O_CLOEXEC) == 0) {
        g->pid = fork();
        if (g->pid == 0) {
            close(ends[1]);
            wait_and_clean(ends[0], name, own);
        }
        close(ends[0]);
        g->pipe = ends[1];
        if (g->pid < 0) { /* it goes without */
            close(g->pipe);
            g->pipe = -1;
        }
    }
    free(name);
}

void tri_guard_end(tri_guard *g)
{
    if (g->pipe < 0)
        return;
    (void)!write(g->pipe, "", 1);
    close(g->pipe);
    waitpid(g->pid, NULL, 0);
    g->pipe = -1;
}
