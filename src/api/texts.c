#include "api/texts.h"

#include <stdlib.h>
#include <string.h>

#include "ckpt/hf/hf.h"

const char *tri_api_weights_place(const tr_settings *settings)
{
    const char *from = tr_settings_string(settings, "model.from");
    return from[0] ? from : tr_settings_string(settings, "run.dir");
}

const char *tri_api_tokenizer(const tr_settings *settings)
{
    const char *name = tr_settings_string(settings, "data.tokenizer");
    bool made = strcmp(name, "auto") == 0 || strcmp(name, "chars") == 0 ||
                strncmp(name, "bpe:", 4) == 0; /* from the text that is trained on */
    bool given = tr_settings_given(settings, "data.tokenizer") && name[0] && !made;
    return given && tri_hf_is_dir(tri_api_weights_place(settings)) ? name : NULL;
}

/* ---- stop strings ---- */

/* Writes the next string of the list, which ends at ';', and returns what follows it, or NULL.
 * "\n", "\t", "\;" and "\\" are what they are in C. */
static const char *next_stop(const char *list, char *out)
{
    for (; *list && *list != ';'; list++) {
        char c = *list;
        if (c == '\\' && list[1]) {
            list++;
            c = *list == 'n' ? '\n' : *list == 't' ? '\t' : *list;
        }
        *out++ = c;
    }
    *out = 0;
    return *list ? list + 1 : NULL;
}

static void free_stops(tri_stops *stops)
{
    for (size_t i = 0; stops->string && i < stops->num; i++)
        free((char *)stops->string[i]);
    free((void *)stops->string);
    *stops = (tri_stops){0};
}

/* The strings of generate.stop, on the heap. */
static tr_status read_stops(const tr_settings *settings, tri_stops *stops, tr_error *err)
{
    const char *list = tr_settings_string(settings, "generate.stop");
    size_t most = 1;
    for (const char *c = list; *c; c++)
        most += *c == ';';
    char **strings = calloc(most, sizeof *strings);
    *stops = (tri_stops){.string = (const char *const *)strings};
    bool failed = !strings;
    while (list && !failed) {
        char *one = malloc(strlen(list) + 1);
        failed = !one;
        if (failed)
            break;
        list = next_stop(list, one);
        if (one[0])
            strings[stops->num++] = one;
        else
            free(one);
    }
    if (!failed)
        return TR_OK;
    free_stops(stops);
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory for generate.stop");
}

/* ---- sessions ---- */

static tr_status check_generates(const tri_model_config *model, tr_error *err)
{
    if (tri_model_generates(model))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT, "model.kind %s has no text to generate%s", model->kind,
                    model->task == TRI_TASK_LM
                        ? ""
                        : " with this model.task; only a model that learned the next token (lm) "
                          "writes text");
}

tr_status tri_api_compile_texts(tr_settings *settings, const tri_ids *prompts, size_t num_prompts,
                                tr_session **session, tr_error *err)
{
    *session = NULL;
    TRI_TRY(tri_settings_complete(settings, err));
    tri_session_config config;
    TRI_TRY(tri_session_config_from(settings, &config, err));
    const tri_model_config *model = &config.compile.model;
    TRI_TRY(check_generates(model, err));
    if (!tr_settings_bool(settings, "generate.cache"))
        return tri_api_compile_programs(settings, 0, 1 << TRI_PROGRAM_PREDICT, NULL, session, err);
    int64_t longest = 1, samples = tr_settings_int(settings, "generate.samples");
    for (size_t i = 0; i < num_prompts; i++)
        longest = (int64_t)prompts[i].num > longest ? (int64_t)prompts[i].num : longest;
    int64_t rows = tr_settings_int(settings, "generate.batch");
    if (rows > (int64_t)num_prompts * samples)
        rows = (int64_t)num_prompts * samples;
    int64_t text = longest + tr_settings_int(settings, "generate.tokens");
    int64_t context = tr_settings_int(settings, "generate.context");
    if (context > 0 && context < text)
        text = context;
    tri_generate_shape shape = tri_generate_plan(
        model, rows, tr_settings_int(settings, "generate.prefill"), longest, text);
    return tri_api_compile_programs(settings, 0, TRI_PROGRAMS_GENERATE, &shape, session, err);
}

/* ---- texts ---- */

typedef struct text_maker {
    const tri_text_jobs *jobs;
    const tri_text_request *requests;
    tri_text_stream *streams;
    size_t num_texts;
    tri_stops stops;
    bool past_eos;
    tr_error *err;
    tr_status status;
} text_maker;

/* Where the pieces of a stream go. */
typedef struct text_place {
    const tri_text_jobs *jobs;
    size_t text;
} text_place;

static void pass_piece(void *context, const char *bytes, size_t num_bytes)
{
    const text_place *place = context;
    place->jobs->piece(place->jobs->context, place->text, bytes, num_bytes);
}

static void begin_text(text_maker *maker, size_t text)
{
    tri_text_stream *stream = &maker->streams[text];
    *stream = (tri_text_stream){.vocabulary = maker->jobs->vocabulary,
                                .stops = maker->stops,
                                .past_eos = maker->past_eos,
                                .piece = maker->jobs->piece ? pass_piece : NULL};
    tri_text_stream_begin(stream, maker->requests[text].prompt,
                          (size_t)maker->requests[text].prompt_length);
}

