#include "data/source/template.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

const char tri_template_alpaca[] =
    "Below is an instruction that describes a task. Write a response that appropriately completes "
    "the request.\n\n### Instruction:\n{instruction}\n\n### Response:\n{output}";
const char tri_template_alpaca_input[] =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
    "{instruction}\n\n### Input:\n{input}\n\n### Response:\n{output}";

typedef struct template_part {
    char *field; /* or NULL: text */
    tri_bytes text;
} template_part;

struct tri_template {
    template_part *parts;
    size_t num, capacity;
    size_t answer; /* the part that is the answer */
    char *key;
    bool failed;
};

void tri_template_destroy(tri_template *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->num; i++) {
        free(t->parts[i].field);
        tri_bytes_fini(&t->parts[i].text);
    }
    free(t->parts);
    free(t->key);
    free(t);
}

static template_part *add_part(tri_template *t)
{
    template_part *grown = tri_array_grow(t->parts, t->num, &t->capacity, sizeof *grown);
    if (!grown) {
        t->failed = true;
        return NULL;
    }
    t->parts = grown;
    return &t->parts[t->num++];
}

static void add_text(tri_template *t, const char *text, size_t num)
{
    template_part *last =
        t->num > 0 && !t->parts[t->num - 1].field ? &t->parts[t->num - 1] : add_part(t);
    if (last)
        tri_bytes_add(&last->text, text, num);
}

/* "{name}" at text: adds it and returns what follows, or NULL. */
static const char *add_field(tri_template *t, const char *text)
{
    size_t num = strcspn(text + 1, "{}\n");
    if (num == 0 || text[1 + num] != '}')
        return NULL;
    template_part *added = add_part(t);
    if (added) {
        added->field = strndup(text + 1, num);
        t->failed = t->failed || !added->field;
    }
    return text + num + 2;
}

static tr_status parse(tri_template *t, const char *text, tr_error *err)
{
    for (const char *at = text; *at && !t->failed;) {
        if ((at[0] == '{' || at[0] == '}') && at[1] == at[0]) {
            add_text(t, at, 1);
            at += 2;
        } else if (at[0] == '\\' && (at[1] == 'n' || at[1] == 't' || at[1] == '\\')) {
            add_text(t, at[1] == 'n' ? "\n" : at[1] == 't' ? "\t" : "\\", 1);
            at += 2;
        } else if (at[0] == '{' || at[0] == '}') {
            const char *next = at[0] == '{' ? add_field(t, at) : NULL;
            if (!next)
                return tri_fail(err, TR_ERROR_INPUT,
                                "%s: the '%c' at character %zu belongs to no {field}; write %c%c "
                                "for a brace",
                                t->key, at[0], (size_t)(at - text) + 1, at[0], at[0]);
            at = next;
        } else {
            size_t num = strcspn(at, "{}\\");
            num += num == 0; /* a backslash that is nothing but itself */
            add_text(t, at, num);
            at += num;
        }
    }
    for (size_t i = 0; i < t->num; i++)
        t->failed = t->failed || t->parts[i].text.failed;
    return t->failed ? tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", t->key) : TR_OK;
}

static tr_status find_answer(tri_template *t, const char *answer, tr_error *err)
{
    int times = 0;
    for (size_t i = 0; i < t->num; i++)
        if (t->parts[i].field && strcmp(t->parts[i].field, answer) == 0) {
            t->answer = i;
            times++;
        }
    if (times != 1)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s has {%.60s} %s; the answer must stand in it once (data.answer_field "
                        "names its field)",
                        t->key, answer, times ? "more than once" : "nowhere");
    return TR_OK;
}

tr_status tri_template_parse(const char *key, const char *text, const char *answer,
                             tri_template **out, tr_error *err)
{
    *out = NULL;
    tri_template *t = calloc(1, sizeof *t);
    if (t)
        t->key = strdup(key);
    tr_status status =
        t && t->key ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", key);
    if (status == TR_OK)
        status = parse(t, text, err);
    if (status == TR_OK)
        status = find_answer(t, answer, err);
    if (status != TR_OK)
        tri_template_destroy(t);
    else
        *out = t;
    return status;
}

tr_status tri_template_render(const tri_template *t, const tri_entry *entry, tri_bytes *prompt,
                              tri_bytes *answer, tr_error *err)
{
    for (size_t i = 0; i < t->num; i++) {
        const template_part *p = &t->parts[i];
        tri_bytes *to = i < t->answer ? prompt : answer;
        const char *text = p->text.data;
        size_t num = p->text.num;
        if (p->field)
            TRI_TRY(tri_entry_text(entry, p->field,
                                   i == t->answer ? "data.answer_field" : "data.template",
                                   strcmp(p->field, "input") == 0, &text, &num, err));
        tri_bytes_add(to, text, num);
    }
    if (prompt->failed || answer->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", entry->path);
    return TR_OK;
}
