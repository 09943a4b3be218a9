/* The control plane: good clients, strangers, nonsense, and ranks that vanish. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/control/control_hello.h"
#include "comm/control/control_wire.h"
#include "temp_dir.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#define TOKEN "correct horse battery staple"

/* What a short deadline shows on an idle machine may be hidden by a busy one, which keeps any
 * thread from running for as long. Then it is tried with the next. */
static const double deadlines_s[] = {0.6, 4, 20};
enum { NUM_DEADLINES = sizeof deadlines_s / sizeof *deadlines_s, PATIENCE_MS = 60000 };

static double now_s(void)
{
    return 1e-9 * (double)tri_now_ns();
}

/* ---- a server on a thread, and what it says ---- */

typedef struct service {
    tri_control_server *server;
    tri_control_thread *thread;
    int port;
    pthread_mutex_t mutex;
    int num_lines;
    char lines[4096];
} service;

static void keep_line(void *context, const char *line)
{
    service *s = context;
    pthread_mutex_lock(&s->mutex);
    size_t used = strlen(s->lines);
    snprintf(s->lines + used, sizeof s->lines - used, "%s\n", line);
    s->num_lines++;
    pthread_mutex_unlock(&s->mutex);
}

static void begin(service *s, int size, double deadline_s, double join_s)
{
    tr_error err = {0};
    *s = (service){.mutex = PTHREAD_MUTEX_INITIALIZER};
    tri_control_config config = {.address = "127.0.0.1",
                                 .size = size,
                                 .token = TOKEN,
                                 .deadline_s = deadline_s,
                                 .join_s = join_s,
                                 .log = keep_line,
                                 .log_context = s};
    assert_int_equal(tri_control_server_create(&config, &s->server, &err), TR_OK);
    s->port = tri_control_server_port(s->server);
}

static void start(service *s, int size, double deadline_s, double join_s)
{
    begin(s, size, deadline_s, join_s);
    assert_int_equal(tri_control_thread_start(s->server, &s->thread, NULL), TR_OK);
}

static bool said(service *s, const char *part)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        pthread_mutex_lock(&s->mutex);
        bool found = strstr(s->lines, part) != NULL;
        pthread_mutex_unlock(&s->mutex);
        if (found)
            return true;
        usleep(10000);
    }
    print_message("not said: '%s', but:\n%s", part, s->lines);
    return false;
}

/* The server's last words are to be read before it goes. */
static void end(service *s)
{
    tri_control_thread_end(s->thread);
    s->thread = NULL;
}

static void put_away(service *s)
{
    tri_control_server_destroy(s->server);
    pthread_mutex_destroy(&s->mutex);
}

/* ---- ranks as threads ---- */

typedef struct rank {
    service *service;
    int rank, size;
    const char *token;
    double join_s;
    tr_status status;
    tr_error err;
    tri_control_client *client;
    const tri_bootstrap *boot;
    pthread_t thread;
} rank;

static void *join_one(void *argument)
{
    rank *r = argument;
    tri_control_join join = {.address = "127.0.0.1",
                             .port = r->service->port,
                             .rank = r->rank,
                             .size = r->size,
                             .token = r->token ? r->token : TOKEN,
                             .join_s = r->join_s > 0 ? r->join_s : 60};
    r->status = tri_control_client_create(&join, &r->client, &r->err);
    r->boot = r->client ? tri_control_client_bootstrap(r->client) : NULL;
    return NULL;
}

static void join_all(service *s, rank *ranks, int num, int size)
{
    for (int r = 0; r < num; r++) {
        ranks[r] = (rank){.service = s, .rank = r, .size = size};
        pthread_create(&ranks[r].thread, NULL, join_one, &ranks[r]);
    }
    for (int r = 0; r < num; r++)
        pthread_join(ranks[r].thread, NULL);
}

static tr_status put(rank *r, const char *key, const char *value)
{
    return r->boot->put(r->boot->context, key, value, strlen(value) + 1, &r->err);
}

static tr_status get(rank *r, const char *key, char value[64])
{
    size_t n = 0;
    return r->boot->get(r->boot->context, key, value, 64, &n, &r->err);
}

/* The stop flag; returns the reason, or "" when it does not come. */
static const char *stop_reason(rank *r)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        if (atomic_load(&r->boot->stop->stopped))
            return r->boot->stop->reason;
        usleep(10000);
    }
    return "";
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in '%s'", part, text);
}

