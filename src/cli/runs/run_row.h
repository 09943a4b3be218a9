/* One run as a line of a list: what its files and its lock say of it. */
#ifndef TRI_CLI_RUNS_RUN_ROW_H
#define TRI_CLI_RUNS_RUN_ROW_H

#include "base/error.h"
#include "train/log/events.h"
#include "train/log/run_summary.h"

typedef enum tri_run_state {
    TRI_RUN_IS_RUNNING,
    TRI_RUN_IS_STALLED, /* at work, but silent for much longer than its steps take */
    TRI_RUN_IS_DONE,
    TRI_RUN_IS_STOPPED, /* early, in good order */
    TRI_RUN_IS_FAILED,
    TRI_NUM_RUN_STATES
} tri_run_state;

typedef struct tri_run_row {
    const char *dir; /* the caller's */
    tri_run_state state;
    tri_run_summary metrics;
    tri_run_story story;
    int64_t total;          /* steps of the whole run; 0: not known */
    int64_t dp, cp, tp, pp; /* 0: not known */
    double left_s;          /* NAN: not known, or not at work */
    double began;           /* seconds since 1970; 0: not known */
    double updated;         /* the last line or event */
    double disk_bytes;
    char why[320]; /* why it failed, or what could not be read; or "" */
} tri_run_row;

const char *tri_run_state_name(tri_run_state state);

/* now: seconds since 1970. Files that cannot be read are told in `why`; fails for want of memory
 * only. */
tr_status tri_run_row_read(tri_run_row *row, const char *dir, double now, tr_error *err);

/* For qsort: those at work first, then what changed last. */
int tri_run_row_compare(const void *left, const void *right);

/* Who is at work in a run directory. */
typedef enum tri_run_lock_state {
    TRI_LOCK_FREE,
    TRI_LOCK_HELD,
    TRI_LOCK_UNKNOWN /* the file system has no locks, or the directory cannot be opened */
} tri_run_lock_state;

tri_run_lock_state tri_run_lock_look(const char *dir);

/* Bytes on the disk under a directory; links are not followed, and files that have a second name,
 * as prepared text that two runs share, count when `shared` says so. NAN: there was no
 * memory. */
double tri_disk_used(const char *dir, bool shared);

#endif
