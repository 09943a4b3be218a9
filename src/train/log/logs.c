#include "train/log/logs.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/log/log_format.h"
#include "train/log/log_ring.h"

/* The thread looks this often; the loop need not wake it, unless rows come faster. */
enum { LOOK_MS = 200, NUM_ROWS = 2048, PATIENCE_S = 10, MANY_BYTES = 1 << 18 };

static const tri_log_format *const formats[] = {&tri_log_tensorboard, &tri_log_wandb, &tri_log_csv,
                                                &tri_log_prometheus};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

/* What the thread tells of a file. */
typedef struct tale {
    _Atomic int64_t lost_rows;
    _Atomic int reason; /* of the first failure, an errno */
    bool told;          /* the loop's */
} tale;

/* Shared by the loop and the thread; who leaves last takes it away. A thread that the disk holds
 * may be left behind. */
struct tri_logs {
    tri_log_ring ring;
    tri_log_facts facts;
    tri_log logs[NUM_FORMATS];
    tale tales[NUM_FORMATS];
    size_t num;
    double patience_s;
    pthread_t thread;
    sem_t work, done;
    _Atomic bool ends;
    _Atomic uint64_t finished; /* rows that were written everywhere, or counted as lost */
    _Atomic uint64_t progress; /* grows whenever something was written, or was given up */
    _Atomic int users;
    int exit_code;
    bool told_drops, ended; /* the loop's */
};

/* ---- names ---- */

static const tri_log_format *find_format(const char *name, size_t length)
{
    for (size_t i = 0; i < NUM_FORMATS; i++)
        if (strlen(formats[i]->name) == length && strncmp(formats[i]->name, name, length) == 0)
            return formats[i];
    return NULL;
}

tr_status tri_logs_check(const char *list, tr_error *err)
{
    for (const char *at = list; *(at += strspn(at, ", "));) {
        size_t length = strcspn(at, ", ");
        if (!find_format(at, length))
            return tri_fail(err, TR_ERROR_INPUT,
                            "run.logs: \"%.*s\" is no kind of log; known: tensorboard, wandb, csv, "
                            "prometheus",
                            length < 40 ? (int)length : 40, at);
        at += length;
    }
    return TR_OK;
}

/* ---- the thread ---- */

static void free_logs(tri_logs *l)
{
    for (size_t i = 0; i < l->num; i++) {
        tri_log_file_fini(&l->logs[i].file);
        tri_proto_fini(&l->logs[i].proto);
        free(l->logs[i].own);
    }
    tri_log_ring_fini(&l->ring);
    sem_destroy(&l->work);
    sem_destroy(&l->done);
    json_decref(l->facts.config);
    free(l->facts.dir);
    free(l->facts.run);
    free(l);
}

static void leave(tri_logs *l)
{
    if (atomic_fetch_sub(&l->users, 1) == 1)
        free_logs(l);
}

static void tell_tale(tri_logs *l, size_t i)
{
    const tri_log_file *file = &l->logs[i].file;
    atomic_store(&l->tales[i].lost_rows, file->lost_rows);
    atomic_store(&l->tales[i].reason, file->reason);
    atomic_fetch_add(&l->progress, 1);
}

static void open_log(tri_log *log)
{
    int reason = log->format->open(log);
    log->opened = reason == 0;
    if (reason != 0 && log->file.fd >= 0) {
        close(log->file.fd);
        log->file.fd = -1;
    }
    if (reason != 0 && log->file.reason == 0)
        log->file.reason = reason;
}

static void flush(tri_logs *l, size_t i, bool ends)
{
    tri_log *log = &l->logs[i];
    if (!log->opened)
        tri_log_file_drop(&log->file, log->file.reason);
    else if (log->format->flush)
        log->format->flush(log, ends);
    else
        tri_log_file_flush(&log->file);
    tell_tale(l, i);
}

static void add_row(tri_log *log, const tri_metrics_row *row)
{
    log->file.pending_rows++;
    if (log->opened)
        log->format->row(log, row);
}

