/* Files of a run that other tools read, written by one thread beside the loop: rows of metrics go
 * to it over a bounded ring. A full disk, or one that stands still, costs lines of these files,
 * which are counted, and never a step. The formats are those of log_format.h. */
#ifndef TRI_TRAIN_LOG_LOGS_H
#define TRI_TRAIN_LOG_LOGS_H

#include <jansson.h>

#include "train/log/metrics.h"
#include "train/step_stats.h"

typedef struct tri_logs tri_logs;

typedef struct tri_logs_config {
    const char *formats; /* names, divided by commas or blanks: run.logs */
    const char *dir;     /* the run directory, which is there; its last name is that of the run */
    bool continues;      /* what was written for the first `step` steps stays */
    int64_t step;        /* that are done */
    const tri_shown *stats; /* those that every row has beside the loss: their names count */
    size_t num_stats;
    json_t *config;    /* an object of all settings, or NULL; this takes it over */
    size_t num_rows;   /* of the ring, a power of two; 0: 2048 */
    double patience_s; /* how long the end waits for a disk that stands still; 0: 10 */
} tri_logs_config;

/* Wrong input that lists the names when one is not known. */
tr_status tri_logs_check(const char *formats, tr_error *err);

/* Files are opened by the thread: what is wrong with them is a warning. */
tr_status tri_logs_open(const tri_logs_config *config, tri_logs **logs, tr_error *err);
/* Copies the row, and waits for nothing. False: something is wrong that was not said before, and
 * warning has it in words. */
bool tri_logs_row(tri_logs *logs, const tri_metrics_row *row, tr_error *warning);
/* Writes soon what is in the ring. */
void tri_logs_hurry(tri_logs *logs);
/* The last rows are written and the files closed, unless the disk stands still. False: lines are
 * missing, and warning says how many, and where. Nothing may be told afterwards. */
bool tri_logs_end(tri_logs *logs, int exit_code, tr_error *warning);
void tri_logs_close(tri_logs *logs); /* ends it where that was not done; NULL is fine */

#endif
