/* A training run: a session that is joined to other ranks, goes on from a checkpoint, trains, is
 * evaluated, compared, saved and recorded, and ends when it is done or when somebody wishes it.
 *
 * Nothing here prints, reads the environment or catches a signal. Whoever starts a run gives it a
 * configuration that does not change any more, a way to ask for wishes, and observers. All ranks
 * make the same calls in the same order. */
#ifndef TRI_TRAIN_RUN_RUN_H
#define TRI_TRAIN_RUN_RUN_H

#include "run/trace/trace_program.h"
#include "train/health/health.h"
#include "train/health/replay.h"
#include "train/log/record.h"
#include "train/ranks.h"
#include "train/replicas.h"
#include "train/run/observer.h"
#include "train/run/run_ckpt.h"
#include "train/run/run_sampler.h"
#include "trireme/settings.h"

/* Why a rank wishes that the run end: bits that the caller gives a meaning, but for the last. */
enum { TRI_WISH_TIME = 1 << (TRI_WISH_BITS - 1) };

typedef struct tri_run_wishes {
    unsigned (*ask)(void *context);      /* after each step, on every rank; NULL: never any */
    const char *(*why)(unsigned wishes); /* in words */
    void *context;
} tri_run_wishes;

/* Strings and settings must outlive the run. */
typedef struct tri_run_config {
    const char *dir;
    const tr_settings *settings; /* all that was resolved, for config.yaml and for observers */
    const char *head;            /* lines of comments for config.yaml; NULL: none but those of the
                                    run that goes on */
    const char *model_from;      /* model.from as it was given */
    tri_ranks_config ranks;      /* tuning NULL: it is kept in dir */
    tri_run_ckpt_config ckpt;
    int64_t eval_every;    /* steps; 0: at the end of epochs */
    int64_t patience;      /* evaluations without a gain, after which the run is done; 0: any */
    double min_gain;       /* of the held-out loss, that counts as one */
    int64_t compare_every; /* steps between two comparisons of copies; 0: there are none */
    bool save_weights;     /* at the end */
    bool record, trace;
    uint64_t plugins; /* a number for the code of plug-ins, below 2^53; 0: there are none */
    tri_run_sampling sampling; /* text that the model writes on the way */
    const char *logs;          /* files for other tools, as tri_logs_check has them; "": none */
    int64_t stop_at;           /* so many steps, after which it ends early; 0: it does not */
    double ends_at_s;          /* of tri_now_s, when the wish TRI_WISH_TIME comes up; 0: never */
    tri_run_wishes wishes;
} tri_run_config;

enum { TRI_MAX_OBSERVERS = 16 };

/* How the held-out loss goes, the same on all ranks and kept in checkpoints. */
typedef struct tri_run_best {
    double loss; /* the least so far; INFINITY: there was none */
    int64_t step;
    double gain_loss; /* the last that was a gain on the one before it */
    int64_t num_idle; /* evaluations since then */
    bool now;         /* the step that was just done has the least */
} tri_run_best;

/* One rank's. Observers read it. */
typedef struct tri_run {
    tri_run_config config;
    tri_session *session;
    tri_ranks ranks;
    int local_ranks; /* on this machine */
    tri_observer observers[TRI_MAX_OBSERVERS];
    size_t num_observers;
    char *tuning;             /* the file with what was measured */
    tri_program_trace *trace; /* NULL: none */
    bool trace_done;          /* all of it was written, or could not be */
    tri_record *record;
    void *samples; /* of the sampler */
    tri_run_ckpt ckpt;
    tri_replicas replicas;
    tri_replay replay;
    tri_health health;
    int64_t compare_every; /* as configured, 0 where there is nothing to compare */
    int64_t good_step;  /* of the newest checkpoint that was saved when copies were equal, or -1 */
    bool has_tokenizer; /* kept in dir */
    bool ended;         /* ENDS was told */
    bool failed;
    unsigned wishes; /* by which the run ends before its last step; 0: by nobody's */
    bool stopped;    /* it ended by them, and in good order */
    bool saved;      /* and what it had is in a checkpoint */
    bool drawn;      /* its curve is in the run directory */
    int64_t first_step, num_steps;
    double first_loss, last_loss;
    tri_eval_result eval;
    int64_t eval_step; /* that it is of; -1: there was none */
    tri_run_best best;
    char enough[160]; /* why the run is done before its last step, or "" */
    double seconds;
    int64_t tokens, first_tokens;    /* since the run began; of them, before it was resumed */
    double epoch_sum, epoch_targets; /* of the losses of this epoch, and what they are means over */
} tri_run;

