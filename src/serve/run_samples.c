#include "serve/run_samples.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "serve/sample.h"
#include "serve/vocabulary.h"
#include "train/run/run.h"

enum { VERSION = 1 };

/* What all ranks are told of the prompt: its tokens, and those that end a text. */
typedef struct sample_head {
    int32_t num_prompt, num_eos;
    int32_t eos[TRI_MAX_EOS];
} sample_head;

typedef struct samples {
    tri_vocabulary vocabulary; /* rank 0's */
    sample_head head;
    int32_t *tokens; /* the prompt, then what is written */
    int64_t *votes;  /* of each rank: the token that it would add, -1: it has no logits */
    void *scratch;
    int64_t vocab, num_tokens;
    int fd; /* of samples.jsonl, rank 0's */
    bool has_failed;
} samples;

/* ---- opening ---- */

static tr_status open_file(samples *s, const tri_run *r, tr_error *err)
{
    char *path;
    tr_status status = TR_OK;
    TRI_TRY(tri_run_in_dir(r, "samples.jsonl", &path, err));
    if (r->ckpt.continues)
        status = tri_jsonl_trim(path, r->ckpt.resumed.step, err);
    else if (unlink(path) != 0 && errno != ENOENT)
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be replaced: %s", path, strerror(errno));
    if (status == TR_OK)
        s->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (status == TR_OK && s->fd < 0)
        status =
            tri_fail(err, TR_ERROR_RUNTIME, "%s: cannot be written: %s", path, strerror(errno));
    free(path);
    return status;
}

/* Of a long prompt its end: a text goes on from as much as the model sees. */
static tr_status read_prompt(samples *s, const tri_run *r, tri_ids *ids, tr_error *err)
{
    const char *prompt = r->config.sampling.prompt;
    const int32_t first = 0;
    TRI_TRY(tri_vocabulary_open(r->config.dir, NULL, s->vocab, r->session->data != NULL,
                                &s->vocabulary, err));
    if (s->vocabulary.tokenizer)
        TRI_TRY(tri_vocabulary_prompt(&s->vocabulary, prompt, strlen(prompt), ids, err));
    else if (*prompt)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.sample_prompt is text, and the data has no tokenizer to read it with; "
                        "leave it out, or name data.tokenizer");
    else
        tri_ids_add(ids, &first, 1);
    int64_t most = r->session->config.compile.seq_len, num = (int64_t)ids->num;
    s->head.num_prompt = (int32_t)(num < most ? num : most);
    s->head.num_eos = s->vocabulary.num_eos;
    memcpy(s->head.eos, s->vocabulary.eos, sizeof s->head.eos);
    if (ids->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the tokens of a prompt");
    memcpy(s->tokens, ids->id + num - s->head.num_prompt,
           (size_t)s->head.num_prompt * sizeof *s->tokens);
    return TR_OK;
}

static tr_status begin(samples *s, tri_run *r, tr_error *err)
{
    const tri_compile_config *config = &r->session->config.compile;
    s->vocab = config->model.vocab;
    s->num_tokens = r->config.sampling.num_tokens;
    s->tokens = calloc((size_t)(config->seq_len + s->num_tokens), sizeof *s->tokens);
    s->votes = calloc((size_t)r->ranks.size, sizeof *s->votes);
    s->scratch = malloc(tri_sample_scratch_bytes(s->vocab));
    if (!s->tokens || !s->votes || !s->scratch)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for samples of text");
    if (r->ranks.rank == 0) {
        tri_ids ids = {0};
        tr_status status = read_prompt(s, r, &ids, err);
        tri_ids_fini(&ids);
        TRI_TRY(status);
        TRI_TRY(open_file(s, r, err));
    }
    if (r->ranks.size == 1)
        return TR_OK;
    tr_group *world = tr_comm_world(r->ranks.comm);
    TRI_TRY(tr_broadcast(world, &s->head, sizeof s->head / sizeof(int32_t), TR_I32, 0, err));
    return tr_broadcast(world, s->tokens, (uint64_t)s->head.num_prompt, TR_I32, 0, err);
}

static void close_samples(void *state)
{
    samples *s = state;
    if (!s)
        return;
    tri_vocabulary_close(&s->vocabulary);
    free(s->tokens);
    free(s->votes);
    free(s->scratch);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

static tr_status open_samples(tri_run *r, void **state, tr_error *err)
{
    samples *s = calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for samples of text");
    s->fd = -1;
    *state = s; /* whoever opened it closes it, also when this fails */
    return begin(s, r, err);
}

/* ---- writing a text ---- */

/* By every rank that has the logits whole: these are the same. */
static int64_t choose(samples *s, const tri_run *r, const float *logits, int64_t number)
{
    tri_id value = r->session->host[TRI_PROGRAM_PREDICT][TRI_HOST_LOGITS];
    const tri_program *program = &r->session->programs[TRI_PROGRAM_PREDICT];
    if (!logits || value == TRI_NONE || tri_shape_count(&program->values[value].shape) != s->vocab)
        return -1;
    tri_sampling sampling = {.temperature = r->config.sampling.temperature,
                             .top_p = 1,
                             .repetition_penalty = 1,
                             .seed = r->session->config.seed};
    return tri_sample(logits, s->vocab, &sampling, NULL, (uint32_t)r->session->step,
                      (uint64_t)number, s->scratch);
}

static tr_status next_token(samples *s, tri_run *r, int64_t length, int64_t number, int32_t *token,
                            tr_error *err)
{
    int64_t most = r->session->config.compile.seq_len, seen = length < most ? length : most;
    bool holds = r->session->host[TRI_PROGRAM_PREDICT][TRI_HOST_LOGITS] != TRI_NONE;
    const float *logits = tri_session_predict(r->session, s->tokens + length - seen, seen);
    if (!logits && holds)
        return tri_fail(err, TR_ERROR_RUNTIME, "another rank is gone");
    s->votes[0] = choose(s, r, logits, number);
    int64_t own = s->votes[0];
    if (r->ranks.size > 1)
        TRI_TRY(tr_all_gather(tr_comm_world(r->ranks.comm), &own, s->votes, 1, TR_I64, err));
    for (int i = 0; i < r->ranks.size; i++)
        if (s->votes[i] >= 0) {
            *token = (int32_t)s->votes[i];
            return TR_OK;
        }
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.sample_every: no rank of this layout has the logits whole; set "
                    "run.sample_every=0");
}

