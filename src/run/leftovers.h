/* Files that a killed rank was writing. */
#ifndef TRI_RUN_LEFTOVERS_H
#define TRI_RUN_LEFTOVERS_H

#include <sys/types.h>

/* Removes the temporary files (base/fs.h, tri_atomic_file) that a process left in a directory and
 * those below it. What cannot be looked at stays. */
void tri_leftovers_remove(const char *dir, pid_t pid);

#endif
