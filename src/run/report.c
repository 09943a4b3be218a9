#include "run/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/control/control_wire.h"

/* "step 17, instruction 46: all_reduce of gradients, 3.4 MiB"; "before its first step". */
static void say_where(tri_text *text, const tri_rank_where *where)
{
    char size[16];
    if (where->step >= 0)
        tri_text_add(text, "step %" PRId64, where->step);
    else
        tri_text_add(text, "before its first step");
    if (where->instruction >= 0)
        tri_text_add(text, ", instruction %" PRId64, where->instruction);
    if (where->doing[0])
        tri_text_add(text, ": %s", where->doing);
    if (where->bytes > 0)
        tri_text_add(text, ", %s", tri_text_bytes((double)where->bytes, size));
}

static void add_at(tri_text *text, const tri_rank_where *where)
{
    tri_text_add(text, where->step >= 0 ? " at " : " ");
    say_where(text, where);
}

static void add_signal(tri_text *text, int signal)
{
    const char *name = sigabbrev_np(signal);
    if (name)
        tri_text_add(text, "SIG%s", name);
    else
        tri_text_add(text, "signal %d", signal);
}

/* "was killed by SIGKILL", "has not been heard from for 2.0 s, its process is stopped (SIGSTOP)" */
static void add_fate(tri_text *text, const tri_report_rank *rank)
{
    const char *why = rank->frozen ? "; its process is stopped (SIGSTOP)" : "";
    switch (rank->fate) {
    case TRI_FATE_RUNNING:
        tri_text_add(text, "was running%s", why);
        break;
    case TRI_FATE_ABSENT:
        tri_text_add(text, "never joined");
        break;
    case TRI_FATE_ENDED:
        tri_text_add(text, "had ended");
        break;
    case TRI_FATE_SIGNAL:
        tri_text_add(text, "was killed by ");
        add_signal(text, rank->signal);
        break;
    case TRI_FATE_EXIT:
        tri_text_add(text, "ended with exit code %d", rank->exit_code);
        break;
    case TRI_FATE_FAILED:
        tri_text_add(text, "failed");
        break;
    case TRI_FATE_LOST:
        tri_text_add(text, "ended without a word (killed, or its machine is gone)");
        break;
    case TRI_FATE_SILENT:
        tri_text_add(text, "was not heard from for %.1f s%s", rank->quiet_s, why);
        break;
    case TRI_FATE_STUCK:
        tri_text_add(text, "did not move for %.1f s while others waited for it%s", rank->quiet_s,
                     why);
        break;
    }
}

void tri_report_headline(tri_text *text, const tri_report *report)
{
    if (report->first < 0) {
        tri_text_add(text, "%s", report->reason ? report->reason : "the run was stopped");
        return;
    }
    const tri_report_rank *rank = &report->ranks[report->first];
    tri_text_add(text, "rank %d ", report->first);
    add_fate(text, rank);
    if (rank->fate == TRI_FATE_SILENT || rank->fate == TRI_FATE_STUCK)
        tri_text_add(text, ",");
    add_at(text, &rank->where);
}

static void add_span(tri_text *text, double seconds)
{
    if (seconds < 0.9995)
        tri_text_add(text, "%.0f ms", 1e3 * seconds);
    else
        tri_text_add(text, "%.1f s", seconds);
}

static void add_other(tri_text *text, const tri_report *report, int r)
{
    const tri_report_rank *rank = &report->ranks[r];
    tri_text_add(text, "  rank %d ", r);
    if (rank->where.waiting_s > 0 && rank->fate == TRI_FATE_RUNNING) {
        if (rank->where.peer >= 0)
            tri_text_add(text, "was waiting for rank %d", rank->where.peer);
        else
            tri_text_add(text, "was waiting");
        tri_text_add(text, " for ");
        add_span(text, rank->where.waiting_s);
        tri_text_add(text, "%s,", rank->frozen ? " (its process is stopped: SIGSTOP)" : "");
    } else {
        add_fate(text, rank);
        if (rank->fate == TRI_FATE_ABSENT || rank->fate == TRI_FATE_ENDED) {
            tri_text_add(text, "\n");
            return;
        }
    }
    add_at(text, &rank->where);
    const char *first = report->first >= 0 ? report->ranks[report->first].message : NULL;
    bool same = first && rank->message && strcmp(first, rank->message) == 0; /* said already */
    if (rank->fate == TRI_FATE_FAILED && rank->message)
        tri_text_add(text, " (%s)", same ? "the same error" : rank->message);
    tri_text_add(text, "\n");
}

