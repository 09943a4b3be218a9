/* trireme watch: documents of runs that have ended and that go on, events and what a client that
 * comes back has missed, ranks that were killed, and who may see all this. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "temp_dir.h"
#include "watch_client.h"

static watch_server server;
static temp_dir *work;
static const double limit_s = 120; /* of what hangs */

/* "KEY=VALUE" words behind `train recipes/tiny.yaml`, run.dir in this test's directory. */
static pid_t train(const char *name, const char *const *assignments)
{
    char dir[300], output[300];
    const char *words[32] = {"train", "recipes/tiny.yaml", "--set", dir};
    int num = 4;
    snprintf(dir, sizeof dir, "run.dir=%s/runs/%s", work->path, name);
    snprintf(output, sizeof output, "%s/%s.out", work->path, name);
    for (; *assignments; assignments++) {
        words[num++] = "--set";
        words[num++] = *assignments;
    }
    return watch_start(&server, output, words);
}

static void serve_runs(void)
{
    char runs[200];
    snprintf(runs, sizeof runs, "%s/runs", work->path);
    (void)mkdir(runs, 0777);
    watch_serve(&server, (const char *const[]){runs, NULL});
}

static double number_at(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

static json_t *get(const char *format, const char *id)
{
    char path[400];
    snprintf(path, sizeof path, format, id);
    return watch_get(&server, path);
}

static int status_of(const char *path)
{
    char *answer = watch_request(&server, "GET", path, "");
    int status = watch_status(answer);
    free(answer);
    return status;
}

/* ---- a run that has ended ---- */

static void check_curve(const char *id)
{
    json_t *curve = get("/api/curve?id=%s&y=loss&points=1000", id), *point;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(curve, "points")), 40);
    assert_true(number_at(curve, "first") == 1 && number_at(curve, "last") == 40);
    json_array_foreach(json_object_get(curve, "points"), i, point)
    {
        assert_int_equal(json_array_size(point), 5);
        assert_true(json_number_value(json_array_get(point, 0)) == (double)i + 1);
    }
    json_decref(curve);
    curve = get("/api/curve?id=%s&y=loss&from=11&to=20&points=1", id);
    point = json_array_get(json_object_get(curve, "points"), 0);
    assert_true(json_number_value(json_array_get(point, 1)) <
                json_number_value(json_array_get(point, 2)));
    json_decref(curve);
    curve = get("/api/curve?id=%s&y=eval_loss&x=tokens", id);
    assert_int_equal(json_array_size(json_object_get(curve, "points")), 4);
    json_decref(curve);
}

static void test_documents(void **state)
{
    static const char *const words[] = {
        "train.steps=40",        "train.eval_every=10", "layout.dp=2",        "layout.pp=2",
        "layout.microbatches=2", "run.trace=true",      "run.sample_every=0", NULL};
    char id[32], path[300];
    (void)state;
    assert_int_equal(watch_wait(train("whole", words)), 0);
    serve_runs();
    watch_id(&server, "/whole", id);
    json_t *run = get("/api/run?id=%s", id), *row = json_object_get(run, "run");
    assert_string_equal(json_string_value(json_object_get(row, "state")), "done");
    assert_true(number_at(row, "step") == 40);
    assert_true(number_at(json_object_get(run, "settings"), "layout.pp") == 2);
    assert_true(number_at(json_object_get(run, "layout"), "microbatches") == 2);
    assert_true(json_array_size(json_object_get(run, "events")) >= 2);
    assert_true(json_array_size(json_object_get(run, "memory")) >= 4);
    bool over_dp = false;
    json_t *message;
    size_t i;
    json_array_foreach(json_object_get(run, "messages"), i, message) over_dp |=
        strcmp(json_string_value(json_object_get(message, "axis")), "dp") == 0 &&
        number_at(message, "bytes") > 0;
    assert_true(over_dp);
    json_decref(run);
    check_curve(id);
    json_t *trace = get("/api/trace?id=%s", id);
    assert_true(number_at(trace, "step") >= 1);
    assert_true(json_array_size(json_object_get(trace, "lanes")) >= 4);
    json_decref(trace);
    json_t *memory = get("/api/memory?id=%s&rank=3", id);
    assert_true(json_array_size(json_object_get(memory, "rows")) > 20);
    json_decref(memory);
    json_t *ranks = get("/api/ranks?id=%s", id), *rank;
    json_array_foreach(json_object_get(ranks, "ranks"), i, rank)
    {
        assert_string_equal(json_string_value(json_object_get(rank, "state")), "done");
        assert_true(number_at(json_object_get(rank, "coords"), "dp") == (double)(i % 2));
    }
    assert_int_equal(i, 4);
    json_decref(ranks);
    static const char *const lists[] = {"/api/loads?id=%s", "/api/planner?id=%s"};
    for (i = 0; i < 2; i++) {
        json_t *nothing = get(lists[i], id);
        assert_true(json_is_null(nothing));
        json_decref(nothing);
    }
    snprintf(path, sizeof path, "/api/curve?id=%s&y=nothing", id);
    assert_int_equal(status_of(path), 404);
    assert_int_equal(status_of("/api/run?id=0000000000000000"), 404);
    assert_int_equal(status_of("/api/run"), 400);
    assert_int_equal(watch_end(&server), 0);
}

