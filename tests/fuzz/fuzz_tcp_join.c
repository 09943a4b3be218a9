/* Strangers at the port of a rank that waits for its peer: whatever they send, the two ranks find
 * each other. And a stranger in the place of a peer: the rank ends with a sentence. The first byte
 * chooses. */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/comm_internal.h"
#include "comm/transport/tcp.h"

/* The table through which ranks exchange addresses, and what a stranger has to say. */
typedef struct table {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char key[4][160], value[4][96];
    size_t num_bytes[4];
    int num;
    const uint8_t *data;
    size_t data_bytes;
    int stranger;
} table;

typedef struct rank {
    table *table;
    tri_stop stop;
    tri_rank_status status;
    tri_bootstrap boot;
    tri_tcp tcp;
    tri_ports ports;
    tri_tcp_end ends[2];
    tr_status result;
    tr_error err;
} rank;

static const int ranks[2] = {0, 1};

static int call(const char *where)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)strtol(where, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), failed;
    /* Several of these at once leave more ports in TIME_WAIT than there are: that says nothing. */
    while ((failed = connect(fd, (struct sockaddr *)&to, sizeof to)) != 0 && errno == EADDRNOTAVAIL)
        usleep(100 * 1000);
    fuzz_require(fd >= 0 && failed == 0, "the port is open");
    return fd;
}

static tr_status put(void *context, const char *key, const void *data, size_t num_bytes,
                     tr_error *err)
{
    rank *r = context;
    table *t = r->table;
    (void)err;
    if (r->boot.rank == 0 && t->data) { /* before anybody else can */
        t->stranger = call(data);
        ssize_t sent = send(t->stranger, t->data, t->data_bytes, MSG_NOSIGNAL);
        (void)sent;
    }
    pthread_mutex_lock(&t->mutex);
    fuzz_require(t->num < 4 && num_bytes <= sizeof t->value[0], "the table of the harness");
    snprintf(t->key[t->num], sizeof t->key[0], "%s", key);
    memcpy(t->value[t->num], data, num_bytes);
    t->num_bytes[t->num++] = num_bytes;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    return TR_OK;
}

static tr_status get(void *context, const char *key, void *data, size_t capacity, size_t *num_bytes,
                     tr_error *err)
{
    table *t = ((rank *)context)->table;
    (void)err;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        for (int i = 0; i < t->num; i++)
            if (strcmp(t->key[i], key) == 0) {
                *num_bytes = t->num_bytes[i];
                memcpy(data, t->value[i], *num_bytes < capacity ? *num_bytes : capacity);
                pthread_mutex_unlock(&t->mutex);
                return TR_OK;
            }
        pthread_cond_wait(&t->changed, &t->mutex);
    }
}

static void init(rank *r, table *t, int number)
{
    memset(r, 0, sizeof *r);
    r->table = t;
    r->boot = (tri_bootstrap){.rank = number,
                              .size = 2,
                              .local_rank = number,
                              .local_size = 2,
                              .deadline_s = 20,
                              .token = "a token of the harness",
                              .stop = &r->stop,
                              .status = &r->status,
                              .context = r,
                              .put = put,
                              .get = get};
    r->tcp = (tri_tcp){.boot = &r->boot, .address = "127.0.0.1"};
    r->ports = (tri_ports){.size = 2, .me = number, .ranks = ranks};
}

static void *join(void *argument)
{
    rank *r = argument;
    r->result = tri_tcp_connect(&r->tcp, &r->ports, "world", r->ends, &r->err);
    return NULL;
}

static void close_all(rank *r)
{
    for (int i = 0; r->result == TR_OK && i < 2; i++)
        if (r->ends[i].fd >= 0)
            fuzz_hang_up(r->ends[i].fd);
}

/* Two ranks and a stranger. */
static void meet(table *t)
{
    static rank r[2];
    pthread_t other;
    init(&r[0], t, 0);
    init(&r[1], t, 1);
    fuzz_require(pthread_create(&other, NULL, join, &r[1]) == 0, "a thread");
    join(&r[0]);
    pthread_join(other, NULL);
    fuzz_require(r[0].result == TR_OK && r[1].result == TR_OK, "ranks meet in spite of a stranger");
    close_all(&r[0]);
    close_all(&r[1]);
    fuzz_hang_up(t->stranger);
}

/* A rank that is answered by a stranger. */
static void *answer(void *argument)
{
    table *t = argument;
    int fd = accept(t->stranger, NULL, NULL);
    char greeting[4096];
    fuzz_require(fd >= 0, "the rank calls");
    ssize_t got = recv(fd, greeting, sizeof greeting, 0);
    ssize_t sent = send(fd, t->data, t->data_bytes, MSG_NOSIGNAL);
    (void)got;
    (void)sent;
    shutdown(fd, SHUT_WR);
    while (recv(fd, greeting, sizeof greeting, 0) > 0) {
    }
    close(fd);
    return NULL;
}

static void answered(table *t)
{
    static rank r;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    pthread_t other;
    t->stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_require(t->stranger >= 0 && bind(t->stranger, (struct sockaddr *)&own, sizeof own) == 0 &&
                     listen(t->stranger, 1) == 0 &&
                     getsockname(t->stranger, (struct sockaddr *)&own, &length) == 0,
                 "a port");
    snprintf(t->key[0], sizeof t->key[0], "tcp.world.0");
    snprintf(t->value[0], sizeof t->value[0], "%d 127.0.0.1", ntohs(own.sin_port));
    t->num_bytes[0] = strlen(t->value[0]) + 1;
    t->num = 1;
    init(&r, t, 1);
    fuzz_require(pthread_create(&other, NULL, answer, t) == 0, "a thread");
    join(&r);
    fuzz_require(r.result != TR_OK, "nobody without the token is taken for a rank");
    fuzz_fine(r.result, &r.err);
    pthread_join(other, NULL);
    close(t->stranger);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t num_bytes)
{
    if (num_bytes == 0)
        return 0;
    fuzz_spare_ports();
    static table t;
    t = (table){.mutex = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER,
                .data = data + 1,
                .data_bytes = num_bytes - 1};
    if (data[0] & 1)
        answered(&t);
    else
        meet(&t);
    return 0;
}
