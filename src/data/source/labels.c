#include "data/source/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tri_labels_fini(tri_labels *labels)
{
    tri_words_fini(&labels->names);
    *labels = (tri_labels){0};
}

static tr_status no_memory(tr_error *err)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "data.labels: out of memory");
}

tr_status tri_labels_parse(const char *text, tri_labels *labels, tr_error *err)
{
    *labels = (tri_labels){0};
    tr_status status = TR_OK;
    for (const char *at = text; status == TR_OK && *at;) {
        size_t num = strcspn(at, ";"), before = labels->names.num;
        if (num == 0)
            status =
                tri_fail(err, TR_ERROR_INPUT,
                         "data.labels is \"%.100s\"; it must be names with ';' between them", text);
        else if (tri_words_add(&labels->names, at, num, 0) < 0)
            status = no_memory(err);
        else if (labels->names.num == before || labels->names.num > TRI_MAX_LABELS)
            status = tri_fail(err, TR_ERROR_INPUT, "data.labels: \"%.*s\" %s", (int)num, at,
                              labels->names.num == before ? "is there twice; name each label once"
                                                          : "and more are too many labels");
        at += num;
        at += *at == ';';
    }
    if (status != TR_OK)
        tri_labels_fini(labels);
    return status;
}

/* A label as text, a number in its decimal form. */
static tr_status text_of(const tri_entry *entry, const char *field, char number[32],
                         const char **text, size_t *num_bytes, tr_error *err)
{
    const json_t *value = json_object_get(entry->object, field);
    if (json_is_integer(value)) {
        if (json_integer_value(value) < 0)
            return tri_entry_fail(entry, err,
                                  "\"%.60s\" is %lld; a label that is a number is 0 or more", field,
                                  (long long)json_integer_value(value));
        *num_bytes = (size_t)snprintf(number, 32, "%lld", (long long)json_integer_value(value));
        *text = number;
        return TR_OK;
    }
    if (value && !json_is_string(value))
        return tri_entry_fail(entry, err, "\"%.60s\" must be a text or a whole number", field);
    TRI_TRY(tri_entry_text(entry, field, "data.label_field", false, text, num_bytes, err));
    if (*num_bytes == 0 || memchr(*text, ';', *num_bytes) || strlen(*text) != *num_bytes)
        return tri_entry_fail(
            entry, err, "the label \"%.60s\" is empty or holds a ';', which no label may", *text);
    return TR_OK;
}

tr_status tri_labels_read(tri_labels *labels, const tri_entry *entry, const char *field,
                          int32_t *label, tr_error *err)
{
    char number[32];
    const char *text;
    size_t num_bytes;
    TRI_TRY(text_of(entry, field, number, &text, &num_bytes, err));
    int64_t found = tri_words_find(&labels->names, text, num_bytes);
    if (found < 0)
        return tri_entry_fail(entry, err,
                              "the label \"%.60s\" is not among the %zu of data.labels; mend it, "
                              "or leave data.labels out to take those of the data",
                              text, labels->names.num);
    labels->names.word[found].count++;
    *label = (int32_t)found;
    return TR_OK;
}

/* ---- finding them ---- */

typedef struct scan {
    const char *field;
    tri_words names;
    int64_t num_texts, num_numbers, largest;
} scan;

static tr_status scan_entry(void *context, const tri_entry *entry, tr_error *err)
{
    scan *s = context;
    char number[32];
    const char *text;
    size_t num_bytes;
    TRI_TRY(text_of(entry, s->field, number, &text, &num_bytes, err));
    const json_t *value = json_object_get(entry->object, s->field);
    bool is_number = json_is_integer(value);
    int64_t *kind = is_number ? &s->num_numbers : &s->num_texts;
    if ((*kind)++ == 0 && s->num_numbers > 0 && s->num_texts > 0)
        return tri_entry_fail(entry, err, "\"%.60s\" is a %s, but those before are %ss", s->field,
                              is_number ? "number" : "text", is_number ? "text" : "number");
    if (is_number && json_integer_value(value) > s->largest)
        s->largest = json_integer_value(value);
    if (!is_number && tri_words_add(&s->names, text, num_bytes, 1) < 0)
        return no_memory(err);
    if (s->largest >= TRI_MAX_LABELS || s->names.num > TRI_MAX_LABELS)
        return tri_entry_fail(entry, err,
                              "\"%.60s\" is %.60s, the label after %d others; is it the right "
                              "field? Set data.label_field",
                              s->field, text, TRI_MAX_LABELS);
    return TR_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names of words, sorted, with ';' between. */
static char *join_sorted(const tri_words *names)
{
    char **list = calloc(names->num + 1, sizeof *list);
    bool failed = !list;
    for (size_t i = 0; !failed && i < names->num; i++) {
        list[i] = strndup(names->blob.data + names->word[i].start, names->word[i].num_bytes);
        failed = !list[i];
    }
    tri_bytes joined = {0};
    if (!failed)
        qsort(list, names->num, sizeof *list, by_bytes);
    for (size_t i = 0; !failed && i < names->num; i++) {
        tri_bytes_add(&joined, ";", i > 0);
        tri_bytes_add(&joined, list[i], strlen(list[i]));
    }
    tri_bytes_add(&joined, "", 1);
    for (size_t i = 0; list && i < names->num; i++)
        free(list[i]);
    free(list);
    if (failed || joined.failed)
        tri_bytes_fini(&joined);
    return joined.data;
}

static char *join_numbers(int64_t largest)
{
    tri_bytes joined = {0};
    for (int64_t i = 0; i <= largest; i++) {
        char number[32];
        int num = snprintf(number, sizeof number, "%s%lld", i ? ";" : "", (long long)i);
        tri_bytes_add(&joined, number, (size_t)num);
    }
    tri_bytes_add(&joined, "", 1);
    if (joined.failed)
        tri_bytes_fini(&joined);
    return joined.data;
}

tr_status tri_labels_scan(const char *source, const char *field, char **text, tr_error *err)
{
    *text = NULL;
    scan s = {.field = field};
    tr_status status = tri_entries_each(source, scan_entry, &s, NULL, err);
    if (status == TR_OK) {
        *text = s.num_numbers > 0 ? join_numbers(s.largest) : join_sorted(&s.names);
        status = *text ? TR_OK : no_memory(err);
    }
    tri_words_fini(&s.names);
    return status;
}

char *tri_labels_describe(const tri_labels *labels, char *text, size_t text_size)
{
    enum { SHOWN = 5 };
    const tri_words *names = &labels->names;
    double total = 0;
    for (size_t i = 0; i < names->num; i++)
        total += (double)names->word[i].count;
    size_t used = (size_t)snprintf(text, text_size, "%zu labels:", names->num);
    for (size_t i = 0; i < names->num && i < SHOWN && used < text_size; i++)
        used +=
            (size_t)snprintf(text + used, text_size - used, "%s %.*s %.0f%%", i ? "," : "",
                             (int)(names->word[i].num_bytes < 24 ? names->word[i].num_bytes : 24),
                             names->blob.data + names->word[i].start,
                             100 * (double)names->word[i].count / (total > 0 ? total : 1));
    if (names->num > SHOWN && used < text_size)
        snprintf(text + used, text_size - used, ", ...");
    return text;
}