/* ---- good clients ---- */

static void ranks_meet_and_talk(void **state)
{
    enum { N = 5 };
    service s;
    rank ranks[N];
    char key[32], value[64];
    (void)state;
    start(&s, N, 60, 60);
    double began = now_s();
    join_all(&s, ranks, N, N);
    print_message("%d ranks joined in %.1f ms\n", N, 1e3 * (now_s() - began));
    for (int r = 0; r < N; r++) {
        if (ranks[r].status != TR_OK)
            fail_msg("%s", ranks[r].err.message);
        assert_int_equal(ranks[r].boot->local_rank, r);
        assert_int_equal(ranks[r].boot->local_size, N);
        snprintf(key, sizeof key, "key.%d", r);
        assert_int_equal(put(&ranks[r], key, key), TR_OK);
    }
    for (int r = 0; r < N; r++) {
        snprintf(key, sizeof key, "key.%d", (r + 1) % N);
        assert_int_equal(get(&ranks[r], key, value), TR_OK);
        assert_string_equal(value, key);
    }
    for (int r = 0; r < N; r++)
        tri_control_client_destroy(ranks[r].client, true);
    end(&s);
    assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_NONE);
    for (int r = 0; r < N; r++)
        assert_int_equal(tri_control_server_rank(s.server, r)->state, TRI_RANK_ENDED);
    assert_int_equal(s.num_lines, 0);
    put_away(&s);
}

typedef struct getter {
    rank *r;
    char value[64];
    tr_status status;
} getter;

static void *get_later(void *argument)
{
    getter *g = argument;
    g->status = get(g->r, "late", g->value);
    return NULL;
}

static void a_get_waits_for_its_put(void **state)
{
    service s;
    rank ranks[2];
    pthread_t thread;
    char *large = malloc(900000), *back = malloc(900000), value[64];
    size_t n = 0;
    (void)state;
    start(&s, 2, 60, 60);
    join_all(&s, ranks, 2, 2);
    getter g = {.r = &ranks[0]};
    pthread_create(&thread, NULL, get_later, &g);
    usleep(50000);
    assert_int_equal(put(&ranks[1], "late", "here"), TR_OK);
    pthread_join(thread, NULL);
    assert_int_equal(g.status, TR_OK);
    assert_string_equal(g.value, "here");
    /* A later put replaces; a value that does not fit is an error; large ones travel. */
    assert_int_equal(put(&ranks[1], "late", "again"), TR_OK);
    assert_int_equal(get(&ranks[1], "late", value), TR_OK);
    assert_string_equal(value, "again");
    memset(large, 7, 900000);
    assert_int_equal(ranks[0].boot->put(ranks[0].boot->context, "large", large, 900000, NULL),
                     TR_OK);
    assert_int_equal(get(&ranks[1], "large", value), TR_ERROR_INTERNAL);
    assert_int_equal(ranks[1].boot->get(ranks[1].boot->context, "large", back, 900000, &n, NULL),
                     TR_OK);
    assert_int_equal(n, 900000);
    assert_memory_equal(large, back, 900000);
    assert_int_equal(ranks[0].boot->put(ranks[0].boot->context, "x", large, 2 << 20, NULL),
                     TR_ERROR_INTERNAL);
    free(large);
    free(back);
    tri_control_client_destroy(ranks[0].client, true);
    tri_control_client_destroy(ranks[1].client, true);
    end(&s);
    put_away(&s);
}

static void a_get_has_a_deadline(void **state)
{
    bool found = false;
    (void)state;
    for (int i = 0; i < NUM_DEADLINES && !found; i++) {
        service s;
        rank r[1];
        char value[64], says[64];
        start(&s, 1, deadlines_s[i], 60);
        join_all(&s, r, 1, 1);
        assert_int_equal(get(r, "never", value), TR_ERROR_RUNTIME);
        snprintf(says, sizeof says, "waited %.3g s for the key never", deadlines_s[i] + 1);
        found = strstr(r[0].err.message, says) != NULL;
        if (i == NUM_DEADLINES - 1)
            assert_has(r[0].err.message, says);
        tri_control_client_destroy(r[0].client, true);
        end(&s);
        put_away(&s);
    }
}

