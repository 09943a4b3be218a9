#include "serve/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/batch.h"
#include "train/nonfinite.h"

/* A block of at least this many queries is computed in one way whatever its size, so that the cut
 * of a prompt into blocks changes no bit of it (device/cpu/fast/cache.c). */
enum { LEAST_BLOCK = 32, PREFILL_TOKENS = 512 };

/* One text that is being made. */
typedef struct slot {
    bool active;
    size_t request;
    int32_t *text; /* prompt, then what was made */
    int64_t length, num_new;
    int64_t start;  /* where in the text position 0 is */
    int64_t cached; /* positions that are in the cache */
    int64_t given;  /* of those, the ones that prefill puts there */
    uint8_t *seen;  /* which tokens occur in it */
} slot;

typedef struct engine {
    tri_session *session;
    const tri_text_request *requests;
    size_t num_requests, next; /* to be given a slot */
    const tri_sampling *sampling;
    tri_token_fn out;
    void *context;
    int64_t vocab, rows, limit; /* limit: positions of a text, before it starts again */
    slot *slots;
    void *scratch;
    tri_generate_stats stats;
} engine;

tri_generate_shape tri_generate_plan(const tri_model_config *model, int64_t rows, int64_t block,
                                     int64_t longest_prompt, int64_t longest_text)
{
    tri_generate_shape shape = {.rows = rows > 0 ? rows : 1, .len = longest_text, .block = block};
    int64_t whole = (longest_prompt + LEAST_BLOCK - 1) / LEAST_BLOCK * LEAST_BLOCK;
    if (shape.block > whole)
        shape.block = whole;
    if (shape.block < LEAST_BLOCK)
        shape.block = LEAST_BLOCK;
    int64_t most = model->window > 0 ? model->window + shape.block - 1 : model->positions;
    if (shape.len > most)
        shape.len = most;
    if (shape.len < 1)
        shape.len = 1;
    shape.prefill_rows = PREFILL_TOKENS / shape.block;
    if (shape.prefill_rows < 1)
        shape.prefill_rows = 1;
    if (shape.prefill_rows > shape.rows)
        shape.prefill_rows = shape.rows;
    return shape;
}

/* The last half of what there is room for, when there is no room for more. */
static void make_room(engine *e, slot *s)
{
    if (s->length - s->start <= e->limit)
        return;
    s->start = s->length - (e->limit + 1) / 2;
    s->cached = 0;
    s->given = s->length - s->start;
    e->stats.num_restarts++;
}

static tr_status fill_slot(engine *e, slot *s, tr_error *err)
{
    const tri_text_request *request = &e->requests[e->next];
    size_t most = (size_t)(request->prompt_length + request->max_tokens);
    int32_t *text = realloc(s->text, most * sizeof *text);
    if (!text)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a text of %zu tokens", most);
    memcpy(text, request->prompt, (size_t)request->prompt_length * sizeof *text);
    *s = (slot){.active = request->max_tokens > 0,
                .request = e->next++,
                .text = text,
                .length = request->prompt_length,
                .given = request->prompt_length,
                .seen = s->seen};
    memset(s->seen, 0, (size_t)e->vocab);
    for (int64_t i = 0; i < s->length; i++) {
        if (text[i] < 0 || text[i] >= e->vocab)
            return tri_fail(err, TR_ERROR_INPUT,
                            "the prompt has the token %d, but the model's vocabulary has %lld",
                            text[i], (long long)e->vocab);
        s->seen[text[i]] = 1;
    }
    e->stats.prompt_tokens += s->length;
    make_room(e, s);
    return TR_OK;
}

static bool are_numbers(const float *logits, int64_t vocab)
{
    bool all = true;
    for (int64_t v = 0; v < vocab; v++)
        all = all && logits[v] < INFINITY;
    return all;
}

/* The next token of a text, by its logits. */
static tr_status take(engine *e, slot *s, const float *logits, tr_error *err)
{
    if (!are_numbers(logits, e->vocab))
        return tri_nonfinite_fail(e->session, "the logits of the next token", err);
    double start = tri_now_s();
    int32_t token = tri_sample(logits, e->vocab, e->sampling, s->seen, (uint32_t)s->request,
                               (uint64_t)s->num_new, e->scratch);
    e->stats.sample_s += tri_now_s() - start;
    s->text[s->length++] = token;
    s->seen[token] = 1;
    s->num_new++;
    e->stats.new_tokens++;
    bool more = e->out(e->context, s->request, token);
    s->active = more && s->num_new < e->requests[s->request].max_tokens;
    if (s->active)
        make_room(e, s);
    return TR_OK;
}

static bool wants_prefill(const slot *s)
{
    return s->active && s->cached < s->given;
}

