#include "train/batch.h"

#include <string.h>

#include "base/rng.h"

bool tri_session_has_sequences(const tri_session *session)
{
    return tri_model_of(&session->config.compile.model)->sequences;
}

void tri_data_session_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    const tri_session *session = context;
    tri_data_row(session->data, split, sample, row);
}

/* Vectors for models without tokens: x is normal, and the target is x turned by one place and
 * halved, which a small network can learn. */
void tri_vector_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    const tri_session *session = context;
    int64_t dim = session->config.compile.model.dim;
    uint32_t stream = tri_stream("data", split == TRI_SPLIT_TRAIN ? "train" : "eval");
    tri_random_normal(session->config.seed, sample * (uint64_t)dim, (uint64_t)dim, 0, stream,
                      row->x);
    for (int64_t i = 0; i < dim; i++)
        row->target[i] = 0.5f * row->x[(i + 1) % dim];
}

void *tri_session_host(const tri_session *session, int program, tri_host_value name,
                       uint32_t microbatch)
{
    tri_id value = session->host[program][name];
    if (value == TRI_NONE)
        return NULL;
    return tri_executor_memory(&session->executors[program], value, microbatch);
}

/* Row `row` of an input [B, ...] of 4-byte elements, each row `width` of them; NULL when the
 * program does not read it. */
static void *row_of(const tri_session *session, int program, tri_host_value name,
                    uint32_t microbatch, int64_t row, int64_t width)
{
    char *data = tri_session_host(session, program, name, microbatch);
    return data ? data + row * width * 4 : NULL;
}

static void fill_with(int32_t *data, int64_t count, int32_t value)
{
    for (int64_t i = 0; data && i < count; i++)
        data[i] = value;
}

/* Whether this rank has some tokens of each row alone. Programs that predict have all. */
static bool is_divided(const tri_session *session, int program)
{
    bool sees_rows = program == TRI_PROGRAM_TRAIN || program == TRI_PROGRAM_EVAL ||
                     program == TRI_PROGRAM_CAREFUL;
    return session->context && sees_rows;
}

/* The memory of row r of a micro-batch. */
static tri_row row_memory(const tri_session *session, int program, uint32_t microbatch, int64_t r)
{
    int64_t length = session->config.compile.seq_len, dim = session->config.compile.model.dim;
    tri_id targets = session->host[program][TRI_HOST_TARGETS];
    int64_t per_row =
        targets != TRI_NONE && session->programs[program].values[targets].shape.rank == 1 ? 1
                                                                                          : length;
    if (is_divided(session, program)) {
        length = session->context->size;
        per_row = per_row > 1 ? length : 1;
    }
    return (tri_row){
        .tokens = row_of(session, program, TRI_HOST_TOKENS, microbatch, r, length),
        .targets = row_of(session, program, TRI_HOST_TARGETS, microbatch, r, per_row),
        .positions = row_of(session, program, TRI_HOST_POSITIONS, microbatch, r, length),
        .docs = row_of(session, program, TRI_HOST_DOCS, microbatch, r, length),
        .types = row_of(session, program, TRI_HOST_TYPES, microbatch, r, length),
        .x = row_of(session, program, TRI_HOST_X, microbatch, r, dim),
        .target = row_of(session, program, TRI_HOST_TARGET, microbatch, r, dim),
        .num_targets = per_row,
    };
}

/* A row to be filled, preset: of a program, or where tokens are divided, all of it. */
static tri_row begin_row(const tri_session *session, int program, uint32_t microbatch, int64_t r)
{
    int64_t length = session->config.compile.seq_len;
    tri_row row = is_divided(session, program) ? session->context->row
                                               : row_memory(session, program, microbatch, r);
    fill_with(row.tokens, length, 0);
    fill_with(row.targets, row.num_targets, -1);
    fill_with(row.docs, length, 0);
    fill_with(row.types, length, 0);
    fill_with(row_of(session, program, TRI_HOST_FIRST, microbatch, r, 1), 1, 0);
    for (int64_t t = 0; row.positions && t < length; t++)
        row.positions[t] = (int32_t)t;
    return row;
}

/* Row r of a micro-batch, preset; number is the one it has in the whole batch. */
static tri_row number_row(tri_session *session, int program, uint32_t microbatch, int64_t r,
                          int64_t number)
{
    int32_t *numbers = tri_session_host(session, program, TRI_HOST_ROWS, microbatch);
    if (numbers)
        numbers[r] = (int32_t)number;
    return begin_row(session, program, microbatch, r);
}

