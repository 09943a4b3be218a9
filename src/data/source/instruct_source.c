/* Instructions and their answers, from JSONL (data.task=instruct).
 *
 *     {"instruction": "Name a colour.", "input": "", "output": "Blue."}
 *
 * The entry goes through a template (template.h) to a prompt and an answer, which are tokenized
 * apart, so that the border between them is where generation from the same prompt begins:
 *
 *     tokens     <s> Name a colour .  Blue .          what begins a text, prompt, answer
 *     targets     -    -   -   -  Blue  .  </s>       the answer and the end of the text only
 *
 * An example of n tokens takes n - 1 places: its last token is nobody's input. */
#include "base/text.h"
#include "data/source/example_set.h"
#include "data/source/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct instruct {
    tri_example_set set;
    const tri_data_config *config; /* while opening */
    tri_template *plain, *with_input;
    tri_post_item form[TRI_MAX_POST_ITEMS];
    int num_form;
    bool bytes;
    int32_t end; /* of a text */
    tri_bytes prompt, answer;
    tri_ids prompt_ids, answer_ids;
    int64_t num_learned; /* targets of all examples */
} instruct;

/* What only opening needs. */
static void forget(instruct *s)
{
    tri_template_destroy(s->plain);
    tri_template_destroy(s->with_input);
    s->plain = s->with_input = NULL;
    tri_bytes_fini(&s->prompt);
    tri_bytes_fini(&s->answer);
    tri_ids_fini(&s->prompt_ids);
    tri_ids_fini(&s->answer_ids);
    s->config = NULL;
    s->set.source = NULL;
}

static void instruct_destroy(void *state)
{
    instruct *s = state;
    if (!s)
        return;
    forget(s);
    tri_example_set_fini(&s->set);
    free(s);
}

/* ---- opening ---- */

static tr_status parse_templates(instruct *s, tr_error *err)
{
    const tri_data_config *config = s->config;
    const char *plain = config->template, *with_input = config->template_input;
    if (strcmp(plain, "alpaca") == 0) {
        plain = tri_template_alpaca;
        if (!with_input[0])
            with_input = tri_template_alpaca_input;
    }
    TRI_TRY(tri_template_parse("data.template", plain, config->answer_field, &s->plain, err));
    if (!with_input[0])
        return TR_OK;
    return tri_template_parse("data.template_input", with_input, config->answer_field,
                              &s->with_input, err);
}

static bool has_input(const tri_entry *entry)
{
    const json_t *input = json_object_get(entry->object, "input");
    return json_is_string(input) && json_string_length(input) > 0;
}

static tr_status encode(instruct *s, const tri_entry *entry, const tri_bytes *text, unsigned flags,
                        tri_ids *ids, tr_error *err)
{
    if (s->bytes && text->num > 0 && memchr(text->data, 0, text->num))
        return tri_entry_fail(entry, err,
                              "holds a byte of 0, which ends a text when tokens are bytes; take it "
                              "out, or set data.tokenizer");
    tr_status status = tri_tokenizer_encode(s->set.tokenizer, NULL, text->num ? text->data : "",
                                            text->num, flags, ids, err);
    return status == TR_OK ? TR_OK : tri_entry_prefix(entry, status, err);
}

/* Prompt and answer of an entry as ids. */
static tr_status encode_entry(instruct *s, const tri_entry *entry, tr_error *err)
{
    const tri_template *form = s->with_input && has_input(entry) ? s->with_input : s->plain;
    s->prompt.num = s->answer.num = 0;
    s->prompt_ids.num = s->answer_ids.num = 0;
    TRI_TRY(tri_template_render(form, entry, &s->prompt, &s->answer, err));
    for (int i = 0; i < s->num_form && s->form[i].id >= 0; i++) /* what begins a text */
        tri_ids_add(&s->prompt_ids, &s->form[i].id, 1);
    TRI_TRY(encode(s, entry, &s->prompt, 0, &s->prompt_ids, err));
    TRI_TRY(encode(s, entry, &s->answer, TRI_ENCODE_CONTINUE, &s->answer_ids, err));
    tri_ids_add(&s->answer_ids, &s->end, 1);
    if (s->prompt_ids.num > 0)
        return TR_OK;
    return tri_entry_fail(entry, err,
                          "the prompt before the answer is empty; a model needs at "
                          "least one token to continue (data.template)");
}

