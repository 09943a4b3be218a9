/* Reading a trace that trace_file.c wrote, line by line: whatever its length, it takes little
 * memory. */
#ifndef TRI_RUN_TRACE_READ_H
#define TRI_RUN_TRACE_READ_H

#include "run/trace/trace.h"

/* What the file says of all ranks together. */
typedef struct tri_trace_head {
    int num_ranks, num_missing; /* ranks; of them, those that left no events */
    int64_t first_step, num_steps, left_out, num_dropped;
    double clock_error_us;
    tri_trace_peaks peaks;
} tri_trace_head;

/* An event; numbers that it does not have are -1, texts "". */
typedef struct tri_trace_line {
    int rank, lane;
    const char *name;     /* of a row: its name */
    const char *category; /* "row": it names a row, and has no time */
    const char *group;
    int64_t start_ns, duration_ns;
    int64_t step, instruction, microbatch, chunk, peer, awaited;
    int64_t message;
    double flops, bytes;
    bool float8;
} tri_trace_line;

/* A failure ends the reading. */
typedef tr_status (*tri_trace_line_fn)(void *context, const tri_trace_line *line, tr_error *err);

/* The head is there before the first line is told. Wrong input: a file that is damaged, of another
 * program, or of an older version. */
tr_status tri_trace_read(const char *path, tri_trace_head *head, tri_trace_line_fn tell,
                         void *context, tr_error *err);

#endif
