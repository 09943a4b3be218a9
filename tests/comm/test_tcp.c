/* Setting up connections over tcp: strangers that reach a rank's port are dropped and nobody
 * notices; a rank without the job's token is refused and named. */
#include "base/checksum.h"
#include "comm/comm_internal.h"
#include "comm/control/control.h"
#include "comm/transport/tcp.h"
#include "comm/transport/tcp_head.h"
#include "comm/transport/tcp_hello.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 3, MOST_KEYS = 64, MOST_STRANGERS = 32 };

/* A table of keys for ranks that are threads, which sends strangers to every port it hears of. */
struct table {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    char keys[MOST_KEYS][80];
    char values[MOST_KEYS][1024];
    size_t bytes[MOST_KEYS];
    int num;
    int strangers[MOST_STRANGERS], num_strangers;
    tri_stop stop;
    double deadline_s;
    const char *tokens[SIZE];
};

struct rank {
    pthread_t thread;
    struct table *table;
    tri_rank_status status;
    int rank;
    tr_status result;
    float sum;
    tr_error err;
};

static void send_stranger(struct table *t, const char *where, const void *says, size_t num_bytes)
{
    char address[48];
    int port;
    assert_int_equal(sscanf(where, "%d %47s", &port, address), 2);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail_msg("a stranger cannot reach %s", where);
    if (num_bytes > 0 && send(fd, says, num_bytes, MSG_NOSIGNAL) != (ssize_t)num_bytes)
        fail_msg("a stranger cannot speak");
    t->strangers[t->num_strangers++] = fd;
}

/* As a hello of the real protocol is, but of one who does not have the job's token. */
static void send_strangers(struct table *t, const char *where, int to)
{
    tri_tcp_hello hello;
    for (int from = 0; from < SIZE; from++) {
        assert_int_equal(tri_tcp_hello_make(&hello, "p2p", from, to, false, NULL), TR_OK);
        send_stranger(t, where, &hello, sizeof hello);
    }
    send_stranger(t, where, "GET / HTTP/1.1\r\n\r\n", 18);
    send_stranger(t, where, NULL, 0);
}

static tr_status put(void *context, const char *key, const void *data, size_t num_bytes,
                     tr_error *err)
{
    struct rank *self = context;
    struct table *t = self->table;
    (void)err;
    pthread_mutex_lock(&t->mutex);
    snprintf(t->keys[t->num], sizeof t->keys[0], "%s", key);
    assert_true(num_bytes <= sizeof t->values[0]);
    memcpy(t->values[t->num], data, num_bytes);
    t->bytes[t->num++] = num_bytes;
    if (strncmp(key, "tcp.", 4) == 0 && t->num_strangers + SIZE + 2 <= MOST_STRANGERS)
        send_strangers(t, data, self->rank);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    return TR_OK;
}

static tr_status get(void *context, const char *key, void *data, size_t capacity, size_t *num_bytes,
                     tr_error *err)
{
    struct rank *self = context;
    struct table *t = self->table;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    int wrong = 0;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        for (int i = 0; i < t->num; i++)
            if (strcmp(t->keys[i], key) == 0) {
                *num_bytes = t->bytes[i] < capacity ? t->bytes[i] : capacity;
                memcpy(data, t->values[i], *num_bytes);
                pthread_mutex_unlock(&t->mutex);
                return TR_OK;
            }
        if (wrong != 0)
            break;
        wrong = pthread_cond_timedwait(&t->changed, &t->mutex, &until);
    }
    pthread_mutex_unlock(&t->mutex);
    return tri_fail(err, TR_ERROR_RUNTIME, "nobody put %s", key);
}