/* Of a row that has been filled, where tokens are divided: this rank's, to its program. */
static void end_row(tri_session *session, int program, uint32_t microbatch, int64_t r)
{
    tri_context *context = session->context;
    if (!is_divided(session, program))
        return;
    const tri_row *all = &context->row;
    int64_t length = session->config.compile.seq_len;
    tri_row own = row_memory(session, program, microbatch, r);
    tri_context_deal(context, r);
    tri_context_take(context, r, all->tokens, own.tokens);
    tri_context_take(context, r, all->positions, own.positions);
    tri_context_take(context, r, all->docs, own.docs);
    tri_context_take(context, r, all->types, own.types);
    if (own.targets && all->num_targets == 1)
        own.targets[0] = all->targets[0];
    else
        tri_context_take(context, r, all->targets, own.targets);
    tri_context_give_places(context, r,
                            row_of(session, program, TRI_HOST_PLACES, microbatch, r, length),
                            row_of(session, program, TRI_HOST_SPAN, microbatch, r, 2 * length));
}

/* The rows of a micro-batch are there: which keys its ranks send each other. */
static void end_microbatch(tri_session *session, int program, uint32_t microbatch)
{
    if (!is_divided(session, program))
        return;
    const tri_key_lists lists = {
        .sent = tri_session_host(session, program, TRI_HOST_KEYS_SENT, microbatch),
        .got = tri_session_host(session, program, TRI_HOST_KEYS_GOT, microbatch),
        .out = tri_session_host(session, program, TRI_HOST_KEYS_OUT, microbatch),
        .in = tri_session_host(session, program, TRI_HOST_KEYS_IN, microbatch),
        .back = tri_session_host(session, program, TRI_HOST_KEYS_BACK, microbatch),
        .sum = tri_session_host(session, program, TRI_HOST_KEYS_SUM, microbatch)};
    tri_context_give_keys(session->context, &lists);
}

/* Row r of a micro-batch of a step. Padding stays as it was preset, without targets; models without
 * tokens have none such. */
static void fill_train_row(tri_session *session, int64_t step, uint32_t microbatch, int64_t r,
                           int64_t number)
{
    int64_t batch = session->config.compile.batch;
    uint64_t sample;
    tri_row row = number_row(session, session->stepping, microbatch, r, number);
    if (tri_epochs_sample(&session->epochs, batch, step, number, &sample))
        session->row(session->row_context, TRI_SPLIT_TRAIN, sample, &row);
    end_row(session, session->stepping, microbatch, r);
}

/* The number that row r of a micro-batch of a data-parallel rank has in the whole batch; at least
 * batch: it is padding.
 *
 * With one update a step it does not matter which rows share a micro-batch, and each rank has its
 * rows in a run. Asynchronous schedules update from a few micro-batches: there the batch is divided
 * over micro-batches first, evenly, and each of these over the ranks, so that an update is made of
 * the same rows with any number of ranks, and never of none. */
static int64_t row_number(const tri_session *session, int64_t rank, uint32_t microbatch,
                          int64_t rows, int64_t r)
{
    const tri_program *program = &session->programs[session->stepping];
    int64_t num = program->num_microbatches, m = microbatch;
    if (program->num_updates == 0)
        return (rank * num + m) * rows + r;
    int64_t batch = session->config.compile.batch;
    int64_t number = m * batch / num + rank * rows + r;
    return number < (m + 1) * batch / num ? number : batch;
}

/* Tells which samples this rank's rows of a step are. */
static void tell_samples(tri_session *session)
{
    int64_t rows = tri_microbatch_rows(&session->config.compile);
    int64_t batch = session->config.compile.batch;
    uint32_t num = session->programs[session->stepping].num_microbatches;
    uint64_t sample;
    for (uint32_t m = 0; m < num; m++)
        for (int64_t r = 0; r < rows; r++)
            if (tri_epochs_sample(&session->epochs, batch, session->step,
                                  row_number(session, session->dp_rank, m, rows, r), &sample))
                session->sampled(session->sampled_context, sample);
}

/* Those of a data-parallel rank. */
static void fill_train_rows(tri_session *session, int64_t step, int dp_rank)
{
    int64_t rows = tri_microbatch_rows(&session->config.compile);
    uint32_t num = session->programs[session->stepping].num_microbatches;
    for (uint32_t m = 0; m < num; m++) {
        for (int64_t r = 0; r < rows; r++)
            fill_train_row(session, step, m, r, row_number(session, dp_rank, m, rows, r));
        end_microbatch(session, session->stepping, m);
    }
}

