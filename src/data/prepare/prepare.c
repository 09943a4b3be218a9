/* The pipeline. Three batches of units go round:
 *
 *     read into one  |  encode another, unit by unit  |  write the third
 *
 * and all of it is one job of the thread pool: task 0 reads, task 1 writes, the others encode. What
 * is written depends on the order of the units alone. */
#include "data/prepare/prepare.h"
#include "base/checksum.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/staged_dir.h"
#include "data/prepare/prepare_sink.h"
#include "data/prepare/texts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN_BATCH_UNITS = 16, DEFAULT_SHARD_TOKENS = 100 * 1000 * 1000 };

typedef struct work_unit {
    tri_unit unit;
    tri_ids ids; /* of its pieces, one after the other, separators included */
    uint64_t text_bytes;
    tr_status status;
    tr_error err;
} work_unit;

typedef struct batch {
    work_unit *unit;
    int num;
} batch;

typedef struct pipeline {
    const tri_prepare_config *config;
    const tri_tokenizer *tokenizer;
    tri_texts *texts;
    tri_sink sink;
    tri_prepare_result *result;
    batch batch[3];
    int batch_units;
    int round;
    int32_t separator;
    tr_status read_status, write_status;
    tr_error read_err, write_err;
} pipeline;

int32_t tri_usual_separator(const tri_tokenizer *tokenizer)
{
    int32_t eos = tri_tokenizer_special(tokenizer, TRI_SPECIAL_EOS);
    return eos >= 0 ? eos : tri_tokenizer_special(tokenizer, TRI_SPECIAL_SEP);
}

/* Documents fall into strata of about 1/split each; of each stratum one is drawn. */
bool tri_prepare_held_out(double split, uint64_t document)
{
    if (!(split > 0))
        return false;
    uint64_t about = (uint64_t)((double)document * split);
    for (uint64_t k = about > 0 ? about - 1 : 0; k <= about + 1; k++) {
        uint64_t begin = (uint64_t)ceil((double)k / split);
        uint64_t end = (uint64_t)ceil((double)(k + 1) / split);
        if (document < begin || document >= end)
            continue;
        uint32_t word[4];
        tri_philox(0, k, 0, tri_stream("data", "split"), word);
        return document == begin + word[0] % (end - begin);
    }
    return false;
}

/* ---- the three kinds of task ---- */

static batch *batch_at(pipeline *p, int stage)
{
    return &p->batch[(p->round + 3 - stage) % 3];
}

static void read_batch(pipeline *p)
{
    batch *b = batch_at(p, 0);
    b->num = 0;
    while (p->read_status == TR_OK && b->num < p->batch_units) {
        work_unit *unit = &b->unit[b->num];
        p->read_status = tri_texts_next(p->texts, &unit->unit, &p->read_err);
        if (p->read_status != TR_OK || unit->unit.num == 0)
            break;
        b->num++;
    }
}

static tr_status encode_piece(const pipeline *p, work_unit *w, tri_text_piece *piece, tr_error *err)
{
    const char *text;
    size_t num, before = w->ids.num;
    json_t *object;
    unsigned flags =
        (piece->continues ? TRI_ENCODE_CONTINUE : 0u) | (p->config->plain ? TRI_ENCODE_PLAIN : 0u);
    tr_status status = tri_unit_text(&w->unit, piece, p->config->field ? p->config->field : "text",
                                     &text, &num, &object, err);
    if (status == TR_OK) {
        status = tri_tokenizer_encode(p->tokenizer, NULL, text, num, flags, &w->ids, err);
        if (status != TR_OK)
            tri_fail_prefix(err, status, piece->line ? "%s, line %lld" : "%s", w->unit.path,
                            (long long)piece->line);
    }
    json_decref(object);
    TRI_TRY(status);
    w->text_bytes += num;
    if (piece->ends && p->separator >= 0 && (piece->continues || w->ids.num > before))
        tri_ids_add(&w->ids, &p->separator, 1);
    piece->num_ids = w->ids.num - before;
    return w->ids.failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", w->unit.path)
                         : TR_OK;
}

static void encode_unit(const pipeline *p, work_unit *w)
{
    w->ids.num = w->text_bytes = 0;
    w->status = TR_OK;
    for (size_t i = 0; w->status == TR_OK && i < w->unit.num; i++)
        w->status = encode_piece(p, w, &w->unit.piece[i], &w->err);
}

static tr_status write_unit(pipeline *p, const work_unit *w, tr_error *err)
{
    if (w->status != TR_OK) {
        *err = w->err;
        return w->status;
    }
    size_t at = 0;
    for (size_t i = 0; i < w->unit.num; i++) {
        const tri_text_piece *piece = &w->unit.piece[i];
        tri_split split = tri_prepare_held_out(p->config->split, piece->document) ? TRI_SPLIT_EVAL
                                                                                  : TRI_SPLIT_TRAIN;
        TRI_TRY(tri_sink_write(&p->sink, split, w->ids.id + at, piece->num_ids, err));
        at += piece->num_ids;
        p->result->documents[split] += piece->ends && (piece->continues || piece->num_ids > 0);
    }
    p->result->text_bytes += w->text_bytes;
    return TR_OK;
}

