/* trireme generate: texts after prompts, from a run directory or a Hugging Face directory.
 *
 * One text goes to the terminal as it is made. Several are printed whole, in the order of their
 * prompts, whichever is done first; with --json each is an object on a line of its own. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/texts.h"
#include "base/json.h"
#include "ckpt/hf/hf.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "cli/verbs/prompts.h"
#include "cli/verbs/weights.h"

/* A finished text that waits for its turn. */
typedef struct finished {
    bool done;
    char *text;
    size_t num_bytes;
    tri_ids ids;
    tri_text_end end;
} finished;

typedef struct output {
    const tri_prompts *prompts;
    size_t samples, num_texts;
    bool json, ids;
    finished *texts;
    size_t next; /* the first that has not been printed */
    bool failed; /* there was no memory to print one */
} output;

/* ---- --stop ---- */

/* One more string for generate.stop, where ';' divides them. */
static tr_status add_stop(tr_settings *settings, const char *stop, tr_error *err)
{
    const char *have = tr_settings_string(settings, "generate.stop");
    char *assignment = malloc(strlen(have) + 2 * strlen(stop) + 32);
    if (!assignment)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for --stop");
    if (!stop[0]) {
        free(assignment);
        return tri_fail(err, TR_ERROR_INPUT, "--stop is empty; give the text to stop at");
    }
    char *at = assignment + sprintf(assignment, "generate.stop=%s%s", have, have[0] ? ";" : "");
    for (; *stop; stop++) {
        if (*stop == ';')
            *at++ = '\\';
        *at++ = *stop;
        if (*stop == '\\' && stop[1])
            *at++ = *++stop;
    }
    *at = 0;
    tr_status status = tr_settings_set(settings, assignment, err);
    free(assignment);
    return status;
}

static tr_status apply_stops(const tri_cli *cli, tr_error *err)
{
    for (int i = 0; i < cli->num_flags; i++)
        if (strcmp(cli->flags[i].flag->name, "stop") == 0)
            TRI_TRY(add_stop(cli->settings, cli->flags[i].value, err));
    return TR_OK;
}

/* ---- printing ---- */

static void print_ids(const finished *text)
{
    for (size_t i = 0; i < text->ids.num; i++)
        printf("%s%d", i ? " " : "", text->ids.id[i]);
    printf("\n");
}

/* Text as JSON has it: bytes that are not UTF-8 become U+FFFD. */
static json_t *json_text(const char *text, size_t num_bytes)
{
    tri_bytes clean = {0};
    for (const char *at = text, *end = text + num_bytes; at < end;) {
        uint32_t c = tri_utf8_next(&at, end);
        tri_bytes_add_char(&clean, c >= TRI_BROKEN ? 0xFFFD : c);
    }
    json_t *json = json_stringn(clean.num ? clean.data : "", clean.num);
    tri_bytes_fini(&clean);
    return json;
}

static void print_json(output *out, size_t number, const finished *text)
{
    size_t p = number / out->samples;
    tri_json_begin();
    json_t *object = json_object();
    if (out->prompts->text[p])
        json_object_set_new(object, "prompt",
                            json_text(out->prompts->text[p], out->prompts->num_bytes[p]));
    json_object_set_new(object, "sample", json_integer((json_int_t)(number % out->samples)));
    if (text->text)
        json_object_set_new(object, "text", json_text(text->text, text->num_bytes));
    json_object_set_new(object, "tokens", json_integer((json_int_t)text->ids.num));
    if (out->ids || !text->text) {
        json_t *ids = json_array();
        for (size_t i = 0; i < text->ids.num; i++)
            json_array_append_new(ids, json_integer(text->ids.id[i]));
        json_object_set_new(object, "ids", ids);
    }
    json_object_set_new(object, "end", json_string(tri_text_end_name(text->end)));
    char *line = tri_json_dump(object, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (line)
        printf("%s\n", line);
    else
        out->failed = true;
    free(line);
    json_decref(object);
}

static void print_finished(output *out, size_t number, const finished *text)
{
    size_t p = number / out->samples;
    if (out->json) {
        print_json(out, number, text);
    } else if (out->ids) {
        print_ids(text);
    } else if (out->num_texts > 1) {
        printf("--- prompt %zu", p + 1);
        if (out->samples > 1)
            printf(", sample %zu", number % out->samples + 1);
        printf(" ---\n");
        tri_terminal_write(stdout, out->prompts->text[p], out->prompts->num_bytes[p]);
        tri_terminal_write(stdout, text->text, text->num_bytes);
        printf("\n");
    } else {
        printf("\n");
    }
    fflush(stdout);
}

static bool streams(const output *out)
{
    return out->num_texts == 1 && !out->json && !out->ids;
}

static void on_piece(void *context, size_t number, const char *bytes, size_t num_bytes)
{
    (void)number;
    (void)context;
    tri_terminal_write(stdout, bytes, num_bytes);
    fflush(stdout);
}

static void on_end(void *context, size_t number, const tri_text_stream *stream)
{
    output *out = context;
    finished *text = &out->texts[number];
    size_t num_ids = stream->ids.num - stream->num_prompt;
    *text = (finished){.done = true, .end = stream->end, .num_bytes = stream->text.num};
    if (num_ids)
        tri_ids_add(&text->ids, stream->ids.id + stream->num_prompt, num_ids);
    if (stream->vocabulary->tokenizer)
        text->text = malloc(stream->text.num + 1);
    if (text->text && stream->text.num)
        memcpy(text->text, stream->text.data, stream->text.num);
    out->failed |= text->ids.failed || (stream->vocabulary->tokenizer && !text->text);
    for (; !out->failed && out->next < out->num_texts && out->texts[out->next].done; out->next++)
        print_finished(out, out->next, &out->texts[out->next]);
}

static void print_stats(const tri_session *session, const tri_generate_stats *stats)
{
    fprintf(stderr, "prompts: %lld tokens in %.3f s", (long long)stats->prompt_tokens,
            stats->prefill_s);
    if (stats->prefill_s > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)stats->prompt_tokens / stats->prefill_s);
    fprintf(stderr, "\ndecoding: %lld tokens in %.3f s", (long long)stats->decode_tokens,
            stats->decode_s);
    if (stats->decode_s > 0)
        fprintf(stderr, ", %.1f tokens/s", (double)stats->decode_tokens / stats->decode_s);
    char bytes[16];
    fprintf(stderr, "; %lld runs, choosing took %.3f s\nmemory: %s, of which the cache %s\n",
            (long long)stats->decode_runs, stats->sample_s,
            tri_text_bytes((double)tri_session_planned_bytes(session), bytes),
            tri_text_bytes((double)session->store.slabs[TRI_SLAB_CACHE].bytes, (char[16]){0}));
}

