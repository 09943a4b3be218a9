/* Ranks as processes of one machine. Memory that peers reach lies in memfd segments: they have no
 * name, so nothing is left behind when ranks are killed. A peer opens a segment through
 * /proc/PID/fd/N at first use and keeps the mapping.
 *
 * Invariants:
 *   1. A segment's number is never used twice by its owner, so a mapping that a peer has kept is
 *      known by (owner, number).
 *   2. A descriptor stays open as long as its segment lives. When a peer meets a new segment with a
 *      descriptor number it knows, the old segment is gone and its mapping is dropped.
 *   3. free() gives the pages back at once by a hole in the file, whoever still maps it; leave()
 * does not. */
#include "base/clock.h"
#include "comm/transport/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HUGE_BYTES ((size_t)2 << 20)

struct segment {
    uint32_t number;
    int file;
    char *base;
    size_t bytes;
};

struct segments {
    struct segment *at;
    size_t num, capacity;
};

struct shm {
    pthread_mutex_t mutex; /* the lane thread maps while the caller allocates */
    int rank, size;
    uint32_t last_number;
    pid_t *pids;           /* [size]; 0: not asked for yet */
    struct segments own;   /* sorted by nothing: there are few */
    struct segments *peer; /* [size] */
    tri_bootstrap bootstrap;
};

static bool add_segment(struct segments *list, struct segment segment)
{
    if (list->num == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 8;
        struct segment *at = realloc(list->at, capacity * sizeof *at);
        if (at == NULL)
            return false;
        list->at = at;
        list->capacity = capacity;
    }
    list->at[list->num++] = segment;
    return true;
}

static void drop_segment(struct segments *list, size_t i)
{
    munmap(list->at[i].base, list->at[i].bytes);
    list->at[i] = list->at[--list->num];
}

static void shm_destroy(void *state)
{
    struct shm *shm = state;
    if (shm == NULL)
        return;
    while (shm->own.num > 0) {
        close(shm->own.at[shm->own.num - 1].file);
        drop_segment(&shm->own, shm->own.num - 1);
    }
    free(shm->own.at);
    for (int p = 0; shm->peer != NULL && p < shm->size; p++) {
        while (shm->peer[p].num > 0)
            drop_segment(&shm->peer[p], shm->peer[p].num - 1);
        free(shm->peer[p].at);
    }
    free(shm->peer);
    free(shm->pids);
    pthread_mutex_destroy(&shm->mutex);
    free(shm);
}

static void pid_key(int rank, char key[32])
{
    snprintf(key, 32, "shm.pid.%d", rank);
}

static tr_status shm_create(const tri_bootstrap *bootstrap, void **state, tr_error *err)
{
    *state = NULL;
    struct shm *shm = calloc(1, sizeof *shm);
    if (shm == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the shm transport");
    pthread_mutex_init(&shm->mutex, NULL);
    shm->rank = bootstrap->rank;
    shm->size = bootstrap->size;
    shm->bootstrap = *bootstrap;
    shm->pids = calloc((size_t)shm->size, sizeof *shm->pids);
    shm->peer = calloc((size_t)shm->size, sizeof *shm->peer);
    tr_status status = TR_OK;
    if (shm->pids == NULL || shm->peer == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d peers", shm->size);
    if (status == TR_OK && bootstrap->local_size != bootstrap->size)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "transport shm joins ranks of one machine, but %d of %d ranks are here; "
                          "set run.transport=tcp",
                          bootstrap->local_size, bootstrap->size);
    char key[32];
    pid_t pid = getpid();
    pid_key(shm->rank, key);
    if (status == TR_OK)
        status = bootstrap->put(bootstrap->context, key, &pid, sizeof pid, err);
    if (status != TR_OK) {
        shm_destroy(shm);
        return status;
    }
    *state = shm;
    return TR_OK;
}

static tr_status make_segment(struct segment *segment, tr_error *err)
{
    segment->file = memfd_create("trireme", MFD_CLOEXEC);
    if (segment->file < 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "memfd_create: %s; raise ulimit -n",
                        strerror(errno));
    void *base = MAP_FAILED;
    if (ftruncate(segment->file, (off_t)segment->bytes) == 0)
        base = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->file, 0);
    if (base == MAP_FAILED) {
        int reason = errno;
        close(segment->file);
        return tri_fail(err, TR_ERROR_RUNTIME, "no shared memory for %zu bytes: %s", segment->bytes,
                        strerror(reason));
    }
    segment->base = base;
    if (segment->bytes >= HUGE_BYTES)
        madvise(base, segment->bytes, MADV_HUGEPAGE); /* a wish: many kernels say never */
    return TR_OK;
}

static tr_status shm_alloc(void *state, size_t num_bytes, void **memory, tr_error *err)
{
    struct shm *shm = state;
    *memory = NULL;
    size_t unit = num_bytes >= HUGE_BYTES ? HUGE_BYTES : 4096;
    struct segment segment = {.bytes = (num_bytes + unit) / unit * unit};
    TRI_TRY(make_segment(&segment, err));
    pthread_mutex_lock(&shm->mutex);
    segment.number = ++shm->last_number;
    bool added = add_segment(&shm->own, segment);
    pthread_mutex_unlock(&shm->mutex);
    if (!added) {
        munmap(segment.base, segment.bytes);
        close(segment.file);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of segments");
    }
    *memory = segment.base;
    return TR_OK;
}

