/* What a process takes beside its memory plan, and keeps. */
#ifndef TRI_CLI_MEMORY_H
#define TRI_CLI_MEMORY_H

#include <stdint.h>

#include "train/session.h"

/* Anonymous memory of a process that runs a program, beyond its plan. */
typedef struct tri_memory_overhead {
    uint64_t heap;    /* programs, data, tokenizer: what is on the heap when steps begin */
    uint64_t threads; /* stacks, and what the C library keeps for each thread */
    uint64_t fixed;   /* variables, the main stack, and what the heap will grow by */
} tri_memory_overhead;

/* To be asked before the first step. Of a session that has not been started, what starting it will
 * take is counted too. */
tri_memory_overhead tri_memory_overhead_of(const tri_session *session);
uint64_t tri_memory_overhead_total(const tri_memory_overhead *overhead);

/* For what compiles thousands of programs, one after the other: memory that one gives back is the
 * next one's, and is not fetched from the system each time. */
void tri_memory_keep_freed(void);

#endif
