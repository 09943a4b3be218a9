/* Malformed and hostile requests, beside a run that goes on: each is refused or its connection
 * closed, nothing that is not meant to be shown is shown, the server lives and lets nothing lie,
 * and the run has the weights that it has when nobody looks.
 *
 * TRIREME_RANDOM_SEED, TRIREME_RANDOM_CASES: others, and more of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fs.h"
#include "temp_dir.h"
#include "watch_client.h"

enum { ROOM = 256 << 10, MOST_SLOW = 48 };
static const double limit_s = 120;
static const char secret[] = "NOBODY-IS-TO-SEE-THIS";

static watch_server server;
static temp_dir *work;
static uint64_t random_state;
static char request[ROOM + 1];
static size_t length;
static char id[32];
static int slow[MOST_SLOW];
static int num_slow;
static unsigned long num_of[6]; /* answers: closed, 400, 403 ... by hundreds; for the last line */

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

static void put(const char *text)
{
    size_t num = strlen(text);
    if (length + num > ROOM)
        num = ROOM - length;
    memcpy(request + length, text, num);
    length += num;
}

static void put_byte(int byte)
{
    if (length < ROOM)
        request[length++] = (char)byte;
}

static void put_random(size_t num)
{
    while (num-- > 0)
        put_byte((int)draw(256));
}

static void put_letters(size_t num)
{
    while (num-- > 0)
        put_byte('a' + (int)draw(26));
}

static void put_host(void)
{
    put("Host: localhost\r\n");
}

static void put_get(const char *path)
{
    put("GET ");
    put(path);
    put(" HTTP/1.1\r\n");
    put_host();
    put("\r\n");
}

/* ---- kinds ---- */

static void garbage(void)
{
    put_byte(1 + (int)draw(31));
    put_random(1 + draw(2000));
    put("\r\n\r\n");
}

static void broken_line(void)
{
    static const char *const lines[] = {
        "GET\r\n",
        "GET /api/runs\r\n",
        " / HTTP/1.1\r\n",
        "GET / HTTP/9.9\r\n",
        "GET / HTTP\r\n",
        "GET  HTTP/1.1\r\n",
        "GET / FTP/1.1\r\n",
        "/ GET HTTP/1.1\r\n",
        "GET / HTTP/1.1 x\r\n",
        "GET\t/\tHTTP/1.1\r\n",
        "GET api/runs HTTP/1.1\r\n",
        "GET / http/1.1\r\n",
        "GET / HTTP/-1.1\r\n",
        "GET / HTTP/1.99999999999\r\n",
        "HTTP/1.1 200 OK\r\n",
        "GET http://evil.example/ HTTP/1.1\r\n",
        "GET * HTTP/1.1\r\n",
        "GET /api/runs HTTP/1.1\rX: y\n",
        "CONNECT evil.example:443 HTTP/1.1\r\n",
    };
    put(lines[draw(sizeof lines / sizeof *lines)]);
    if (draw(2))
        put_host();
    put("\r\n");
}

static void huge_headers(void)
{
    put("GET /api/runs HTTP/1.1\r\n");
    put_host();
    if (draw(2)) {
        put("X-Long: ");
        put_letters(40000 + draw(100000));
        put("\r\n");
    } else {
        for (uint32_t i = 3000 + draw(3000); i > 0; i--) {
            put_letters(8);
            put(": 1\r\n");
        }
    }
    put("\r\n");
}

static void long_target(void)
{
    put("GET /api/runs?x=");
    put_letters(4200 + draw(60000));
    put(" HTTP/1.1\r\n");
    put_host();
    put("\r\n");
}

static void with_body(void)
{
    static const char *const heads[] = {
        "POST / HTTP/1.1\r\nContent-Length: 100000\r\n",
        "PUT /api/runs HTTP/1.1\r\nContent-Length: 5\r\n",
        "GET /api/runs HTTP/1.1\r\nContent-Length: 5\r\n",
        "GET /api/runs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
        "GET /api/runs HTTP/1.1\r\nContent-Length: 99999999999999999999999999\r\n",
        "GET /api/runs HTTP/1.1\r\nContent-Length: -5\r\n",
        "GET /api/runs HTTP/1.1\r\nContent-Length: 5, 5\r\n",
        "GET /api/runs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "POST /api/runs HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n",
        "POST /api/runs HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 7\r\n",
    };
    put(heads[draw(sizeof heads / sizeof *heads)]);
    put_host();
    put("\r\n");
    put(draw(2) ? "fffffffffffffff\r\n" : "5\r\nhello\r\n0\r\n\r\n");
    put_random(draw(20000));
}