/* ---- the verb ---- */

static tr_status make(const tri_cli *cli, const tri_vocabulary *vocabulary,
                      const tri_prompts *prompts, output *out, tr_error *err)
{
    tr_session *session;
    TRI_TRY(tri_api_compile_texts(cli->settings, prompts->ids, prompts->num, &session, err));
    tr_status status = tri_api_start(session, err);
    tri_text_jobs jobs = {.vocabulary = vocabulary,
                          .prompts = prompts->ids,
                          .num_prompts = prompts->num,
                          .context = out,
                          .piece = streams(out) ? on_piece : NULL,
                          .end = on_end};
    tri_generate_stats stats;
    char weights[500];
    if (status == TR_OK)
        status = tri_cli_weights_words(cli, weights, sizeof weights, err);
    if (status == TR_OK) /* not among the text */
        tri_text_print(stderr, "weights %s\n", weights);
    if (status == TR_OK && streams(out) && prompts->text[0])
        tri_terminal_write(stdout, prompts->text[0], prompts->num_bytes[0]);
    if (status == TR_OK)
        status = tri_api_texts(session, &jobs, &stats, err);
    if (status == TR_OK && out->failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory to print the texts");
    if (status == TR_OK && stats.num_restarts > 0)
        fprintf(stderr,
                "trireme: note: %lld time%s a text outgrew the %lld positions of its context, and "
                "went on from its last half\n",
                (long long)stats.num_restarts, stats.num_restarts == 1 ? "" : "s",
                (long long)session->session.config.generate.len);
    if (status == TR_OK && tri_cli_flag(cli, "stats"))
        print_stats(&session->session, &stats);
    tr_session_destroy(session);
    return status;
}

/* Text needs none of the data that the run was trained on. */
static tr_status forget_data(tr_settings *settings, tr_error *err)
{
    TRI_TRY(tr_settings_set(settings, "data.source=synthetic", err));
    TRI_TRY(tr_settings_set(settings, "data.task=auto", err));
    return tr_settings_set(settings, "train.epochs=0", err);
}

static tr_status generate(const tri_cli *cli, tr_error *err)
{
    TRI_TRY(apply_stops(cli, err));
    TRI_TRY(tri_cli_point_to_weights(cli, err));
    TRI_TRY(forget_data(cli->settings, err));
    TRI_TRY(tri_settings_complete(cli->settings, err));
    const char *place = tri_api_weights_place(cli->settings);
    tri_vocabulary vocabulary;
    TRI_TRY(tri_vocabulary_open(place, tri_api_tokenizer(cli->settings),
                                tr_settings_int(cli->settings, "model.vocab"),
                                !tri_hf_is_dir(place), &vocabulary, err));
    tri_prompts prompts;
    tr_status status = tri_prompts_read(cli, &vocabulary, place, &prompts, err);
    if (status == TR_OK) {
        output out = {.prompts = &prompts,
                      .samples = (size_t)tr_settings_int(cli->settings, "generate.samples"),
                      .json = tri_cli_flag(cli, "json") != NULL,
                      .ids = tri_cli_flag(cli, "ids") != NULL || !vocabulary.tokenizer};
        out.num_texts = prompts.num * out.samples;
        out.texts = calloc(out.num_texts, sizeof *out.texts);
        status = out.texts ? make(cli, &vocabulary, &prompts, &out, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the texts");
        for (size_t i = 0; out.texts && i < out.num_texts; i++) {
            free(out.texts[i].text);
            tri_ids_fini(&out.texts[i].ids);
        }
        free(out.texts);
        tri_prompts_free(&prompts);
    }
    tri_vocabulary_close(&vocabulary);
    return status;
}

int tri_verb_generate(const tri_cli *cli)
{
    tr_error err = {0};
    return generate(cli, &err) == TR_OK ? TRI_EXIT_OK : tri_cli_fail(&err);
}