/* A rank may come before the server does. */
static void joining_retries(void **state)
{
    service s;
    rank r = {.service = &s, .size = 1};
    (void)state;
    begin(&s, 1, 60, 60); /* to learn a port that is free */
    int port = s.port;
    put_away(&s);
    pthread_create(&r.thread, NULL, join_one, &r);
    usleep(100000);
    tri_control_config config = {.address = "127.0.0.1",
                                 .port = port,
                                 .size = 1,
                                 .token = TOKEN,
                                 .deadline_s = 60,
                                 .join_s = 60};
    assert_int_equal(tri_control_server_create(&config, &s.server, NULL), TR_OK);
    assert_int_equal(tri_control_thread_start(s.server, &s.thread, NULL), TR_OK);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.status, TR_OK);
    tri_control_client_destroy(r.client, true);
    end(&s);
    put_away(&s);
}

static void nobody_there(void **state)
{
    service s;
    rank r = {.service = &s, .size = 1, .join_s = 0.2};
    (void)state;
    begin(&s, 1, 60, 60);
    put_away(&s);
    join_one(&r);
    assert_int_equal(r.status, TR_ERROR_RUNTIME);
    assert_has(r.err.message, "could not reach");
    assert_has(r.err.message, "Connection refused");
}

static void a_port_in_use(void **state)
{
    service s;
    tri_control_server *second;
    tr_error err = {0};
    (void)state;
    begin(&s, 1, 60, 60);
    tri_control_config config = {.address = "127.0.0.1", .port = s.port, .size = 1, .token = TOKEN};
    assert_int_equal(tri_control_server_create(&config, &second, &err), TR_ERROR_RUNTIME);
    assert_null(second);
    assert_has(err.message, "Address already in use");
    put_away(&s);
}

/* ---- joining that goes wrong ---- */

static void the_missing_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_DEADLINES; i++) {
        service s;
        rank ranks[2];
        char says[80];
        start(&s, 4, 5, deadlines_s[i]);
        join_all(&s, ranks, 2, 4);
        end(&s);
        snprintf(says, sizeof says, "only 2 of 4 ranks joined within %.3g s; missing: ranks 2, 3",
                 deadlines_s[i]);
        bool last = i == NUM_DEADLINES - 1, all = true;
        for (int r = 0; r < 2; r++) { /* those who come too late are not let in at all */
            assert_int_equal(ranks[r].status, TR_ERROR_RUNTIME);
            all = all && strstr(ranks[r].err.message, says);
            if (last)
                assert_has(ranks[r].err.message, says);
        }
        assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_MISSING);
        put_away(&s);
        if (all)
            return;
    }
}

static void wrong_ranks_and_tokens(void **state)
{
    service s;
    rank good[2], bad;
    (void)state;
    begin(&s, 2, 60, 60);
    good[0] = (rank){.service = &s, .rank = 0, .size = 2};
    pthread_create(&good[0].thread, NULL, join_one, &good[0]);
    while (tri_control_server_rank(s.server, 0)->state != TRI_RANK_PRESENT)
        tri_control_server_step(s.server, 10);
    assert_int_equal(tri_control_thread_start(s.server, &s.thread, NULL), TR_OK);
    bad = (rank){.service = &s, .rank = 1, .size = 2, .token = "correct horse battery staplf"};
    join_one(&bad);
    assert_int_equal(bad.status, TR_ERROR_RUNTIME);
    assert_has(bad.err.message, "the token of this rank is not the job's");
    assert_true(said(&s, "its token is not the job's"));
    bad = (rank){.service = &s, .rank = 1, .size = 2, .token = "correct horse"};
    join_one(&bad);
    assert_int_equal(bad.status, TR_ERROR_RUNTIME);
    bad = (rank){.service = &s, .rank = 0, .size = 2};
    join_one(&bad);
    assert_has(bad.err.message, "rank 0 has joined already");
    bad = (rank){.service = &s, .rank = 2, .size = 2};
    join_one(&bad);
    assert_has(bad.err.message, "rank 2 of 2 cannot join a world of 2");
    bad = (rank){.service = &s, .rank = 1, .size = 3};
    join_one(&bad);
    assert_has(bad.err.message, "rank 1 of 3 cannot join a world of 2");
    good[1] = (rank){.service = &s, .rank = 1, .size = 2};
    join_one(&good[1]);
    pthread_join(good[0].thread, NULL);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(good[r].status, TR_OK);
        assert_int_equal(atomic_load(&good[r].boot->stop->stopped), 0);
        tri_control_client_destroy(good[r].client, true);
    }
    end(&s);
    assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_NONE);
    put_away(&s);
}

