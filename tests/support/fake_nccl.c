#include "fake_nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "fake_gpu.h"

enum { MOST_RANKS = 8, MOST_GROUPS = 256 };
enum { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
enum { FLOAT32 = 7, NOT_JOINED = 5 };

typedef struct group group;

typedef struct fake_comm {
    group *of;
    int rank;
} fake_comm;

typedef struct op {
    fake_comm *comm;
    int kind, root, dtype; /* root: the peer of a send or receive */
    const char *send;
    char *recv;
    size_t count;
} op;

struct group {
    char name[64];
    int size, joined, left;
    fake_comm comms[MOST_RANKS];
    const op *posted[MOST_RANKS];
    const op *sends[MOST_RANKS][MOST_RANKS]; /* from, to; NULL: none, or taken */
    int here;                                /* of the meeting that is going on */
    uint64_t meeting;                        /* its number */
    bool aborted;
};

/* All groups of the process. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    group *groups[MOST_GROUPS];
    int num_groups, num_names, broken, aborted, destroyed;
    uint64_t draws;
    size_t sent;
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int locked(const int *what)
{
    pthread_mutex_lock(&all.mutex);
    int value = *what;
    pthread_mutex_unlock(&all.mutex);
    return value;
}

void fake_nccl_break(int result)
{
    pthread_mutex_lock(&all.mutex);
    all.broken = result;
    pthread_mutex_unlock(&all.mutex);
}

int fake_nccl_aborted(void)
{
    return locked(&all.aborted);
}

int fake_nccl_destroyed(void)
{
    return locked(&all.destroyed);
}

size_t fake_nccl_sent(void)
{
    pthread_mutex_lock(&all.mutex);
    size_t sent = all.sent;
    all.sent = 0;
    pthread_mutex_unlock(&all.mutex);
    return sent;
}

/* ---- communicators ---- */

static int get_version(int *version)
{
    *version = 22800;
    return TRI_NCCL_SUCCESS;
}

static int get_unique_id(tri_nccl_id *id)
{
    pthread_mutex_lock(&all.mutex);
    snprintf(id->bytes, sizeof id->bytes, "group %d", all.num_names++);
    pthread_mutex_unlock(&all.mutex);
    return TRI_NCCL_SUCCESS;
}

static group *find_group(const char *name, int size)
{
    for (int i = 0; i < all.num_groups && i < MOST_GROUPS; i++)
        if (strcmp(all.groups[i]->name, name) == 0)
            return all.groups[i];
    group *g = all.groups[all.num_groups++ % MOST_GROUPS] = calloc(1, sizeof *g);
    snprintf(g->name, sizeof g->name, "%s", name);
    g->size = size;
    return g;
}

static int comm_init_rank_config(void **comm, int size, tri_nccl_id id, int rank,
                                 tri_nccl_config *config)
{
    if (config->magic != 0xcafebeef || config->blocking != 0)
        return NOT_JOINED;
    pthread_mutex_lock(&all.mutex);
    group *g = find_group(id.bytes, size);
    g->comms[rank] = (fake_comm){g, rank};
    g->joined++;
    *comm = &g->comms[rank];
    pthread_mutex_unlock(&all.mutex);
    return TRI_NCCL_IN_PROGRESS;
}

static int comm_get_async_error(void *comm, int *result)
{
    const group *g = ((fake_comm *)comm)->of;
    pthread_mutex_lock(&all.mutex);
    *result = all.broken              ? all.broken
              : g->joined < g->size   ? TRI_NCCL_IN_PROGRESS
              : g->left % g->size > 0 ? TRI_NCCL_IN_PROGRESS
                                      : TRI_NCCL_SUCCESS;
    pthread_mutex_unlock(&all.mutex);
    return TRI_NCCL_SUCCESS;
}

static int comm_finalize(void *comm)
{
    pthread_mutex_lock(&all.mutex);
    ((fake_comm *)comm)->of->left++;
    pthread_mutex_unlock(&all.mutex);
    return TRI_NCCL_IN_PROGRESS;
}

static int comm_destroy(void *comm)
{
    (void)comm; /* the group stays until the process ends: the others may still look at it */
    pthread_mutex_lock(&all.mutex);
    all.destroyed++;
    pthread_mutex_unlock(&all.mutex);
    return TRI_NCCL_SUCCESS;
}

static int comm_abort(void *comm)
{
    pthread_mutex_lock(&all.mutex);
    ((fake_comm *)comm)->of->aborted = true;
    all.aborted++;
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.mutex);
    return TRI_NCCL_SUCCESS;
}

