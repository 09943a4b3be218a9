/* A session trains one model: settings in, steps out. */
#ifndef TRIREME_SESSION_H
#define TRIREME_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "trireme/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tr_session tr_session;

typedef struct tr_step {
    int64_t step;     /* number of this step, from 1: as many are done when it is */
    double loss;      /* mean over the targets of the batch; model.loss=sse: half a sum */
    double grad_norm; /* before clipping */
    double lr;
    int64_t tokens; /* in this step's batch */
    double seconds;
    double targets; /* that the loss is a mean over; 0 when it is a sum */
    int64_t epoch;  /* that ended with this step, from 1; 0: none did, or none are counted */
    double scale;   /* loss scale of this step (fp16); 1 otherwise */
    int skipped;    /* loss or gradient were not finite, so that nothing was updated */
} tr_step;

/* Compiles, allocates and initialises. Settings that follow from others are filled in (see
 * tr_settings_fill); the settings must outlive the session. */
tr_status tr_session_create(tr_settings *settings, tr_session **session, tr_error *err);
void tr_session_destroy(tr_session *session);

/* One training step; step may be NULL. One whose loss or gradient is not finite updates nothing;
 * after more than train.max_skipped of them in a row it is TR_ERROR_NUMERIC. */
tr_status tr_session_step(tr_session *session, tr_step *step, tr_error *err);
/* What the last step measured besides: train.stats, and each loss where there are several. */
typedef struct tr_stat {
    const char *name;
    double value;
} tr_stat;
size_t tr_session_num_stats(const tr_session *session);
tr_stat tr_session_stat(const tr_session *session, size_t i);
/* Steps that the settings ask for: train.steps, or as many as train.epochs take. */
int64_t tr_session_num_steps(const tr_session *session);

typedef struct tr_eval {
    double loss;     /* mean over the targets; of a sum, that of a batch of train.batch rows */
    double accuracy; /* share of the targets that the model holds likeliest; NAN for an mlp */
} tr_eval;

/* On held-out data. */
tr_status tr_session_eval(tr_session *session, tr_eval *eval, tr_error *err);
/* Writes the weights as safetensors; the file appears whole or not at all. */
tr_status tr_session_save(tr_session *session, const char *path, tr_error *err);

/* Text after a prompt, by the generate.* settings; out gets every piece as it is made. */
typedef void (*tr_text_fn)(void *context, const char *bytes, size_t num_bytes);
tr_status tr_session_generate(tr_session *session, const char *prompt, tr_text_fn out,
                              void *context, tr_error *err);

/* Parameters, in the order of the model. */
typedef struct tr_param {
    const char *name;
    int rank;
    int64_t size[6];
    int64_t count;
    float *data;
} tr_param;
/* A device with memory of its own (cuda): brings the parameters' data up to date. */
tr_status tr_session_pull(tr_session *session, tr_error *err);
size_t tr_session_num_params(const tr_session *session);
tr_param tr_session_param(const tr_session *session, size_t i);

/* Bytes that the session's memory plan holds. */
uint64_t tr_session_planned_bytes(const tr_session *session);

/* The step program of these settings as text, without allocating what it describes. The caller
 * frees the text. */
tr_status tr_explain(tr_settings *settings, char **text, tr_error *err);

#ifdef __cplusplus
}
#endif
#endif