static void write_rows(tri_logs *l)
{
    const tri_metrics_row *row = tri_log_ring_look(&l->ring);
    for (size_t i = 0; row && i < l->num; i++)
        if (!l->logs[i].opened)
            open_log(&l->logs[i]);
    for (; row; row = tri_log_ring_look(&l->ring)) {
        for (size_t i = 0; i < l->num; i++) {
            add_row(&l->logs[i], row);
            if (l->logs[i].file.pending.length >= MANY_BYTES)
                flush(l, i, false);
        }
        tri_log_ring_taken(&l->ring);
    }
    for (size_t i = 0; i < l->num; i++)
        flush(l, i, false);
    atomic_store(&l->finished, atomic_load(&l->ring.taken));
}

static void *work(void *context)
{
    tri_logs *l = context;
    pthread_setname_np(pthread_self(), "tri-logs");
    for (bool ends = false; !ends;) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        while (sem_clockwait(&l->work, CLOCK_MONOTONIC, &until) != 0 && errno == EINTR)
            ;
        ends = atomic_load(&l->ends); /* before the last look */
        write_rows(l);
    }
    for (size_t i = 0; i < l->num; i++) {
        tri_log *log = &l->logs[i];
        if (!log->opened)
            open_log(log);
        if (log->opened && log->format->end)
            log->format->end(log, l->exit_code);
        flush(l, i, true);
        tri_log_file_fini(&log->file);
    }
    sem_post(&l->done);
    leave(l);
    return NULL;
}

/* ---- the loop ---- */

static void copy_host(char host[64])
{
    if (gethostname(host, 63) != 0)
        strcpy(host, "localhost");
    host[63] = 0;
    for (char *c = host; *c; c++)
        *c = *c == '/' || (unsigned char)*c <= ' ' ? '_' : *c;
}

/* The last name of a path. */
static char *name_of(const char *dir)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    size_t from = length;
    while (from > 0 && dir[from - 1] != '/')
        from--;
    return strndup(dir + from, length - from);
}

static bool fill(tri_logs *l, const tri_logs_config *config)
{
    tri_log_facts *facts = &l->facts;
    facts->dir = strdup(config->dir);
    facts->run = name_of(config->dir);
    facts->start_s = tri_unix_s();
    facts->continues = config->continues;
    facts->step = config->continues ? config->step : 0;
    copy_host(facts->host);
    facts->blank.stats = facts->stats;
    facts->blank.num_stats =
        config->num_stats < TRI_MAX_STEP_SHOWN ? config->num_stats : TRI_MAX_STEP_SHOWN;
    for (size_t i = 0; i < facts->blank.num_stats; i++)
        facts->stats[i] = config->stats[i];
    bool filled = facts->dir && facts->run &&
                  tri_log_ring_init(&l->ring, config->num_rows ? config->num_rows : NUM_ROWS);
    for (size_t i = 0; i < NUM_FORMATS; i++) {
        bool wanted = false;
        for (const char *at = config->formats; *(at += strspn(at, ", ")); at += strcspn(at, ", "))
            wanted |= find_format(at, strcspn(at, ", ")) == formats[i];
        if (!wanted)
            continue;
        tri_log *log = &l->logs[l->num++];
        *log = (tri_log){.format = formats[i], .facts = facts};
        tri_log_file_init(&log->file);
        log->own = calloc(1, formats[i]->own_bytes + 1);
        filled &= log->own != NULL;
    }
    return filled;
}

