/* Ranks as forked processes over shared memory. The parent watches them: a child that dies stops
 * the others, and who has not ended GRACE_NS later is killed. */
#include "comm/world.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_NS 2000000000u

struct child {
    pid_t pid; /* 0: ended */
    int file;  /* of the process, readable when it ends; -1: not supported here */
};

struct spawn {
    tri_world *world;
    struct child *children;
    struct pollfd *polls;
    int num, running;
    uint64_t stop_ns; /* when the first failure was seen */
};

/* Rank i of n keeps the i-th share of the cores that this process may use. */
static void bind_cores(int rank, int num_ranks)
{
    cpu_set_t all, own;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < num_ranks)
        return;
    int each = CPU_COUNT(&all) / num_ranks, seen = 0;
    CPU_ZERO(&own);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all))
            continue;
        if (seen >= rank * each && seen < (rank + 1) * each)
            CPU_SET(core, &own);
        seen++;
    }
    sched_setaffinity(0, sizeof own, &own); /* a wish */
}

static void run_child(tri_world *world, int rank, const char *transport, tr_rank_fn fn,
                      void *context, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    tr_status status = tri_world_run_rank(world, rank, transport, fn, context);
    fflush(NULL);
    _exit(status == TR_OK ? 0 : 1);
}

static void fork_children(struct spawn *spawn, const tr_comm_options *options, tr_rank_fn fn,
                          void *context)
{
    bool bind = options != NULL && options->bind;
    const char *transport = options != NULL && options->transport ? options->transport : "shm";
    pid_t parent = getpid();
    fflush(NULL); /* or every child would write what is buffered once more */
    for (int i = 0; i < spawn->num; i++) {
        pid_t pid = fork();
        if (pid == 0 && bind)
            bind_cores(i, spawn->num);
        if (pid == 0)
            run_child(spawn->world, i, transport, fn, context, parent);
        if (pid < 0) {
            tri_world_fail(spawn->world, i, strerror(errno));
            return;
        }
        spawn->children[i] = (struct child){pid, (int)syscall(SYS_pidfd_open, pid, 0)};
        spawn->running++;
    }
}

/* What happened to a child that did not end by itself. */
static void record_end(struct spawn *spawn, int rank, int how)
{
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0)
        return;
    const tri_rank_status *status = tri_world_status(spawn->world, rank);
    char message[400], where[200];
    snprintf(where, sizeof where, "in %.119s, %llu bytes",
             status->doing[0] ? status->doing : "no communication",
             (unsigned long long)atomic_load(&status->bytes));
    if (WIFSIGNALED(how))
        snprintf(message, sizeof message, "it was killed by signal %d (%s) %s", WTERMSIG(how),
                 strsignal(WTERMSIG(how)), where);
    else
        snprintf(message, sizeof message, "it exited with code %d %s", WEXITSTATUS(how), where);
    tri_world_fail(spawn->world, rank, message); /* unless it said more itself */
    if (spawn->stop_ns == 0)
        spawn->stop_ns = tri_now_ns();
}

static void reap(struct spawn *spawn)
{
    for (int i = 0; i < spawn->num; i++) {
        struct child *child = &spawn->children[i];
        int how = 0;
        if (child->pid == 0)
            continue;
        pid_t got = waitpid(child->pid, &how, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR))
            continue;
        if (child->file >= 0)
            close(child->file);
        child->pid = 0;
        child->file = -1;
        spawn->running--;
        if (got > 0)
            record_end(spawn, i, how);
    }
}

static void watch(struct spawn *spawn)
{
    while (spawn->running > 0) {
        int timeout_ms = 100;
        for (int i = 0; i < spawn->num; i++) {
            struct child *child = &spawn->children[i];
            spawn->polls[i] =
                (struct pollfd){.fd = child->pid ? child->file : -1, .events = POLLIN};
            if (child->pid != 0 && child->file < 0)
                timeout_ms = 5;
        }
        poll(spawn->polls, (nfds_t)spawn->num, timeout_ms);
        reap(spawn);
        if (spawn->stop_ns == 0 || tri_now_ns() - spawn->stop_ns < GRACE_NS)
            continue;
        for (int i = 0; i < spawn->num; i++)
            if (spawn->children[i].pid != 0)
                kill(spawn->children[i].pid, SIGKILL);
    }
}

tr_status tr_comm_spawn(int num_ranks, const tr_comm_options *options, tr_rank_fn fn, void *context,
                        tr_error *err)
{
    struct spawn spawn = {.num = num_ranks};
    TRI_TRY(tri_world_create(num_ranks, options, &spawn.world, err));
    spawn.children = calloc((size_t)num_ranks, sizeof *spawn.children);
    spawn.polls = calloc((size_t)num_ranks, sizeof *spawn.polls);
    tr_status status = TR_OK;
    if (spawn.children == NULL || spawn.polls == NULL) {
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d processes", num_ranks);
    } else {
        fork_children(&spawn, options, fn, context);
        watch(&spawn);
        status = tri_world_result(spawn.world, err);
    }
    free(spawn.children);
    free(spawn.polls);
    tri_world_destroy(spawn.world);
    return status;
}
