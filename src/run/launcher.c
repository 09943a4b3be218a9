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
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "comm/control_wire.h"
#include "run/launcher_child.h"
#include "run/leftovers.h"
#include "run/rank_output.h"

enum { TICK_MS = 50 };
static const int watched_signals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};

typedef struct child {
    pid_t pid;       /* 0: not started, or gone */
    pid_t was;       /* its pid, also afterwards */
    int wait_status; /* when it is gone */
    tri_rank_output output;
} child;

typedef struct launch {
    tri_launch_config config;
    tri_launch_result *result;
    tri_control_server *server;
    tri_rank_slot *slots; /* shared with the ranks */
    child *children;
    int num_alive;
    int signals; /* descriptor */
    sigset_t old_mask;
    struct sigaction old_chld;
    uint64_t started_ns;
    uint64_t kill_ns; /* 0: not yet */
    bool stopping;    /* a rank failed */
    int first;
    tri_report_rank *scene; /* at the moment of the failure */
} launch;

static uint64_t in_seconds(double seconds)
{
    return tri_now_ns() + (uint64_t)(seconds * 1e9);
}

static void kill_all(launch *l, int signal)
{
    for (int r = 0; r < l->config.num_ranks; r++)
        if (l->children[r].pid > 0)
            kill(l->children[r].pid, signal);
}

static void drain(launch *l, int r)
{
    bool relayed = r == 0 && !l->stopping;
    tri_rank_output_drain(&l->children[r].output, relayed ? l->config.output : NULL,
                          l->config.context);
}

/* ---- failure ---- */

/* Whether a process is stopped, and not merely slow. */
static bool is_frozen(pid_t pid)
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

static void set_fate(tri_report_rank *rank, int wait_status)
{
    if (WIFSIGNALED(wait_status)) {
        rank->fate = TRI_FATE_SIGNAL;
        rank->signal = WTERMSIG(wait_status);
    } else if (WEXITSTATUS(wait_status) != 0) {
        rank->fate = rank->message ? TRI_FATE_FAILED : TRI_FATE_EXIT;
        rank->exit_code = WEXITSTATUS(wait_status);
    } else {
        rank->fate = TRI_FATE_ENDED;
    }
}

/* The report in every rank's eyes at the moment of the failure: statuses come from the shared
 * memory, which is fresher than the heartbeats. */
static void record_scene(launch *l)
{
    tri_report_read(l->scene, l->config.num_ranks, l->server);
    for (int r = 0; r < l->config.num_ranks; r++) {
        child *c = &l->children[r];
        tri_report_rank *rank = &l->scene[r];
        rank->pid = c->was;
        rank->host = NULL;
        tri_rank_where_read(&rank->where, &l->slots[r].status);
        if (c->pid == 0 && !rank->message && l->slots[r].message[0])
            rank->message = l->slots[r].message;
        if (c->pid == 0)
            set_fate(rank, c->wait_status);
        else
            rank->frozen = is_frozen(c->pid);
        if (c->pid > 0 && rank->fate == TRI_FATE_ABSENT)
            rank->fate = TRI_FATE_RUNNING;
    }
}

/* A rank that gave up waiting is not the cause when one it may have waited for is stopped. */
static void blame_frozen(launch *l)
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

static tri_report report_of(launch *l)
{
    return (tri_report){.num_ranks = l->config.num_ranks,
                        .ranks = l->scene,
                        .first = l->first,
                        .reason = tri_control_server_failure(l->server)->reason,
                        .log_dir = l->config.log_dir};
}

static void begin_stop(launch *l, int first)
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
    l->stopping = true;
    l->kill_ns = in_seconds(l->config.stop_grace_s);
}

/* ---- signals and ends ---- */

static void interrupt(launch *l, int signal)
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

static bool ended_well(const child *c)
{
    return WIFEXITED(c->wait_status) && WEXITSTATUS(c->wait_status) == 0;
}

/* Takes the dead; returns the one to blame among those that are new, or -1. One that was killed
 * comes before one that ended by itself. */
static int reap(launch *l)
{
    int blamed = -1;
    for (int r = 0; r < l->config.num_ranks; r++) {
        child *c = &l->children[r];
        if (c->pid <= 0 || waitpid(c->pid, &c->wait_status, WNOHANG) != c->pid)
            continue;
        c->pid = 0;
        l->num_alive--;
        if (ended_well(c))
            continue;
        if (blamed < 0 ||
            (WIFSIGNALED(c->wait_status) && !WIFSIGNALED(l->children[blamed].wait_status)))
            blamed = r;
    }
    return blamed;
}

static void take_signals(launch *l)
{
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            interrupt(l, (int)info.ssi_signo);
}