/* Every line of the tail, behind a bar. */
static void add_tail(tri_text *text, const char *tail)
{
    while (*tail) {
        int length = (int)strcspn(tail, "\n");
        tri_text_add(text, "  | %.*s\n", length, tail);
        tail += length + (tail[length] == '\n');
    }
}

/* In a large world only the ranks that say something: those not simply at work. */
static bool worth_a_line(const tri_report *report, int r)
{
    enum { FEW = 32 };
    const tri_report_rank *rank = &report->ranks[r];
    return report->num_ranks <= FEW || rank->frozen ||
           (rank->fate != TRI_FATE_RUNNING && rank->fate != TRI_FATE_ENDED) || r < FEW / 2;
}

void tri_report_write(tri_text *text, const tri_report *report)
{
    const tri_report_rank *first = report->first >= 0 ? &report->ranks[report->first] : NULL;
    bool said = first && first->message && first->message[0];
    if (said && report->num_ranks == 1) { /* there is nobody else to tell it from */
        tri_text_add(text, "%s\n", first->message);
        return;
    }
    if (said) {
        tri_text_add(text, "%s\n", first->message);
        tri_text_add(text, "  rank %d of %d ended with this error", report->first,
                     report->num_ranks);
        add_at(text, &first->where);
    } else {
        tri_report_headline(text, report);
    }
    tri_text_add(text, "\n");
    if (first && first->pid > 0)
        tri_text_add(text, "  rank %d was process %" PRId64 "%s%s\n", report->first, first->pid,
                     first->host ? " on " : "", first->host ? first->host : "");
    int hidden = 0;
    for (int r = 0; r < report->num_ranks; r++) {
        if (r == report->first)
            continue;
        if (worth_a_line(report, r))
            add_other(text, report, r);
        else
            hidden++;
    }
    if (hidden > 0)
        tri_text_add(text, "  and %d more ranks were running or had ended\n", hidden);
    if (first && report->log_dir && report->log_tail && report->log_tail[0]) {
        tri_text_add(text, "last lines of %s/rank-%d.log:\n", report->log_dir, report->first);
        add_tail(text, report->log_tail);
    }
    if (report->log_dir)
        tri_text_add(text, "logs of all ranks: %s/rank-%s.log\n", report->log_dir,
                     report->num_ranks > 1 ? "N" : "0");
}

/* ---- from a control server ---- */

void tri_report_read(tri_report_rank *ranks, int num_ranks, const tri_control_server *server)
{
    const tri_control_failure *failure = tri_control_server_failure(server);
    uint64_t now = failure->cause != TRI_CAUSE_NONE ? failure->when_ns : tri_now_ns();
    for (int r = 0; r < num_ranks; r++) {
        const tri_control_rank *from = tri_control_server_rank(server, r);
        bool first = r == failure->rank;
        tri_fate fate = from->state == TRI_RANK_ABSENT   ? TRI_FATE_ABSENT
                        : from->state == TRI_RANK_ENDED  ? TRI_FATE_ENDED
                        : from->state == TRI_RANK_FAILED ? TRI_FATE_FAILED
                                                         : TRI_FATE_RUNNING;
        uint64_t since = from->heard_ns;
        if (first && failure->cause == TRI_CAUSE_LOST)
            fate = TRI_FATE_LOST;
        if (first && failure->cause == TRI_CAUSE_SILENT)
            fate = TRI_FATE_SILENT;
        if (first && failure->cause == TRI_CAUSE_STUCK) {
            fate = TRI_FATE_STUCK;
            since = from->moved_ns;
        }
        ranks[r] = (tri_report_rank){.fate = fate,
                                     .quiet_s = since < now ? 1e-9 * (double)(now - since) : 0,
                                     .pid = from->pid,
                                     .host = from->host[0] ? from->host : NULL,
                                     .message = from->message[0] ? from->message : NULL,
                                     .where = from->where};
    }
}
