/* What the launcher says in the status file. The thread that writes it reads memory that ranks
 * share with the launcher, and process numbers that do not change; how ranks ended it is told. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "run/launcher_parts.h"

bool tri_is_frozen(pid_t pid)
{
    char path[40], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    const char *name_end = n > 0 ? strrchr(text, ')') : NULL;
    return name_end && (name_end[2] == 'T' || name_end[2] == 't');
}

static void read_rank(const tri_launching *l, int r, tri_status_rank *rank)
{
    tri_rank_status *status = &l->slots[r].status;
    tri_rank_where_read(&rank->where, status);
    rank->pid = l->children[r].was;
    rank->own_ns = 0;
    for (int k = 0; k < TRI_NUM_OWN; k++)
        rank->own_ns += atomic_load_explicit(&status->own_ns[k], memory_order_relaxed);
    rank->waited_ns = atomic_load_explicit(&status->waited_ns, memory_order_relaxed);
    gethostname(rank->host, sizeof rank->host - 1);
}

static void look(void *context, tri_status_rank *ranks, int num_ranks)
{
    const tri_launching *l = context;
    for (int r = 0; r < num_ranks; r++) {
        read_rank(l, r, &ranks[r]);
        ranks[r].state = tri_is_frozen((pid_t)ranks[r].pid) ? TRI_STATUS_SILENT
                         : ranks[r].where.waiting_s > 0     ? TRI_STATUS_WAITING
                                                            : TRI_STATUS_RUNNING;
    }
}

void tri_launch_begin_status(tri_launching *l)
{
    if (l->config.run_dir && l->config.status)
        l->status = tri_status_begin(l->config.run_dir, l->config.num_ranks, look, l);
}

/* One that another one's end has ended is not dead; where that one was stays as it was then. */
static void settle(tri_launching *l, int r)
{
    tri_launch_child *c = &l->children[r];
    tri_status_rank rank = {0};
    read_rank(l, r, &rank);
    bool blamed = c->killed || r == l->first;
    if (l->stopping)
        rank.where = l->scene[r].where;
    rank.signal = WIFSIGNALED(c->wait_status) ? WTERMSIG(c->wait_status) : 0;
    rank.exit_code = WIFEXITED(c->wait_status) ? WEXITSTATUS(c->wait_status) : 0;
    rank.state = tri_child_ended_well(c)  ? TRI_STATUS_DONE
                 : l->stopping && !blamed ? TRI_STATUS_STOPPED
                 : l->result->interrupted ? TRI_STATUS_STOPPED
                                          : TRI_STATUS_DEAD;
    tri_status_settle(l->status, r, &rank);
    c->settled = true;
}

void tri_launch_note_ends(tri_launching *l)
{
    for (int r = 0; r < l->config.num_ranks && l->status; r++)
        if (l->children[r].was > 0 && l->children[r].pid == 0 && !l->children[r].settled)
            settle(l, r);
}

void tri_launch_end_status(tri_launching *l)
{
    tri_status_end(l->status);
    l->status = NULL;
}
