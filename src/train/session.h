/* A session: a model, its programs, its memory and its data, advancing step by step. The training
 * loop, evaluation and generation all go through one. */
#ifndef TRI_TRAIN_SESSION_H
#define TRI_TRAIN_SESSION_H

#include "compile/compile.h"
#include "data/data.h"
#include "run/executor.h"
#include "train/context.h"
#include "train/epochs.h"
#include "train/expert_loads.h"
#include "train/health/spike.h"
#include "train/schedule_lr.h"

typedef enum tri_session_program {
    TRI_PROGRAM_TRAIN,
    TRI_PROGRAM_EVAL,
    TRI_PROGRAM_PREDICT,
    TRI_PROGRAM_PREFILL,
    TRI_PROGRAM_DECODE,
    TRI_PROGRAM_CAREFUL, /* training, with room for all rows on the way to their experts */
    TRI_NUM_PROGRAMS
} tri_session_program;

/* Sets of programs. A session compiles, and plans memory for, those that it is asked for. */
enum {
    TRI_PROGRAMS_TRAIN = 1 << TRI_PROGRAM_TRAIN | 1 << TRI_PROGRAM_EVAL | 1 << TRI_PROGRAM_PREDICT,
    TRI_PROGRAMS_GENERATE = 1 << TRI_PROGRAM_PREFILL | 1 << TRI_PROGRAM_DECODE,
};

/* Shapes of prefill and decode. */
typedef struct tri_generate_shape {
    int64_t rows;         /* texts at a time: of the cache, and of decode */
    int64_t len;          /* positions that the cache holds */
    int64_t block;        /* positions of a row that prefill takes at a time */
    int64_t prefill_rows; /* rows that it takes them of */
} tri_generate_shape;

/* A rank that is to take so many times as long as it would, to see what comes of it. */
typedef struct tri_brake {
    int rank;
    double factor;
} tri_brake;
enum { TRI_MAX_BRAKES = 8 };

/* Who does forward and backward of a step a second time, to see whether the bits are the same. */
typedef enum tri_replay_kind {
    TRI_REPLAY_SAME,    /* whoever did it before */
    TRI_REPLAY_EXCHANGE /* the ranks with the same weights and the next rows of the batch */
} tri_replay_kind;

typedef struct tri_replay_config {
    int64_t every; /* steps; 0: none is done twice */
    tri_replay_kind kind;
    bool stops; /* a difference ends the run before the update */
} tri_replay_config;

typedef struct tri_replay tri_replay; /* train/health/replay.h */

typedef struct tri_session_config {
    unsigned programs; /* bits 1 << TRI_PROGRAM_...; 0: TRI_PROGRAMS_TRAIN */
    tri_generate_shape generate;
    tri_compile_config compile;
    tri_device_config device;
    bool by_nccl;     /* the settings let messages of programs go by NCCL (train/ranks.h) */
    bool group_lanes; /* messages of different groups may be under way together, on GPUs */
    tri_data_config data;
    tri_lr_schedule lr;
    uint64_t seed;
    int64_t eval_batches;
    int64_t steps;       /* train.steps; with epochs, 0 sets no other end */
    int64_t epochs;      /* train.epochs; 0: steps are counted */
    int64_t max_skipped; /* train.max_skipped: steps in a row */
    tri_spike_config spike;
    tri_replay_config replay;
    /* Seconds that each action takes at least (run/executor.h), when it is to keep a pace. */
    bool keep_pace;
    double pace[TRI_NUM_PACES];
    tri_brake brakes[TRI_MAX_BRAKES];
    int num_brakes;
    tri_deal_kind deal;       /* which tokens of a row a context-parallel rank gets */
    const char *weights_from; /* file to start from, or "" */
    char scratch_dir[512];    /* for what rests in a file; "": /tmp */
    uint64_t memory_limit;    /* run.memory_limit: bytes that the plan may have; 0: any */
    bool weights_follow;      /* start leaves the parameters alone: a checkpoint is loaded, or
                                 tri_session_fill called */
} tri_session_config;

