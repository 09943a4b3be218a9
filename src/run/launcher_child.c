#include "run/launcher_child.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/exit_code.h"

/* An equal share of the cores for each rank, neighbours to neighbours; nothing when there are more
 * ranks than cores, for then the kernel does better. */
static void take_cores(int rank, int size)
{
    cpu_set_t all, mine;
    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < size)
        return;
    int share = CPU_COUNT(&all) / size, seen = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        if (seen / share == rank)
            CPU_SET(cpu, &mine);
        seen++;
    }
    sched_setaffinity(0, sizeof mine, &mine);
}

static void take_signals(const tri_rank_start *start)
{
    /* When the launcher is killed, so is the rank; the second line is for a launcher that was gone
     * before the first took effect. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != start->parent)
        _exit(1);
    signal(SIGINT, SIG_IGN); /* a terminal sends it to all; the launcher passes on SIGTERM */
    sigprocmask(SIG_SETMASK, start->mask, NULL);
}

static void take_output(int output)
{
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0)
        dup2(nothing, 0);
    if (nothing > 2)
        close(nothing);
    dup2(output, 1);
    dup2(output, 2);
    if (output > 2)
        close(output);
    /* By lines: what a killed rank had written is then in its log. */
    setvbuf(stdout, NULL, _IOLBF, 0); /* a datum of libc: this file is compiled with -fPIC */
}

_Noreturn void tri_rank_process(const tri_rank_start *start, int output)
{
    take_signals(start);
    take_output(output);
    if (start->share_cores)
        take_cores(start->rank, start->size);
    tri_control_join join = {.address = "127.0.0.1",
                             .port = start->port,
                             .rank = start->rank,
                             .size = start->size,
                             .token = start->token,
                             .join_s = start->join_s,
                             .status = &start->slot->status};
    tri_control_client *client;
    tr_error err = {0};
    int code = TRI_EXIT_FAILED;
    if (tri_control_client_create(&join, &client, &err) != TR_OK) {
        snprintf(start->slot->message, sizeof start->slot->message, "%s", err.message);
    } else {
        code = start->fn(tri_control_client_bootstrap(client), start->context);
        tri_control_client_destroy(client, tri_exit_is_good(code));
    }
    fflush(stdout);
    fflush(stderr);
    _exit(code); /* not exit: what the launcher registered for its own end is not the rank's */
}
