/* events.jsonl: what happened to a run beside its steps, one JSON object a line.
 *
 *     {"time":"2026-01-31T12:00:00Z","event":"restart","rank":1,"signal":"SIGKILL","at_step":57,
 *      "from_step":40,"ranks":4,"number":1,"version":2}
 *
 * Lines are appended in a single write each, by the launcher and by rank 0. Nothing depends on the
 * file: one that cannot be written is passed over. */
#ifndef TRI_TRAIN_LOG_EVENTS_H
#define TRI_TRAIN_LOG_EVENTS_H

#include "base/error.h"
#include "trireme/settings.h"

#include <stdbool.h>
#include <stdint.h>

/* Where and how a command was started. */
typedef struct tri_event_start {
    const char *host, *program, *command; /* program: which version of it */
    int64_t pid;
    int64_t dp, cp, tp, pp;
} tri_event_start;

/* An instruction that made other bits when its step was replayed. */
typedef struct tri_event_replay {
    int64_t other; /* the rank that did the same work; -1: the rank itself */
    bool sure;     /* that it is the rank's fault, and not the other's */
    int64_t microbatch, instruction;
    const char *op, *result, *sum, *replayed_sum;
} tri_event_replay;

/* Members that are negative or NULL are left out. Steps count from 1. */
typedef struct tri_event {
    const char *event;  /* "start", "layout", "failed", "restart", "shrink", "gave_up", "stop",
                          "enough",  "note",  "replay", "end" */
    const char *reason; /* its first line is taken */
    const char *signal;
    const tri_event_start *start;
    const tri_event_replay *replay;
    int64_t rank;      /* that failed, or is named */
    int64_t at_step;   /* that it was in, or after which the run was stopped */
    int64_t from_step; /* steps that were done when the run began, or goes on */
    int64_t steps;     /* that are done ... */
    int64_t saved;     /* ... and in the newest checkpoint */
    int64_t ranks;     /* that it runs with from here on */
    int64_t number;    /* of the restart, from 1 */
    int64_t exit_code;
} tri_event;

#define TRI_EVENT_NOTHING                                                                          \
    (tri_event)                                                                                    \
    {                                                                                              \
        .rank = -1, .at_step = -1, .from_step = -1, .steps = -1, .saved = -1, .ranks = -1,         \
        .number = -1, .exit_code = -1                                                              \
    }

void tri_events_add(const char *run_dir, const tri_event *event);

/* What the file tells, up to its last line. -1: not told. */
typedef struct tri_run_story {
    bool started;
    bool ended;   /* the last start has an end: otherwise whoever wrote it is at work, was killed,
                     or its machine went down */
    bool asked;   /* the run was asked to stop since then */
    double began; /* when the first start was, seconds since 1970; 0: not known */
    double last_start, last_event;
    char host[256]; /* of the last start */
    int64_t pid, dp, cp, tp, pp;
    int64_t restarts;                /* since then */
    int64_t steps, saved, exit_code; /* of the end */
    char reason[256];                /* of the last failure since then, or "" */
} tri_run_story;

/* A file that cannot be read tells nothing; fails for want of memory only. */
tr_status tri_events_read(const char *run_dir, tri_run_story *story, tr_error *err);
/* For whoever was at work there before and could not say how it ended: adds a "failed" where the
 * last "start" has no "end", since whoever wrote it was killed, or its machine went down. */
void tri_events_add_missing_end(const char *run_dir);
/* The same, and that a run begins or goes on here and now; command and from_step (-1) may be
 * unknown. */
void tri_events_add_start(const tr_settings *settings, const char *command, int num_ranks,
                          int64_t from_step);

#endif
