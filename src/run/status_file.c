#include "run/status_file.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/temporary.h"

enum { VERSION = 1, EVERY_S = 1 };

/* A pace that is measured between two looks. */
typedef struct rank_pace {
    int64_t step, own_ns, waited_ns;
    double own_ms, waited_ms; /* of a step, of late; NAN: not known */
} rank_pace;

struct tri_status_writer {
    char *dir, *path;
    int num_ranks;
    tri_status_look look;
    void *context;
    tri_status_rank *ranks; /* the thread's */
    rank_pace *paces;       /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t news;
    tri_status_rank *settled; /* state ABSENT: not settled */
    bool has_news, ends;
};

static const char *name_of(tri_status_state state)
{
    static const char *const names[TRI_NUM_STATUS_STATES] = {
        [TRI_STATUS_ABSENT] = "absent",   [TRI_STATUS_RUNNING] = "running",
        [TRI_STATUS_WAITING] = "waiting", [TRI_STATUS_SILENT] = "silent",
        [TRI_STATUS_DONE] = "done",       [TRI_STATUS_DEAD] = "dead",
        [TRI_STATUS_STOPPED] = "stopped"};
    return names[state];
}

/* ---- the text ---- */

/* Text that a rank may be writing: whatever is not plain is a question mark. */
static json_t *plain(const char *text, size_t size)
{
    char copy[128];
    size_t n = 0;
    for (; n + 1 < sizeof copy && n < size && text[n]; n++)
        copy[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    copy[n] = 0;
    return json_string(copy);
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(round(value * 1e3) / 1e3) : json_null();
}

static json_t *count_from(int64_t value, int64_t least)
{
    return value >= least ? json_integer(value) : json_null();
}

/* Of a process of this machine; -1: not known. */
static int64_t memory_of(int64_t pid)
{
    char path[48];
    long long pages = -1, resident = -1;
    if (pid <= 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%lld/statm", (long long)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld %lld", &pages, &resident) != 2)
        resident = -1;
    if (file)
        fclose(file);
    return resident < 0 ? -1 : resident * sysconf(_SC_PAGESIZE);
}

static void measure_pace(rank_pace *pace, const tri_status_rank *rank)
{
    int64_t steps = rank->where.step - pace->step;
    if (rank->own_ns < 0 || rank->where.step < 1 || steps <= 0)
        return;
    if (pace->step > 0 && rank->own_ns >= pace->own_ns) {
        pace->own_ms = 1e-6 * (double)(rank->own_ns - pace->own_ns) / (double)steps;
        pace->waited_ms = 1e-6 * (double)(rank->waited_ns - pace->waited_ns) / (double)steps;
    }
    pace->step = rank->where.step;
    pace->own_ns = rank->own_ns;
    pace->waited_ns = rank->waited_ns;
}

static json_t *object_of(const tri_status_rank *rank, const rank_pace *pace, int number_of_rank)
{
    const tri_rank_where *where = &rank->where;
    bool lives = rank->state <= TRI_STATUS_SILENT, waits = lives && where->waiting_s > 0;
    const char *known = rank->signal > 0 ? sigabbrev_np(rank->signal) : NULL;
    char name[24];
    if (known)
        snprintf(name, sizeof name, "SIG%s", known);
    else
        snprintf(name, sizeof name, "signal %d", rank->signal);
    json_t *o = json_object();
    json_object_set_new(o, "rank", json_integer(number_of_rank));
    json_object_set_new(o, "host", plain(rank->host, sizeof rank->host));
    json_object_set_new(o, "pid", count_from(rank->pid, 1));
    json_object_set_new(o, "state", json_string(name_of(rank->state)));
    json_object_set_new(o, "step", count_from(where->step, 1));
    json_object_set_new(o, "instruction", count_from(where->instruction, 0));
    json_object_set_new(o, "doing", plain(where->doing, sizeof where->doing));
    json_object_set_new(o, "bytes", json_integer((json_int_t)where->bytes));
    json_object_set_new(o, "waiting_for", waits ? count_from(where->peer, 0) : json_null());
    json_object_set_new(o, "waiting_s", waits ? number(where->waiting_s) : json_null());
    json_object_set_new(o, "own_ms", number(pace->own_ms));
    json_object_set_new(o, "waited_ms", number(pace->waited_ms));
    json_object_set_new(o, "memory_bytes",
                        lives ? count_from(memory_of(rank->pid), 0) : json_null());
    json_object_set_new(o, "signal", rank->signal > 0 ? json_string(name) : json_null());
    json_object_set_new(o, "exit_code",
                        count_from(lives || rank->signal > 0 ? -1 : rank->exit_code, 0));
    return o;
}

