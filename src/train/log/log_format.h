/* A kind of file that rows of metrics are written to, for other tools: a row of tri_log_formats and
 * a file beside csv.c. All of it runs on the thread of train/log/logs.c, where nothing waits for
 * the disk but the other files. */
#ifndef TRI_TRAIN_LOG_LOG_FORMAT_H
#define TRI_TRAIN_LOG_LOG_FORMAT_H

#include <jansson.h>

#include "train/log/log_file.h"
#include "train/log/protobuf.h"
#include "train/log/row_numbers.h"
#include "train/step_stats.h"

/* What all formats know of the run. */
typedef struct tri_log_facts {
    char *dir;      /* the run directory */
    char *run;      /* the name of the run */
    char host[64];  /* what is odd in a file name is left out */
    double start_s; /* of this start, seconds since 1970 */
    bool continues; /* what was written for the first `step` steps stays */
    int64_t step;   /* that are done */
    json_t *config; /* an object of all settings, or NULL */
    tri_shown stats[TRI_MAX_STEP_SHOWN];
    tri_metrics_row blank; /* has the names of all numbers */
} tri_log_facts;

typedef struct tri_log tri_log;

typedef struct tri_log_format {
    const char *name;  /* in run.logs */
    const char *where; /* in the run directory */
    size_t own_bytes;  /* of tri_log.own, zeroed */
    /* Opens the file, and takes out of it what steps that are done again will write anew. 0 or an
     * errno: it is tried again with the next rows. */
    int (*open)(tri_log *log);
    void (*row)(tri_log *log, const tri_metrics_row *row); /* into log->file */
    void (*flush)(tri_log *log, bool ends);                /* NULL: tri_log_file_flush */
    void (*end)(tri_log *log, int exit_code);              /* NULL: nothing stands at the end */
} tri_log_format;

struct tri_log {
    const tri_log_format *format;
    const tri_log_facts *facts;
    bool opened;
    tri_log_file file;
    tri_proto proto;
    void *own;
};

extern const tri_log_format tri_log_csv, tri_log_prometheus, tri_log_tensorboard, tri_log_wandb;

/* The last of every number that a run has had, for what shows a state and not a history. */
typedef struct tri_log_latest {
    tri_row_number numbers[TRI_ROW_MAX_NUMBERS]; /* those that there were are present */
    size_t num;
    double time_s; /* of the last row */
} tri_log_latest;

void tri_log_latest_add(tri_log_latest *latest, const tri_metrics_row *row);

/* "dir/name", and the directory is there afterwards; 0 or an errno. */
int tri_log_make_dir(const char *dir, const char *name, char **path);

#endif