/* One run of prefill: the next block of each of the first texts that have one. Returns how many. */
static int64_t prefill(engine *e, tr_error *err, tr_status *status)
{
    const tri_generate_shape *shape = &e->session->config.generate;
    int32_t *tokens = tri_session_host(e->session, TRI_PROGRAM_PREFILL, TRI_HOST_TOKENS, 0);
    int32_t *positions = tri_session_host(e->session, TRI_PROGRAM_PREFILL, TRI_HOST_POSITIONS, 0);
    int32_t *rows = tri_session_host(e->session, TRI_PROGRAM_PREFILL, TRI_HOST_ROWS, 0);
    int32_t *index = tri_session_host(e->session, TRI_PROGRAM_PREFILL, TRI_HOST_INDEX, 0);
    int64_t count = 0, which[PREFILL_TOKENS / LEAST_BLOCK];
    memset(tokens, 0, (size_t)(shape->prefill_rows * shape->block) * sizeof *tokens);
    memset(positions, 0xff, (size_t)(shape->prefill_rows * shape->block) * sizeof *positions);
    memset(index, 0, (size_t)shape->prefill_rows * sizeof *index);
    memset(rows, 0, (size_t)shape->prefill_rows * sizeof *rows);
    for (int64_t r = 0; r < e->rows && count < shape->prefill_rows; r++) {
        slot *s = &e->slots[r];
        if (!wants_prefill(s))
            continue;
        int64_t num = s->length - s->start - s->cached;
        num = num < shape->block ? num : shape->block;
        for (int64_t t = 0; t < num; t++) {
            tokens[count * shape->block + t] = s->text[s->start + s->cached + t];
            positions[count * shape->block + t] = (int32_t)(s->cached + t);
        }
        s->cached += num;
        rows[count] = (int32_t)r;
        index[count] = (int32_t)num - 1;
        which[count++] = r;
    }
    if (count == 0)
        return 0;
    double start = tri_now_s();
    *status = tri_executor_run(&e->session->executors[TRI_PROGRAM_PREFILL], err);
    e->stats.prefill_s += tri_now_s() - start;
    const float *logits = tri_session_host(e->session, TRI_PROGRAM_PREFILL, TRI_HOST_LOGITS, 0);
    for (int64_t i = 0; i < count && *status == TR_OK; i++) {
        slot *s = &e->slots[which[i]];
        if (s->cached == s->length - s->start)
            *status = take(e, s, logits + i * e->vocab, err);
    }
    return count;
}

/* One token for every text; false when there is none. */
static bool decode(engine *e, tr_error *err, tr_status *status)
{
    int32_t *tokens = tri_session_host(e->session, TRI_PROGRAM_DECODE, TRI_HOST_TOKENS, 0);
    int32_t *positions = tri_session_host(e->session, TRI_PROGRAM_DECODE, TRI_HOST_POSITIONS, 0);
    int32_t *rows = tri_session_host(e->session, TRI_PROGRAM_DECODE, TRI_HOST_ROWS, 0);
    int64_t count = 0;
    for (int64_t r = 0; r < e->rows; r++) {
        slot *s = &e->slots[r];
        rows[r] = (int32_t)r;
        tokens[r] = s->active ? s->text[s->length - 1] : 0;
        positions[r] = s->active ? (int32_t)s->cached++ : -1;
        count += s->active;
    }
    if (count == 0)
        return false;
    double start = tri_now_s();
    *status = tri_executor_run(&e->session->executors[TRI_PROGRAM_DECODE], err);
    e->stats.decode_s += tri_now_s() - start;
    e->stats.decode_runs++;
    e->stats.decode_tokens += count;
    const float *logits = tri_session_host(e->session, TRI_PROGRAM_DECODE, TRI_HOST_LOGITS, 0);
    for (int64_t r = 0; r < e->rows && *status == TR_OK; r++)
        if (e->slots[r].active)
            *status = take(e, &e->slots[r], logits + r * e->vocab, err);
    return true;
}

/* Without a cache: one text, the prediction program over the end of it. */
static bool predict(engine *e, tr_error *err, tr_status *status)
{
    slot *s = &e->slots[0];
    if (!s->active)
        return false;
    int64_t room = e->session->config.compile.seq_len, seen = s->length < room ? s->length : room;
    double start = tri_now_s();
    const float *logits = tri_session_predict(e->session, s->text + s->length - seen, seen);
    e->stats.decode_s += tri_now_s() - start;
    e->stats.decode_runs++;
    e->stats.decode_tokens++;
    *status = take(e, s, logits, err);
    return true;
}

static tr_status make_texts(engine *e, bool cached, tr_error *err)
{
    tr_status status = TR_OK;
    while (status == TR_OK) {
        for (int64_t r = 0; r < e->rows && e->next < e->num_requests; r++)
            while (!e->slots[r].active && e->next < e->num_requests)
                TRI_TRY(fill_slot(e, &e->slots[r], err));
        if (cached && prefill(e, err, &status) > 0)
            continue;
        if (cached ? !decode(e, err, &status) : !predict(e, err, &status))
            break;
    }
    return status;
}

tr_status tri_generate(tri_session *session, const tri_text_request *requests, size_t num_requests,
                       const tri_sampling *sampling, tri_token_fn out, void *context,
                       tri_generate_stats *stats, tr_error *err)
{
    bool cached = tri_session_has(session, TRI_PROGRAM_DECODE);
    const tri_generate_shape *shape = &session->config.generate;
    const tri_model_config *model = &session->config.compile.model;
    engine e = {.session = session,
                .requests = requests,
                .num_requests = num_requests,
                .sampling = sampling,
                .out = out,
                .context = context,
                .vocab = model->vocab,
                .rows = cached ? shape->rows : 1,
                .limit = INT64_MAX - 1};
    if (cached && (model->window == 0 || shape->len < model->window + shape->block - 1))
        e.limit = shape->len;
    e.slots = calloc((size_t)e.rows, sizeof *e.slots);
    e.scratch = malloc(tri_sample_scratch_bytes(e.vocab));
    uint8_t *seen = malloc((size_t)(e.rows * e.vocab));
    tr_status status = TR_OK;
    if (!e.slots || !e.scratch || !seen)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to generate text");
    for (int64_t r = 0; r < e.rows && status == TR_OK; r++)
        e.slots[r].seen = seen + r * e.vocab;
    if (status == TR_OK)
        status = make_texts(&e, cached, err);
    for (int64_t r = 0; e.slots && r < e.rows; r++)
        free(e.slots[r].text);
    free(e.slots);
    free(e.scratch);
    free(seen);
    if (stats)
        *stats = e.stats;
    return status;
}