/* Where rows come from: fills the row of a sample (data/data.h). */
typedef void (*tri_row_fn)(void *context, tri_split split, uint64_t sample, const tri_row *row);

/* Is told that a row of the next step was filled with this sample. */
typedef void (*tri_sample_fn)(void *context, uint64_t sample);

/* Values that the host writes or reads by name. */
typedef enum tri_host_value {
    TRI_HOST_TOKENS,
    TRI_HOST_TARGETS,
    TRI_HOST_POSITIONS,
    TRI_HOST_DOCS,
    TRI_HOST_TYPES,
    TRI_HOST_ROWS,
    TRI_HOST_STEP,
    TRI_HOST_SCHED,
    TRI_HOST_FIRST,
    TRI_HOST_INDEX,
    TRI_HOST_X,
    TRI_HOST_TARGET,
    TRI_HOST_RESULT,
    TRI_HOST_LOGITS,
    TRI_HOST_APPLY,
    TRI_HOST_PLACES,
    TRI_HOST_SPAN,
    TRI_HOST_KEYS_SENT,
    TRI_HOST_KEYS_GOT,
    TRI_HOST_KEYS_OUT,
    TRI_HOST_KEYS_IN,
    TRI_HOST_KEYS_BACK,
    TRI_HOST_KEYS_SUM,
    TRI_NUM_HOST_VALUES
} tri_host_value;

typedef struct tri_session {
    tri_session_config config;
    tri_param_table params;
    tri_program programs[TRI_NUM_PROGRAMS];
    tri_id host[TRI_NUM_PROGRAMS][TRI_NUM_HOST_VALUES]; /* TRI_NONE: the program has none */
    tri_executor executors[TRI_NUM_PROGRAMS];
    tri_expert_loads loads;
    float shown[TRI_MAX_SHOWN]; /* by the last step, beside its loss: train/step_stats.h */
    tri_device device;
    tri_store store;
    tri_data *data;
    tri_context *context; /* tokens that are divided over ranks; NULL: they are not */
    tri_row_fn row;
    void *row_context;
    tri_sample_fn sampled; /* told of every row that is trained on; may be NULL */
    void *sampled_context;
    tri_session_program stepping; /* whose inputs are filled: TRAIN, or CAREFUL for a repeat */
    /* Set by the caller between compile and start when there are other ranks: */
    int dp_rank;             /* which part of the batch is this rank's */
    int device_index;        /* which of several devices of this machine */
    tri_exchange exchange;   /* how to reach them */
    tri_peer_memory peers;   /* memory that they can read */
    tri_rank_status *status; /* where to say what this rank is doing, or NULL */
    tri_replay *replay;      /* between steps; NULL: none is done twice */

    float **weights;     /* of each parameter, for the host to read */
    float *host_weights; /* where they lie when the device has memory of its own; else NULL */
    bool *fresh;         /* of each: filled anew, since the file to start from has none of it */
    int64_t step;        /* steps done, with those skipped */
    int64_t skipped;     /* of them: those that updated nothing */
    int64_t skipped_row; /* since the last update: such, but for those that halve the loss scale */
    int64_t num_steps;
    tri_spikes spikes;
    int64_t data_ns; /* own time for the rows of training batches */
    tri_epochs epochs;
    int64_t ahead;       /* the step whose rows the inputs hold, filled while the one before ran */
    uint64_t ahead_runs; /* how many runs there had been by then: another would have used them */
    bool compiled, started;
} tri_session;

typedef struct tri_step_result {
    float loss, grad_norm;
    double lr;
    double count; /* targets in the batch */
    double seconds;
    float scale;  /* that the gradients carried; 1 without a loss scaler */
    bool skipped; /* not finite: nothing was updated; with a loss scaler the scale is now half */
} tri_step_result;

