/* What a process takes beside its memory plan. */
#ifndef TRI_CLI_MEMORY_H
#define TRI_CLI_MEMORY_H

#include <stdint.h>

/* Anonymous memory of a process that runs a program, beyond its plan: the heap with tables, names
 * and programs, the stacks of its threads, the C library. Measured; small models are just below. */
enum { TRI_PROCESS_OVERHEAD_BYTES = 4 << 20 };

/* Anonymous memory of this process now, and the most memory it had since it began or since the peak
 * was forgotten; 0 when not known. */
uint64_t tri_memory_anonymous(void);
uint64_t tri_memory_peak(void);
/* The peak is what is there now. Where the system does not allow it, nothing changes. */
void tri_memory_forget_peak(void);

#endif