static void test_metrics(void **state)
{
    (void)state;
    serve_runs();
    char *answer = watch_request(&server, "GET", "/metrics", "");
    assert_int_equal(watch_status(answer), 200);
    assert_non_null(strstr(answer, "Content-Type: text/plain"));
    const char *step = strstr(answer, "\ntrireme_step{run=\"");
    assert_non_null(step);
    assert_non_null(strstr(step, "/whole\"} 40\n"));
    assert_non_null(strstr(answer, "/whole\"} 0\n")); /* it does not run */
    free(answer);
    assert_int_equal(watch_end(&server), 0);
}

/* ---- a run that goes on ---- */

/* An open stream of events, with what has come so far. */
typedef struct stream {
    int fd;
    char *text;
    size_t num;
} stream;

static void open_stream(stream *s, const char *id, const char *headers)
{
    char text[600];
    int length = snprintf(text, sizeof text,
                          "GET /events?id=%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", id, headers);
    *s = (stream){.fd = watch_connect(&server), .text = calloc(1, 1)};
    assert_true(s->fd >= 0);
    assert_int_equal(send(s->fd, text, (size_t)length, MSG_NOSIGNAL), length);
}

static void close_stream(stream *s)
{
    close(s->fd);
    free(s->text);
}

/* Reads until a text is there, behind a place. */
static const char *await(stream *s, size_t from, const char *wanted)
{
    double until = tri_now_s() + limit_s;
    const char *found;
    while (!(found = strstr(s->text + from, wanted))) {
        struct pollfd ready = {.fd = s->fd, .events = POLLIN};
        if (tri_now_s() > until)
            fail_msg("\"%s\" did not come; this did: %.3000s", wanted, s->text);
        if (poll(&ready, 1, 100) <= 0)
            continue;
        s->text = realloc(s->text, s->num + 8193);
        assert_non_null(s->text);
        ssize_t got = recv(s->fd, s->text + s->num, 8192, 0);
        if (got <= 0)
            fail_msg("the stream ends without \"%s\": %.3000s", wanted, s->text);
        s->num += (size_t)got;
        s->text[s->num] = 0;
    }
    return found;
}

static pid_t train_forever(const char *name)
{
    static const char *const words[] = {"train.steps=1000000",   "layout.dp=2",    "layout.pp=2",
                                        "layout.microbatches=2", "run.save=false", NULL};
    pid_t pid = train(name, words);
    char file[400];
    struct stat info;
    double until = tri_now_s() + limit_s;
    snprintf(file, sizeof file, "%s/runs/%s/metrics.jsonl", work->path, name);
    while (stat(file, &info) != 0 || info.st_size == 0) {
        if (tri_now_s() > until)
            fail_msg("%s does not begin", name);
        usleep(20000);
    }
    return pid;
}

/* The events of a client that comes back begin where they ended for it. */
static void check_return(const char *id, const stream *s)
{
    stream again;
    char last[64] = "", header[128], next[64];
    unsigned number = 0;
    for (const char *at = s->text; (at = strstr(at, "id: ")); at += 4)
        if (strstr(at, "\n\n")) /* whole */
            snprintf(last, sizeof last, "%.*s", (int)strcspn(at + 4, "\n"), at + 4);
    const char *minus = strrchr(last, '-');
    assert_non_null(minus);
    number = (unsigned)atoi(minus + 1);
    snprintf(header, sizeof header, "Last-Event-ID: %s\r\n", last);
    open_stream(&again, id, header);
    snprintf(next, sizeof next, "id: %.*s-%u\n", (int)(minus - last), last, number + 1);
    const char *first = await(&again, 0, "id: ");
    await(&again, 0, next);
    assert_ptr_equal(first, strstr(again.text, next));
    assert_null(strstr(again.text, "event: gap"));
    close_stream(&again);
    open_stream(&again, id, "Last-Event-ID: of-another-server-7\r\n");
    await(&again, 0, "event: gap");
    close_stream(&again);
}

