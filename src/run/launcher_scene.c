/* A launch that failed, as the report will tell it: where every rank was at that moment, whose
 * fault it was, and who is lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/temporary.h"
#include "comm/control/control_wire.h"
#include "run/launcher_parts.h"

static void set_fate(tri_report_rank *rank, int wait_status)
{
    if (WIFSIGNALED(wait_status)) {
        rank->fate = TRI_FATE_SIGNAL;
        rank->signal = WTERMSIG(wait_status);
    } else if (!tri_exit_is_good(WEXITSTATUS(wait_status))) {
        rank->fate = rank->message ? TRI_FATE_FAILED : TRI_FATE_EXIT;
        rank->exit_code = WEXITSTATUS(wait_status);
    } else {
        rank->fate = TRI_FATE_ENDED;
    }
}

/* The report in every rank's eyes at the moment of the failure: statuses come from the shared
 * memory, which is fresher than the heartbeats. */
static void record_scene(tri_launching *l)
{
    tri_report_read(l->scene, l->config.num_ranks, l->server);
    for (int r = 0; r < l->config.num_ranks; r++) {
        tri_launch_child *c = &l->children[r];
        tri_report_rank *rank = &l->scene[r];
        rank->pid = c->was;
        rank->host = NULL;
        tri_rank_where_read(&rank->where, &l->slots[r].status);
        if (c->pid == 0 && !rank->message && l->slots[r].message[0])
            rank->message = l->slots[r].message;
        if (c->pid == 0)
            set_fate(rank, c->wait_status);
        else
            rank->frozen = tri_is_frozen(c->pid);
        if (c->pid > 0 && rank->fate == TRI_FATE_ABSENT)
            rank->fate = TRI_FATE_RUNNING;
    }
}

/* A rank that gave up waiting is not the cause when one it may have waited for is stopped. */
static void blame_frozen(tri_launching *l)
{
    if (l->first < 0 || l->scene[l->first].fate != TRI_FATE_FAILED)
        return;
    for (int r = 0; r < l->config.num_ranks; r++) {
        if (!l->scene[r].frozen || r == l->first)
            continue;
        l->scene[r].fate = TRI_FATE_SILENT;
        l->first = r;
        return;
    }
}

static tri_report report_of(tri_launching *l)
{
    return (tri_report){.num_ranks = l->config.num_ranks,
                        .ranks = l->scene,
                        .first = l->first,
                        .reason = tri_control_server_failure(l->server)->reason,
                        .log_dir = l->config.log_dir};
}

static void note_step(tri_launching *l, int r)
{
    tri_rank_where where;
    tri_rank_where_read(&where, &l->slots[r].status);
    if (where.step > l->result->step)
        l->result->step = where.step;
}

void tri_launch_begin_stop(tri_launching *l, int first)
{
    l->first = first;
    record_scene(l);
    blame_frozen(l);
    tri_report report = report_of(l);
    tri_text line;
    tri_text_init(&line);
    tri_report_headline(&line, &report);
    tri_control_server_stop(l->server, l->first, line.chars ? line.chars : "a rank failed");
    tri_text_fini(&line);
    for (int r = 0; r < l->config.num_ranks; r++)
        if (l->scene[r].frozen) /* could not end by itself */
            kill(l->children[r].pid, SIGKILL);
    l->result->trained = true;
    for (int r = 0; r < l->config.num_ranks; r++) {
        tri_fate fate = l->scene[r].fate;
        l->result->trained &= l->scene[r].where.step >= 0;
        l->children[r].killed = l->scene[r].frozen || fate == TRI_FATE_SIGNAL ||
                                fate == TRI_FATE_LOST || fate == TRI_FATE_SILENT;
        note_step(l, r);
    }
    l->stopping = true;
}

/* Those that were killed or stopped; when there are none, the first to fail. One that failed
 * because another was gone is not lost. */
static void list_lost(tri_launching *l)
{
    tri_launch_result *result = l->result;
    size_t n = l->config.num_ranks > 0 ? (size_t)l->config.num_ranks : 0;
    result->lost = calloc(n + 1, sizeof *result->lost);
    for (int r = 0; result->lost && r < (int)n; r++)
        if (l->children[r].killed)
            result->lost[result->num_lost++] = r;
    if (result->lost && result->num_lost == 0 && l->first >= 0)
        result->lost[result->num_lost++] = l->first;
}

void tri_launch_conclude(tri_launching *l)
{
    tri_launch_result *result = l->result;
    result->code = TRI_EXIT_OK;
    bool all_well = true;
    for (int r = 0; r < l->config.num_ranks; r++) {
        if (!l->stopping)
            note_step(l, r);
        bool well = tri_child_ended_well(&l->children[r]);
        if (well && WEXITSTATUS(l->children[r].wait_status) > result->code)
            result->code = WEXITSTATUS(l->children[r].wait_status);
        all_well &= well;
        if (well)
            continue;
        enum { DEEPEST = 4 }; /* run.dir/ckpt/step-N/ and one more */
        if (l->config.run_dir)
            tri_temporaries_remove(l->config.run_dir, l->children[r].was, DEEPEST);
    }
    if (!all_well)
        result->code = TRI_EXIT_FAILED;
    if (!l->stopping) {
        if (result->interrupted && result->signal == SIGINT)
            result->code = TRI_EXIT_INTERRUPTED;
        if (result->interrupted && !all_well)
            tri_text_add(&result->report, "the run was ended by SIG%s\n",
                         sigabbrev_np(result->signal));
        return;
    }
    result->code = TRI_EXIT_FAILED;
    result->failed_rank = l->first;
    list_lost(l);
    tri_report report = report_of(l);
    if (l->first >= 0) {
        tri_launch_child *c = &l->children[l->first];
        /* Killed by us after it was found silent is not how it ended. */
        if (l->scene[l->first].fate == TRI_FATE_SIGNAL)
            result->signal = l->scene[l->first].signal;
        if (WIFEXITED(c->wait_status) && !tri_child_ended_well(c))
            result->code = WEXITSTATUS(c->wait_status);
        report.log_tail = tri_rank_output_last_lines(&c->output);
    }
    tri_report_write(&result->report, &report);
}