/* Hears what a dead rank had still said: its error, if it had one. */
static void hear_last_words(launch *l, int r)
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

static void wait_for_something(launch *l, struct pollfd *polls)
{
    int n = l->config.num_ranks, timeout = TICK_MS;
    polls[0] = (struct pollfd){.fd = tri_control_server_fd(l->server), .events = POLLIN};
    polls[1] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    for (int r = 0; r < n; r++) /* a negative descriptor is passed over */
        polls[2 + r] = (struct pollfd){.fd = l->children[r].output.pipe, .events = POLLIN};
    poll(polls, (nfds_t)n + 2, timeout);
}

static void turn(launch *l)
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
}

static tr_status watch(launch *l, tr_error *err)
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

static void conclude(launch *l)
{
    tri_launch_result *result = l->result;
    result->code = 0;
    for (int r = 0; r < l->config.num_ranks; r++) {
        if (ended_well(&l->children[r]))
            continue;
        result->code = 1;
        if (l->config.run_dir)
            tri_leftovers_remove(l->config.run_dir, l->children[r].was);
    }
    if (!l->stopping) {
        if (result->interrupted && result->code != 0)
            tri_text_add(&result->report, "the run was ended by SIG%s\n",
                         sigabbrev_np(result->signal));
        return;
    }
    result->code = 1;
    result->failed_rank = l->first;
    tri_report report = report_of(l);
    if (l->first >= 0) {
        child *c = &l->children[l->first];
        /* Killed by us after it was found silent is not how it ended. */
        if (l->scene[l->first].fate == TRI_FATE_SIGNAL)
            result->signal = l->scene[l->first].signal;
        if (WIFEXITED(c->wait_status) && WEXITSTATUS(c->wait_status) != 0)
            result->code = WEXITSTATUS(c->wait_status);
        report.log_tail = tri_rank_output_last_lines(&c->output);
    }
    tri_report_write(&result->report, &report);
}

/* ---- starting ---- */

static tr_status take_over_signals(launch *l, tr_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof watched_signals / sizeof *watched_signals; i++)
        sigaddset(&set, watched_signals[i]);
    /* Somebody may have told the kernel to reap for us: then no exit status would come. */
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = SIG_DFL}, &l->old_chld);
    sigprocmask(SIG_BLOCK, &set, &l->old_mask);
    l->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return l->signals >= 0 ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "signalfd: %s", strerror(errno));
}

static tr_status make_token(char token[33], tr_error *err)
{
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return tri_fail(err, TR_ERROR_RUNTIME, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        sprintf(token + 2 * i, "%02x", random[i]);
    return TR_OK;
}

/* In a rank: everything of the launcher's that it must not hold. */
static void close_inherited(launch *l)
{
    tri_control_server_destroy(l->server);
    close(l->signals);
    for (int r = 0; r < l->config.num_ranks; r++)
        tri_rank_output_fini(&l->children[r].output);
}

static tr_status start_rank(launch *l, const tri_rank_start *start, tr_error *err)
{
    child *c = &l->children[start->rank];
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

static tr_status start_all(launch *l, tri_rank_fn fn, void *context, tr_error *err)
{
    char token[33];
    int n = l->config.num_ranks;
    TRI_TRY(make_token(token, err));
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
        TRI_TRY(tri_rank_output_open(&l->children[r].output, l->config.log_dir, r, err));
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

static void clean_up(launch *l)
{
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

static tr_status allocate(launch *l, tr_error *err)
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
    *result = (tri_launch_result){.failed_rank = -1};
    tri_text_init(&result->report);
    launch l = {.config = *config, .result = result, .signals = -1, .first = -1};
    if (config->num_ranks < 1 || config->num_ranks > TRI_CONTROL_MAX_RANKS)
        return tri_fail(err, TR_ERROR_INPUT, "%d ranks; 1 to %d are possible", config->num_ranks,
                        TRI_CONTROL_MAX_RANKS);
    if (l.config.join_s <= 0)
        l.config.join_s = 30;
    if (l.config.stop_grace_s <= 0)
        l.config.stop_grace_s = 1.5;
    if (l.config.term_grace_s <= 0)
        l.config.term_grace_s = 2;
    l.started_ns = tri_now_ns();
    tr_status status = allocate(&l, err);
    if (status == TR_OK) {
        status = start_all(&l, fn, context, err);
        if (status != TR_OK)
            kill_all(&l, SIGKILL); /* those that had started */
        if (status == TR_OK)
            status = watch(&l, err);
        else if (l.num_alive > 0)
            watch(&l, NULL);
        if (status == TR_OK)
            conclude(&l);
    }
    clean_up(&l);
    return status;
}

void tri_launch_result_fini(tri_launch_result *result)
{
    tri_text_fini(&result->report);
}