/* ---- strangers ---- */

static int call(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The other end hangs up, within some seconds, whatever it said before. */
static bool hung_up(int fd, int timeout_ms)
{
    char bytes[64];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, timeout_ms) > 0)
        if (recv(fd, bytes, sizeof bytes, 0) <= 0)
            return true;
    return false;
}

/* A frame from the other end, whose bytes are in `in`. */
static void take_frame(int fd, tri_wire_in *in, tri_wire_frame *frame)
{
    const char *wrong;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int got;
    while ((got = tri_wire_take(in, TRI_WIRE_MAX_BYTES, frame, &wrong)) == 0) {
        assert_true(poll(&p, 1, PATIENCE_MS) > 0);
        assert_true(tri_wire_receive(in, fd));
    }
    assert_int_equal(got, 1);
}

static void send_all(int fd, const void *data, size_t n)
{
    ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
    (void)sent; /* the other end may have had enough */
}

static void strangers_are_dropped(void **state)
{
    service s;
    rank ranks[2];
    char value[64];
    (void)state;
    start(&s, 2, 60, 60);
    join_all(&s, ranks, 2, 2);
    double began = now_s();
    int mute = call(s.port), half = call(s.port);
    send_all(half, "TRIC\2\0\1\0\40", 9); /* a header that does not go on */
    static const struct {
        const char *bytes;
        size_t num;
        const char *why;
    } nonsense[] = {
        {"GET / HTTP/1.1\r\n\r\n", 18, "it does not speak the protocol"},
        {"TRIC\1\0\1\0\0\0\0\0", 12, "it speaks another version of the protocol"},
        {"TRIC\2\0\77\0\0\0\0\0", 12, "a frame of an unknown type"},
        {"TRIC\2\0\1\0\1\4\0\0", 12, "a frame that is too long"},
        {"TRIC\2\0\1\0\377\377\377\377", 12, "a frame that is too long"},
        {"TRIC\2\0\1\0\4\0\0\0\377\377\377\377", 16, "a frame that is not well formed"},
        {"TRIC\2\0\1\0\0\0\0\0", 12, "a frame that is not well formed"},
        {"TRIC\2\0\4\0\0\0\0\0", 12, "its first frame is not a HELLO"},
    };
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        int fd = call(s.port);
        send_all(fd, nonsense[i].bytes, nonsense[i].num);
        assert_true(hung_up(fd, PATIENCE_MS));
        assert_true(said(&s, nonsense[i].why));
        close(fd);
    }
    close(call(s.port));
    assert_true(said(&s, "it left without a HELLO"));
    assert_true(hung_up(mute, PATIENCE_MS));
    assert_true(hung_up(half, PATIENCE_MS));
    assert_true(now_s() - began > 4.9);
    assert_true(said(&s, "no HELLO in 5 s"));
    close(mute);
    close(half);
    /* Nobody else noticed. */
    assert_int_equal(put(&ranks[0], "still", "here"), TR_OK);
    assert_int_equal(get(&ranks[1], "still", value), TR_OK);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(atomic_load(&ranks[r].boot->stop->stopped), 0);
        tri_control_client_destroy(ranks[r].client, true);
    }
    end(&s);
    assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_NONE);
    put_away(&s);
}

/* ---- fuzzing ---- */

static uint64_t random_state = 88172645463325252u;

static uint32_t any(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32) % below;
}

static void add_hello(tri_wire_out *out, const char *token,
                      const unsigned char challenge[TRI_AUTH_BYTES], uint32_t number, uint32_t size)
{
    tri_hello hello = {.rank = number, .size = size, .pid = 1, .host = "host", .host_id = "id"};
    assert_true(tri_hello_write(out, &hello, token, challenge));
}

/* A frame of some type whose payload is noise, half of the time with a length that lies. */
static void add_noise_frame(tri_wire_out *out)
{
    size_t frame = out->used;
    tri_wire_begin(out, (tri_wire_type)any(TRI_WIRE_NUM_TYPES + 1));
    for (uint32_t i = any(40); i > 0; i--)
        tri_wire_add_u32(out, any(2) ? any(64) : any(UINT32_MAX));
    tri_wire_end(out);
    if (any(2))
        out->bytes[frame + 8 + any(4)] = (unsigned char)any(256);
}

