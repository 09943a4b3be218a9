/* Reading metrics.jsonl, also while it is being written. */
#ifndef TRI_TRAIN_LOG_METRICS_READ_H
#define TRI_TRAIN_LOG_METRICS_READ_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What others want of a line. A number that is missing or null is NAN. */
typedef struct tri_metrics_line {
    int64_t step;   /* from 1, in lines of every version */
    int64_t tokens; /* -1: not known */
    int64_t epoch;  /* that ended with this step; 0: none did */
    double loss, grad_norm, lr, step_ms, tokens_per_s, eval_loss;
    double time; /* seconds since 1970 */
} tri_metrics_line;

/* *ours: it is the line of a step; anything else is not an error, and *line is undefined. Fails for
 * want of memory only. */
tr_status tri_metrics_line_read(const char *text, size_t num_bytes, tri_metrics_line *line,
                                bool *ours, tr_error *err);

/* A member of such a line, whatever its name. */
typedef enum tri_member_kind {
    TRI_MEMBER_NUMBER,
    TRI_MEMBER_NULL, /* a number that is not finite */
    TRI_MEMBER_LIST, /* text is JSON */
    TRI_MEMBER_TEXT  /* or anything else */
} tri_member_kind;

typedef struct tri_metrics_member {
    const char *name; /* not ended by a zero */
    size_t name_length;
    tri_member_kind kind;
    bool is_whole;
    int64_t whole; /* when it is whole */
    double real;   /* NAN: it is no number */
    const char *text;
    size_t text_length;
} tri_metrics_member;

typedef void (*tri_metrics_visit_members)(void *context, const tri_metrics_member *members,
                                          size_t num);

/* Calls visit once with all members, unless the line is no JSON object. Fails for want of memory
 * only. */
tr_status tri_metrics_members(const char *text, size_t num_bytes, tri_metrics_visit_members visit,
                              void *context, tr_error *err);

/* Calls visit for every whole line of a file from byte *offset on, its newline included; `at` is
 * the byte where it begins. A failure of visit ends the reading. *offset is then behind the last
 * whole line. Lines of more than 256 KiB are passed over. */
typedef tr_status (*tri_line_visit)(void *context, const char *text, size_t num_bytes, int64_t at,
                                    tr_error *err);
tr_status tri_lines_scan(int fd, const char *path, int64_t *offset, tri_line_visit visit,
                         void *context, tr_error *err);

typedef void (*tri_metrics_visit)(void *context, const tri_metrics_line *line);

/* Calls visit for every line of a step from byte *offset on, which begins a line. *offset is then
 * behind the last whole line: one that is still being written is left for later. */
tr_status tri_metrics_scan(int fd, const char *path, int64_t *offset, tri_metrics_visit visit,
                           void *context, tr_error *err);

/* The same of the whole file of a run. One that is not there has no lines. */
tr_status tri_metrics_each(const char *run_dir, tri_metrics_visit visit, void *context,
                           tr_error *err);

#endif
