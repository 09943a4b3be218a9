/* Names of what is being written and has not got its own name yet: ".trireme-PID-HOST-N.tmp",
 * beside the file or directory that it becomes. Such a name says whose it is, so that what a dead
 * process has left can be taken away, and nothing else: on a shared file system the same directory
 * holds those of other machines, and of other containers that have the same name and numbers. */
#ifndef TRI_BASE_TEMPORARY_H
#define TRI_BASE_TEMPORARY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The i-th such path in a directory, on the heap, or NULL. */
char *tri_temporary_path(const char *dir, int i);

/* Marks an open one as alive for as long as the descriptor, or a copy of it, is open. False when
 * somebody was quicker to take it away. */
bool tri_temporary_hold(int fd);

/* A file that is replaced whole, again and again, and need not outlive the machine: under such a
 * name in `dir`, then renamed to `path`. Nothing waits for the disk. 0 or an errno. */
int tri_temporary_replace(const char *dir, const char *path, const void *data, size_t num_bytes);

/* Takes away those in a directory, and in `depth` levels of visible directories below it, that were
 * a process's of this machine: of `pid`, which the caller knows to be dead, or with 0 of any that
 * is. */
void tri_temporaries_remove(const char *dir, pid_t pid, int depth);

#endif
