#include "cli/launch/descriptors.h"

#include <sys/resource.h>

tr_status tri_descriptors_reserve(int num_ranks, bool launches, bool tcp, tr_error *err)
{
    /* Per rank, counted in /proc/PID/fd: a launcher has a pipe, a log and a connection of each; a
     * rank over tcp one connection to every other in each of up to four communicators. */
    enum { OTHERS = 16, OF_LAUNCHER = 3, OF_TCP = 4, GENEROUS = 16 };
    int each = tcp ? OF_TCP : launches ? OF_LAUNCHER : 0;
    rlim_t needed = (rlim_t)(OTHERS + each * num_ranks);
    rlim_t wanted = needed + (rlim_t)(GENEROUS * num_ranks);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return TR_OK;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        (void)getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= needed)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%d ranks%s need %llu open files, and the limit is %llu; raise it where it is "
                    "set (ulimit -Hn, limits.conf, LimitNOFILE= of the service), or start fewer "
                    "ranks%s",
                    num_ranks, tcp ? " over tcp" : "", (unsigned long long)needed,
                    (unsigned long long)limit.rlim_cur, tcp ? " or use run.transport=shm" : "");
}
