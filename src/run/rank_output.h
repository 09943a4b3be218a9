/* What a rank writes to stdout and stderr: a pipe that ends in a log file, the last of it kept for
 * the report. */
#ifndef TRI_RUN_RANK_OUTPUT_H
#define TRI_RUN_RANK_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { TRI_OUTPUT_TAIL_BYTES = 4096 };

typedef struct tri_rank_output {
    int pipe, log; /* descriptors; -1: none */
    char tail[TRI_OUTPUT_TAIL_BYTES + 1];
    size_t tail_used;
} tri_rank_output;

typedef void (*tri_output_fn)(void *context, const char *data, size_t num_bytes);

void tri_rank_output_init(tri_rank_output *output);
void tri_rank_output_fini(tri_rank_output *output);
/* Begins rank-N.log in a directory anew, or goes on with it. */
tr_status tri_rank_output_open(tri_rank_output *output, const char *dir, int rank, bool append,
                               tr_error *err);
/* Moves what is in the pipe, without waiting; relay may be NULL. */
void tri_rank_output_drain(tri_rank_output *output, tri_output_fn relay, void *context);
/* The last lines, for the report; a progress line counts as one for each time it was drawn. To be
 * called once, at the end. */
const char *tri_rank_output_last_lines(tri_rank_output *output);

#endif
