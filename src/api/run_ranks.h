/* The ranks of a run inside another program: threads that wait for commands.
 *
 * Invariants:
 *   1. Ranks are between two commands, or all in the same one. A command is over when every rank
 *      has done it, or when all threads have ended.
 *   2. The first rank that fails keeps its error before it stops the others, so what they say
 *      because of that is not taken for the reason.
 *   3. The caller reads what ranks leave in the run only when no command is under way. */
#ifndef TRI_API_RUN_RANKS_H
#define TRI_API_RUN_RANKS_H

#include <pthread.h>

#include "api/api.h"
#include "api/run_dir.h"
#include "comm/world.h"
#include "trireme/run.h"

typedef enum tri_command_kind {
    TRI_COMMAND_BEGIN, /* what every rank starts with */
    TRI_COMMAND_ADVANCE,
    TRI_COMMAND_EVALUATE,
    TRI_COMMAND_SAVE,
    TRI_COMMAND_LOGITS,
    TRI_COMMAND_FINISH,
    TRI_COMMAND_LEAVE
} tri_command_kind;

typedef struct tri_command {
    tri_command_kind kind;
    int64_t num_steps;     /* ADVANCE */
    const int32_t *tokens; /* LOGITS */
    int64_t length, num_logits;
    float *logits;
} tri_command;

typedef struct tri_rank_thread {
    tr_run *run;
    int rank;
    pthread_t thread;
    tr_session *session;
    tri_run training;
    int32_t *spare;       /* [2 * seq_len]: for what a stage of a pipeline does not read */
    int64_t wrong_sample; /* of a row with tokens that are none, -1: there was none */
} tri_rank_thread;

struct tr_run {
    tr_settings *settings;
    tr_run_options options;
    tri_run_config config;
    tri_run_dir dir;
    tri_world *world;
    int num_ranks, num_started;
    tri_rank_thread *ranks;
    tr_run_state state; /* written by rank 0 */
    int64_t saved;      /* steps in the newest checkpoint, -1: none */
    bool finished;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex: */
    tri_command command;
    uint64_t number;        /* of the command */
    int num_done, num_over; /* ranks that have done it; threads that have ended */
    bool has_logits;
    tr_error failure; /* status TR_OK: there is none */
};

/* Starts them, up to the first step of the run; what is under way then, or is left of them, the
 * caller still has to end. */
tr_status tri_run_ranks_start(tr_run *run, tr_error *err);
/* All ranks obey a command. After a failure it is told again, and nothing is done. */
tr_status tri_run_ranks_give(tr_run *run, const tri_command *command, tr_error *err);
void tri_run_ranks_end(tr_run *run);

#endif
