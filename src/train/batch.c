#include "train/batch.h"

#include <string.h>

#include "base/rng.h"

bool tri_session_has_sequences(const tri_session *session)
{
    return tri_model_find(session->config.compile.model.kind)->sequences;
}

void tri_data_session_row(void *context, tri_split split, uint64_t sample, int32_t *tokens,
                          int32_t *targets, float *x, float *target)
{
    (void)x;
    (void)target;
    const tri_session *session = context;
    tri_data_row(session->data, split, sample, tokens, targets);
}

/* Vectors for models without tokens: x is normal, and the target is x turned by one place and
 * halved, which a small network can learn. */
void tri_vector_row(void *context, tri_split split, uint64_t sample, int32_t *tokens,
                    int32_t *targets, float *x, float *target)
{
    (void)tokens;
    (void)targets;
    const tri_session *session = context;
    int64_t dim = session->config.compile.model.dim;
    uint32_t stream = tri_stream("data", split == TRI_SPLIT_TRAIN ? "train" : "eval");
    tri_random_normal(session->config.seed, sample * (uint64_t)dim, (uint64_t)dim, 0, stream, x);
    for (int64_t i = 0; i < dim; i++)
        target[i] = 0.5f * x[(i + 1) % dim];
}

void *tri_session_host(const tri_session *session, int program, tri_host_value name,
                       uint32_t microbatch)
{
    tri_id value = session->host[program][name];
    if (value == TRI_NONE)
        return NULL;
    return tri_executor_memory(&session->executors[program], value, microbatch);
}

/* One row of a micro-batch; rows past the end of the batch are padding without targets. */
static void fill_row(tri_session *session, int program, tri_split split, uint32_t microbatch,
                     int64_t row, uint64_t sample, bool real)
{
    int64_t length = session->config.compile.seq_len, dim = session->config.compile.model.dim;
    if (!tri_session_has_sequences(session)) {
        float *x = tri_session_host(session, program, TRI_HOST_X, microbatch);
        float *target = tri_session_host(session, program, TRI_HOST_TARGET, microbatch);
        session->row(session->row_context, split, sample, NULL, NULL, x + row * dim,
                     target + row * dim);
        return;
    }
    int32_t *tokens =
        (int32_t *)tri_session_host(session, program, TRI_HOST_TOKENS, microbatch) + row * length;
    int32_t *targets =
        (int32_t *)tri_session_host(session, program, TRI_HOST_TARGETS, microbatch) + row * length;
    if (real) {
        session->row(session->row_context, split, sample, tokens, targets, NULL, NULL);
        return;
    }
    for (int64_t t = 0; t < length; t++) {
        tokens[t] = 0;
        targets[t] = -1;
    }
}

static void fill_positions(tri_session *session, int program, uint32_t microbatch, int64_t rows,
                           int64_t first_row)
{
    int64_t length = session->config.compile.seq_len;
    int32_t *positions = tri_session_host(session, program, TRI_HOST_POSITIONS, microbatch);
    int32_t *numbers = tri_session_host(session, program, TRI_HOST_ROWS, microbatch);
    for (int64_t r = 0; positions && r < rows; r++) {
        for (int64_t t = 0; t < length; t++)
            positions[r * length + t] = (int32_t)t;
        numbers[r] = (int32_t)(first_row + r);
    }
}

/* Rows [first_row, ...) of a batch of num_rows, into one micro-batch; sample 0 of the batch is
 * first_sample. */
static void fill_rows(tri_session *session, int program, tri_split split, uint32_t microbatch,
                      int64_t first_row, uint64_t first_sample, int64_t num_rows)
{
    int64_t rows = tri_microbatch_rows(&session->config.compile);
    fill_positions(session, program, microbatch, rows, first_row);
    for (int64_t r = 0; r < rows; r++)
        fill_row(session, program, split, microbatch, r, first_sample + (uint64_t)(first_row + r),
                 first_row + r < num_rows);
}

void tri_fill_train_batch(tri_session *session)
{
    int64_t rows = tri_microbatch_rows(&session->config.compile);
    int64_t batch = session->config.compile.batch;
    uint32_t num = session->programs[TRI_PROGRAM_TRAIN].num_microbatches;
    for (uint32_t m = 0; m < num; m++)
        fill_rows(session, TRI_PROGRAM_TRAIN, TRI_SPLIT_TRAIN, m,
                  ((int64_t)session->dp_rank * num + m) * rows,
                  (uint64_t)session->step * (uint64_t)batch, batch);
}

bool tri_fill_eval_batch(tri_session *session, int64_t run)
{
    const tri_compile_config *config = &session->config.compile;
    int64_t rows = tri_microbatch_rows(config),
            total = session->config.eval_batches * config->batch;
    int64_t per_run = rows * tri_mesh_size(&config->mesh, TRI_AXIS_DP);
    if (run * per_run >= total)
        return false;
    fill_rows(session, TRI_PROGRAM_EVAL, TRI_SPLIT_EVAL, 0, run * per_run + session->dp_rank * rows,
              0, total);
    return true;
}

void tri_fill_prompt(tri_session *session, const int32_t *tokens, int64_t length)
{
    int32_t *window = tri_session_host(session, TRI_PROGRAM_PREDICT, TRI_HOST_TOKENS, 0);
    int32_t *index = tri_session_host(session, TRI_PROGRAM_PREDICT, TRI_HOST_INDEX, 0);
    fill_positions(session, TRI_PROGRAM_PREDICT, 0, 1, 0);
    memset(window, 0, (size_t)session->config.compile.seq_len * sizeof *window);
    memcpy(window, tokens, (size_t)length * sizeof *window);
    *index = (int32_t)length - 1;
}