static void add_stream(tri_wire_out *out)
{
    uint32_t kind = any(4);
    if (kind == 0) { /* noise */
        for (uint32_t i = any(200); i > 0; i--)
            tri_wire_add_u32(out, any(UINT32_MAX));
        return;
    }
    if (kind == 1) { /* a good HELLO but for its token, then some bytes of it changed */
        unsigned char challenge[TRI_AUTH_BYTES] = {0};
        add_hello(out, "guess", challenge, any(4), any(4));
        for (uint32_t i = any(6); i > 0; i--)
            out->bytes[any((uint32_t)out->used)] = (unsigned char)any(256);
        out->used = any((uint32_t)out->used + 1);
        return;
    }
    for (uint32_t i = 1 + any(5); i > 0; i--)
        add_noise_frame(out);
}

static void ten_thousand_streams_of_strangers(void **state)
{
    enum { NUM = 10000, AT_ONCE = 50 };
    service s;
    rank ranks[2];
    char value[64];
    int fds[AT_ONCE];
    (void)state;
    start(&s, 2, 60, 60);
    join_all(&s, ranks, 2, 2);
    double began = now_s();
    for (int i = 0; i < NUM / AT_ONCE; i++) {
        for (int k = 0; k < AT_ONCE; k++) {
            tri_wire_out out = {0};
            add_stream(&out);
            fds[k] = call(s.port);
            send_all(fds[k], out.bytes, out.used);
            tri_wire_out_fini(&out);
        }
        for (int k = 0; k < AT_ONCE; k++)
            close(fds[k]);
        if (i % 20 == 0) {
            assert_int_equal(put(&ranks[0], "still", "here"), TR_OK);
            assert_int_equal(get(&ranks[1], "still", value), TR_OK);
        }
    }
    print_message("%d streams in %.1f s\n", NUM, now_s() - began);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(atomic_load(&ranks[r].boot->stop->stopped), 0);
        tri_control_client_destroy(ranks[r].client, true);
    }
    end(&s);
    assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_NONE);
    put_away(&s);
}

/* One who has the token and then talks nonsense ends the job, but not the server. */
static void streams_of_a_broken_rank(void **state)
{
    enum { NUM = 1000 };
    (void)state;
    for (int i = 0; i < NUM; i++) {
        service s;
        tri_wire_out out = {0};
        begin(&s, 2, 60, 60);
        int fd = call(s.port);
        tri_control_server_step(s.server, 100); /* accept */
        unsigned char challenge[TRI_AUTH_BYTES];
        tri_wire_in in = {0};
        tri_wire_frame frame;
        take_frame(fd, &in, &frame);
        assert_true(tri_challenge_read(&frame, challenge));
        tri_wire_in_fini(&in);
        add_hello(&out, TOKEN, challenge, 0, 2);
        if (any(2))
            add_hello(&out, TOKEN, challenge, 0, 2);
        for (uint32_t k = any(6); k > 0; k--)
            add_noise_frame(&out);
        send_all(fd, out.bytes, out.used);
        tri_control_server_step(s.server, 100); /* hear */
        close(fd);
        for (int k = 0; k < 100 && tri_control_server_rank(s.server, 0)->state == TRI_RANK_PRESENT;
             k++)
            tri_control_server_step(s.server, 10);
        assert_int_not_equal(tri_control_server_rank(s.server, 0)->state, TRI_RANK_PRESENT);
        tri_wire_out_fini(&out);
        put_away(&s);
    }
}

/* ---- what is not the job's server ---- */

/* Listens where rank 0 should, hears the hello of a rank and answers in some way. */
typedef enum trick { REFLECTS, GUESSES, NOBODY_LOCAL, RANK_OUTSIDE, ENDLESS, FINE } trick;
typedef struct impostor {
    int listener;
    trick trick;
    char heard[4096];
    size_t num_heard;
} impostor;