static json_t *await_state(const char *id, const char *state, int rank)
{
    double until = tri_now_s() + limit_s;
    for (;;) {
        json_t *root = get("/api/ranks?id=%s", id);
        const json_t *r = json_array_get(json_object_get(root, "ranks"), (size_t)rank);
        const char *now = json_string_value(json_object_get(r, "state"));
        if (now && strcmp(now, state) == 0)
            return root;
        json_decref(root);
        if (tri_now_s() > until)
            fail_msg("rank %d is %s and not %s", rank, now ? now : "nowhere", state);
        usleep(50000);
    }
}

static void test_live(void **state)
{
    char id[32];
    stream s;
    (void)state;
    serve_runs();
    pid_t launcher = train_forever("live");
    double until = tri_now_s() + limit_s;
    for (json_t *root = NULL; !root;) { /* the list is made anew now and then */
        root = watch_get(&server, "/api/runs");
        char *text = json_dumps(root, 0);
        json_decref(root);
        root = strstr(text, "/runs/live") ? json_null() : NULL;
        free(text);
        assert_true(tri_now_s() < until);
    }
    watch_id(&server, "/live", id);
    json_t *run = get("/api/run?id=%s", id);
    assert_string_equal(json_string_value(json_object_get(json_object_get(run, "run"), "state")),
                        "running");
    json_decref(run);
    open_stream(&s, id, "");
    const char *first = await(&s, 0, "event: step\ndata: ");
    size_t behind = (size_t)(first - s.text) + 1;
    const char *second = await(&s, behind, "event: step\ndata: ");
    assert_non_null(strstr(second, "\"step\":"));
    await(&s, 0, "event: ranks");
    await(&s, 0, "event: runs");
    check_return(id, &s);
    json_t *ranks = get("/api/ranks?id=%s", id);
    pid_t victim = (pid_t)number_at(json_array_get(json_object_get(ranks, "ranks"), 2), "pid");
    json_decref(ranks);
    assert_true(victim > 1);
    kill(victim, SIGKILL);
    assert_int_equal(watch_wait(launcher), 1);
    ranks = await_state(id, "dead", 2);
    json_t *dead = json_array_get(json_object_get(ranks, "ranks"), 2);
    assert_string_equal(json_string_value(json_object_get(dead, "signal")), "SIGKILL");
    assert_true(number_at(dead, "instruction") >= 0 && number_at(dead, "step") >= 1);
    for (size_t r = 0; r < 4; r++) {
        const json_t *other = json_array_get(json_object_get(ranks, "ranks"), r);
        if (r != 2)
            assert_string_equal(json_string_value(json_object_get(other, "state")), "stopped");
    }
    json_decref(ranks);
    await(&s, 0, "\"state\":\"dead\"");
    await(&s, 0, "event: note");
    close_stream(&s);
    assert_int_equal(watch_end(&server), 0);
}

/* ---- who may see it ---- */

static void check_token(const char *headers, const char *path, int wanted)
{
    char *answer = watch_request(&server, "GET", path, headers);
    if (watch_status(answer) != wanted)
        fail_msg("%s with %s: %.100s, not %d", path, headers, answer, wanted);
    if (wanted > 400)
        assert_null(strstr(answer, "whole"));
    free(answer);
}

static void test_token(void **state)
{
    static const char secret[] = "correct-horse-battery-staple";
    static const char *const paths[] = {"/",        "/api/runs", "/api/nothing",    "/events",
                                        "/metrics", "/%00",      "/api/runs?x=%zz", "//",
                                        "/page.css"};
    char file[300], runs[300], header[400];
    (void)state;
    snprintf(file, sizeof file, "%s/token", work->path);
    snprintf(runs, sizeof runs, "%s/runs", work->path);
    assert_int_equal(put_file(file, secret, sizeof secret - 1), 0);
    assert_int_equal(chmod(file, 0600), 0);
    watch_serve(&server, (const char *const[]){runs, "--token-file", file, NULL});
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        check_token("", paths[i], 401);
        check_token("Authorization: Bearer wrong\r\n", paths[i], 403);
        check_token("Cookie: trireme=1; trireme-0=2\r\n", paths[i], 401);
    }
    check_token("", "/api/runs?token=correct-horse-battery-stapl", 403);
    snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", secret);
    check_token(header, "/api/runs", 200);
    char *answer =
        watch_request(&server, "GET", "/api/runs?token=correct-horse-battery-staple&x=1%202", "");
    assert_int_equal(watch_status(answer), 303);
    const char *cookie = strstr(answer, "Set-Cookie: ");
    assert_non_null(strstr(answer, "Location: /api/runs?%78=%31%20%32\r\n"));
    assert_non_null(cookie);
    assert_non_null(strstr(cookie, "HttpOnly; SameSite=Strict"));
    snprintf(header, sizeof header, "Cookie: %.*s\r\n", (int)strcspn(cookie + 12, ";"),
             cookie + 12);
    assert_null(strstr(answer, "staple\r\n"));
    free(answer);
    check_token(header, "/api/runs", 200);
    answer =
        watch_request(&server, "GET", "//evil.example/?token=correct-horse-battery-staple", "");
    assert_non_null(strstr(answer, "Location: /\r\n"));
    free(answer);
    assert_int_equal(watch_end(&server), 0);
}