static bool ends(const samples *s, int32_t token)
{
    for (int i = 0; i < s->head.num_eos; i++)
        if (s->head.eos[i] == token)
            return true;
    return false;
}

/* ---- what is kept ---- */

/* JSON has no bytes that are no UTF-8; NULL: no memory. */
static json_t *text_of(const char *text, size_t num_bytes)
{
    tri_bytes valid = {0};
    for (size_t i = 0; i < num_bytes;) {
        char begin[5] = {0};
        uint32_t code;
        memcpy(begin, text + i, num_bytes - i < 4 ? num_bytes - i : 4);
        int length = text[i] ? tri_utf8_decode(begin, &code) : 1;
        if (length > 0)
            tri_bytes_add(&valid, text + i, (size_t)length);
        else
            tri_bytes_add_char(&valid, 0xFFFD);
        i += length > 0 ? (size_t)length : 1;
    }
    json_t *string = valid.failed ? NULL : json_stringn(valid.num ? valid.data : "", valid.num);
    tri_bytes_fini(&valid);
    return string;
}

static char *line_of(const samples *s, const tri_run *r, const tri_bytes *text, int64_t num)
{
    tri_json_begin();
    json_t *tokens = json_array(), *object = json_object();
    for (int64_t i = 0; i < num; i++)
        json_array_append_new(tokens, json_integer(s->tokens[s->head.num_prompt + i]));
    json_object_set_new(object, "step", json_integer(r->session->step));
    json_object_set_new(object, "prompt",
                        text_of(r->config.sampling.prompt, strlen(r->config.sampling.prompt)));
    if (s->vocabulary.tokenizer)
        json_object_set_new(object, "text", text_of(text->data, text->num));
    json_object_set_new(object, "tokens", tokens);
    json_object_set_new(object, "time", json_real(tri_unix_s()));
    json_object_set_new(object, "version", json_integer(VERSION));
    char *line = tri_json_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(13));
    size_t length = line ? strlen(line) : 0;
    char *whole = line ? realloc(line, length + 2) : NULL;
    if (whole)
        memcpy(whole + length, "\n", 2);
    else
        free(line);
    json_decref(object);
    return whole;
}

/* As with metrics, a full disk costs lines and one warning. */
static void keep(samples *s, const tri_run *r, const tri_bytes *text, int64_t num)
{
    char *line = line_of(s, r, text, num);
    size_t length = line ? strlen(line) : 0;
    ssize_t written = line ? write(s->fd, line, length) : -1;
    if (written != (ssize_t)length && !s->has_failed) {
        s->has_failed = true;
        tri_run_warn(r, false,
                     "%s/samples.jsonl: step %" PRId64 " cannot be written: %s; the run "
                     "goes on without",
                     r->config.dir, r->session->step,
                     !line         ? "no memory"
                     : written < 0 ? strerror(errno)
                                   : "no room");
    }
    free(line);
}

/* Numbers, where tokens have no text. */
static void spell(const samples *s, int64_t num, tri_bytes *text)
{
    for (int64_t i = 0; i < num; i++) {
        char number[16];
        int length = snprintf(number, sizeof number, "%s%d", i ? " " : "",
                              s->tokens[s->head.num_prompt + i]);
        tri_bytes_add(text, number, (size_t)length);
    }
}

/* A text that there is no memory for costs itself, and no step. */
static void show(samples *s, const tri_run *r, int64_t num)
{
    tri_bytes text = {0}, shown = {0};
    tr_error why = {0};
    tr_status status = TR_OK;
    if (s->vocabulary.tokenizer)
        status = tri_vocabulary_text(&s->vocabulary, s->tokens + s->head.num_prompt, (size_t)num,
                                     &text, &why);
    else
        spell(s, num, &text);
    for (size_t i = 0; i < text.num; i++) /* a string has no zeros in it */
        tri_bytes_add(&shown, text.data[i] ? &text.data[i] : "\\0", text.data[i] ? 1 : 2);
    tri_bytes_add(&shown, "", 1);
    if (status != TR_OK || text.failed || shown.failed) {
        tri_run_warn(r, false, "step %" PRId64 ": the text that the model wrote is lost: %s",
                     r->session->step, why.message[0] ? why.message : "no memory");
    } else {
        keep(s, r, &text, num);
        tri_run_tell(r, (tri_run_news){.moment = TRI_RUN_SAMPLED,
                                       .step = &(tr_step){.step = r->session->step},
                                       .text = shown.data});
    }
    tri_bytes_fini(&shown);
    tri_bytes_fini(&text);
}

static tr_status take(tri_run *r, void *state, tr_error *err)
{
    samples *s = state;
    int64_t length = s->head.num_prompt, num = 0;
    for (bool more = true; more && num < s->num_tokens; num++) {
        int32_t token = -1;
        TRI_TRY(next_token(s, r, length + num, num, &token, err));
        s->tokens[length + num] = token;
        more = !ends(s, token);
    }
    if (r->ranks.rank == 0)
        show(s, r, num);
    return TR_OK;
}

const tri_run_sampler tri_run_samples = {open_samples, take, close_samples};