static const char *get_error_string(int result)
{
    return result == 2 ? "unhandled system error" : "another error";
}

static const char *get_last_error(void *comm)
{
    (void)comm;
    return "the cable was cut";
}

/* ---- on the stream ---- */

/* All members come, or one of them has ended it. */
static bool meet(group *g)
{
    pthread_mutex_lock(&all.mutex);
    uint64_t meeting = g->meeting;
    if (!g->aborted && ++g->here == g->size) {
        g->here = 0;
        g->meeting++;
        pthread_cond_broadcast(&all.changed);
    }
    while (g->meeting == meeting && !g->aborted)
        pthread_cond_wait(&all.changed, &all.mutex);
    bool good = g->meeting != meeting;
    pthread_mutex_unlock(&all.mutex);
    return good;
}

static size_t width_of(int dtype)
{
    return dtype == FLOAT32 ? 4 : dtype == 1 ? 1 : 2;
}

/* What this rank receives, from what all have posted. */
static size_t compute(const op *o, char *to)
{
    const group *g = o->comm->of;
    size_t bytes = o->count * width_of(o->dtype);
    size_t skip = o->kind == REDUCE_SCATTER ? (size_t)o->comm->rank * bytes : 0;
    if (o->kind == REDUCE && o->comm->rank != o->root)
        return 0;
    for (int i = 0; o->kind == ALL_GATHER && i < g->size; i++)
        memcpy(to + (size_t)i * bytes, g->posted[i]->send, bytes);
    if (o->kind == ALL_GATHER)
        return (size_t)g->size * bytes;
    if (o->kind == BROADCAST) {
        memcpy(to, g->posted[o->root]->send, bytes);
        return bytes;
    }
    for (size_t i = 0; i < o->count; i++) { /* sums are of f32 here */
        float sum = 0, term;
        for (int r = 0; r < g->size; r++) {
            memcpy(&term, g->posted[r]->send + skip + i * 4, 4);
            sum += term;
        }
        memcpy(to + i * 4, &sum, 4);
    }
    return bytes;
}

static const op **box_of(const op *o)
{
    group *g = o->comm->of;
    int own = o->comm->rank;
    return o->kind == SEND ? &g->sends[own][o->root] : &g->sends[o->root][own];
}

/* Sends and receives that go out together: alone, or as a group. A send ends when it was received.
 */
typedef struct batch {
    int num;
    op ops[2 * MOST_RANKS];
} batch;

static void take_a_moment(void)
{
    pthread_mutex_lock(&all.mutex);
    uint32_t draw = tri_random_word(1, all.draws++, 0, 1);
    pthread_mutex_unlock(&all.mutex);
    usleep(draw % 300);
}

static void run_batch(void *data)
{
    const batch *b = data;
    const group *g = b->ops[0].comm->of;
    take_a_moment();
    pthread_mutex_lock(&all.mutex);
    for (int i = 0; i < b->num; i++)
        if (b->ops[i].kind == SEND)
            *box_of(&b->ops[i]) = &b->ops[i];
    pthread_cond_broadcast(&all.changed);
    for (int i = 0; i < b->num; i++) {
        const op *o = &b->ops[i], **box = box_of(o);
        while (o->kind == RECV && !*box && !g->aborted)
            pthread_cond_wait(&all.changed, &all.mutex);
        if (o->kind != RECV || g->aborted)
            continue;
        memcpy(o->recv, (*box)->send, o->count * width_of(o->dtype));
        all.sent += o->count * width_of(o->dtype);
        *box = NULL;
        pthread_cond_broadcast(&all.changed);
    }
    for (int i = 0; i < b->num; i++)
        while (b->ops[i].kind == SEND && *box_of(&b->ops[i]) == &b->ops[i] && !g->aborted)
            pthread_cond_wait(&all.changed, &all.mutex);
    pthread_mutex_unlock(&all.mutex);
}

static void run_op(void *data)
{
    const op *o = data;
    group *g = o->comm->of;
    take_a_moment();
    g->posted[o->comm->rank] = o;
    if (!meet(g))
        return;
    char *result = malloc(o->count * 4 * MOST_RANKS + 1);
    size_t bytes = compute(o, result);
    if (meet(g))
        memcpy(o->recv, result, bytes);
    free(result);
}