static bool start(tri_logs *l)
{
    sigset_t all, before; /* signals are for the caller's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&l->thread, NULL, work, l) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

tr_status tri_logs_open(const tri_logs_config *config, tri_logs **out, tr_error *err)
{
    *out = NULL;
    tri_logs *l = calloc(1, sizeof *l);
    if (!l) {
        json_decref(config->config);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the files of run.logs");
    }
    l->facts.config = config->config;
    l->patience_s = config->patience_s > 0 ? config->patience_s : PATIENCE_S;
    l->users = 2;
    sem_init(&l->work, 0, 0);
    sem_init(&l->done, 0, 0);
    if (!fill(l, config) || !start(l)) {
        free_logs(l);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the files of run.logs");
    }
    *out = l;
    return TR_OK;
}

/* The first failure of each file, and the first row that found the ring full. */
static bool find_trouble(tri_logs *l, int64_t step, tr_error *warning)
{
    for (size_t i = 0; i < l->num; i++) {
        int reason = atomic_load_explicit(&l->tales[i].reason, memory_order_relaxed);
        if (reason == 0 || l->tales[i].told)
            continue;
        l->tales[i].told = true;
        tri_fail(warning, TR_ERROR_RUNTIME,
                 "%s/%s: cannot be written: %s; lines will be missing until this is mended",
                 l->facts.dir, l->logs[i].format->where, strerror(reason));
        return true;
    }
    if (l->told_drops || atomic_load_explicit(&l->ring.dropped, memory_order_relaxed) == 0)
        return false;
    l->told_drops = true;
    tri_fail(warning, TR_ERROR_RUNTIME,
             "the disk of %s does not keep up with the run: the files of run.logs lack lines from "
             "step %" PRId64 " on",
             l->facts.dir, step);
    return true;
}

bool tri_logs_row(tri_logs *l, const tri_metrics_row *row, tr_error *warning)
{
    size_t held = tri_log_ring_put(&l->ring, row);
    if (held == l->ring.num / 2)
        sem_post(&l->work);
    return !find_trouble(l, row->step, warning);
}

void tri_logs_hurry(tri_logs *l)
{
    sem_post(&l->work);
}

/* Whether the thread came to its end, or the disk stood still for too long. */
static bool await_end(tri_logs *l)
{
    uint64_t seen = atomic_load(&l->progress);
    double since = tri_now_s();
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 20 * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (sem_clockwait(&l->done, CLOCK_MONOTONIC, &until) == 0)
            return true;
        uint64_t now = atomic_load(&l->progress);
        if (now != seen) {
            seen = now;
            since = tri_now_s();
        } else if (tri_now_s() - since > l->patience_s)
            return false;
    }
}

static void add_loss(tr_error *warning, size_t *used, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add_loss(tr_error *warning, size_t *used, const char *format, ...)
{
    va_list args;
    size_t room = sizeof warning->message - *used;
    va_start(args, format);
    int added = vsnprintf(warning->message + *used, room, format, args);
    va_end(args);
    *used += added > 0 && (size_t)added < room ? (size_t)added : 0;
}

bool tri_logs_end(tri_logs *l, int exit_code, tr_error *warning)
{
    size_t used = 0;
    l->exit_code = exit_code;
    atomic_store(&l->ends, true);
    sem_post(&l->work);
    bool whole = await_end(l);
    uint64_t dropped = atomic_load(&l->ring.dropped);
    if (!whole) /* what is in the ring, or under the thread's hands */
        dropped += atomic_load(&l->ring.put) - atomic_load(&l->finished);
    tr_error own;
    warning = warning ? warning : &own;
    warning->status = TR_ERROR_RUNTIME;
    add_loss(warning, &used, "%s: files of run.logs are not whole", l->facts.dir);
    size_t nothing = used;
    if (dropped > 0)
        add_loss(warning, &used, "; all %s %" PRIu64 " line%s, since the disk %s",
                 whole ? "lack" : "may lack", dropped, dropped == 1 ? "" : "s",
                 whole ? "did not keep up" : "stands still");
    else if (!whole)
        add_loss(warning, &used, "; their ends are missing, since the disk stands still");
    for (size_t i = 0; i < l->num; i++) {
        int64_t lost = atomic_load(&l->tales[i].lost_rows);
        int reason = atomic_load(&l->tales[i].reason);
        if (reason != 0)
            add_loss(warning, &used, "; %s lacks %" PRId64 " line%s (%s)", l->logs[i].format->where,
                     lost, lost == 1 ? "" : "s", strerror(reason));
    }
    if (whole)
        pthread_join(l->thread, NULL);
    else
        pthread_detach(l->thread);
    l->ended = true;
    return used == nothing;
}

void tri_logs_close(tri_logs *l)
{
    if (!l)
        return;
    if (!l->ended)
        (void)tri_logs_end(l, 1, NULL);
    leave(l);
}