/* The names of files, in every spelling. */
static void traversal(void)
{
    static const char *const ups[] = {
        "../",  "..%2f",  "%2e%2e/", "%2e%2e%2f",     "..%5c",  "..\\", "..%252f", "%c0%ae%c0%ae/",
        "..;/", "....//", ".%2e/",   "%uff0e%uff0e/", "..%00/", "//",   "/./"};
    static const char *const ends[] = {
        "etc/passwd",        "secret.txt",        "config.yaml",
        "metrics.jsonl",     "whole/config.yaml", "proc/self/environ",
        "secret.txt%00.css", "secret.txt?",       "secret.txt#"};
    static const char *const starts[] = {"/",      "/api/",  "/page.css/", "/api/run/", "/status/",
                                         "/runs/", "/view/", "/static/",   "//",        "/events/"};
    put("GET ");
    put(starts[draw(sizeof starts / sizeof *starts)]);
    for (uint32_t i = 1 + draw(12); i > 0; i--)
        put(ups[draw(sizeof ups / sizeof *ups)]);
    put(ends[draw(sizeof ends / sizeof *ends)]);
    put(" HTTP/1.1\r\n");
    put_host();
    put("\r\n");
}

static void path_as_id(void)
{
    static const char *const routes[] = {
        "/api/run?id=",    "/api/curve?y=loss&id=", "/api/ranks?id=", "/api/trace?id=",
        "/api/memory?id=", "/api/planner?id=",      "/api/keys?id=",  "/api/loads?id=",
        "/events?id=",     "/api/diff?b=1&a="};
    static const char *const ids[] = {"../secret.txt",
                                      "/etc/passwd",
                                      "runs/whole",
                                      "%2e%2e",
                                      "whole",
                                      ".",
                                      "0",
                                      "-1",
                                      "%ff%fe",
                                      "%00",
                                      "1%27%20or",
                                      "%0d%0aX:y",
                                      "0000000000000000",
                                      "<script>",
                                      "%F0%9F%92%A9",
                                      ",,,,"};
    char path[300];
    snprintf(path, sizeof path, "%s%s", routes[draw(sizeof routes / sizeof *routes)],
             ids[draw(sizeof ids / sizeof *ids)]);
    if (strstr(path, "events") && strstr(path, ",,,,"))
        strcpy(path, "/events?id=,x");
    put_get(path);
}

static void bad_arguments(void)
{
    static const char *const ends[] = {
        "&y=loss&points=0",
        "&y=loss&points=99999999",
        "&y=loss&points=-1",
        "&y=loss&points=nan",
        "&y=loss&from=1e999",
        "&y=loss&to=x",
        "&y=loss&x=../x",
        "&y=nothing",
        "&y=",
        "&y=%22%7d",
        "&y=loss&y=loss",
        "&id=1&y=loss",
        "&y=loss&a%zz=1",
        "&y=loss&%",
        "&y=loss&=1",
        "&y=loss&x=step%0a",
        "&y=loss&from=0x",
        "&y=loss&points=1e400",
        "&a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q&r&y=loss",
        "&y=loss&points=%31%30%30x",
    };
    char path[300];
    snprintf(path, sizeof path, "/api/curve?id=%s%s", id, ends[draw(sizeof ends / sizeof *ends)]);
    put_get(path);
}

static void wrong_method(void)
{
    static const char *const methods[] = {"POST",     "PUT",  "DELETE", "PATCH",    "OPTIONS",
                                          "TRACE",    "get",  "BREW",   "PROPFIND", "HEADS",
                                          "M-SEARCH", "GETT", "G\x01T"};
    static const char *const paths[] = {"/", "/api/runs", "/metrics", "/api/run", "/nothing"};
    put(methods[draw(sizeof methods / sizeof *methods)]);
    put(" ");
    put(paths[draw(sizeof paths / sizeof *paths)]);
    put(" HTTP/1.1\r\n");
    put_host();
    put("\r\n");
}

