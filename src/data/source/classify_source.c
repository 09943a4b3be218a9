/* Texts with a label each, from JSONL (data.task=classify).
 *
 *     {"text": "An hour well spent.", "label": "positive"}
 *
 * A row is what the tokenizer's post-processor makes of the text, or of a pair of texts, and
 * padding; its one target is the number of the label. A text that is too long loses tokens at its
 * end; of a pair, the longer one does, token by token. */
#include "base/text.h"
#include "data/source/example_set.h"
#include "data/source/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct classify {
    tri_example_set set;
    tri_labels labels;
    const tri_data_config *config; /* while opening */
    tri_post_item form[TRI_MAX_POST_ITEMS];
    int num_form, num_special;
    bool pair;
    tri_ids part[2]; /* of the entry that is being read */
} classify;

static void classify_destroy(void *state)
{
    classify *c = state;
    if (!c)
        return;
    tri_example_set_fini(&c->set);
    tri_labels_fini(&c->labels);
    tri_ids_fini(&c->part[0]);
    tri_ids_fini(&c->part[1]);
    free(c);
}

/* ---- opening ---- */

static tr_status encode_part(classify *c, const tri_entry *entry, int which, tr_error *err)
{
    const char *text, *field = which ? c->config->pair_field : c->config->field;
    size_t num_bytes;
    TRI_TRY(tri_entry_text(entry, field, which ? "data.pair_field" : "data.field", false, &text,
                           &num_bytes, err));
    c->part[which].num = 0;
    tr_status status = tri_tokenizer_encode(c->set.tokenizer, NULL, text, num_bytes,
                                            TRI_ENCODE_PLAIN, &c->part[which], err);
    return status == TR_OK ? TR_OK : tri_entry_prefix(entry, status, err);
}

/* Makes the two fit, the longer one giving way. */
static void cut_parts(classify *c, size_t room)
{
    size_t *a = &c->part[0].num, *b = &c->part[1].num;
    if (*a + *b <= room)
        return;
    size_t half = room / 2, least = *a < *b ? *a : *b;
    size_t keep = least < half ? least : half; /* of the shorter one */
    if (*a <= *b) {
        *a = keep;
        *b = room - keep;
    } else {
        *b = keep;
        *a = room - keep;
    }
}

static bool add_types(tri_example_set *set, size_t num, uint8_t type)
{
    if (set->num_types + num > set->types_capacity) {
        size_t capacity = 2 * (set->num_types + num);
        uint8_t *grown = realloc(set->types, capacity);
        if (!grown)
            return false;
        set->types = grown;
        set->types_capacity = capacity;
    }
    memset(set->types + set->num_types, type, num);
    set->num_types += num;
    return true;
}

/* The parts and the special tokens, one after the other, into the set. */
static tr_status add_example(classify *c, int32_t label, tr_error *err)
{
    size_t before = c->set.ids.num;
    bool ok = true;
    for (int i = 0; i < c->num_form; i++) {
        const tri_post_item *item = &c->form[i];
        const int32_t *ids = item->id >= 0 ? &item->id : c->part[item->part].id;
        size_t num = item->id >= 0 ? 1 : c->part[item->part].num;
        tri_ids_add(&c->set.ids, ids, num);
        ok = ok && (!c->pair || add_types(&c->set, num, (uint8_t)item->type));
    }
    int32_t num = (int32_t)(c->set.ids.num - before);
    if (!ok)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", c->set.source);
    return tri_example_set_add(&c->set, &(tri_example){.num = num, .places = num, .label = label},
                               err);
}

static tr_status read_entry(void *context, const tri_entry *entry, tr_error *err)
{
    classify *c = context;
    int32_t label;
    size_t room = (size_t)c->set.seq_len - (size_t)c->num_special;
    TRI_TRY(encode_part(c, entry, 0, err));
    if (c->pair)
        TRI_TRY(encode_part(c, entry, 1, err));
    size_t num = c->part[0].num + c->part[1].num;
    if (num + (size_t)c->num_special == 0)
        return tri_entry_fail(entry, err, "\"%.60s\" is empty, so there is nothing to label",
                              c->config->field);
    if (num > room && c->config->too_long == TRI_TOO_LONG_REFUSE)
        return tri_entry_fail(entry, err,
                              "has %zu tokens, more than the %zu that data.seq_len = %lld has room "
                              "for; raise it, or set data.too_long to cut or drop",
                              num, room, (long long)c->set.seq_len);
    if (num > room && c->config->too_long == TRI_TOO_LONG_DROP) {
        c->set.num_dropped++;
        return TR_OK;
    }
    c->set.num_cut += num > room;
    TRI_TRY(tri_labels_read(&c->labels, entry, c->config->label_field, &label, err));
    if (c->pair)
        cut_parts(c, room);
    else if (num > room)
        c->part[0].num = room;
    return add_example(c, label, err);
}