static void end_text(text_maker *maker, size_t text)
{
    tri_text_stream *stream = &maker->streams[text];
    text_place place = {maker->jobs, text};
    stream->context = &place;
    tri_text_stream_finish(stream);
    if (maker->jobs->end)
        maker->jobs->end(maker->jobs->context, text, stream);
    tri_text_stream_fini(stream);
}

static bool token_made(void *context, size_t text, int32_t token)
{
    text_maker *maker = context;
    tri_text_stream *stream = &maker->streams[text];
    if (!stream->vocabulary)
        begin_text(maker, text);
    text_place place = {maker->jobs, text};
    stream->context = &place;
    bool more = false;
    if (maker->status == TR_OK)
        maker->status = tri_text_stream_add(stream, token, &more, maker->err);
    size_t made = stream->ids.num - stream->num_prompt;
    if (!more || made == (size_t)maker->requests[text].max_tokens)
        end_text(maker, text);
    return more;
}

static tri_sampling sampling_of(const tr_settings *settings)
{
    return (tri_sampling){
        .temperature = tr_settings_float(settings, "generate.temperature"),
        .top_k = tr_settings_int(settings, "generate.top_k"),
        .top_p = tr_settings_float(settings, "generate.top_p"),
        .min_p = tr_settings_float(settings, "generate.min_p"),
        .repetition_penalty = tr_settings_float(settings, "generate.repetition"),
        .seed = (uint64_t)tr_settings_int(settings, "generate.seed"),
    };
}

static tr_status run(tr_session *session, text_maker *maker, tri_text_request *requests,
                     tri_generate_stats *stats, tr_error *err)
{
    const tr_settings *settings = session->settings;
    const tri_text_jobs *jobs = maker->jobs;
    size_t samples = maker->num_texts / jobs->num_prompts;
    for (size_t i = 0; i < maker->num_texts; i++) {
        const tri_ids *prompt = &jobs->prompts[i / samples];
        requests[i] = (tri_text_request){prompt->id, (int64_t)prompt->num,
                                         tr_settings_int(settings, "generate.tokens")};
    }
    maker->requests = requests;
    TRI_TRY(read_stops(settings, &maker->stops, err));
    tri_sampling sampling = sampling_of(settings);
    tr_status status = TR_OK;
    if (tr_settings_int(settings, "generate.tokens") > 0)
        status = tri_generate(&session->session, requests, maker->num_texts, &sampling, token_made,
                              maker, stats, err);
    else
        for (size_t i = 0; i < maker->num_texts; i++) {
            begin_text(maker, i);
            end_text(maker, i);
        }
    return status == TR_OK ? maker->status : status;
}

tr_status tri_api_texts(tr_session *session, const tri_text_jobs *jobs, tri_generate_stats *stats,
                        tr_error *err)
{
    const tr_settings *settings = session->settings;
    size_t num = jobs->num_prompts * (size_t)tr_settings_int(settings, "generate.samples");
    if (stats)
        *stats = (tri_generate_stats){0};
    if (num == 0)
        return TR_OK;
    text_maker maker = {.jobs = jobs,
                        .num_texts = num,
                        .past_eos = !tr_settings_bool(settings, "generate.eos"),
                        .streams = calloc(num, sizeof *maker.streams),
                        .err = err};
    tri_text_request *requests = calloc(num, sizeof *requests);
    tr_status status = maker.streams && requests
                           ? run(session, &maker, requests, stats, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %zu texts", num);
    for (size_t i = 0; maker.streams && i < num; i++)
        tri_text_stream_fini(&maker.streams[i]);
    free_stops(&maker.stops);
    free(maker.streams);
    free(requests);
    return status;
}

/* ---- the public call: one prompt, one text ---- */

typedef struct text_receiver {
    tr_text_fn out;
    void *context;
} text_receiver;

static void piece_out(void *context, size_t text, const char *bytes, size_t num_bytes)
{
    (void)text;
    const text_receiver *to = context;
    to->out(to->context, bytes, num_bytes);
}

tr_status tr_session_generate(tr_session *session, const char *prompt, tr_text_fn out,
                              void *context, tr_error *err)
{
    const tri_model_config *model = &session->session.config.compile.model;
    TRI_TRY(check_generates(model, err));
    const char *place = tri_api_weights_place(session->settings);
    tri_vocabulary vocabulary;
    TRI_TRY(tri_vocabulary_open(place, tri_api_tokenizer(session->settings), model->vocab,
                                !tri_hf_is_dir(place), &vocabulary, err));
    tri_ids ids = {0};
    tr_status status = tri_vocabulary_need(&vocabulary, place, err);
    if (status == TR_OK)
        status = tri_vocabulary_prompt(&vocabulary, prompt, strlen(prompt), &ids, err);
    text_receiver to = {.out = out, .context = context};
    tri_text_jobs jobs = {.vocabulary = &vocabulary,
                          .prompts = &ids,
                          .num_prompts = 1,
                          .context = &to,
                          .piece = piece_out};
    if (status == TR_OK)
        status = tri_api_texts(session, &jobs, NULL, err);
    tri_ids_fini(&ids);
    tri_vocabulary_close(&vocabulary);
    return status;
}