static void *run_rank(void *argument)
{
    struct rank *self = argument;
    struct table *t = self->table;
    tri_rank_status_init(&self->status);
    tri_bootstrap boot = {.rank = self->rank,
                          .size = SIZE,
                          .local_rank = self->rank,
                          .local_size = SIZE,
                          .deadline_s = t->deadline_s,
                          .token = t->tokens[self->rank],
                          .stop = &t->stop,
                          .status = &self->status,
                          .context = self,
                          .put = put,
                          .get = get};
    tri_comm *comm = NULL;
    self->result = tri_comm_create(&boot, "tcp", &comm, &self->err);
    float own = (float)(self->rank + 1);
    if (self->result == TR_OK)
        self->result =
            tr_all_reduce(tr_comm_world(comm), &own, &self->sum, 1, TR_F32, TR_SUM, &self->err);
    tri_comm_destroy(comm);
    return NULL;
}

static void run_world(struct table *t, struct rank ranks[SIZE])
{
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    for (int r = 0; r < SIZE; r++) {
        ranks[r] = (struct rank){.table = t, .rank = r};
        pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
    }
    for (int r = 0; r < SIZE; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int i = 0; i < t->num_strangers; i++)
        close(t->strangers[i]);
}

static void strangers_are_dropped(void **state)
{
    (void)state;
    struct table *t = calloc(1, sizeof *t);
    struct rank ranks[SIZE];
    t->deadline_s = 60;
    for (int r = 0; r < SIZE; r++)
        t->tokens[r] = "the job's";
    run_world(t, ranks);
    for (int r = 0; r < SIZE; r++) {
        if (ranks[r].result != TR_OK)
            fail_msg("rank %d: %s", r, ranks[r].err.message);
        assert_true(ranks[r].sum == 6);
    }
    assert_true(t->num_strangers >= 9);
    free(t);
}

/* Neither end takes what the other said for its own proof, or what was said before. */
static void proofs_are_of_one_end_and_one_connection(void **state)
{
    (void)state;
    tri_tcp_hello hello, later;
    tri_tcp_answer answer, reflected;
    tri_tcp_proof proof, copied;
    assert_int_equal(tri_tcp_hello_make(&hello, "world", 1, 0, true, NULL), TR_OK);
    assert_int_equal(tri_tcp_hello_make(&later, "world", 1, 0, true, NULL), TR_OK);
    assert_true(tri_tcp_hello_fits(&hello, "world", 0));
    assert_false(tri_tcp_hello_fits(&hello, "p2p", 0));
    assert_false(tri_tcp_hello_fits(&hello, "world", 2));
    assert_true(tri_tcp_answer_make(&answer, &hello, "the job's", false));
    assert_true(tri_tcp_answer_right(&answer, &hello, "the job's"));
    assert_false(tri_tcp_answer_right(&answer, &hello, "another"));
    assert_false(tri_tcp_answer_right(&answer, &later, "the job's"));
    assert_true(tri_tcp_proof_make(&proof, &hello, &answer, "the job's"));
    assert_true(tri_tcp_proof_right(&proof, &hello, &answer, "the job's"));
    assert_false(tri_tcp_proof_right(&proof, &hello, &answer, "another"));
    memcpy(copied.code, answer.code, sizeof copied.code); /* the answer as a proof */
    assert_false(tri_tcp_proof_right(&copied, &hello, &answer, "the job's"));
    assert_true(tri_tcp_answer_make(&reflected, &later, "the job's", false));
    assert_false(tri_tcp_proof_right(&proof, &later, &reflected, "the job's"));
    answer.wants_sums = 1; /* on its way */
    assert_false(tri_tcp_answer_right(&answer, &hello, "the job's"));
}

/* Nobody lets rank 1 in; those who wait for it say so by name. On a busy machine any rank may come
 * later than a short deadline: then it is a longer one. */
