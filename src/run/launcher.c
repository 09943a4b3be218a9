/* One loop over the control server, the output of the ranks and the signals of this process.
 *
 *   1. All ranks are forked before the control server takes its first step: no rank inherits a
 *      connection of another, so a rank's connection closes when that rank is gone.
 *   2. `first` and `scene` are set once, by begin_stop, before anybody is told to stop: what comes
 *      after is a consequence.
 *   3. The loop ends only when every child was reaped. From begin_stop or an interrupt on there is
 *      a time at which all that are left are killed, so it does end. */
#include "run/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "comm/control/auth.h"
#include "comm/control/control_wire.h"
#include "run/launcher_parts.h"

enum { TICK_MS = 50 };
static const int watched_signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1};

static uint64_t in_seconds(double seconds)
{
    return tri_now_ns() + (uint64_t)(seconds * 1e9);
}

static void kill_all(tri_launching *l, int signal)
{
    for (int r = 0; r < l->config.num_ranks; r++)
        if (l->children[r].pid > 0)
            kill(l->children[r].pid, signal);
}

static void drain(tri_launching *l, int r)
{
    bool relayed = r == 0 && !l->stopping && l->config.output;
    if (relayed)
        l->config.output(l->config.context, "", 0);
    tri_rank_output_drain(&l->children[r].output, relayed ? l->config.output : NULL,
                          l->config.context);
}

static void begin_stop(tri_launching *l, int first)
{
    tri_launch_begin_stop(l, first);
    l->kill_ns = in_seconds(l->config.stop_grace_s);
}

/* ---- signals and ends ---- */

static void interrupt(tri_launching *l, int signal)
{
    bool again = l->result->interrupted;
    l->result->interrupted = true;
    if (!l->stopping)
        l->result->signal = signal;
    kill_all(l, again ? SIGKILL : SIGTERM);
    kill_all(l, SIGCONT); /* a stopped one could not end */
    if (l->kill_ns == 0)
        l->kill_ns = in_seconds(l->config.term_grace_s);
}

/* The ranks end by themselves; only somebody at a terminal who insists is not made to wait. */
static void ask(tri_launching *l, int signal)
{
    uint64_t now = tri_now_ns();
    if (signal == SIGINT && l->sigint_ns == 0)
        l->sigint_ns = now;
    if (signal == SIGINT && 1e-9 * (double)(now - l->sigint_ns) >= l->config.insists_s) {
        l->result->interrupted = true; /* from here on nothing is waited for */
        interrupt(l, signal);
        return;
    }
    bool first = l->result->asked == 0;
    if (first)
        l->result->asked = signal;
    for (int r = 0; r < l->config.num_ranks; r++)
        if (l->children[r].pid > 0 &&
            sigqueue(l->children[r].pid, SIGTERM, (union sigval){.sival_int = signal}) != 0)
            kill(l->children[r].pid, SIGTERM);
    kill_all(l, SIGCONT);
    if (first && l->config.asked)
        l->config.asked(l->config.context, signal);
}

/* Takes the dead; returns the one to blame among those that are new, or -1. One that was killed
 * comes before one that ended by itself. */
static int reap(tri_launching *l)
{
    int blamed = -1;
    for (int r = 0; r < l->config.num_ranks; r++) {
        tri_launch_child *c = &l->children[r];
        if (c->pid <= 0 || waitpid(c->pid, &c->wait_status, WNOHANG) != c->pid)
            continue;
        c->pid = 0;
        l->num_alive--;
        bool by_us = l->kill_ns != 0 && tri_now_ns() >= l->kill_ns;
        c->killed |= l->stopping && WIFSIGNALED(c->wait_status) && !by_us;
        if (tri_child_ended_well(c))
            continue;
        if (blamed < 0 ||
            (WIFSIGNALED(c->wait_status) && !WIFSIGNALED(l->children[blamed].wait_status)))
            blamed = r;
    }
    return blamed;
}

static void take_signals(tri_launching *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (l->config.asks && (signal == SIGTERM || signal == SIGUSR1 || signal == SIGINT))
            ask(l, signal);
        else if (signal != SIGCHLD)
            interrupt(l, signal);
    }
}