static void write_batch(pipeline *p)
{
    batch *b = batch_at(p, 2);
    for (int i = 0; p->write_status == TR_OK && i < b->num; i++)
        p->write_status = write_unit(p, &b->unit[i], &p->write_err);
    b->num = 0;
}

static void run_task(void *context, int task, int worker)
{
    pipeline *p = context;
    (void)worker;
    if (task == 0)
        read_batch(p);
    else if (task == 1)
        write_batch(p);
    else
        encode_unit(p, &batch_at(p, 1)->unit[task - 2]);
}

/* ---- the whole ---- */

static void report(const pipeline *p)
{
    if (!p->config->progress)
        return;
    uint64_t tokens = 0;
    for (int s = 0; s < 2; s++)
        tokens += p->result->tokens[s] + p->sink.writer[s].num_tokens;
    tri_prepare_progress now = {NULL, tri_texts_consumed(p->texts), tri_texts_total(p->texts),
                                p->result->text_bytes, tokens};
    p->config->progress(p->config->context, &now);
}

static tr_status run(pipeline *p, tri_pool *pool, tr_error *err)
{
    bool more = true;
    for (p->round = 0; more && p->write_status == TR_OK; p->round++) {
        tri_pool_run(pool, 2 + batch_at(p, 1)->num, run_task, p);
        report(p);
        more = batch_at(p, 0)->num > 0 || batch_at(p, 1)->num > 0;
    }
    /* What was read before the failure has been written: the first error in the text counts. */
    tr_status status = p->write_status != TR_OK ? p->write_status : p->read_status;
    if (status != TR_OK && err)
        *err = p->write_status != TR_OK ? p->write_err : p->read_err;
    return status != TR_OK ? status : tri_sink_end(&p->sink, err);
}

static tr_status check_result(const pipeline *p, tr_error *err)
{
    const tri_prepare_result *r = p->result;
    if (r->tokens[TRI_SPLIT_TRAIN] > 0)
        return TR_OK;
    if (r->tokens[TRI_SPLIT_EVAL] > 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: all %" PRIu64 " documents were held out for evaluation, and none is "
                        "left to train on; lower --split",
                        p->config->inputs[0], r->documents[TRI_SPLIT_EVAL]);
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: holds no text; name files with something to learn from",
                    p->config->inputs[0]);
}

