/* What happens in a run, told to whoever wants to know: the progress line, metrics.jsonl, files for
 * other tools, the callback of a program that has the library inside.
 *
 * Everything is told on rank 0, on the thread of the loop, in this order for a step: UPDATED or
 * SKIPPED, EVALUATED, STEP, SAMPLED, SAVED. Whoever goes on from a checkpoint finds what was
 * written at the STEP of every step in it, so STEP comes before the checkpoint is taken. Nobody who
 * is told can fail the run, and what takes longer than some microseconds goes over a ring to a
 * thread of its own. */
#ifndef TRI_TRAIN_RUN_OBSERVER_H
#define TRI_TRAIN_RUN_OBSERVER_H

#include "train/log/metrics.h"
#include "trireme/session.h"

struct tri_run;

typedef enum tri_run_moment {
    TRI_RUN_BEGINS,    /* all is there, and the first step is next */
    TRI_RUN_UPDATED,   /* the step is computed; what it leads to follows */
    TRI_RUN_SKIPPED,   /* so, but loss or gradient were not finite, and nothing was updated */
    TRI_RUN_EVALUATED, /* run->eval is new */
    TRI_RUN_STEP,      /* all that is known of the step is in row */
    TRI_RUN_SAMPLED,   /* the model has written a text, which is in samples.jsonl by now */
    TRI_RUN_SAVED,     /* a checkpoint of the step was taken; with ckpt.async it is being written */
    TRI_RUN_WARNING,
    TRI_RUN_ENDS /* whatever the reason, once */
} tri_run_moment;

typedef struct tri_run_news {
    tri_run_moment moment;
    const struct tri_run *run;
    const tr_step *step;        /* UPDATED, SKIPPED, EVALUATED, SAMPLED, SAVED */
    const tri_metrics_row *row; /* STEP: all that a line of metrics.jsonl has */
    /* SAMPLED: the text, as the model wrote it. WARNING: what is wrong, and what becomes of it.
     * ENDS: why before the last step, or what failed (run->failed); NULL: the run is done. */
    const char *text;
    bool own; /* WARNING: it is about this rank alone; such are told on any rank */
} tri_run_news;

typedef struct tri_observer {
    const char *name;
    void (*tell)(void *context, const tri_run_news *news);
    void (*close)(void *context); /* or NULL */
    void *context;
} tri_observer;

#endif