static void another_token_is_refused(void **state)
{
    (void)state;
    bool named = false;
    for (double deadline_s = 0.5; deadline_s < 60 && !named; deadline_s *= 8) {
        struct table *t = calloc(1, sizeof *t);
        struct rank ranks[SIZE];
        t->deadline_s = deadline_s;
        for (int r = 0; r < SIZE; r++)
            t->tokens[r] = r == 1 ? "another" : "the job's";
        run_world(t, ranks);
        for (int r = 0; r < SIZE; r++)
            assert_int_equal(ranks[r].result, TR_ERROR_RUNTIME);
        named = strstr(ranks[0].err.message, "rank 1") &&
                (strstr(ranks[1].err.message, "rank 0") || strstr(ranks[1].err.message, "rank 2"));
        free(t);
    }
    assert_true(named);
}

static void no_token_is_an_error(void **state)
{
    (void)state;
    struct table *t = calloc(1, sizeof *t);
    struct rank ranks[SIZE];
    t->deadline_s = 0.5;
    run_world(t, ranks);
    for (int r = 0; r < SIZE; r++) {
        assert_int_equal(ranks[r].result, TR_ERROR_INPUT);
        assert_non_null(strstr(ranks[r].err.message, "TRIREME_TOKEN"));
    }
    free(t);
}

/* ---- what a peer sends ---- */

enum { COUNT = 6 };
static const tri_about about = {
    .call = 1, .count = COUNT, .operation = TR_ALL_REDUCE, .reduction = TR_SUM, .dtype = TR_F32};

/* A receive of this end, rank 3, from rank 7, whose end of the connection is the test's. */
struct lane_case {
    tr_comm comm;
    tri_ports ports;
    tri_queue sends[2], recvs[2];
    _Atomic uint64_t signals[2 * TR_NUM_SIGNALS];
    tri_port_message message;
    float data[COUNT];
};

static tri_port_message *arrive(struct lane_case *c, bool sums, bool combine,
                                const tri_tcp_head *head, const float data[COUNT])
{
    static const int numbers[2] = {3, 7};
    int pair[2];
    memset(c, 0, sizeof *c);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    tri_tcp_end ends[2] = {{.fd = -1}, {.fd = pair[0], .sums = sums}};
    c->ports = (tri_ports){.comm = &c->comm,
                           .size = 2,
                           .ranks = numbers,
                           .sends = c->sends,
                           .recvs = c->recvs,
                           .signals = c->signals,
                           .io = &tri_tcp_io};
    assert_int_equal(tri_tcp_adopt(&c->ports, ends, false, NULL), TR_OK);
    c->message = (tri_port_message){.data = (char *)c->data,
                                    .num_bytes = sizeof c->data,
                                    .peer = 1,
                                    .combine = combine,
                                    .dtype = TRI_F32,
                                    .about = &about};
    tri_ports_post(&c->ports, &c->message);
    assert_int_equal(send(pair[1], head, sizeof *head, 0), (int)sizeof *head);
    assert_int_equal(send(pair[1], data, sizeof c->data, 0), (int)sizeof c->data);
    for (int i = 0; i < 10; i++)
        tri_tcp_io.progress(&c->ports);
    tri_tcp_io.close(&c->ports);
    close(pair[1]);
    return &c->message;
}

static tri_tcp_head good_head(const float data[COUNT])
{
    tri_tcp_head head = {.magic = TRI_TCP_MAGIC,
                         .type = TRI_TCP_DATA,
                         .number = 1,
                         .num_bytes = COUNT * sizeof *data,
                         .about = about};
    tri_crc crc = {0};
    tri_crc_add(&crc, data, COUNT * sizeof *data);
    tri_tcp_head_seal(&head, tri_crc_end(&crc));
    return head;
}

