/* The processes of a sweep. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/signals.h"
#include "cli/sweep/sweep.h"
#include "cli/text.h"
#include "config/resolve.h"
#include "device/device.h"

enum { TICK_MS = 20, REDRAW_MS = 500 };

/* ---- starting one ---- */

typedef struct words {
    char **word;
    size_t num;
    bool failed;
} words;

static void add(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(words *w, const char *format, ...)
{
    va_list args;
    char **grown = realloc(w->word, (w->num + 2) * sizeof *grown);
    va_start(args, format);
    if (grown) {
        w->word = grown;
        if (vasprintf(&grown[w->num], format, args) < 0)
            grown[w->num] = NULL;
        w->failed |= !grown[w->num++];
        grown[w->num] = NULL;
    }
    va_end(args);
    w->failed |= !grown;
}

static void add_set(words *w, const char *name, const char *value)
{
    add(w, "--set");
    add(w, "%s=%s", name, value);
}

/* What nobody said: checkpoints to go on from, and a share of the cores. */
static void add_defaults(const tri_sweep *s, words *w)
{
    const tr_settings *settings = s->cli->settings;
    int64_t every = s->steps > 0 ? (s->steps + 9) / 10 : 100, ranks = tri_cli_num_ranks(s->cli);
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, every);
    if (tr_settings_int(settings, "ckpt.every") == 0)
        add_set(w, "ckpt.every", text);
    if (!tr_settings_given(settings, "ckpt.keep_last"))
        add_set(w, "ckpt.keep_last", "2");
    int64_t share = tri_device_num_cores() / (s->jobs * ranks);
    snprintf(text, sizeof text, "%" PRId64, share > 1 ? share : 1);
    if (s->jobs > 1 && tr_settings_int(settings, "run.threads") == 0)
        add_set(w, "run.threads", text);
}

static void make_command(const tri_sweep *s, const tri_sweep_run *run, int64_t steps, words *w)
{
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    add(w, "%s", length > 0 ? program : "trireme");
    add(w, "train");
    if (s->cli->file)
        add(w, "%s", s->cli->file);
    add_defaults(s, w);
    for (int i = 0; i < s->cli->num_plugins; i++) {
        add(w, "--plugin");
        add(w, "%s", s->cli->plugins[i]);
    }
    for (int i = 0; i < s->cli->num_assignments; i++) {
        add(w, "--set");
        add(w, "%s", s->cli->assignments[i]);
    }
    for (int k = 0; k < s->num_keys; k++)
        add_set(w, s->keys[k].name, run->value[k]);
    add_set(w, "run.dir", run->dir);
    add_set(w, "run.resume", "auto");
    if (steps > 0) {
        add(w, "--set");
        add(w, "run.stop_at=%" PRId64, steps);
    }
}

/* In the new process. A group of its own: Ctrl-C at a terminal is the sweep's to pass on. */
static _Noreturn void become(const words *w, int output, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(TRI_EXIT_STOPPED);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    static const int caught[] = {SIGTERM, SIGUSR1, SIGINT};
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        signal(caught[i], SIG_DFL);
    execv("/proc/self/exe", w->word);
    _exit(TRI_EXIT_FAILED);
}