/* A file that others may read holds no secret; an address for others makes a token. */
static void test_address(void **state)
{
    char file[300], out[300], runs[300];
    (void)state;
    snprintf(file, sizeof file, "%s/open-token", work->path);
    snprintf(out, sizeof out, "%s/out", work->path);
    snprintf(runs, sizeof runs, "%s/runs", work->path);
    assert_int_equal(put_file(file, "0123456789abcdef0123456789", 26), 0);
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(
        watch_run(&server, out, (const char *const[]){"watch", runs, "--token-file", file, NULL}),
        2);
    watch_serve(&server, (const char *const[]){runs, "--address", "0.0.0.0", NULL});
    const char *token = strstr(server.first_line, "?token=");
    assert_non_null(token);
    check_token("", "/api/runs", 401);
    char path[300];
    snprintf(path, sizeof path, "/api/runs%.*s", (int)strcspn(token, "\n"), token);
    check_token("", path, 303);
    /* The port is taken now. */
    char port[16], *text;
    size_t num;
    snprintf(port, sizeof port, "%d", server.port);
    assert_int_equal(watch_run(&server, out,
                               (const char *const[]){"watch", runs, "--address", "0.0.0.0",
                                                     "--port", port, NULL}),
                     1);
    assert_int_equal(tri_file_read(out, &text, &num, NULL), TR_OK);
    assert_non_null(strstr(text, "is in use"));
    assert_non_null(strstr(text, "--port 0"));
    free(text);
    assert_int_equal(watch_end(&server), 0);
}

/* ---- run.page ---- */

static int free_port(void)
{
    char runs[300];
    snprintf(runs, sizeof runs, "%s/runs", work->path);
    watch_serve(&server, (const char *const[]){runs, NULL});
    int port = server.port;
    assert_int_equal(watch_end(&server), 0);
    return port;
}

static void test_page(void **state)
{
    char page[32], out[300], *text, id[32];
    size_t num;
    (void)state;
    int port = free_port();
    snprintf(page, sizeof page, "run.page=%d", port);
    pid_t launcher =
        train("shown", (const char *const[]){"train.steps=1000000", page, "run.save=false", NULL});
    server.port = port;
    double until = tri_now_s() + limit_s;
    for (int fd = -1; fd < 0; usleep(20000)) {
        assert_true(tri_now_s() < until);
        if ((fd = watch_connect(&server)) >= 0)
            close(fd);
    }
    for (bool found = false; !found; usleep(20000)) {
        json_t *root = watch_get(&server, "/api/runs");
        found = json_array_size(json_object_get(root, "runs")) == 1;
        json_decref(root);
        assert_true(tri_now_s() < until);
    }
    watch_id(&server, "/shown", id);
    /* A second one cannot have the port: it says so, and trains. */
    assert_int_equal(watch_wait(train("other", (const char *const[]){"train.steps=3", page, NULL})),
                     0);
    snprintf(out, sizeof out, "%s/other.out", work->path);
    assert_int_equal(tri_file_read(out, &text, &num, NULL), TR_OK);
    assert_non_null(strstr(text, "warning: the page of the run cannot be shown"));
    assert_non_null(strstr(text, "3 steps in"));
    free(text);
    kill(launcher, SIGTERM);
    assert_int_equal(watch_wait(launcher), 3);
    assert_int_equal(watch_connect(&server), -1);
    snprintf(out, sizeof out, "%s/shown.out", work->path);
    assert_int_equal(tri_file_read(out, &text, &num, NULL), TR_OK);
    assert_memory_equal(text, "page    http://127.0.0.1:", 25);
    free(text);
}

static int setup(void **state)
{
    if (temp_dir_setup(state) != 0)
        return -1;
    work = *state;
    return 0;
}

int main(int argc, char **argv)
{
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_documents), cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_live),      cmocka_unit_test(test_token),
        cmocka_unit_test(test_address),   cmocka_unit_test(test_page),
    };
    watch_program(&server, argv[0]);
    return cmocka_run_group_tests(tests, setup, temp_dir_teardown);
}