static void *deceive(void *argument)
{
    impostor *m = argument;
    int fd = accept(m->listener, NULL, NULL);
    tri_wire_out out = {0};
    tri_wire_in in = {0};
    tri_wire_frame frame, again;
    tri_hello hello;
    unsigned char nonce[TRI_AUTH_BYTES] = {1, 2, 3};
    tri_challenge_write(&out, nonce);
    send_all(fd, out.bytes, out.used);
    tri_wire_out_fini(&out);
    take_frame(fd, &in, &frame);
    m->num_heard = in.used;
    memcpy(m->heard, in.bytes, in.used);
    again = frame;
    assert_null(tri_hello_read(&frame, &hello, TOKEN, nonce));
    if (m->trick == REFLECTS) { /* the rank's own code, sent back */
        tri_wire_begin(&out, TRI_WIRE_PROOF);
        tri_wire_add_bytes(&out, again.at + again.left - TRI_AUTH_BYTES, TRI_AUTH_BYTES);
        tri_wire_end(&out);
    } else {
        tri_proof_write(&out, &hello, m->trick == GUESSES ? "guess" : TOKEN, nonce);
    }
    tri_welcome welcome = {.deadline_s = m->trick == ENDLESS ? 1.8e10 : 1,
                           .local_rank = m->trick == RANK_OUTSIDE ? 1 : 0,
                           .local_size = m->trick == NOBODY_LOCAL ? 0 : 1};
    tri_welcome_write(&out, &welcome);
    send_all(fd, out.bytes, out.used);
    hung_up(fd, PATIENCE_MS);
    tri_wire_out_fini(&out);
    tri_wire_in_fini(&in);
    close(fd);
    return NULL;
}

static void an_impostor_is_not_the_server(void **state)
{
    static const char *const says[] = {[REFLECTS] = "does not know the job's token",
                                       [GUESSES] = "does not know the job's token",
                                       [NOBODY_LOCAL] = "is not a control server",
                                       [RANK_OUTSIDE] = "is not a control server",
                                       [ENDLESS] = "is not a control server"};
    (void)state;
    for (int i = 0; i <= FINE; i++) {
        service s = {0};
        impostor m = {.trick = (trick)i};
        pthread_t thread;
        assert_int_equal(tri_wire_listen("127.0.0.1", 0, &m.listener, &s.port, NULL), TR_OK);
        fcntl(m.listener, F_SETFL, fcntl(m.listener, F_GETFL) & ~O_NONBLOCK);
        pthread_create(&thread, NULL, deceive, &m);
        rank r = {.service = &s, .size = 1, .join_s = 60};
        join_one(&r);
        if (i == FINE) { /* or this test would prove nothing */
            assert_int_equal(r.status, TR_OK);
            assert_string_not_equal(r.boot->token, TOKEN);
            tri_control_client_destroy(r.client, true);
        } else {
            assert_int_equal(r.status, TR_ERROR_RUNTIME);
            assert_has(r.err.message, says[i]);
        }
        pthread_join(thread, NULL);
        close(m.listener);
        assert_true(m.num_heard > TRI_AUTH_BYTES);
        assert_null(memmem(m.heard, m.num_heard, TOKEN, strlen(TOKEN)));
    }
}

/* What a rank said to a server once is worth nothing to whoever says it again. */
static void an_old_hello_is_worth_nothing(void **state)
{
    (void)state;
    service s;
    begin(&s, 2, 60, 60);
    unsigned char challenge[TRI_AUTH_BYTES];
    tri_wire_out out = {0};
    for (int i = 0; i < 2; i++) {
        tri_wire_in in = {0};
        tri_wire_frame frame;
        int fd = call(s.port);
        tri_control_server_step(s.server, 1000); /* accept */
        take_frame(fd, &in, &frame);
        if (i == 0) { /* heard by somebody who has not the token */
            assert_true(tri_challenge_read(&frame, challenge));
            add_hello(&out, TOKEN, challenge, 1, 2);
        } else {
            send_all(fd, out.bytes, out.used);
            tri_control_server_step(s.server, 1000); /* hear */
            assert_true(hung_up(fd, PATIENCE_MS));
        }
        tri_wire_in_fini(&in);
        close(fd);
    }
    assert_true(said(&s, "its token is not the job's"));
    assert_int_equal(tri_control_server_rank(s.server, 1)->state, TRI_RANK_ABSENT);
    tri_wire_out_fini(&out);
    put_away(&s);
}

/* A server that talks nonsense does not harm a client. */
typedef struct liar {
    int listener;
    bool welcomes;
} liar;