/* The session is compiled and not started; from here on the run ends it. */
void tri_run_open(tri_run *run, const tri_run_config *config, tri_session *session);
/* Before it begins. The run closes it, also when this fails. */
tr_status tri_run_observe(tri_run *run, const tri_observer *observer, tr_error *err);
/* Joins the other ranks. Collective, as is what follows; err is never NULL. */
tr_status tri_run_join(tri_run *run, const tri_bootstrap *bootstrap, tr_error *err);
/* The same for ranks that are threads of one process, and have a communicator already. */
tr_status tri_run_use(tri_run *run, tri_comm *comm, tr_error *err);
/* Everything up to the first step: allocates, goes on from a checkpoint or fills the weights, opens
 * the files. */
tr_status tri_run_begin(tri_run *run, tr_error *err);
/* Steps until so many are done, the run is, or somebody wishes it to end. What is wrong is told as
 * the end of the run, too, here and in what follows. */
tr_status tri_run_advance(tri_run *run, int64_t num_steps, tr_error *err);
/* run->eval, now, where there are held-out rows. */
tr_status tri_run_evaluate(tri_run *run, tr_error *err);
/* A checkpoint, now, that is on the disk when the call returns; not on the null device. */
tr_status tri_run_save(tri_run *run, tr_error *err);
/* The end: after the last step its checkpoint and the weights, before it a checkpoint to go on
 * from. */
tr_status tri_run_end(tri_run *run, tr_error *err);
/* Nobody goes on with it: its end, unless that was told. Not collective. */
void tri_run_abandon(tri_run *run, const char *why);
/* May take as long as a checkpoint that is being written. One of zeros, never opened, is fine. */
void tri_run_close(tri_run *run);

/* A warning of the whole run, by rank 0, or of a rank's own. For observers, too. */
void tri_run_warn(const tri_run *run, bool own, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether gradients are scaled (fp16). */
static inline bool tri_run_has_scaler(const tri_run *run)
{
    return run->session->config.compile.precision.compute == TRI_F16;
}

/* run_files.c. A file of the run directory; the caller frees the path. */
tr_status tri_run_in_dir(const tri_run *run, const char *name, char **path, tr_error *err);
/* Of a tri_run, by rank 0: settings, tokenizer, metrics. */
tr_status tri_run_open_files(void *run, tr_error *err);

/* Whether it is to end early here, by its configuration. */
static inline bool tri_run_is_at_stop(const tri_run *run)
{
    return run->config.stop_at > 0 && run->session->step >= run->config.stop_at;
}

/* run_best.c. After an evaluation, which is the same on all ranks. */
void tri_run_judge_eval(tri_run *run);
size_t tri_run_best_counts(const tri_run *run, tri_ckpt_number *counts);
void tri_run_best_take(tri_run *run);

/* run_replay.c. Tells of a step that had other bits when it was replayed. */
void tri_run_judge_replay(tri_run *run);

/* run_plugins.c. All ranks run the same code. Collective. */
tr_status tri_run_check_plugins(tri_run *run, tr_error *err);
/* Says so where the run was begun with other code than it goes on with. */
void tri_run_warn_plugins(const tri_run *run);
size_t tri_run_plugin_counts(const tri_run *run, tri_ckpt_number *counts);

/* run_step.c. Tells all observers; news->run is filled in. */
void tri_run_tell(const tri_run *run, tri_run_news news);
tr_status tri_run_step(tri_run *run, tr_error *err);
/* Numbers of the run that a checkpoint keeps, for whoever goes on from it. */
enum { TRI_RUN_MAX_COUNTS = 9 };
size_t tri_run_counts(const tri_run *run, tri_ckpt_number counts[TRI_RUN_MAX_COUNTS]);
void tri_run_take_counts(tri_run *run);
/* Before something is saved: a wrong bit must not reach a file. */
tr_status tri_run_compare(tri_run *run, bool saves, tr_error *err);
/* What a checkpoint that failed means to the run. */
void tri_run_warn_ckpt(const tri_run *run, const tr_error *warning, const char *what_then);

#endif
