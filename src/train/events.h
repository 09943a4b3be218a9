/* events.jsonl: what happened to a run beside its steps, one JSON object a line.
 *
 *     {"time":"2026-01-31T12:00:00Z","event":"restart","rank":1,"signal":"SIGKILL","at_step":57,
 *      "from_step":40,"ranks":4,"number":1,"reason":"rank 1 was killed by SIGKILL at step 57 ..."}
 *
 * Lines are appended in a single write each, by the launcher and by rank 0. Nothing depends on the
 * file: one that cannot be written is passed over. */
#ifndef TRI_TRAIN_EVENTS_H
#define TRI_TRAIN_EVENTS_H

#include <stdint.h>

/* Members that are negative or NULL are left out. */
typedef struct tri_event {
    const char *event;  /* "restart", "shrink", "gave_up", "stop" */
    const char *reason; /* its first line is taken */
    const char *signal;
    int64_t rank;      /* that failed */
    int64_t at_step;   /* that it was in, or after which the run was stopped */
    int64_t from_step; /* that the run goes on with */
    int64_t ranks;     /* that it goes on with */
    int64_t number;    /* of the restart, from 1 */
} tri_event;

#define TRI_EVENT_NOTHING                                                                          \
    (tri_event)                                                                                    \
    {                                                                                              \
        .rank = -1, .at_step = -1, .from_step = -1, .ranks = -1, .number = -1                      \
    }

void tri_events_add(const char *run_dir, const tri_event *event);
/* A new run begins a new record. */
void tri_events_clear(const char *run_dir);

#endif
