/* The progress of a run: one line redrawn in place on a terminal, above which a few dozen stay over
 * the whole run; plain lines in a pipe. */
#ifndef TRI_CLI_RUN_PROGRESS_H
#define TRI_CLI_RUN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct tri_progress {
    FILE *file;
    int64_t num_steps, log_every;
    bool terminal;
    bool drawn; /* the cursor stands behind an unfinished line */
    int64_t
        first_step; /* the first one reported: its time is not known, so counting starts there */
    double first_time_s, drawn_time_s;
} tri_progress;

/* One finished step. */
typedef struct tri_progress_step {
    int64_t step; /* from 1 */
    double loss, grad_norm, lr;
    const char *stats; /* "  max_logit 12.3", or "" */
    double tokens_per_s;
    double mfu; /* in [0, 1]; negative when not known */
} tri_progress_step;

/* Columns of the terminal that standard output ends up on, now; 0: it is none. */
int tri_progress_columns(void);
/* num_steps is the number of the last step. */
void tri_progress_init(tri_progress *progress, FILE *file, int64_t num_steps, int64_t log_every);
/* Call after every step; it draws at most ten times a second, or every log_every steps. */
void tri_progress_update(tri_progress *progress, const tri_progress_step *step);
/* A line of its own between two drawings, for an evaluation or a warning. */
void tri_progress_note(tri_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Leaves the last line standing and ends it. Needed before anything else is printed, and harmless
 * when repeated. */
void tri_progress_fini(tri_progress *progress);

#endif