static void give_up(struct shm *shm, void *memory, bool with_pages)
{
    if (memory == NULL)
        return;
    pthread_mutex_lock(&shm->mutex);
    for (size_t i = 0; i < shm->own.num; i++) {
        if (shm->own.at[i].base != memory)
            continue;
        if (with_pages)
            fallocate(shm->own.at[i].file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                      (off_t)shm->own.at[i].bytes);
        close(shm->own.at[i].file);
        drop_segment(&shm->own, i);
        break;
    }
    pthread_mutex_unlock(&shm->mutex);
}

static void shm_free(void *state, void *memory)
{
    give_up(state, memory, true);
}

/* The peers' mappings keep the pages until they drop them. */
static void shm_leave(void *state, void **members, int size, int rank)
{
    (void)size;
    give_up(state, members[rank], false);
}

static bool shm_ref(void *state, const void *address, size_t num_bytes, tri_ref *ref)
{
    struct shm *shm = state;
    uintptr_t where = (uintptr_t)address;
    bool found = false;
    pthread_mutex_lock(&shm->mutex);
    for (size_t i = 0; i < shm->own.num && !found; i++) {
        const struct segment *s = &shm->own.at[i];
        uintptr_t base = (uintptr_t)s->base;
        if (where < base || where > base + s->bytes || num_bytes > base + s->bytes - where)
            continue;
        *ref = (tri_ref){.segment = s->number, .file = s->file, .offset = where - base};
        found = true;
    }
    pthread_mutex_unlock(&shm->mutex);
    return found;
}

static tr_status peer_pid(struct shm *shm, int peer, tr_error *err)
{
    char key[32];
    size_t got = 0;
    pid_key(peer, key);
    pid_t pid = 0;
    TRI_TRY(shm->bootstrap.get(shm->bootstrap.context, key, &pid, sizeof pid, &got, err));
    if (got != sizeof pid || pid <= 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d published no process id", peer);
    shm->pids[peer] = pid;
    return TR_OK;
}

/* A peer whose memory is gone has most likely just died. Whoever watches it knows better why than
 * this rank does: gives them a moment to say so, and then speaks in their words. */
static tr_status peer_is_gone(const struct shm *shm, int peer, const char *path, int reason,
                              tr_error *err)
{
    const tri_stop *stop = shm->bootstrap.stop;
    uint64_t until = tri_now_ns() + 1000000000u;
    const struct timespec nap = {.tv_nsec = 2000000};
    while (!atomic_load_explicit(&stop->stopped, memory_order_acquire) && tri_now_ns() < until)
        nanosleep(&nap, NULL);
    if (atomic_load_explicit(&stop->stopped, memory_order_acquire))
        return tri_fail(err, TR_ERROR_RUNTIME, "rank %d is gone: %s", peer, stop->reason);
    return tri_fail(err, TR_ERROR_RUNTIME,
                    "cannot map memory of rank %d (%s: %s); it may have ended, or ranks run "
                    "under different users or process namespaces",
                    peer, path, strerror(reason));
}

static tr_status open_peer_segment(struct shm *shm, int peer, tri_ref ref, struct segment *segment,
                                   tr_error *err)
{
    if (shm->pids[peer] == 0)
        TRI_TRY(peer_pid(shm, peer, err));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)shm->pids[peer], ref.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    void *base = MAP_FAILED;
    if (file >= 0 && fstat(file, &info) == 0)
        base = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int reason = errno;
    if (file >= 0)
        close(file);
    if (base == MAP_FAILED)
        return peer_is_gone(shm, peer, path, reason, err);
    *segment = (struct segment){ref.segment, ref.file, base, (size_t)info.st_size};
    if (segment->bytes >= HUGE_BYTES)
        madvise(base, segment->bytes, MADV_HUGEPAGE);
    return TR_OK;
}

static tr_status map_peer(struct shm *shm, int peer, tri_ref ref, void **address, tr_error *err)
{
    struct segments *list = &shm->peer[peer];
    for (size_t i = 0; i < list->num; i++) {
        if (list->at[i].number == ref.segment) {
            *address = list->at[i].base + ref.offset;
            return TR_OK;
        }
    }
    for (size_t i = 0; i < list->num; i++) {
        if (list->at[i].file == ref.file) { /* invariant 2 */
            drop_segment(list, i);
            break;
        }
    }
    struct segment segment;
    TRI_TRY(open_peer_segment(shm, peer, ref, &segment, err));
    if (!add_segment(list, segment)) {
        munmap(segment.base, segment.bytes);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a list of segments");
    }
    *address = segment.base + ref.offset;
    return TR_OK;
}

static tr_status shm_map(void *state, int peer, tri_ref ref, void **address, tr_error *err)
{
    struct shm *shm = state;
    pthread_mutex_lock(&shm->mutex);
    tr_status status = TR_OK;
    if (peer == shm->rank) {
        *address = NULL;
        for (size_t i = 0; i < shm->own.num; i++)
            if (shm->own.at[i].number == ref.segment)
                *address = shm->own.at[i].base + ref.offset;
        if (*address == NULL)
            status = tri_fail(err, TR_ERROR_INTERNAL, "segment %u is not ours", ref.segment);
    } else {
        status = map_peer(shm, peer, ref, address, err);
    }
    pthread_mutex_unlock(&shm->mutex);
    return status;
}

const tri_transport tri_transport_shm = {
    .name = "shm",
    .create = shm_create,
    .destroy = shm_destroy,
    .alloc = shm_alloc,
    .free = shm_free,
    .leave = shm_leave,
    .ref = shm_ref,
    .map = shm_map,
};