/* What becomes of the settings on messages on such a device. One with a queue has messages early,
 * in buckets, where they may go by NCCL: on lanes beside the queue (run/executor_lanes.c). Through
 * the host each is waited for where it stands, and the fewer the better. The ranks must decide
 * alike, before they have met, so this asks the settings alone: should they find no NCCL then, the
 * program is as right, in more messages. */
void tri_session_order_messages(tri_session_config *config, const tri_device_def *device);
/* Compiles the programs and plans their memory; nothing large is allocated. The session must not
 * move afterwards. */
tr_status tri_session_compile(tri_session *session, const tri_session_config *config,
                              tr_error *err);
/* Refuses a plan beyond the limit, with its figures. */
tr_status tri_session_check_memory(const tri_session *session, tr_error *err);
/* The part of start that needs no memory to speak of: opens the data, unless rows are given by
 * session->row, and counts the steps. */
tr_status tri_session_open_data(tri_session *session, tr_error *err);
/* Opens the data (unless that is done, or rows are given by session->row), allocates, and fills the
 * parameters. */
tr_status tri_session_start(tri_session *session, tr_error *err);
/* Fills the parameters from weights_from, or with initial values, where start did not. */
tr_status tri_session_fill(tri_session *session, tr_error *err);
void tri_session_fini(tri_session *session);

/* One training step. When the loss or the norm is not finite it is skipped: the parameters are as
 * before, and with a loss scaler (fp16) the scale is halved. It is TR_ERROR_NUMERIC after more than
 * max_skipped of them in a row, not counting those with a finite loss that halved the scale, or
 * when the scale falls below 1. */
tr_status tri_session_step(tri_session *session, tri_step_result *result, tr_error *err);
/* Own time since the session began, so far as it was in training steps, or in messages: the kind
 * "other" is 0. */
tri_own_time tri_session_own_time(const tri_session *session);

typedef struct tri_eval_result {
    double loss;     /* mean over the targets */
    double accuracy; /* share of targets with the largest logit of their row; NAN without logits */
    double count;    /* targets */
} tri_eval_result;

/* Over eval_batches batches of held-out rows. */
tr_status tri_session_eval(tri_session *session, tri_eval_result *result, tr_error *err);
/* Whether the session has a program. */
bool tri_session_has(const tri_session *session, tri_session_program program);
tri_mode tri_session_mode(tri_session_program program);
/* Rows and positions of one run of a program. */
/* The settings that a program is compiled with. */
tri_compile_config tri_session_compile_config(const tri_session *session,
                                              tri_session_program program);
tri_batch_shape tri_session_batch_shape(const tri_session *session, tri_session_program program);
/* Whether there are held-out rows. */
bool tri_session_can_eval(const tri_session *session);
/* Logits after `length` tokens (at most seq_len of them); valid until the next call. */
const float *tri_session_predict(tri_session *session, const int32_t *tokens, int64_t length);

/* A row to predict something about. */
typedef struct tri_prompt {
    const int32_t *tokens, *types; /* [length]; types may be NULL: all 0 */
    int64_t length;                /* at most seq_len; what follows is padding */
    int64_t index;                 /* the position whose logits are wanted, unless it is labels' */
} tri_prompt;

const float *tri_session_predict_at(tri_session *session, const tri_prompt *prompt);

/* Gradient of a parameter after a step, as it was applied but for clipping: the mean over targets.
 */
tr_status tri_session_grad(const tri_session *session, tri_id param, float *to, tr_error *err);
/* Brings session->weights up to date where the device has memory of its own, or this rank only
 * pieces. Collective over the ranks. */
tr_status tri_session_pull_weights(tri_session *session, tr_error *err);
/* Writes the parameters to a file, tensor by tensor: nobody ever holds more than one whole. The
 * ranks that pass NULL only help. Collective over the ranks. */
tr_status tri_session_save_weights(tri_session *session, const char *path, tr_error *err);
uint64_t tri_session_planned_bytes(const tri_session *session);

#endif