/* Of the calling thread: the sends and receives since a group was begun, of one stream. */
static _Thread_local struct {
    bool open;
    void *stream;
    batch ops;
} grouped;

static void enqueue_batch(const batch *b, void *stream)
{
    fake_gpu_enqueue(stream, run_batch, b, sizeof *b);
    for (int i = 0; i < b->num; i++) {
        const op *o = &b->ops[i];
        fake_gpu_uses(stream, o->kind == SEND ? o->send : o->recv, o->count * width_of(o->dtype));
    }
}

static int enqueue_half(op o, void *comm, void *stream)
{
    o.comm = comm;
    if (!grouped.open) {
        enqueue_batch(&(batch){.num = 1, .ops = {o}}, stream);
        return TRI_NCCL_SUCCESS;
    }
    if (grouped.ops.num == 2 * MOST_RANKS)
        return NOT_JOINED;
    grouped.stream = stream;
    grouped.ops.ops[grouped.ops.num++] = o;
    return TRI_NCCL_SUCCESS;
}

static int group_start(void)
{
    grouped.open = true;
    grouped.ops.num = 0;
    return TRI_NCCL_SUCCESS;
}

static int group_end(void)
{
    grouped.open = false;
    if (grouped.ops.num > 0)
        enqueue_batch(&grouped.ops, grouped.stream);
    return TRI_NCCL_SUCCESS;
}

static int enqueue(op o, void *comm, void *stream)
{
    o.comm = comm;
    bool sums = o.kind == ALL_REDUCE || o.kind == REDUCE || o.kind == REDUCE_SCATTER;
    if (sums && o.dtype != FLOAT32)
        return NOT_JOINED;
    fake_gpu_enqueue(stream, run_op, &o, sizeof o);
    size_t bytes = o.count * (size_t)width_of(o.dtype), all = bytes * (size_t)o.comm->of->size;
    fake_gpu_uses(stream, o.send, o.kind == REDUCE_SCATTER ? all : bytes);
    if (o.kind != REDUCE || o.comm->rank == o.root) /* it is given, but means nothing elsewhere */
        fake_gpu_uses(stream, o.recv, o.kind == ALL_GATHER ? all : bytes);
    return TRI_NCCL_SUCCESS;
}

static int all_reduce(const void *send, void *recv, size_t count, int dtype, int sum, void *comm,
                      void *stream)
{
    (void)sum;
    return enqueue((op){NULL, ALL_REDUCE, 0, dtype, send, recv, count}, comm, stream);
}

static int reduce(const void *send, void *recv, size_t count, int dtype, int sum, int root,
                  void *comm, void *stream)
{
    (void)sum;
    return enqueue((op){NULL, REDUCE, root, dtype, send, recv, count}, comm, stream);
}

static int broadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm,
                     void *stream)
{
    return enqueue((op){NULL, BROADCAST, root, dtype, send, recv, count}, comm, stream);
}

static int all_gather(const void *send, void *recv, size_t count, int dtype, void *comm,
                      void *stream)
{
    return enqueue((op){NULL, ALL_GATHER, 0, dtype, send, recv, count}, comm, stream);
}

static int reduce_scatter(const void *send, void *recv, size_t count, int dtype, int sum,
                          void *comm, void *stream)
{
    (void)sum;
    return enqueue((op){NULL, REDUCE_SCATTER, 0, dtype, send, recv, count}, comm, stream);
}

static int send_to(const void *data, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return enqueue_half((op){NULL, SEND, peer, dtype, data, NULL, count}, comm, stream);
}

static int receive(void *data, size_t count, int dtype, int peer, void *comm, void *stream)
{
    return enqueue_half((op){NULL, RECV, peer, dtype, NULL, data, count}, comm, stream);
}

const tri_nccl_api fake_nccl_api = {
    .version = 22800,
    .get_version = get_version,
    .get_unique_id = get_unique_id,
    .comm_init_rank_config = comm_init_rank_config,
    .comm_finalize = comm_finalize,
    .comm_destroy = comm_destroy,
    .comm_abort = comm_abort,
    .comm_get_async_error = comm_get_async_error,
    .get_error_string = get_error_string,
    .get_last_error = get_last_error,
    .all_reduce = all_reduce,
    .reduce = reduce,
    .broadcast = broadcast,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .send = send_to,
    .recv = receive,
    .group_start = group_start,
    .group_end = group_end,
};