static tr_status write_manifest(const pipeline *p, uint64_t fingerprint, tr_error *err)
{
    const tri_prepare_result *r = p->result;
    char made_from[24], tokenizer[24], described[160];
    snprintf(made_from, sizeof made_from, "%016" PRIx64, fingerprint);
    snprintf(tokenizer, sizeof tokenizer, "%016" PRIx64, p->sink.fingerprint);
    tri_json_begin();
    json_t *sources = json_array(), *root = NULL;
    for (uint64_t i = 0; i < tri_texts_num_files(p->texts); i++) /* a name may be no UTF-8 */
        json_array_append_new(sources, json_string(tri_texts_file(p->texts, i)));
    root = json_pack(
        "{s:s, s:i, s:s, s:{s:s, s:s, s:i}, s:i, s:f, s:s, s:o, s:I, s:{s:I,s:I,s:O}, "
        "s:{s:I,s:I,s:O}}",
        "format", "trireme tokens", "version", 1, "fingerprint", made_from, "tokenizer", "kind",
        tri_tokenizer_describe(p->tokenizer, described, sizeof described), "fingerprint", tokenizer,
        "vocab", (int)tri_tokenizer_vocab(p->tokenizer), "separator", (int)p->separator, "split",
        p->config->split, "field", p->config->field ? p->config->field : "text", "sources", sources,
        "text_bytes", (json_int_t)r->text_bytes, "train", "tokens", (json_int_t)r->tokens[0],
        "documents", (json_int_t)r->documents[0], "shards", p->sink.names[0], "eval", "tokens",
        (json_int_t)r->tokens[1], "documents", (json_int_t)r->documents[1], "shards",
        p->sink.names[1]);
    char *text = tri_json_dump(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    char *path = tri_path_join(p->sink.dir, TRI_PREPARED_MANIFEST);
    tr_status status = text && path
                           ? tri_file_replace(path, text, strlen(text), err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", p->config->out);
    json_decref(root);
    free(text);
    free(path);
    return status;
}

static tr_status open_batches(pipeline *p, const tri_pool *pool, tr_error *err)
{
    int threads = pool ? tri_pool_threads(pool) : 1;
    p->batch_units = 4 * threads > MIN_BATCH_UNITS ? 4 * threads : MIN_BATCH_UNITS;
    for (int i = 0; i < 3; i++) {
        p->batch[i].unit = calloc((size_t)p->batch_units, sizeof *p->batch[i].unit);
        if (!p->batch[i].unit)
            return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", p->config->out);
    }
    return TR_OK;
}

static void close_pipeline(pipeline *p)
{
    for (int i = 0; i < 3; i++) {
        for (int u = 0; p->batch[i].unit && u < p->batch_units; u++) {
            tri_unit_fini(&p->batch[i].unit[u].unit);
            tri_ids_fini(&p->batch[i].unit[u].ids);
        }
        free(p->batch[i].unit);
    }
    tri_sink_fini(&p->sink);
    tri_texts_close(p->texts);
}

static tr_status check_config(const tri_prepare_config *c, int32_t vocab, tr_error *err)
{
    if (c->num_inputs < 1)
        return tri_fail(err, TR_ERROR_INPUT, "no text was named: give files or directories");
    if (!(c->split >= 0 && c->split < 1))
        return tri_fail(err, TR_ERROR_INPUT, "the split is %g; it must be at least 0 and below 1",
                        c->split);
    if (c->separator >= vocab)
        return tri_fail(err, TR_ERROR_INPUT,
                        "the separator is %d, but the tokenizer has %d tokens; use one of them",
                        c->separator, vocab);
    return TR_OK;
}

tr_status tri_prepare(const tri_prepare_config *config, const tri_tokenizer *tokenizer,
                      tri_pool *pool, tri_prepare_result *result, tr_error *err)
{
    pipeline p = {.config = config, .tokenizer = tokenizer, .result = result};
    tri_staged_dir staged;
    uint64_t made_from = config->made_from, of_tokenizer;
    *result = (tri_prepare_result){0};
    p.separator = config->separator == TRI_SEPARATOR_USUAL ? tri_usual_separator(tokenizer)
                                                           : config->separator;
    TRI_TRY(check_config(config, tri_tokenizer_vocab(tokenizer), err));
    if (made_from == 0)
        TRI_TRY(tri_prepare_fingerprint(config, tokenizer, NULL, &made_from, err));
    TRI_TRY(tri_tokenizer_fingerprint(tokenizer, &of_tokenizer, err));
    TRI_TRY(tri_staged_begin(&staged, config->out, config->force, TRI_PREPARED_MANIFEST, err));
    p.sink = (tri_sink){.dir = staged.temp,
                        .shard_tokens =
                            config->shard_tokens > 0 ? config->shard_tokens : DEFAULT_SHARD_TOKENS,
                        .vocab = tri_tokenizer_vocab(tokenizer),
                        .separator = p.separator,
                        .fingerprint = of_tokenizer,
                        .result = result};
    tr_status status = tri_sink_init(&p.sink, err);
    if (status == TR_OK)
        status = tri_texts_open(config->inputs, config->num_inputs, tokenizer, &p.texts, err);
    if (status == TR_OK)
        status = open_batches(&p, pool, err);
    if (status == TR_OK)
        status = run(&p, pool, err);
    if (status == TR_OK)
        status = check_result(&p, err);
    if (status == TR_OK)
        status = tri_tokenizer_save_dir(tokenizer, staged.temp, err);
    if (status == TR_OK)
        status = write_manifest(&p, made_from, err);
    if (status == TR_OK) {
        result->num_files = tri_texts_num_files(p.texts);
        status = tri_staged_commit(&staged, err);
    }
    close_pipeline(&p);
    tri_staged_abort(&staged);
    return status;
}

/* ---- what it depends on ---- */

tr_status tri_prepare_fingerprint(const tri_prepare_config *config, const tri_tokenizer *tokenizer,
                                  const char *name, uint64_t *fingerprint, tr_error *err)
{
    tri_texts *texts;
    uint64_t of_tokenizer = 0;
    if (tokenizer)
        TRI_TRY(tri_tokenizer_fingerprint(tokenizer, &of_tokenizer, err));
    TRI_TRY(tri_texts_open(config->inputs, config->num_inputs, tokenizer, &texts, err));
    bool usual = config->separator == TRI_SEPARATOR_USUAL && tokenizer;
    int32_t separator = usual ? tri_usual_separator(tokenizer) : config->separator;
    uint64_t parts[] = {tri_texts_fingerprint(texts),
                        tokenizer ? of_tokenizer : tri_checksum_bytes(name, strlen(name)),
                        (uint64_t)separator,
                        (uint64_t)(config->split * 0x1p32),
                        config->plain,
                        TRI_SHARD_VERSION};
    const char *field = config->field ? config->field : "text";
    tri_checksum hash;
    tri_checksum_init(&hash);
    tri_checksum_add(&hash, parts, sizeof parts);
    tri_checksum_add(&hash, field, strlen(field));
    *fingerprint = tri_checksum_end(&hash);
    tri_texts_close(texts);
    return TR_OK;
}