static void wrong_host(void)
{
    static const char *const hosts[] = {
        "",
        "Host: evil.example\r\n",
        "Host: localhost.evil.example\r\n",
        "Host: 127.0.0.1.evil.example\r\n",
        "Host: localhost:80:80\r\n",
        "Host: localhost@evil.example\r\n",
        "Host: localhost\r\nHost: localhost\r\n",
        "Host: 127.0.0.2\r\n",
        "Host: [::1\r\n",
        "Host: 0x7f000001\r\n",
        "Host: localhost:port\r\n",
        "Host: localhost:\r\n",
        "Host:\r\n",
        "X-Forwarded-Host: localhost\r\nHost: evil.example\r\n",
    };
    put("GET /api/runs HTTP/1.");
    put(draw(4) ? "1\r\n" : "0\r\n");
    put(hosts[draw(sizeof hosts / sizeof *hosts)]);
    put("\r\n");
}

static void broken_headers(void)
{
    put("GET /nothing");
    put_letters(4);
    put(" HTTP/1.1\r\n");
    if (draw(2))
        put_host();
    switch (draw(6)) {
    case 0:
        put("No colon here\r\n");
        break;
    case 1:
        put(" Folded: at the start\r\n");
        break;
    case 2:
        put("X: y\r\n folded\r\n\tfolded\r\n");
        break;
    case 3:
        put(": no name\r\n");
        break;
    case 4:
        put("X");
        put_byte(0);
        put("Y: zero\r\n");
        break;
    default:
        put("X: ");
        put_random(300);
        put("\r\n");
        break;
    }
    put("Last-Event-ID: ");
    put_letters(draw(300));
    put("\r\nCookie: ;;;=;trireme=;\x01\r\nAuthorization: Basic Og==\r\n\r\n");
}

static void pipeline(void)
{
    for (uint32_t i = 2 + draw(30); i > 0; i--)
        put_get(draw(2) ? "/nothing" : "/api/run?id=nothing");
    if (draw(2))
        garbage();
}

static void part(void)
{
    static const char whole[] = "GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX: y\r\n";
    size_t num = draw(sizeof whole - 1);
    for (size_t i = 0; i < num; i++)
        put_byte(whole[i]);
}

/* A request in which a few bytes are others; made so that it is never a good one. */
static void mutated(void)
{
    size_t from = length;
    put_get("/api/nothing?id=0123456789abcdef&y=loss");
    for (uint32_t i = 1 + draw(6); i > 0; i--)
        request[from + 13 + draw((uint32_t)(length - from - 13))] = (char)draw(256);
}

static void (*const kinds[])(void) = {
    garbage,       broken_line,  huge_headers, long_target,    with_body, traversal, path_as_id,
    bad_arguments, wrong_method, wrong_host,   broken_headers, pipeline,  part,      mutated,
};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

/* ---- sending ---- */

static void check_answer(const char *answer, size_t num)
{
    int status = 0;
    num_of[0] += num == 0;
    for (const char *at = answer; (at = strstr(at, "HTTP/1.")); at++) {
        if (sscanf(at, "HTTP/1.%*d %d ", &status) != 1)
            continue;
        /* 505 is what a version gets that HTTP does not have yet. */
        if ((status < 400 || status > 499) && status != 505)
            fail_msg("status %d for: %.*s", status, (int)(length < 600 ? length : 600), request);
        num_of[status == 505 ? 5 : status == 400 ? 1 : status == 404 ? 2 : status == 403 ? 3 : 4]++;
    }
    if (num > 0 && status == 0)
        fail_msg("an answer without a status: %.200s", answer);
    if (memmem(answer, num, secret, sizeof secret - 1) || memmem(answer, num, "root:", 5))
        fail_msg("something from outside is shown for: %.*s", (int)length, request);
}

/* All of it, then the end of what is sent; the server has to close. */
static void send_whole(void)
{
    static char answer[ROOM + 1];
    size_t sent = 0, num = 0;
    bool shut = false;
    int fd = watch_connect(&server);
    double until = tri_now_s() + limit_s;
    assert_true(fd >= 0);
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = (short)(POLLIN | (sent < length ? POLLOUT : 0))};
        if (tri_now_s() > until) {
            for (size_t i = 0; i < length && i < 200; i++)
                printf("%02x", (unsigned char)request[i]);
            fail_msg("the connection stays open for %zu bytes, %zu sent: %.*s", length, sent,
                     (int)length, request);
        }
        if (sent == length && !shut) {
            shutdown(fd, SHUT_WR);
            shut = true;
        }
        if (poll(&ready, 1, 100) <= 0)
            continue;
        if (ready.revents & POLLOUT) {
            ssize_t put_now = send(fd, request + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put_now > 0)
                sent += (size_t)put_now;
            else if (errno != EAGAIN)
                sent = length;
        }
        if (!(ready.revents & ~POLLOUT))
            continue;
        ssize_t got = recv(fd, answer + num, ROOM - num, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            break;
        num += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    answer[num] = 0;
    check_answer(answer, num);
}

