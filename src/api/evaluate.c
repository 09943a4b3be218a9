#include "api/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/batch.h"
#include "train/nonfinite.h"
#include "train/step_stats.h"

/* ---- counting text ---- */

static int64_t characters_of(const char *text, size_t num_bytes)
{
    int64_t count = 0;
    for (const char *at = text, *end = text + num_bytes; at < end; count++)
        tri_utf8_next(&at, end);
    return count;
}

/* Bytes and characters that tokens stand for. */
static tr_status count_text(const tri_vocabulary *vocabulary, const int32_t *ids, size_t num,
                            int64_t *num_bytes, int64_t *num_characters, tr_error *err)
{
    tri_bytes text = {0};
    tr_status status = tri_vocabulary_text(vocabulary, ids, num, &text, err);
    *num_bytes = (int64_t)text.num;
    *num_characters = text.num ? characters_of(text.data, text.num) : 0;
    tri_bytes_fini(&text);
    return status;
}

/* ---- running ---- */

/* Runs the evaluation program over rows [0, num_rows) and adds up. */
static tr_status run_rows(tr_session *session, int64_t num_rows, tri_evaluation *evaluation,
                          tr_error *err)
{
    tri_session *s = &session->session;
    int64_t batch = s->config.compile.batch;
    s->config.eval_batches = (num_rows + batch - 1) / batch;
    evaluation->num_windows = num_rows;
    double start = tri_now_s();
    tri_eval_stats stats = tri_eval_stats_begin(s);
    for (int64_t run = 0; tri_fill_eval_batch(s, run); run++) {
        TRI_TRY(tri_executor_run(&s->executors[TRI_PROGRAM_EVAL], err));
        tri_eval_stats_join(&stats, s);
    }
    evaluation->loss = tri_eval_stats_of(&stats, TRI_STAT_LOSS);
    evaluation->num_targets = tri_eval_stats_of(&stats, TRI_STAT_COUNT);
    double right = tri_eval_stats_of(&stats, TRI_STAT_HITS);
    evaluation->num_right = isnan(right) ? -1 : right;
    evaluation->seconds = tri_now_s() - start;
    if (!isfinite(evaluation->loss))
        return tri_nonfinite_fail(s, "the losses", err);
    return TR_OK;
}

static tr_status start(tr_settings *settings, tri_row_fn row, void *context, tr_session **session,
                       tr_error *err)
{
    TRI_TRY(tri_api_compile_programs(settings, 0, 1 << TRI_PROGRAM_EVAL, NULL, session, err));
    (*session)->session.row = row;
    (*session)->session.row_context = context;
    tr_status status = tri_api_start(*session, err);
    if (status != TR_OK) {
        tr_session_destroy(*session);
        *session = NULL;
    }
    return status;
}

/* ---- a text ---- */

typedef struct text_rows {
    const int32_t *ids;
    int64_t num_ids, seq_len, stride, num_rows;
} text_rows;

/* Window number `sample` predicts the tokens up to its end that the one before it did not. */
static void text_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    (void)split;
    const text_rows *t = context;
    int64_t number = (int64_t)sample, begin = number * t->stride;
    if (number >= t->num_rows)
        return;
    int64_t known = number == 0 ? 0 : begin - t->stride + t->seq_len; /* the last one predicted */
    for (int64_t i = 0; i < t->seq_len && begin + i < t->num_ids; i++) {
        int64_t target = begin + i + 1;
        row->tokens[i] = t->ids[begin + i];
        row->targets[i] = target < t->num_ids && target > known ? t->ids[target] : -1;
    }
}

/* The tokens of a text, after the one that begins texts where the tokenizer puts one. */
static tr_status encode(const tri_vocabulary *vocabulary, const char *text, size_t num_bytes,
                        tri_ids *ids, tr_error *err)
{
    tri_ids empty = {0};
    int32_t bos = tri_tokenizer_special(vocabulary->tokenizer, TRI_SPECIAL_BOS);
    TRI_TRY(
        tri_tokenizer_encode(vocabulary->tokenizer, NULL, "", 0, TRI_ENCODE_SPECIAL, &empty, err));
    if (empty.num > 0 && empty.id[0] == bos)
        tri_ids_add(ids, &bos, 1);
    tri_ids_fini(&empty);
    TRI_TRY(tri_tokenizer_encode(vocabulary->tokenizer, NULL, text, num_bytes, TRI_ENCODE_PLAIN,
                                 ids, err));
    for (size_t i = 0; i < ids->num; i++)
        if (ids->id[i] >= vocabulary->num_tokens)
            return tri_fail(err, TR_ERROR_INPUT,
                            "the text has the token %d, but model.vocab is %lld: the tokenizer is "
                            "not that of the model",
                            ids->id[i], (long long)vocabulary->num_tokens);
    if (ids->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the tokens of the text");
    if (ids->num < 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the text has %zu token%s; there is nothing to predict", ids->num,
                        ids->num == 1 ? "" : "s");
    return TR_OK;
}

static tr_status evaluate_ids(tr_settings *settings, const tri_ids *ids, int64_t stride,
                              tri_evaluation *evaluation, tr_error *err)
{
    text_rows rows = {.ids = ids->id, .num_ids = (int64_t)ids->num};
    tr_session *session;
    TRI_TRY(start(settings, text_row, &rows, &session, err));
    rows.seq_len = session->session.config.compile.seq_len;
    rows.stride = stride > 0 ? stride : rows.seq_len;
    tr_status status = TR_OK;
    if (rows.stride > rows.seq_len)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "the stride is %lld, but windows have %lld tokens (data.seq_len): those "
                          "between would be left out",
                          (long long)rows.stride, (long long)rows.seq_len);
    /* Window k ends with target k * stride + seq_len; the last target is num_ids - 1. */
    int64_t beyond = rows.num_ids - 1 - rows.seq_len;
    rows.num_rows = 1 + (beyond > 0 ? (beyond + rows.stride - 1) / rows.stride : 0);
    if (status == TR_OK)
        status = run_rows(session, rows.num_rows, evaluation, err);
    tr_session_destroy(session);
    return status;
}