static tr_status read_entry(void *context, const tri_entry *entry, tr_error *err)
{
    instruct *s = context;
    TRI_TRY(encode_entry(s, entry, err));
    size_t most = (size_t)s->set.seq_len + 1, prompt = s->prompt_ids.num;
    size_t num = prompt + s->answer_ids.num;
    tri_too_long policy = s->config->too_long;
    if (num > most && policy == TRI_TOO_LONG_DROP) {
        s->set.num_dropped++;
        return TR_OK;
    }
    if (num > most && policy == TRI_TOO_LONG_REFUSE)
        return tri_entry_fail(entry, err,
                              "has %zu tokens (%zu of them the prompt), more than data.seq_len + 1 "
                              "= %zu; raise it, or set data.too_long to cut or drop",
                              num, prompt, most);
    if (prompt >= most)
        return tri_entry_fail(entry, err,
                              "its prompt alone has %zu tokens, which leaves no room for an answer "
                              "in data.seq_len = %lld; raise it, or set data.too_long=drop to "
                              "leave such examples out",
                              prompt, (long long)s->set.seq_len);
    if (num > most) {
        s->set.num_cut++;
        s->answer_ids.num = most - prompt;
        num = most;
    }
    tri_ids_add(&s->set.ids, s->prompt_ids.id, prompt);
    tri_ids_add(&s->set.ids, s->answer_ids.id, s->answer_ids.num);
    s->num_learned += (int64_t)s->answer_ids.num;
    if (s->prompt_ids.failed || s->answer_ids.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", entry->path);
    tri_example example = {
        .num = (int32_t)num, .places = (int32_t)num - 1, .answer = (int32_t)prompt};
    return tri_example_set_add(&s->set, &example, err);
}

static tr_status open_examples(instruct *s, tr_error *err)
{
    const tri_data_config *config = s->config;
    TRI_TRY(parse_templates(s, err));
    TRI_TRY(tri_example_set_init(&s->set, config, err));
    s->bytes =
        !config->tokenizer || !config->tokenizer[0] || strcmp(config->tokenizer, "bytes") == 0;
    s->end = s->bytes ? 0 : tri_tokenizer_special(s->set.tokenizer, TRI_SPECIAL_EOS);
    if (s->end < 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: has no token that ends a text, so an answer would never end; name one "
                        "as eos_token in its tokenizer_config.json, or choose another "
                        "data.tokenizer",
                        config->tokenizer);
    s->num_form = tri_tokenizer_post(s->set.tokenizer, false, s->form);
    TRI_TRY(tri_entries_each(config->source, read_entry, s, &s->set.num_files, err));
    return tri_example_set_rows(&s->set, config, err);
}

/* ---- rows ---- */

static void instruct_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const instruct *s = state;
    size_t num;
    uint64_t window = tri_example_set_window(&s->set, split, sample);
    const uint32_t *list = tri_example_set_row(&s->set, split, window, &num);
    int64_t at = 0;
    for (size_t k = 0; k < num; k++) {
        const tri_example *e = &s->set.item[list[k]];
        const int32_t *ids = s->set.ids.id + e->begin;
        memcpy(row->tokens + at, ids, (size_t)e->places * sizeof *ids);
        for (int32_t i = e->answer; i < e->num; i++)
            row->targets[at + i - 1] = ids[i];
        tri_pack_places(row, at, e->places, (int32_t)k);
        at += e->places;
    }
    tri_pack_padding(row, at, s->set.seq_len);
}

static int64_t instruct_num_windows(const void *state, tri_split split)
{
    return (int64_t)((const instruct *)state)->set.num_rows[split];
}

static uint64_t instruct_window(const void *state, tri_split split, uint64_t sample)
{
    return tri_example_set_window(&((const instruct *)state)->set, split, sample);
}

static void instruct_describe(const void *state, char *text, size_t text_size)
{
    const instruct *s = state;
    char rows[160], number[32], learned[32];
    snprintf(text, text_size, "%s instruction%s, %s tokens of answers%s",
             tri_text_grouped((int64_t)s->set.num, number), s->set.num == 1 ? "" : "s",
             tri_text_grouped(s->num_learned, learned),
             tri_example_set_describe(&s->set, rows, sizeof rows));
}

tr_status tri_instruct_source_create(const tri_data_config *config, tri_data_source *source,
                                     tr_error *err)
{
    instruct *s = calloc(1, sizeof *s);
    if (!s)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    s->config = config;
    tr_status status = open_examples(s, err);
    if (status != TR_OK) {
        instruct_destroy(s);
        return status;
    }
    forget(s);
    *source = (tri_data_source){.state = s,
                                .vocab_needed = s->set.vocab,
                                .row = instruct_row,
                                .num_windows = instruct_num_windows,
                                .window = instruct_window,
                                .describe = instruct_describe,
                                .destroy = instruct_destroy};
    return TR_OK;
}
