/* A server of pages as a process, and requests to it over plain sockets of the loopback. */
#ifndef TRI_TESTS_WATCH_CLIENT_H
#define TRI_TESTS_WATCH_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct watch_server {
    char program[300]; /* trireme */
    pid_t pid;
    int port;
    char first_line[600];
} watch_server;

/* The program beside this test. */
void watch_program(watch_server *server, const char *test);
/* trireme with these words, standard output and error into a file; its process. */
pid_t watch_start(const watch_server *server, const char *output, const char *const *words);
/* The same until it has ended: its exit code, or 128 and the signal. */
int watch_run(const watch_server *server, const char *output, const char *const *words);
int watch_wait(pid_t pid);
/* `trireme watch WORDS --port 0`, and waits until it says where it is. */
void watch_serve(watch_server *server, const char *const *words);
/* By SIGTERM: its exit code. */
int watch_end(watch_server *server);

/* A connection, or -1. */
int watch_connect(const watch_server *server);
/* Sends bytes and reads what comes until the other side closes, or so long has passed; the answer
 * on the heap, ended by a zero. headers: lines, each with its \r\n, or "". */
char *watch_exchange(const watch_server *server, const void *bytes, size_t num_bytes,
                     double patience_s, size_t *num_answer);
char *watch_request(const watch_server *server, const char *method, const char *path,
                    const char *headers);
/* The status of an answer, 0: it is none; and what is behind its headers. */
int watch_status(const char *answer);
const char *watch_body(const char *answer);
/* The document at a path, which must be there. */
json_t *watch_get(const watch_server *server, const char *path);
/* The id of the run whose directory ends in this name. */
void watch_id(const watch_server *server, const char *name, char id[32]);

#endif