static tr_status find_labels(classify *c, tr_error *err)
{
    const tri_data_config *config = c->config;
    if (config->labels && config->labels[0])
        return tri_labels_parse(config->labels, &c->labels, err);
    char *text;
    TRI_TRY(tri_labels_scan(config->source, config->label_field, &text, err));
    tr_status status = tri_labels_parse(text, &c->labels, err);
    free(text);
    return status;
}

static tr_status open_examples(classify *c, tr_error *err)
{
    const tri_data_config *config = c->config;
    c->pair = config->pair_field && config->pair_field[0];
    TRI_TRY(tri_example_set_init(&c->set, config, err));
    c->num_form = tri_tokenizer_post(c->set.tokenizer, c->pair, c->form);
    for (int i = 0; i < c->num_form; i++)
        c->num_special += c->form[i].id >= 0;
    if (config->seq_len <= c->num_special)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.seq_len is %lld, but the tokenizer adds %d special tokens to a text; "
                        "raise it",
                        (long long)config->seq_len, c->num_special);
    TRI_TRY(find_labels(c, err));
    TRI_TRY(tri_entries_each(config->source, read_entry, c, &c->set.num_files, err));
    return tri_example_set_rows(&c->set, config, err);
}

/* ---- rows ---- */

static void classify_row(const void *state, tri_split split, uint64_t sample, const tri_row *row)
{
    const classify *c = state;
    size_t num;
    uint64_t window = tri_example_set_window(&c->set, split, sample);
    const tri_example *e = &c->set.item[*tri_example_set_row(&c->set, split, window, &num)];
    memcpy(row->tokens, c->set.ids.id + e->begin, (size_t)e->num * sizeof *row->tokens);
    for (int32_t i = 0; row->types && c->set.types && i < e->num; i++)
        row->types[i] = c->set.types[e->begin + (size_t)i];
    tri_pack_places(row, 0, e->num, 0);
    tri_pack_padding(row, e->num, c->set.seq_len);
    row->targets[0] = e->label;
}

static int64_t classify_num_windows(const void *state, tri_split split)
{
    return (int64_t)((const classify *)state)->set.num_rows[split];
}

static uint64_t classify_window(const void *state, tri_split split, uint64_t sample)
{
    return tri_example_set_window(&((const classify *)state)->set, split, sample);
}

static void classify_describe(const void *state, char *text, size_t text_size)
{
    const classify *c = state;
    char labels[200], rows[160], number[32];
    snprintf(text, text_size, "%s labelled text%s, %s%s",
             tri_text_grouped((int64_t)c->set.num, number), c->pair ? " pairs" : "s",
             tri_labels_describe(&c->labels, labels, sizeof labels),
             tri_example_set_describe(&c->set, rows, sizeof rows));
}

tr_status tri_classify_source_create(const tri_data_config *config, tri_data_source *source,
                                     tr_error *err)
{
    if (config->pack)
        return tri_fail(err, TR_ERROR_INPUT,
                        "data.pack is true, but with data.task=classify a row has one label; set "
                        "it to false");
    classify *c = calloc(1, sizeof *c);
    if (!c)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", config->source);
    c->config = config;
    tr_status status = open_examples(c, err);
    if (status != TR_OK) {
        classify_destroy(c);
        return status;
    }
    c->config = NULL;
    c->set.source = NULL;
    *source = (tri_data_source){.state = c,
                                .vocab_needed = c->set.vocab,
                                .num_labels = (int64_t)c->labels.names.num,
                                .row = classify_row,
                                .num_windows = classify_num_windows,
                                .window = classify_window,
                                .describe = classify_describe,
                                .destroy = classify_destroy};
    return TR_OK;
}
