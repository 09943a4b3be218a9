/* Half-written output of a process that was killed.
 *
 * What this program writes takes its name when it is complete, so a process that ends by Ctrl-C,
 * SIGTERM or for want of memory leaves no half result; but it leaves what it had written so far,
 * under a hidden name. A small process that waits for the end of this one takes that away. */
#ifndef TRI_CLI_GUARD_H
#define TRI_CLI_GUARD_H

#include <sys/types.h>

typedef struct tri_guard {
    int pipe; /* -1: there is none */
    pid_t pid;
} tri_guard;

/* From here on for what is written beside `path`. To be called while the process has one thread. */
void tri_guard_begin(tri_guard *guard, const char *path);
void tri_guard_end(tri_guard *guard);

#endif
