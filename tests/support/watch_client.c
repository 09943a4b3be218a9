#include "watch_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum { MOST_WORDS = 32 };
static const double limit_s = 120; /* of what hangs */

void watch_program(watch_server *server, const char *test)
{
    const char *slash = strrchr(test, '/');
    *server = (watch_server){.port = 0};
    snprintf(server->program, sizeof server->program, "%.*s/../trireme",
             slash ? (int)(slash - test) : 1, slash ? test : ".");
}

static pid_t start(const watch_server *server, int output, const char *const *words,
                   const char *const *more)
{
    char *args[MOST_WORDS + 4] = {(char *)(uintptr_t)server->program};
    int num = 1;
    for (; *words && num < MOST_WORDS; words++)
        args[num++] = (char *)(uintptr_t)*words;
    for (; more && *more && num < MOST_WORDS; more++)
        args[num++] = (char *)(uintptr_t)*more;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(server->program, args);
    _exit(127);
}

pid_t watch_start(const watch_server *server, const char *output, const char *const *words)
{
    int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    pid_t pid = start(server, fd, words, NULL);
    close(fd);
    return pid;
}

int watch_wait(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int watch_run(const watch_server *server, const char *output, const char *const *words)
{
    return watch_wait(watch_start(server, output, words));
}

void watch_serve(watch_server *server, const char *const *words)
{
    static const char *const more[] = {"--port", "0", NULL};
    char all[16][300];
    const char *args[20] = {"watch"};
    int ends[2], num = 1;
    for (; words[num - 1] && num < 16; num++)
        args[num] = snprintf(all[num], sizeof all[num], "%s", words[num - 1]) > 0 ? all[num] : "";
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    server->pid = start(server, ends[1], args, more);
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    if (!output || !fgets(server->first_line, sizeof server->first_line, output))
        fail_msg("the server says nothing");
    const char *colon = strrchr(server->first_line, ':');
    if (strncmp(server->first_line, "http://", 7) != 0 || !colon)
        fail_msg("the server says: %s", server->first_line);
    server->port = atoi(colon + 1);
    fclose(output);
}

int watch_end(watch_server *server)
{
    kill(server->pid, SIGTERM);
    int code = watch_wait(server->pid);
    server->pid = 0;
    return code;
}

/* ---- requests ---- */

int watch_connect(const watch_server *server)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server->port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

char *watch_exchange(const watch_server *server, const void *bytes, size_t num_bytes,
                     double patience_s, size_t *num_answer)
{
    size_t num = 0, capacity = 1 << 16, sent = 0;
    char *answer = malloc(capacity + 1);
    int fd = watch_connect(server);
    assert_non_null(answer);
    assert_true(fd >= 0);
    double until = tri_now_s() + patience_s;
    while (tri_now_s() < until) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (sent < num_bytes)
            ready.events |= POLLOUT;
        if (poll(&ready, 1, 50) <= 0)
            continue;
        if (ready.revents & POLLOUT) {
            ssize_t put =
                send(fd, (const char *)bytes + sent, num_bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put < 0 && errno != EAGAIN) /* it reads no more; it may have answered */
                num_bytes = sent;
            sent += put > 0 ? (size_t)put : 0;
        }
        if (!(ready.revents & ~POLLOUT))
            continue;
        if (num == capacity) {
            capacity *= 2;
            answer = realloc(answer, capacity + 1);
            assert_non_null(answer);
        }
        ssize_t got = recv(fd, answer + num, capacity - num, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            break;
        num += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    answer[num] = 0;
    if (num_answer)
        *num_answer = num;
    return answer;
}

char *watch_request(const watch_server *server, const char *method, const char *path,
                    const char *headers)
{
    char text[6000];
    int length = snprintf(text, sizeof text,
                          "%s %s HTTP/1.1\r\nHost: localhost:%d\r\nConnection: close\r\n%s\r\n",
                          method, path, server->port, headers);
    return watch_exchange(server, text, (size_t)length, limit_s, NULL);
}

int watch_status(const char *answer)
{
    int status = 0;
    return sscanf(answer, "HTTP/1.%*d %d ", &status) == 1 ? status : 0;
}

const char *watch_body(const char *answer)
{
    const char *end = strstr(answer, "\r\n\r\n");
    return end ? end + 4 : "";
}

json_t *watch_get(const watch_server *server, const char *path)
{
    json_error_t why;
    char *answer = watch_request(server, "GET", path, "");
    if (watch_status(answer) != 200)
        fail_msg("%s: %.200s", path, answer);
    json_t *root = json_loads(watch_body(answer), JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (!root)
        fail_msg("%s: %s: %.200s", path, why.text, watch_body(answer));
    free(answer);
    return root;
}

void watch_id(const watch_server *server, const char *name, char id[32])
{
    json_t *root = watch_get(server, "/api/runs"), *run;
    size_t i;
    *id = 0;
    json_array_foreach(json_object_get(root, "runs"), i, run)
    {
        const char *dir = json_string_value(json_object_get(run, "run"));
        const char *given = json_string_value(json_object_get(run, "id"));
        size_t a = dir ? strlen(dir) : 0, b = strlen(name);
        if (a >= b && strcmp(dir + a - b, name) == 0 && given)
            snprintf(id, 32, "%s", given);
    }
    json_decref(root);
    if (!*id)
        fail_msg("there is no run %s", name);
}