static void *lie(void *argument)
{
    liar *l = argument;
    int fd = accept(l->listener, NULL, NULL);
    tri_wire_out out = {0};
    if (l->welcomes) {
        unsigned char nonce[TRI_AUTH_BYTES] = {0};
        tri_wire_in in = {0};
        tri_wire_frame frame;
        tri_hello hello;
        tri_welcome welcome = {.deadline_s = 1, .local_size = 1};
        tri_challenge_write(&out, nonce);
        send_all(fd, out.bytes, out.used);
        tri_wire_out_fini(&out);
        take_frame(fd, &in, &frame);
        assert_null(tri_hello_read(&frame, &hello, TOKEN, nonce));
        tri_proof_write(&out, &hello, TOKEN, nonce);
        tri_welcome_write(&out, &welcome);
        tri_wire_in_fini(&in);
    }
    add_stream(&out);
    send_all(fd, out.bytes, out.used);
    tri_wire_out_fini(&out);
    close(fd);
    return NULL;
}

static void servers_that_lie(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        service s = {0};
        liar l = {.welcomes = i % 2};
        pthread_t thread;
        assert_int_equal(tri_wire_listen("127.0.0.1", 0, &l.listener, &s.port, NULL), TR_OK);
        int flags = fcntl(l.listener, F_GETFL);
        fcntl(l.listener, F_SETFL, flags & ~O_NONBLOCK);
        pthread_create(&thread, NULL, lie, &l);
        rank r = {.service = &s, .size = 1, .join_s = 60};
        join_one(&r);
        if (r.client) {
            assert_true(stop_reason(&r)[0] != 0 || i % 2);
            tri_control_client_destroy(r.client, true);
        } else {
            assert_true(r.err.message[0] != 0);
        }
        pthread_join(thread, NULL);
        close(l.listener);
    }
}

/* ---- ranks that go ---- */

static void a_vanished_rank_stops_all(void **state)
{
    service s;
    rank ranks[3];
    (void)state;
    start(&s, 3, 60, 60);
    join_all(&s, ranks, 3, 3);
    tri_control_client_destroy(ranks[1].client, false);
    assert_has(stop_reason(&ranks[0]), "rank 1 (process ");
    assert_has(stop_reason(&ranks[2]), "ended without a word");
    char value[64]; /* whoever waits is told why it is in vain */
    assert_int_equal(get(&ranks[0], "never", value), TR_ERROR_RUNTIME);
    assert_has(ranks[0].err.message, "ended without a word");
    tri_control_client_destroy(ranks[0].client, false);
    tri_control_client_destroy(ranks[2].client, false);
    end(&s);
    assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_LOST);
    assert_int_equal(tri_control_server_failure(s.server)->rank, 1);
    put_away(&s);
}

static void a_failed_rank_stops_all(void **state)
{
    service s;
    rank ranks[2];
    (void)state;
    start(&s, 2, 60, 60);
    join_all(&s, ranks, 2, 2);
    atomic_store(&ranks[1].boot->status->step, 17);
    strcpy(ranks[1].boot->status->doing, "all_reduce of gradients");
    tri_control_report_failure(ranks[1].boot, "loss is not finite");
    tri_control_client_destroy(ranks[1].client, false);
    assert_string_equal(stop_reason(&ranks[0]), "rank 1 failed: loss is not finite");
    tri_control_client_destroy(ranks[0].client, false);
    end(&s);
    const tri_control_rank *info = tri_control_server_rank(s.server, 1);
    assert_int_equal(tri_control_server_failure(s.server)->cause, TRI_CAUSE_FAILED);
    assert_string_equal(info->message, "loss is not finite");
    assert_int_equal(info->where.step, 17);
    assert_string_equal(info->where.doing, "all_reduce of gradients");
    put_away(&s);
}

/* Ranks of which some wait, for some or for nobody in particular (-1), until the server says why
 * that ends; true when it names this rank and says this. */
typedef struct standstill {
    int size;
    int waits_for[3]; /* NOT: does not wait, and does not move */
    const char *says;
    int blamed; /* -1: any */
} standstill;
enum { NOT = -2 };

static bool is_found(const standstill *c, double deadline_s, bool last)
{
    service s;
    rank ranks[3];
    start(&s, c->size, deadline_s, 60);
    join_all(&s, ranks, c->size, c->size);
    double began = now_s();
    for (int r = 0; r < c->size; r++) {
        if (c->waits_for[r] == NOT)
            continue;
        if (c->waits_for[r] >= 0)
            atomic_store(&ranks[r].boot->status->peer, c->waits_for[r]);
        atomic_store(&ranks[r].boot->status->waiting_since_ns, tri_now_ns());
    }
    const char *reason = stop_reason(&ranks[0]);
    bool found = strstr(reason, c->says) != NULL;
    if (found)
        assert_true(now_s() - began > 0.9 * deadline_s);
    if (last)
        assert_has(reason, c->says);
    for (int r = 0; r < c->size; r++)
        tri_control_client_destroy(ranks[r].client, false);
    end(&s);
    const tri_control_failure *failure = tri_control_server_failure(s.server);
    if (found) {
        assert_int_equal(failure->cause, TRI_CAUSE_STUCK);
        if (c->blamed >= 0)
            assert_int_equal(failure->rank, c->blamed);
    }
    put_away(&s);
    return found;
}