static void write_file(tri_status_writer *w, bool ended)
{
    tri_json_begin();
    json_t *root = json_object(), *list = json_array();
    json_object_set_new(root, "version", json_integer(VERSION));
    json_object_set_new(root, "time", number(tri_unix_s()));
    json_object_set_new(root, "ended", json_boolean(ended));
    json_object_set_new(root, "ranks", list);
    for (int r = 0; r < w->num_ranks; r++)
        json_array_append_new(list, object_of(&w->ranks[r], &w->paces[r], r));
    char *text = tri_json_dump(root, JSON_COMPACT);
    json_decref(root);
    if (text)
        (void)tri_temporary_replace(w->dir, w->path, text, strlen(text));
    free(text);
}

/* ---- the thread ---- */

static void look(tri_status_writer *w)
{
    w->look(w->context, w->ranks, w->num_ranks);
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->num_ranks; r++)
        if (w->settled[r].state != TRI_STATUS_ABSENT)
            w->ranks[r] = w->settled[r];
    w->has_news = false;
    pthread_mutex_unlock(&w->lock);
    for (int r = 0; r < w->num_ranks; r++)
        measure_pace(&w->paces[r], &w->ranks[r]);
}

static bool wait_for_turn(tri_status_writer *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += EVERY_S;
    pthread_mutex_lock(&w->lock);
    int waited = 0;
    while (!w->ends && !w->has_news && waited == 0)
        waited = pthread_cond_timedwait(&w->news, &w->lock, &until);
    bool ends = w->ends;
    pthread_mutex_unlock(&w->lock);
    return !ends;
}

static void *run(void *context)
{
    tri_status_writer *w = context;
    do {
        look(w);
        write_file(w, false);
    } while (wait_for_turn(w));
    look(w);
    write_file(w, true);
    return NULL;
}

static void forget(tri_status_writer *w)
{
    free(w->dir);
    free(w->path);
    free(w->ranks);
    free(w->paces);
    free(w->settled);
    free(w);
}

static bool prepare(tri_status_writer *w, const char *run_dir)
{
    size_t n = (size_t)w->num_ranks;
    w->dir = tri_path_join(run_dir, TRI_STATUS_FOLDER);
    w->path = w->dir ? tri_path_join(w->dir, "0.json") : NULL;
    w->ranks = calloc(n, sizeof *w->ranks);
    w->paces = calloc(n, sizeof *w->paces);
    w->settled = calloc(n, sizeof *w->settled);
    for (size_t r = 0; w->paces && r < n; r++)
        w->paces[r] = (rank_pace){.own_ms = NAN, .waited_ms = NAN};
    return w->path && w->ranks && w->paces && w->settled && tri_make_dirs(w->dir, NULL) == TR_OK;
}

tri_status_writer *tri_status_begin(const char *run_dir, int num_ranks, tri_status_look look_at,
                                    void *context)
{
    pthread_condattr_t clock;
    sigset_t all, old; /* signals are for the threads that know what to do */
    tri_status_writer *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    *w = (tri_status_writer){.num_ranks = num_ranks, .look = look_at, .context = context};
    if (!prepare(w, run_dir)) {
        forget(w);
        return NULL;
    }
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->news, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int wrong = pthread_create(&w->thread, NULL, run, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (wrong == 0)
        return w;
    forget(w);
    return NULL;
}

void tri_status_settle(tri_status_writer *w, int rank, const tri_status_rank *how)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->settled[rank] = *how;
    w->has_news = true;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
}

void tri_status_end(tri_status_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->news);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->news);
    forget(w);
}