static tr_status start(const tri_sweep *s, tri_sweep_run *run, int64_t steps, tr_error *err)
{
    words w = {0};
    char *log = NULL;
    if (asprintf(&log, "%s.log", run->dir) < 0)
        log = NULL;
    make_command(s, run, steps, &w);
    tr_status status =
        w.failed || !log ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for a command") : TR_OK;
    int output = status == TR_OK ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (status == TR_OK && output < 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", log, strerror(errno));
    pid_t parent = getpid(), pid = status == TR_OK ? fork() : -1;
    if (pid == 0)
        become(&w, output, parent);
    if (status == TR_OK && pid < 0)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no process can be started: %s", strerror(errno));
    if (output >= 0)
        close(output);
    for (size_t i = 0; i < w.num; i++)
        free(w.word[i]);
    free(w.word);
    free(log);
    if (status == TR_OK) {
        run->pid = pid;
        run->began_s = tri_now_s();
    }
    return status;
}

/* ---- what became of one ---- */

static bool has_arrived(const tri_sweep_result *r, int64_t steps)
{
    return r->done || (steps > 0 && r->step >= steps && r->ended_well);
}

static void say_result(const tri_sweep *s, const tri_sweep_stage *stage, const tri_sweep_run *run,
                       const tri_sweep_result *r)
{
    char time[16];
    tri_text_print(stage->progress, "%s  %s at step %" PRId64, run->name,
                   run->failed ? "failed"
                   : r->done   ? "done"
                               : "stopped",
                   r->step);
    if (run->failed)
        tri_text_print(stage->progress, ": %s", run->why);
    else if (!isnan(r->loss))
        tri_text_print(stage->progress, ", loss %.4f", r->loss);
    if (!run->failed && r->best_step > 0)
        tri_text_print(stage->progress, ", held-out %.4f", r->best_loss);
    fprintf(stage->progress, "  (%s)\n", tri_text_duration(tri_now_s() - run->began_s, time));
    fflush(stage->progress);
    (void)s;
}

/* Its last message; a command that was refused leaves no other trace. */
static void last_words(tri_sweep_run *run, int code)
{
    static const char name[] = "trireme: ";
    char *path = NULL, *text = NULL;
    size_t num_bytes;
    snprintf(run->why, sizeof run->why, "it ended with exit code %d; %.100s.log says why", code,
             run->name);
    if (asprintf(&path, "%s.log", run->dir) >= 0 &&
        tri_file_read(path, &text, &num_bytes, NULL) == TR_OK) {
        const char *found = NULL, *at = text;
        while ((at = strstr(at, name)))
            found = at += sizeof name - 1;
        if (found)
            snprintf(run->why, sizeof run->why, "%.*s", (int)strcspn(found, "\n"), found);
        free(text);
    }
    free(path);
}

/* status: of waitpid. asked: the sweep itself had it end. */
static tr_status judge(const tri_sweep *s, const tri_sweep_stage *stage, tri_sweep_run *run,
                       int status, bool asked, tr_error *err)
{
    tri_sweep_result r;
    run->pid = 0;
    TRI_TRY(tri_sweep_look(run, &r, err));
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    run->failed = !has_arrived(&r, stage->steps) && !asked;
    if (run->failed && WIFSIGNALED(status))
        snprintf(run->why, sizeof run->why, "its process was killed by SIG%s",
                 sigabbrev_np(WTERMSIG(status)));
    else if (run->failed && r.why[0])
        snprintf(run->why, sizeof run->why, "%s", r.why);
    else if (run->failed && tri_exit_is_good(code))
        snprintf(run->why, sizeof run->why, "it was stopped by somebody else");
    else if (run->failed)
        last_words(run, code);
    say_result(s, stage, run, &r);
    return TR_OK;
}

/* ---- progress ---- */

typedef struct job_board {
    int waiting;  /* that are still to be started */
    int num_live; /* processes */
    int num_done;
    bool stopping;
    bool drawn; /* a line on the terminal that is to be drawn over */
    double redrawn_s;
} job_board;

static void wipe(const tri_sweep_stage *stage, job_board *b)
{
    if (b->drawn)
        fputs("\r\033[K", stage->progress);
    b->drawn = false;
}

static void redraw(const tri_sweep *s, const tri_sweep_stage *stage, job_board *b)
{
    if (!tri_terminal(stage->progress) || tri_now_s() - b->redrawn_s < REDRAW_MS * 1e-3)
        return;
    tri_text line;
    tri_text_init(&line);
    tri_text_add(&line, "%d of %d done", b->num_done, stage->num);
    for (int i = 0; i < stage->num; i++) {
        const tri_sweep_run *run = &s->runs[stage->members[i]];
        tri_sweep_result r;
        if (run->pid == 0 || tri_sweep_look(run, &r, NULL) != TR_OK)
            continue;
        tri_text_add(&line, "  %.*s: step %" PRId64 "/%" PRId64, (int)strcspn(run->name, "-"),
                     run->name, r.step, stage->steps ? stage->steps : s->steps);
        if (!isnan(r.loss))
            tri_text_add(&line, " loss %.4f", r.loss);
    }
    int width = tri_terminal_width(stage->progress) - 1;
    wipe(stage, b);
    tri_text_print(stage->progress, "%.*s", width, line.chars ? line.chars : "");
    fflush(stage->progress);
    b->drawn = true;
    b->redrawn_s = tri_now_s();
    tri_text_fini(&line);
}

/* ---- all of them ---- */

/* Starts what may be started. A directory that a process is at work in waits: it is a run of a
 * sweep that was killed, which is just ending. */
static tr_status start_some(tri_sweep *s, const tri_sweep_stage *stage, bool *todo, job_board *b,
                            tr_error *err)
{
    for (int i = 0; i < stage->num && b->num_live < s->jobs && !b->stopping; i++) {
        tri_sweep_run *run = &s->runs[stage->members[i]];
        tri_sweep_result r;
        if (!todo[i])
            continue;
        TRI_TRY(tri_sweep_look(run, &r, err));
        if (r.held) {
            wipe(stage, b);
            if (!run->told)
                tri_text_print(stage->progress, "%s  waits: a process is at work there\n",
                               run->name);
            run->told = true;
            continue;
        }
        todo[i] = false;
        b->waiting--;
        if (has_arrived(&r, stage->steps)) { /* meanwhile */
            b->num_done++;
            continue;
        }
        wipe(stage, b);
        tri_text_print(stage->progress, "%s  %s\n", run->name, r.step > 0 ? "goes on" : "begins");
        fflush(stage->progress);
        TRI_TRY(start(s, run, stage->steps, err));
        b->num_live++;
    }
    return TR_OK;
}

static tr_status reap(tri_sweep *s, const tri_sweep_stage *stage, job_board *b, tr_error *err)
{
    for (int i = 0; i < stage->num; i++) {
        tri_sweep_run *run = &s->runs[stage->members[i]];
        int status;
        if (run->pid == 0 || waitpid(run->pid, &status, WNOHANG) != run->pid)
            continue;
        b->num_live--;
        b->num_done++;
        wipe(stage, b);
        TRI_TRY(judge(s, stage, run, status, b->stopping, err));
    }
    return TR_OK;
}

static void ask_all(const tri_sweep *s, const tri_sweep_stage *stage, job_board *b)
{
    b->stopping = true;
    wipe(stage, b);
    if (b->num_live > 0)
        fprintf(stage->progress, "asked %d run%s to finish the step, save and end\n", b->num_live,
                b->num_live == 1 ? "" : "s");
    fflush(stage->progress);
    for (int i = 0; i < s->num_runs; i++)
        if (s->runs[i].pid > 0)
            kill(s->runs[i].pid, SIGTERM);
}

static tr_status run_all(tri_sweep *s, const tri_sweep_stage *stage, bool *todo, job_board *b,
                         tr_error *err)
{
    tr_status status = TR_OK;
    while (b->num_live > 0 || (b->waiting > 0 && !b->stopping && status == TR_OK)) {
        tr_error later = {0};
        bool well = status == TR_OK;
        if (well && !b->stopping)
            status = start_some(s, stage, todo, b, err);
        if (reap(s, stage, b, well && status == TR_OK ? err : &later) != TR_OK && well)
            status = status == TR_OK ? err->status : status;
        if (!b->stopping && (tri_signals_caught() || status != TR_OK))
            ask_all(s, stage, b);
        redraw(s, stage, b);
        usleep(TICK_MS * 1000);
    }
    wipe(stage, b);
    return status;
}

tr_status tri_sweep_advance(tri_sweep *s, const tri_sweep_stage *stage, bool *stopped,
                            tr_error *err)
{
    job_board b = {0};
    bool *todo = calloc((size_t)stage->num + 1, sizeof *todo);
    tr_status status = todo ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a sweep");
    for (int i = 0; i < stage->num && status == TR_OK; i++) {
        tri_sweep_result r;
        const tri_sweep_run *run = &s->runs[stage->members[i]];
        status = tri_sweep_look(run, &r, err);
        todo[i] = !run->failed && (r.held || !has_arrived(&r, stage->steps));
        b.waiting += todo[i];
        b.num_done += !todo[i];
    }
    if (status == TR_OK)
        status = run_all(s, stage, todo, &b, err);
    *stopped = b.stopping && status == TR_OK;
    free(todo);
    return status;
}
