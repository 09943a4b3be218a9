/* What a killed process was writing. */
#ifndef TRI_RUN_LEFTOVERS_H
#define TRI_RUN_LEFTOVERS_H

#include <sys/types.h>

/* Removes the temporary files and directories (base/fs.h, tri_atomic_file; base/staged_dir.h) that
 * a process left in a directory and those below it. What cannot be looked at stays. */
void tri_leftovers_remove(const char *dir, pid_t pid);
/* In the directory alone. */
void tri_leftovers_remove_here(const char *dir, pid_t pid);

#endif