/* Hears what a dead rank had still said: its error, if it had one. */
static void hear_last_words(tri_launching *l, int r)
{
    enum { MOST = 100 };
    for (int i = 0; i < MOST; i++) {
        tri_control_state state = tri_control_server_rank(l->server, r)->state;
        if (state != TRI_RANK_PRESENT)
            return;
        tri_control_server_step(l->server, 1);
    }
}

/* ---- the loop ---- */

static void wait_for_something(tri_launching *l, struct pollfd *polls)
{
    int n = l->config.num_ranks, timeout = TICK_MS;
    polls[0] = (struct pollfd){.fd = tri_control_server_fd(l->server), .events = POLLIN};
    polls[1] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    for (int r = 0; r < n; r++) /* a negative descriptor is passed over */
        polls[2 + r] = (struct pollfd){.fd = l->children[r].output.pipe, .events = POLLIN};
    poll(polls, (nfds_t)n + 2, timeout);
}

static void turn(tri_launching *l)
{
    take_signals(l);
    int blamed = reap(l);
    tri_control_server_step(l->server, 0);
    if (l->result->joined_s == 0 && tri_control_server_joined(l->server))
        l->result->joined_s = 1e-9 * (double)(tri_now_ns() - l->started_ns);
    if (blamed >= 0)
        hear_last_words(l, blamed);
    if (!l->stopping && !l->result->interrupted) {
        const tri_control_failure *failure = tri_control_server_failure(l->server);
        if (failure->cause != TRI_CAUSE_NONE)
            begin_stop(l, failure->rank);
        else if (blamed >= 0)
            begin_stop(l, blamed);
    }
    for (int r = 0; r < l->config.num_ranks; r++)
        drain(l, r);
    if (l->kill_ns != 0 && tri_now_ns() >= l->kill_ns)
        kill_all(l, SIGKILL);
    tri_launch_note_ends(l);
}

static tr_status watch(tri_launching *l, tr_error *err)
{
    struct pollfd *polls = calloc((size_t)l->config.num_ranks + 2, sizeof *polls);
    if (!polls) {
        kill_all(l, SIGKILL);
        tri_fail(err, TR_ERROR_RUNTIME, "no memory for the launcher");
    }
    while (l->num_alive > 0) {
        if (polls)
            wait_for_something(l, polls);
        turn(l);
    }
    for (int r = 0; r < l->config.num_ranks; r++)
        drain(l, r);
    tr_status status = polls ? TR_OK : TR_ERROR_RUNTIME;
    free(polls);
    return status;
}

/* ---- starting ---- */

static tr_status take_over_signals(tri_launching *l, tr_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched_signals / sizeof *watched_signals; i++) {
        struct sigaction old;
        sigaction(watched_signals[i], NULL, &old);
        /* nohup, or a job that a script started in the background */
        bool ignored = watched_signals[i] != SIGCHLD && old.sa_handler == SIG_IGN;
        bool unused = watched_signals[i] == SIGUSR1 && !l->config.asks;
        if (!ignored && !unused)
            sigaddset(&set, watched_signals[i]);
    }
    /* Somebody may have told the kernel to reap for us: then no exit status would come. */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &l->old_chld);
    sigprocmask(SIG_BLOCK, &set, &l->old_mask);
    l->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return l->signals >= 0 ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "signalfd: %s", strerror(errno));
}

/* In a rank: everything of the launcher's that it must not hold. */
static void close_inherited(tri_launching *l)
{
    tri_control_server_destroy(l->server);
    close(l->signals);
    for (int r = 0; r < l->config.num_ranks; r++)
        tri_rank_output_fini(&l->children[r].output);
}

static tr_status start_rank(tri_launching *l, const tri_rank_start *start, tr_error *err)
{
    tri_launch_child *c = &l->children[start->rank];
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "no pipe for rank %d: %s", start->rank,
                        strerror(errno));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        close_inherited(l);
        tri_rank_process(start, ends[1]);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d cannot be started: %s", start->rank,
                        strerror(errno));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    c->pid = c->was = pid;
    c->output.pipe = ends[0];
    l->num_alive++;
    return TR_OK;
}