static void what_a_peer_sends_is_judged(void **state)
{
    (void)state;
    static const float data[COUNT] = {1, 2, 3, 4, 5, 6};
    struct lane_case *c = calloc(1, sizeof *c);
    tri_tcp_head head = good_head(data);
    assert_int_equal(arrive(c, false, false, &head, data)->status, TR_OK);
    assert_memory_equal(c->data, data, sizeof data);
    uint8_t *const fields[] = {&head.about.dtype, &head.about.operation, &head.about.reduction,
                               &head.about.algorithm};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        head = good_head(data);
        *fields[i] = 255;
        const tri_port_message *m = arrive(c, false, false, &head, data);
        bool matters = *fields[i] == 255; /* all of them do */
        assert_true(matters && m->status == TR_ERROR_RUNTIME);
        assert_non_null(strstr(m->why, "rank 7 called"));
        if (i == 0)
            assert_non_null(strstr(m->why, "type 255"));
    }
    for (int i = 0; i < 2; i++) {
        head = good_head(data);
        *(i ? &head.type : (uint32_t *)&head.number) = 77;
        const tri_port_message *m = arrive(c, false, false, &head, data);
        assert_int_equal(m->status, TR_ERROR_RUNTIME);
        assert_non_null(strstr(m->why, "rank 7 sent a frame"));
    }
    head = good_head(data);
    head.num_bytes = UINT64_MAX;
    assert_int_equal(arrive(c, false, false, &head, data)->status, TR_ERROR_RUNTIME);
    free(c);
}

static void a_flipped_bit_is_named(void **state)
{
    (void)state;
    static const float data[COUNT] = {1, 2, 3, 4, 5, 6};
    struct lane_case *c = calloc(1, sizeof *c);
    tri_tcp_head head = good_head(data);
    for (int combine = 0; combine < 2; combine++) {
        assert_int_equal(arrive(c, true, combine, &head, data)->status, TR_OK);
        for (size_t bit = 0; bit < 8 * sizeof data; bit++) {
            float changed[COUNT];
            memcpy(changed, data, sizeof data);
            ((unsigned char *)changed)[bit / 8] ^= (unsigned char)(1 << bit % 8);
            const tri_port_message *m = arrive(c, true, combine, &head, changed);
            assert_int_equal(m->status, TR_ERROR_RUNTIME);
            assert_non_null(strstr(m->why, "the 24 bytes from rank 7 are not those"));
            assert_non_null(strstr(m->why, "sent to rank 3"));
            assert_int_equal(arrive(c, false, combine, &head, changed)->status, TR_OK);
        }
    }
    for (size_t bit = 0; bit < 8 * sizeof head; bit++) {
        tri_tcp_head changed = head;
        ((unsigned char *)&changed)[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_non_null(tri_tcp_head_wrong(&changed, true));
    }
    free(c);
}

/* All connections of this process that are open, and of them those whose packets nothing paces. */
static void count_connections(int *num, int *num_reno)
{
    *num = *num_reno = 0;
    for (int fd = 3; fd < 1024; fd++) {
        char name[16] = "";
        struct sockaddr_storage other;
        socklen_t length = sizeof name - 1, other_length = sizeof other;
        if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) != 0 ||
            getpeername(fd, (struct sockaddr *)&other, &other_length) != 0)
            continue;
        ++*num;
        *num_reno += strcmp(name, "reno") == 0;
    }
}

static tr_status look_at_connections(tr_comm *comm, void *context, tr_error *err)
{
    TRI_TRY(tr_barrier(tr_comm_world(comm), err));
    if (tr_comm_rank(comm) == 0)
        count_connections(context, (int *)context + 1);
    return tr_barrier(tr_comm_world(comm), err);
}

static void nothing_paces_within_a_machine(void **state)
{
    (void)state;
    int counts[2];
    tr_comm_options options = {.transport = "tcp"};
    tr_error err = {0};
    if (tr_comm_run_threads(2, &options, look_at_connections, counts, &err) != TR_OK)
        fail_msg("%s", err.message);
    assert_true(counts[0] >= 2); /* both ends are here */
    assert_int_equal(counts[1], counts[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_dropped),
        cmocka_unit_test(proofs_are_of_one_end_and_one_connection),
        cmocka_unit_test(another_token_is_refused),
        cmocka_unit_test(no_token_is_an_error),
        cmocka_unit_test(what_a_peer_sends_is_judged),
        cmocka_unit_test(a_flipped_bit_is_named),
        cmocka_unit_test(nothing_paces_within_a_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