tr_status tri_api_evaluate_text(tr_settings *settings, const tri_vocabulary *vocabulary,
                                const char *text, size_t num_bytes, int64_t stride,
                                tri_evaluation *evaluation, tr_error *err)
{
    *evaluation = (tri_evaluation){0};
    tri_ids ids = {0};
    int64_t first_bytes = 0, first_characters = 0;
    tr_status status = encode(vocabulary, text, num_bytes, &ids, err);
    if (status == TR_OK) /* the first token is not predicted */
        status = count_text(vocabulary, ids.id, 1, &first_bytes, &first_characters, err);
    evaluation->num_bytes = (int64_t)num_bytes - first_bytes;
    evaluation->num_characters = characters_of(text, num_bytes) - first_characters;
    if (status == TR_OK)
        status = evaluate_ids(settings, &ids, stride, evaluation, err);
    tri_ids_fini(&ids);
    return status;
}

/* ---- held-out rows ---- */

typedef struct held_out {
    const tri_data *data;
    uint64_t num_rows;
    bool keep;       /* the targets, to see what text they are */
    tri_ids targets; /* in order */
} held_out;

static void held_out_row(void *context, tri_split split, uint64_t sample, const tri_row *row)
{
    held_out *h = context;
    if (sample >= h->num_rows)
        return;
    tri_data_row(h->data, split, sample, row);
    for (int64_t i = 0; h->keep && row->targets && i < row->num_targets; i++)
        if (row->targets[i] >= 0)
            tri_ids_add(&h->targets, &row->targets[i], 1);
}

static tr_status evaluate_rows(tr_settings *settings, const tri_session_config *config, held_out *h,
                               tri_evaluation *evaluation, tr_error *err)
{
    int64_t windows = tri_data_num_windows(h->data, TRI_SPLIT_EVAL);
    if (windows == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "no data is held out: data.eval_fraction is 0; give a text with --data "
                        "FILE, or raise it");
    h->num_rows = (uint64_t)windows;
    if (windows == TRI_DATA_ENDLESS)
        h->num_rows = (uint64_t)(config->eval_batches * config->compile.batch);
    tr_session *session;
    TRI_TRY(start(settings, held_out_row, h, &session, err));
    tr_status status = run_rows(session, (int64_t)h->num_rows, evaluation, err);
    tr_session_destroy(session);
    return status;
}

tr_status tri_api_evaluate_held_out(tr_settings *settings, const tri_vocabulary *vocabulary,
                                    tri_evaluation *evaluation, tr_error *err)
{
    *evaluation = (tri_evaluation){.num_bytes = -1, .num_characters = -1};
    tri_session_config config;
    TRI_TRY(tri_settings_complete(settings, err));
    TRI_TRY(tri_session_config_from(settings, &config, err));
    if (!tri_model_of(&config.compile.model)->sequences)
        return tri_fail(err, TR_ERROR_INPUT, "model.kind %s has no text to predict",
                        config.compile.model.kind);
    bool generates = tri_model_generates(&config.compile.model);
    bool text = generates && vocabulary->tokenizer && strcmp(config.data.source, "synthetic") != 0;
    tri_data *data;
    TRI_TRY(tri_data_open(&config.data, &data, err));
    held_out h = {.data = data, .keep = text};
    tr_status status = evaluate_rows(settings, &config, &h, evaluation, err);
    if (status == TR_OK && text && !h.targets.failed)
        status = count_text(vocabulary, h.targets.id, h.targets.num, &evaluation->num_bytes,
                            &evaluation->num_characters, err);
    tri_ids_fini(&h.targets);
    tri_data_close(data);
    return status;
}