static tr_status start_all(tri_launching *l, tri_rank_fn fn, void *context, tr_error *err)
{
    char token[TRI_AUTH_TEXT];
    int n = l->config.num_ranks;
    TRI_TRY(tri_auth_token(token, err));
    tri_control_config control = {.address = "127.0.0.1",
                                  .size = n,
                                  .token = token,
                                  .deadline_s = l->config.deadline_s,
                                  .join_s = l->config.join_s,
                                  .lost_grace_s = 0.25,
                                  .log = l->config.log,
                                  .log_context = l->config.context};
    TRI_TRY(tri_control_server_create(&control, &l->server, err));
    if (l->config.log_dir)
        TRI_TRY(tri_make_dirs(l->config.log_dir, err));
    for (int r = 0; l->config.log_dir && r < n; r++)
        TRI_TRY(tri_rank_output_open(&l->children[r].output, l->config.log_dir, r,
                                     l->config.append_logs, err));
    TRI_TRY(take_over_signals(l, err));
    fflush(NULL); /* what is in a buffer now would come out of every rank */
    tri_rank_start start = {.size = n,
                            .port = tri_control_server_port(l->server),
                            .token = token,
                            .join_s = l->config.join_s,
                            .share_cores = l->config.share_cores,
                            .parent = getpid(),
                            .mask = &l->old_mask,
                            .fn = fn,
                            .context = context};
    for (int r = 0; r < n; r++) {
        start.rank = r;
        start.slot = &l->slots[r];
        TRI_TRY(start_rank(l, &start, err));
    }
    return TR_OK;
}

static void clean_up(tri_launching *l)
{
    tri_launch_end_status(l);
    for (int r = 0; l->children && r < l->config.num_ranks; r++)
        tri_rank_output_fini(&l->children[r].output);
    if (l->signals >= 0) {
        close(l->signals);
        sigprocmask(SIG_SETMASK, &l->old_mask, NULL);
        sigaction(SIGCHLD, &l->old_chld, NULL);
    }
    tri_control_server_destroy(l->server);
    if (l->slots)
        munmap(l->slots, (size_t)l->config.num_ranks * sizeof *l->slots);
    free(l->scene);
    free(l->children);
}

static tr_status allocate(tri_launching *l, tr_error *err)
{
    size_t n = (size_t)l->config.num_ranks;
    l->children = calloc(n, sizeof *l->children);
    l->scene = calloc(n, sizeof *l->scene);
    void *shared =
        mmap(NULL, n * sizeof *l->slots, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    l->slots = shared == MAP_FAILED ? NULL : shared;
    for (size_t r = 0; l->children && r < n; r++)
        tri_rank_output_init(&l->children[r].output);
    if (!l->children || !l->scene || !l->slots)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the launcher");
    for (size_t r = 0; r < n; r++)
        tri_rank_status_init(&l->slots[r].status);
    return TR_OK;
}

tr_status tri_launch(const tri_launch_config *config, tri_rank_fn fn, void *context,
                     tri_launch_result *result, tr_error *err)
{
    *result = (tri_launch_result){.failed_rank = -1, .step = -1};
    tri_text_init(&result->report);
    tri_launching l = {.config = *config, .result = result, .signals = -1, .first = -1};
    if (config->num_ranks < 1 || config->num_ranks > TRI_CONTROL_MAX_RANKS)
        return tri_fail(err, TR_ERROR_INPUT, "%d ranks; 1 to %d are possible", config->num_ranks,
                        TRI_CONTROL_MAX_RANKS);
    if (l.config.join_s <= 0)
        l.config.join_s = 30;
    if (l.config.stop_grace_s <= 0)
        l.config.stop_grace_s = 1.5;
    if (l.config.insists_s <= 0)
        l.config.insists_s = 1e-9 * TRI_INSISTS_NS;
    if (l.config.term_grace_s <= 0)
        l.config.term_grace_s = 2;
    l.started_ns = tri_now_ns();
    tr_status status = allocate(&l, err);
    if (status == TR_OK) {
        status = start_all(&l, fn, context, err);
        if (status != TR_OK)
            kill_all(&l, SIGKILL); /* those that had started */
        else
            tri_launch_begin_status(&l);
        if (status == TR_OK)
            status = watch(&l, err);
        else if (l.num_alive > 0)
            watch(&l, NULL);
        if (status == TR_OK)
            tri_launch_conclude(&l);
    }
    clean_up(&l);
    return status;
}

void tri_launch_result_fini(tri_launch_result *result)
{
    free(result->lost);
    result->lost = NULL;
    tri_text_fini(&result->report);
}