/* One that sends a little and then nothing, one that goes in the middle. */
static void send_slowly(void)
{
    int fd = watch_connect(&server);
    assert_true(fd >= 0);
    size_t some = length > 0 ? draw((uint32_t)length) : 0;
    (void)!send(fd, request, some > 20 ? 20 : some, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (draw(2)) {
        struct linger at_once = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(fd);
        return;
    }
    if (num_slow == MOST_SLOW)
        close(slow[--num_slow]);
    slow[num_slow++] = fd;
}

/* A good request, all the while. */
static void check_service(void)
{
    json_t *root = watch_get(&server, "/api/runs");
    assert_true(json_array_size(json_object_get(root, "runs")) >= 1);
    json_decref(root);
}

static pid_t train(const char *name)
{
    char dir[300], output[300];
    snprintf(dir, sizeof dir, "run.dir=%s/runs/%s", work->path, name);
    snprintf(output, sizeof output, "%s/%s.out", work->path, name);
    return watch_start(&server, output,
                       (const char *const[]){"train", "recipes/tiny.yaml", "--set", dir, "--set",
                                             "train.steps=300", "--set", "layout.dp=2", NULL});
}

static void read_weights(const char *name, char **bytes, size_t *num)
{
    char path[300];
    snprintf(path, sizeof path, "%s/runs/%s/weights.safetensors", work->path, name);
    assert_int_equal(tri_file_read(path, bytes, num, NULL), TR_OK);
}

static unsigned long number_of_cases(void)
{
    const char *given = getenv("TRIREME_RANDOM_CASES"), *full = getenv("TRIREME_TEST_FULL");
    return given ? strtoul(given, NULL, 10) : full ? 10000 : 500;
}

static void test_hostile(void **state)
{
    char runs[200], *alone, *looked_at;
    size_t num[2];
    const char *seed = getenv("TRIREME_RANDOM_SEED");
    unsigned long cases = number_of_cases();
    (void)state;
    random_state = 0x9E3779B97F4A7C15u ^ (seed ? strtoull(seed, NULL, 10) : 1);
    assert_int_equal(watch_wait(train("whole")), 0);
    snprintf(runs, sizeof runs, "%s/runs", work->path);
    assert_int_equal(put_file(temp_file(work, "secret.txt"), secret, sizeof secret - 1), 0);
    assert_int_equal(put_file(temp_file(work, "runs/secret.txt"), secret, sizeof secret - 1), 0);
    watch_serve(&server, (const char *const[]){runs, NULL});
    watch_id(&server, "/whole", id);
    pid_t run = train("beside");
    for (unsigned long i = 0; i < cases; i++) {
        length = 0;
        kinds[draw(NUM_KINDS)]();
        request[length] = 0;
        if (draw(20) == 0)
            send_slowly();
        else
            send_whole();
        if (i % 100 == 99)
            check_service();
        if (waitpid(server.pid, NULL, WNOHANG) != 0)
            fail_msg("the server has ended after: %.*s", (int)length, request);
    }
    assert_int_equal(watch_wait(run), 0);
    while (num_slow > 0)
        close(slow[--num_slow]);
    check_service();
    assert_int_equal(watch_end(&server), 0);
    read_weights("whole", &alone, &num[0]);
    read_weights("beside", &looked_at, &num[1]);
    assert_int_equal(num[0], num[1]);
    assert_memory_equal(alone, looked_at, num[0]);
    free(alone);
    free(looked_at);
    printf("%lu requests; answers: %lu closed, %lu 400, %lu 404, %lu 403, %lu other 4xx, %lu 505\n",
           cases, num_of[0], num_of[1], num_of[2], num_of[3], num_of[4], num_of[5]);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile)};
    watch_program(&server, argv[0]);
    return cmocka_run_group_tests(tests, setup, temp_dir_teardown);
}