static void check_found(standstill c)
{
    bool found = false;
    for (int i = 0; i < NUM_DEADLINES && !found; i++)
        found = is_found(&c, deadlines_s[i], i == NUM_DEADLINES - 1);
}

/* 0 waits for 1, which waits for 2, which does not move. */
static void a_stuck_rank_is_found(void **state)
{
    (void)state;
    check_found((standstill){3, {1, 2, NOT}, "rank 2 has not moved for ", 2});
}

/* The same when the one who waits does not say for whom. */
static void a_stuck_rank_is_found_by_its_rest(void **state)
{
    (void)state;
    check_found((standstill){3, {-1, NOT, -1}, "rank 1 has not moved for ", 1});
}

static void a_circle_is_found(void **state)
{
    (void)state;
    check_found((standstill){2, {1, 0}, "ranks wait for each other in a circle", -1});
}

/* Waits for three deadlines for one that moves; whether nobody was stopped. */
static bool is_left_alone(double deadline_s)
{
    service s;
    rank ranks[2];
    start(&s, 2, deadline_s, 60);
    join_all(&s, ranks, 2, 2);
    atomic_store(&ranks[0].boot->status->peer, 1);
    atomic_store(&ranks[0].boot->status->waiting_since_ns, tri_now_ns());
    for (double until = now_s() + 2.5 * deadline_s; now_s() < until;) {
        atomic_fetch_add(&ranks[1].boot->status->counter, 1);
        usleep(50000);
    }
    bool alone = atomic_load(&ranks[0].boot->stop->stopped) == 0;
    for (int r = 0; r < 2; r++)
        tri_control_client_destroy(ranks[r].client, true);
    end(&s);
    assert_true(alone == (tri_control_server_failure(s.server)->cause == TRI_CAUSE_NONE));
    put_away(&s);
    return alone;
}

/* Long waits are fine as long as the one who is waited for moves. */
static void a_slow_rank_is_left_alone(void **state)
{
    bool alone = false;
    (void)state;
    for (int i = 0; i < NUM_DEADLINES && !alone; i++)
        alone = is_left_alone(deadlines_s[i]);
    assert_true(alone);
}

static void a_lost_server_stops_its_clients(void **state)
{
    service s;
    rank r = {.service = &s, .size = 1};
    (void)state;
    begin(&s, 1, 60, 60);
    pthread_create(&r.thread, NULL, join_one, &r);
    while (!tri_control_server_joined(s.server))
        tri_control_server_step(s.server, 10);
    pthread_join(r.thread, NULL);
    put_away(&s);
    assert_has(stop_reason(&r), "the control server at 127.0.0.1:");
    tri_control_client_destroy(r.client, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet_and_talk),
        cmocka_unit_test(a_get_waits_for_its_put),
        cmocka_unit_test(a_get_has_a_deadline),
        cmocka_unit_test(joining_retries),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(a_port_in_use),
        cmocka_unit_test(the_missing_are_named),
        cmocka_unit_test(wrong_ranks_and_tokens),
        cmocka_unit_test(strangers_are_dropped),
        cmocka_unit_test(ten_thousand_streams_of_strangers),
        cmocka_unit_test(streams_of_a_broken_rank),
        cmocka_unit_test(an_impostor_is_not_the_server),
        cmocka_unit_test(an_old_hello_is_worth_nothing),
        cmocka_unit_test(servers_that_lie),
        cmocka_unit_test(a_vanished_rank_stops_all),
        cmocka_unit_test(a_failed_rank_stops_all),
        cmocka_unit_test(a_stuck_rank_is_found),
        cmocka_unit_test(a_stuck_rank_is_found_by_its_rest),
        cmocka_unit_test(a_slow_rank_is_left_alone),
        cmocka_unit_test(a_circle_is_found),
        cmocka_unit_test(a_lost_server_stops_its_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
