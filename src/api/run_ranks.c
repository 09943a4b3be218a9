#include "api/run_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "api/run_news.h"

/* ---- what is told ---- */

static void tell(tr_run *run, tr_run_moment moment, const char *text)
{
    tr_run_news news = {.moment = moment, .state = &run->state, .text = text};
    if (run->options.tell)
        run->options.tell(run->options.context, &news);
}

/* On rank 0, but for a warning of another rank. */
static void observe(void *context, const tri_run_news *news)
{
    tri_rank_thread *self = context;
    tr_run *run = self->run;
    tr_run_moment moment;
    if (self->rank != 0 || !tri_run_news_take(news, &run->state, &moment))
        return;
    if (moment == TR_RUN_SAVED)
        run->saved = run->state.step;
    tell(run, moment, news->text);
}

enum { WISH_STOP = 1 };

static unsigned wishes_of(void *context)
{
    const tri_rank_thread *self = context;
    const tr_run_options *options = &self->run->options;
    return self->rank == 0 && options->stops && options->stops(options->context) ? WISH_STOP : 0;
}

static const char *why_wished(unsigned wishes)
{
    (void)wishes;
    return "asked by the program";
}

/* ---- own rows ---- */

static bool all_below(int32_t *ids, int64_t num, int64_t limit, int32_t otherwise)
{
    bool good = true;
    for (int64_t i = 0; i < num; i++)
        if (ids[i] >= limit || ids[i] < otherwise) {
            ids[i] = otherwise;
            good = false;
        }
    return good;
}

static void own_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    tri_rank_thread *self = context;
    const tr_run_options *options = &self->run->options;
    const tri_compile_config *config = &self->session->session.config.compile;
    int64_t length = config->seq_len;
    tr_row own = {.tokens = row->tokens ? row->tokens : self->spare,
                  .targets = row->targets ? row->targets : self->spare + length,
                  .seq_len = length,
                  .num_targets = row->num_targets};
    options->row(options->context, split == TRI_SPLIT_EVAL, sample, &own);
    int64_t labels =
        config->model.task == TRI_TASK_CLASSIFY ? config->model.num_labels : config->model.vocab;
    bool good = all_below(own.tokens, length, config->model.vocab, 0);
    good = all_below(own.targets, own.num_targets, labels, -1) && good;
    if (!good && self->wrong_sample < 0)
        self->wrong_sample = (int64_t)sample;
}

static tr_status check_rows(const tri_rank_thread *self, tr_error *err)
{
    if (self->wrong_sample < 0)
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "sample %lld of the program's own rows has a token that is not one of "
                    "model.vocab (%lld), or a target that is neither one nor -1",
                    (long long)self->wrong_sample,
                    (long long)self->session->session.config.compile.model.vocab);
}

static tr_status use_own_rows(tri_rank_thread *self, tr_error *err)
{
    tri_session *session = &self->session->session;
    const tri_compile_config *config = &session->config.compile;
    if (!self->run->options.row)
        return TR_OK;
    if (!tri_model_of(&config->model)->sequences)
        return tri_fail(err, TR_ERROR_INPUT,
                        "model.kind %s has no rows of tokens; leave tr_run_options.row out",
                        config->model.kind);
    self->spare = calloc((size_t)config->seq_len, 2 * sizeof *self->spare);
    if (!self->spare)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a row of %lld tokens",
                        (long long)config->seq_len);
    session->row = own_row;
    session->row_context = self;
    return TR_OK;
}

/* ---- a rank ---- */

static tr_status begin(tri_rank_thread *self, tr_comm *comm, tr_error *err)
{
    tr_run *run = self->run;
    tri_run_config config = run->config;
    TRI_TRY(tri_api_compile_rank(run->settings, self->rank, &self->session, err));
    TRI_TRY(use_own_rows(self, err));
    config.wishes = (tri_run_wishes){wishes_of, why_wished, self};
    tri_run_open(&self->training, &config, &self->session->session);
    tri_observer observer = {"program", observe, NULL, self};
    TRI_TRY(tri_run_observe(&self->training, &observer, err));
    TRI_TRY(tri_run_use(&self->training, comm, err));
    return tri_run_begin(&self->training, err);
}

static tr_status advance(tri_rank_thread *self, int64_t num_steps, tr_error *err)
{
    tri_run *training = &self->training;
    for (int64_t i = 0; i < num_steps; i++) {
        int64_t before = training->session->step;
        TRI_TRY(tri_run_advance(training, 1, err));
        TRI_TRY(check_rows(self, err));
        if (training->session->step == before)
            break; /* it is done, or is to end */
    }
    return TR_OK;
}

/* Those who hold the logits whole hand them over, all the same ones. */
static tr_status predict(tri_rank_thread *self, const tri_command *c, tr_error *err)
{
    tri_session *session = &self->session->session;
    tri_id value = session->host[TRI_PROGRAM_PREDICT][TRI_HOST_LOGITS];
    const float *logits = tri_session_predict(session, c->tokens, c->length);
    if (!logits && value != TRI_NONE)
        return tri_fail(err, TR_ERROR_RUNTIME, "another rank is gone");
    if (value == TRI_NONE)
        return TR_OK;
    int64_t num = tri_shape_count(&session->programs[TRI_PROGRAM_PREDICT].values[value].shape);
    pthread_mutex_lock(&self->run->mutex);
    if (num == c->num_logits && !self->run->has_logits)
        memcpy(c->logits, logits, (size_t)num * sizeof *logits);
    self->run->has_logits |= num == c->num_logits;
    pthread_mutex_unlock(&self->run->mutex);
    return TR_OK;
}