void tri_fill_train_batch(tri_session *session)
{
    bool there = session->ahead == session->step && session->ahead_runs > 0 &&
                 session->ahead_runs == session->store.num_runs;
    if (!there)
        fill_train_rows(session, session->step, session->dp_rank);
    session->ahead_runs = 0;
    if (session->sampled)
        tell_samples(session);
}

void tri_fill_again(tri_session *session)
{
    tri_fill_rows_of(session, session->dp_rank);
}

void tri_fill_rows_of(tri_session *session, int dp_rank)
{
    fill_train_rows(session, session->step, dp_rank);
}

void tri_fill_step_inputs(tri_session *session, double lr)
{
    int32_t *step = tri_session_host(session, session->stepping, TRI_HOST_STEP, 0);
    float *apply = tri_session_host(session, session->stepping, TRI_HOST_APPLY, 0);
    const tri_program *program = &session->programs[session->stepping];
    const tri_step_rows *rows = &program->step_rows;
    uint32_t updates = program->num_updates > 0 ? program->num_updates : 1;
    uint32_t each = program->num_microbatches / updates; /* of several in a step: micro-batches */
    if (step)
        *step = (int32_t)session->step;
    if (apply)
        apply[TRI_RESULT_FACTOR] = apply[TRI_RESULT_OK] = apply[TRI_RESULT_SCALE] = 1;
    for (uint32_t m = 0; m < (apply ? program->num_microbatches : 1); m++) {
        float *sched = tri_session_host(session, session->stepping, TRI_HOST_SCHED, m);
        double done = (double)(session->step - session->skipped) * updates;
        tri_step_now now = {.step = session->step,
                            .lr = lr,
                            .nth = done + m / each + 1,
                            .loss_limit = (double)session->spikes.limit};
        for (size_t i = 0; i < rows->num; i++)
            sched[i] = (float)rows->row[i].value(&now, rows->row[i].constant);
    }
}

/* Rows that a caller makes are asked for when their step comes. */
void tri_fill_ahead(void *context)
{
    tri_session *session = context;
    if (session->row != tri_data_session_row)
        return;
    fill_train_rows(session, session->step + 1, session->dp_rank);
    session->ahead = session->step + 1;
    session->ahead_runs = session->store.num_runs;
}

bool tri_fill_eval_batch(tri_session *session, int64_t run)
{
    const tri_compile_config *config = &session->config.compile;
    int64_t rows = tri_microbatch_rows(config),
            total = session->config.eval_batches * config->batch;
    /* Each held-out row once at most. */
    if (session->data && total > tri_data_num_windows(session->data, TRI_SPLIT_EVAL))
        total = tri_data_num_windows(session->data, TRI_SPLIT_EVAL);
    int64_t per_run = rows * tri_mesh_size(&config->mesh, TRI_AXIS_DP);
    if (run * per_run >= total)
        return false;
    int64_t first = run * per_run + session->dp_rank * rows;
    for (int64_t r = 0; r < rows; r++) {
        tri_row row = number_row(session, TRI_PROGRAM_EVAL, 0, r, first + r);
        if (first + r < total || row.x)
            session->row(session->row_context, TRI_SPLIT_EVAL, (uint64_t)(first + r), &row);
        end_row(session, TRI_PROGRAM_EVAL, 0, r);
    }
    end_microbatch(session, TRI_PROGRAM_EVAL, 0);
    return true;
}

void tri_fill_prompt(tri_session *session, const tri_prompt *prompt)
{
    tri_row row = begin_row(session, TRI_PROGRAM_PREDICT, 0, 0);
    int32_t *number = tri_session_host(session, TRI_PROGRAM_PREDICT, TRI_HOST_ROWS, 0);
    int32_t *index = tri_session_host(session, TRI_PROGRAM_PREDICT, TRI_HOST_INDEX, 0);
    size_t length = (size_t)prompt->length;
    if (number)
        *number = 0;
    if (index)
        *index = (int32_t)prompt->index;
    memcpy(row.tokens, prompt->tokens, length * sizeof *row.tokens);
    if (row.types && prompt->types)
        memcpy(row.types, prompt->types, length * sizeof *row.types);
    for (int64_t t = prompt->length; row.docs && t < session->config.compile.seq_len; t++)
        row.docs[t] = -1; /* where attention looks ahead, it must not find padding */
}
