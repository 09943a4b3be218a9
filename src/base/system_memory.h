/* How much memory this process may still take: of the machine, and of the control groups it is in
 * (containers, batch systems, user sessions), of which each one above another may have a limit. */
#ifndef TRI_BASE_SYSTEM_MEMORY_H
#define TRI_BASE_SYSTEM_MEMORY_H

#include <stdint.h>

typedef struct tri_system_memory {
    uint64_t total;     /* of the machine; 0: not known */
    uint64_t limit;     /* the tightest of the groups; 0: none below the machine's total */
    uint64_t available; /* that can still be taken; 0: not known */
} tri_system_memory;

/* root stands before /proc and /sys/fs/cgroup: "" but in tests. Groups of version 2 and of version
 * 1 are looked at, from the process's own up to the outermost that can be seen. */
tri_system_memory tri_system_memory_read(const char *root);

#endif