static tr_status obey(tri_rank_thread *self, const tri_command *c, tr_error *err)
{
    switch (c->kind) {
    case TRI_COMMAND_ADVANCE:
        return advance(self, c->num_steps, err);
    case TRI_COMMAND_EVALUATE:
        TRI_TRY(tri_run_evaluate(&self->training, err));
        return check_rows(self, err);
    case TRI_COMMAND_SAVE:
        return tri_run_save(&self->training, err);
    case TRI_COMMAND_LOGITS:
        return predict(self, c, err);
    case TRI_COMMAND_FINISH:
        return tri_run_end(&self->training, err);
    default:
        return TR_OK;
    }
}

/* The next command; the last one that a rank gets is to leave. */
static tri_command await_command(tr_run *run, uint64_t *seen)
{
    pthread_mutex_lock(&run->mutex);
    if (++run->num_done == run->num_ranks)
        pthread_cond_broadcast(&run->changed);
    while (run->number == *seen && run->failure.status == TR_OK)
        pthread_cond_wait(&run->changed, &run->mutex);
    tri_command next = run->command;
    if (run->number == *seen)
        next = (tri_command){.kind = TRI_COMMAND_LEAVE}; /* another rank has failed */
    *seen = run->number;
    pthread_mutex_unlock(&run->mutex);
    return next;
}

static void keep_failure(tr_run *run, int rank, const tr_error *err)
{
    pthread_mutex_lock(&run->mutex);
    if (run->failure.status == TR_OK) {
        run->failure = *err;
        if (rank >= 0 && run->num_ranks > 1 && err->status == TR_ERROR_RUNTIME)
            tri_fail_prefix(&run->failure, err->status, "rank %d", rank);
    }
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
}

/* A failure stays as it is once there is one. */
static const char *why_left(tr_run *run)
{
    pthread_mutex_lock(&run->mutex);
    bool failed = run->failure.status != TR_OK;
    pthread_mutex_unlock(&run->mutex);
    return failed ? run->failure.message : "left by the program";
}

static tr_status rank_main(tr_comm *comm, void *context, tr_error *err)
{
    tri_rank_thread *self = context;
    tr_run *run = self->run;
    uint64_t seen = 0;
    tr_status status = begin(self, comm, err);
    bool begun = status == TR_OK;
    while (status == TR_OK) {
        tri_command next = await_command(run, &seen);
        if (next.kind == TRI_COMMAND_LEAVE)
            break;
        status = obey(self, &next, err);
    }
    if (status != TR_OK) { /* the others first: closing may take as long as a checkpoint */
        keep_failure(run, self->rank, err);
        tri_world_fail(run->world, self->rank, err->message);
    }
    if (begun)
        tri_run_abandon(&self->training, why_left(run));
    tri_run_close(&self->training);
    tr_session_destroy(self->session);
    free(self->spare);
    return status;
}

static void *thread_main(void *context)
{
    tri_rank_thread *self = context;
    tr_run *run = self->run;
    tr_error err;
    if (tri_world_run_rank(run->world, self->rank, "thread", rank_main, self) != TR_OK &&
        tri_world_result(run->world, &err) != TR_OK)
        keep_failure(run, -1, &err); /* nothing new, unless the rank could not even join */
    pthread_mutex_lock(&run->mutex);
    run->num_over++;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    return NULL;
}

/* Until the command that is under way is over. */
static tr_status await_ranks(tr_run *run, tr_error *err)
{
    while (run->num_done < run->num_ranks && run->num_over < run->num_started)
        pthread_cond_wait(&run->changed, &run->mutex);
    return run->failure.status == TR_OK
               ? TR_OK
               : tri_fail(err, run->failure.status, "%s", run->failure.message);
}

tr_status tri_run_ranks_give(tr_run *run, const tri_command *c, tr_error *err)
{
    pthread_mutex_lock(&run->mutex);
    if (run->failure.status == TR_OK) {
        run->command = *c;
        run->number++;
        run->num_done = 0;
        run->has_logits = false;
        pthread_cond_broadcast(&run->changed);
    }
    tr_status status = await_ranks(run, err);
    pthread_mutex_unlock(&run->mutex);
    return status;
}

tr_status tri_run_ranks_start(tr_run *run, tr_error *err)
{
    tr_comm_options options = {.deadline_s = tr_settings_float(run->settings, "run.deadline_s")};
    TRI_TRY(tri_world_create(run->num_ranks, &options, &run->world, err));
    run->ranks = calloc((size_t)run->num_ranks, sizeof *run->ranks);
    if (!run->ranks)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", run->num_ranks);
    for (int i = 0; i < run->num_ranks; i++) {
        tri_rank_thread *self = &run->ranks[i];
        *self = (tri_rank_thread){.run = run, .rank = i, .wrong_sample = -1};
        int failed = pthread_create(&self->thread, NULL, thread_main, self);
        if (failed) {
            tri_fail(err, TR_ERROR_RUNTIME, "rank %d cannot be started: %s", i, strerror(failed));
            keep_failure(run, -1, err);
            tri_world_fail(run->world, i, err->message);
            break;
        }
        pthread_mutex_lock(&run->mutex);
        run->num_started++;
        pthread_mutex_unlock(&run->mutex);
    }
    pthread_mutex_lock(&run->mutex);
    tr_status status = await_ranks(run, err);
    pthread_mutex_unlock(&run->mutex);
    return status;
}

void tri_run_ranks_end(tr_run *run)
{
    pthread_mutex_lock(&run->mutex);
    run->command = (tri_command){.kind = TRI_COMMAND_LEAVE};
    run->number++;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->mutex);
    for (int i = 0; i < run->num_started; i++)
        pthread_join(run->ranks[i].thread, NULL);
}
