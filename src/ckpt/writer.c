#include "ckpt/writer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/staged_dir.h"

enum { BLOCK = 4 << 20 };

struct tri_ckpt_writer {
    tri_ckpt_writer_config config;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* on the monotonic clock */
    char *ring;
    size_t capacity;
    uint64_t total;     /* bytes of a checkpoint */
    uint64_t put, done; /* of this one: staged, and taken from there */
    tri_ckpt_save save;
    bool busy; /* from begin until the outcome is known */
    bool has_outcome;
    bool ends;
    atomic_bool give_up;
    tr_status status;
    tr_error error;
};

/* ---- the thread ---- */

/* The next staged bytes, at most a block; NULL: the run ends and no more will come. */
static const char *take(tri_ckpt_writer *w, size_t *num_bytes)
{
    pthread_mutex_lock(&w->mutex);
    while (w->put == w->done && !w->ends)
        pthread_cond_wait(&w->changed, &w->mutex);
    uint64_t at = w->done % w->capacity, ready = w->put - w->done;
    pthread_mutex_unlock(&w->mutex);
    if (ready > w->capacity - at)
        ready = w->capacity - at;
    *num_bytes = ready < BLOCK ? (size_t)ready : BLOCK;
    return ready > 0 ? w->ring + at : NULL;
}

static void taken(tri_ckpt_writer *w, size_t num_bytes)
{
    pthread_mutex_lock(&w->mutex);
    w->done += num_bytes;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

/* Takes all of it in any case. */
static tr_status write_part(tri_ckpt_writer *w, const char *temp, tr_error *err)
{
    tri_rank_file file;
    tr_status status = tri_rank_file_begin(&file, temp, w->config.rank, w->save.step,
                                           w->config.items, w->config.num_items, err);
    while (w->done < w->total) {
        size_t num_bytes;
        const char *bytes = take(w, &num_bytes);
        if (!bytes) {
            status =
                tri_fail(err, TR_ERROR_RUNTIME, "%s: the run ended before it was staged", temp);
            break;
        }
        if (status == TR_OK)
            status = tri_rank_file_write(&file, bytes, num_bytes, err);
        taken(w, num_bytes);
    }
    if (status == TR_OK)
        status = tri_rank_file_end(&file, err);
    tri_rank_file_fini(&file);
    return status;
}

/* So that rank 0 need not wait. On a full disk there is room for this once the part is gone. */
static void tell_failure(const tri_ckpt_writer *w, const char *temp, const tr_error *err)
{
    char name[64];
    char *part = tri_path_join(temp, tri_rank_file_name(w->config.rank, name));
    if (part)
        (void)unlink(part);
    free(part);
    char *path = tri_path_join(temp, tri_rank_file_failed_name(w->config.rank, name));
    FILE *file = path ? fopen(path, "we") : NULL;
    if (file) {
        fputs(err->message, file);
        fclose(file);
    }
    free(path);
}

static tr_status commit(tri_ckpt_writer *w, const char *temp, tr_error *err)
{
    const tri_ckpt_writer_config *config = &w->config;
    tri_ckpt_commit commit = {.dir = config->dir,
                              .temp = temp,
                              .step = w->save.step,
                              .num_ranks = config->num_ranks,
                              .numbers = w->save.numbers,
                              .num_numbers = w->save.num_numbers,
                              .needed = config->needed,
                              .extras_from = config->extras_from,
                              .extras = config->extras,
                              .patience_s = config->patience_s,
                              .give_up = &w->give_up};
    TRI_TRY(tri_ckpt_commit_run(&commit, err));
    tri_ckpt_prune(config->dir, &config->keep);
    return TR_OK;
}

/* Rank 0 has failed itself, and waits for nobody: without its part there is no checkpoint. */
static tr_status abandon(const char *temp, tr_status status)
{
    tri_remove_dir(temp);
    return status;
}

static tr_status write_checkpoint(tri_ckpt_writer *w, tr_error *err)
{
    char *temp = tri_ckpt_temp_path(w->config.dir, w->save.step, w->save.nonce);
    if (!temp)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status status = write_part(w, temp, err);
    if (w->config.rank == 0)
        status = status == TR_OK ? commit(w, temp, err) : abandon(temp, status);
    else if (status != TR_OK)
        tell_failure(w, temp, err);
    free(temp);
    return status;
}

static void *run(void *context)
{
    tri_ckpt_writer *w = context;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->ends && !(w->busy && !w->has_outcome))
            pthread_cond_wait(&w->changed, &w->mutex);
        if (!w->busy || w->has_outcome)
            break;
        pthread_mutex_unlock(&w->mutex);
        tr_error error = {0};
        tr_status status = write_checkpoint(w, &error);
        pthread_mutex_lock(&w->mutex);
        w->done = w->put;
        w->status = status;
        w->error = error;
        w->has_outcome = true;
        w->busy = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* ---- the caller's side ---- */

static struct timespec deadline_after(double seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
    t.tv_sec += ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

static void *alloc_ring(const tri_ckpt_writer *w)
{
    size_t bytes = w->capacity;
    if (w->config.alloc)
        return w->config.alloc(bytes);
    void *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        return NULL;
    (void)madvise(ring, bytes, MADV_HUGEPAGE);
    memset(ring, 0, bytes); /* so that the first save need not wait for pages */
    return ring;
}

static void free_ring(tri_ckpt_writer *w)
{
    if (w->ring && w->config.alloc)
        w->config.free(w->ring);
    else if (w->ring)
        munmap(w->ring, w->capacity);
}

static bool start(tri_ckpt_writer *w)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
    w->ring = alloc_ring(w);
    sigset_t all, before; /* signals are for the caller's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = w->ring && pthread_create(&w->thread, NULL, run, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        return true;
    free_ring(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    return false;
}

tr_status tri_ckpt_writer_create(const tri_ckpt_writer_config *config, tri_ckpt_writer **out,
                                 tr_error *err)
{
    *out = NULL;
    tri_ckpt_writer *w = calloc(1, sizeof *w);
    if (!w)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the writer of checkpoints");
    w->config = *config;
    for (size_t i = 0; i < config->num_items; i++)
        w->total += (uint64_t)config->items[i].region.count * sizeof(float);
    uint64_t wanted = config->staging_bytes && config->staging_bytes < w->total
                          ? config->staging_bytes
                          : w->total;
    w->capacity = (size_t)(wanted + 4095) / 4096 * 4096 + 4096;
    char text[16];
    if (!start(w)) {
        free(w);
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "the system refused %s of memory to stage checkpoints in; set "
                        "ckpt.staging_mib to bound it",
                        tri_text_bytes((double)wanted, text));
    }
    *out = w;
    return TR_OK;
}

void tri_ckpt_writer_destroy(tri_ckpt_writer *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->mutex);
    w->ends = true;
    atomic_store(&w->give_up, true);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    free_ring(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

uint64_t tri_ckpt_writer_staging(const tri_ckpt_writer *w)
{
    return w->capacity;
}

void tri_ckpt_writer_begin(tri_ckpt_writer *w, const tri_ckpt_save *save)
{
    pthread_mutex_lock(&w->mutex);
    w->save = *save;
    w->put = w->done = 0;
    w->busy = true;
    w->has_outcome = false;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

void *tri_ckpt_writer_room(tri_ckpt_writer *w, double timeout_s, size_t *num_bytes)
{
    struct timespec deadline = deadline_after(timeout_s);
    pthread_mutex_lock(&w->mutex);
    int waited = 0;
    while (w->put - w->done == w->capacity && waited == 0)
        waited = pthread_cond_timedwait(&w->changed, &w->mutex, &deadline);
    uint64_t at = w->put % w->capacity, room = w->capacity - (w->put - w->done);
    pthread_mutex_unlock(&w->mutex);
    *num_bytes = (size_t)(room < w->capacity - at ? room : w->capacity - at);
    return w->ring + at;
}

void tri_ckpt_writer_put(tri_ckpt_writer *w, size_t num_bytes)
{
    pthread_mutex_lock(&w->mutex);
    w->put += num_bytes;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

bool tri_ckpt_writer_wait(tri_ckpt_writer *w, double timeout_s, tr_status *status, tr_error *err)
{
    struct timespec deadline = deadline_after(timeout_s);
    *status = TR_OK;
    pthread_mutex_lock(&w->mutex);
    int waited = 0;
    while (w->busy && waited == 0)
        waited = pthread_cond_timedwait(&w->changed, &w->mutex, &deadline);
    bool idle = !w->busy;
    if (idle && w->has_outcome) {
        *status = w->status;
        if (err && w->status != TR_OK)
            *err = w->error;
        w->has_outcome = false;
    }
    pthread_mutex_unlock(&w->mutex);
    return idle;
}
