#include "cli/doc/json_doc.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"

/* A text for which there was no memory, since tri_doc_begin; base/json.h has the same for values.
 */
static _Thread_local bool lost;

json_t *tri_doc_begin(void)
{
    lost = false;
    tri_json_begin();
    return json_object();
}

void tri_doc_number(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

void tri_doc_count(json_t *object, const char *key, int64_t value)
{
    json_object_set_new(object, key, json_integer(value));
}

void tri_doc_count_from(json_t *object, const char *key, int64_t value, int64_t least)
{
    json_object_set_new(object, key, value >= least ? json_integer(value) : json_null());
}

void tri_doc_flag(json_t *object, const char *key, bool value)
{
    json_object_set_new(object, key, json_boolean(value));
}

void tri_doc_null(json_t *object, const char *key)
{
    json_object_set_new(object, key, json_null());
}

static json_t *printable(const char *value)
{
    tri_text text;
    if (!value)
        return json_null();
    tri_text_init(&text);
    tri_text_add_printable(&text, value);
    lost |= text.failed;
    json_t *made = json_stringn(text.length > 0 ? text.chars : "", text.length);
    tri_text_fini(&text);
    return made;
}

void tri_doc_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, printable(value));
}

void tri_doc_text_item(json_t *list, const char *value)
{
    json_array_append_new(list, printable(value));
}

json_t *tri_doc_object(json_t *object, const char *key)
{
    json_object_set_new(object, key, json_object());
    return json_object_get(object, key);
}

json_t *tri_doc_list(json_t *object, const char *key)
{
    json_object_set_new(object, key, json_array());
    return json_object_get(object, key);
}

json_t *tri_doc_item(json_t *list)
{
    json_array_append_new(list, json_object());
    return json_array_get(list, json_array_size(list) - 1);
}

tr_status tri_doc_print(json_t *doc, FILE *file, tr_error *err)
{
    char *all = lost ? NULL : tri_json_dump(doc, JSON_COMPACT);
    json_decref(doc);
    if (!all)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for what --json prints");
    fprintf(file, "%s\n", all); /* main looks whether it could be written */
    free(all);
    return TR_OK;
}

tr_status tri_doc_add(json_t *doc, tri_text *text, tr_error *err)
{
    char *line = lost ? NULL : tri_json_dump(doc, JSON_COMPACT);
    json_decref(doc);
    if (!line)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for what --json prints");
    tri_text_add(text, "%s\n", line);
    free(line);
    return TR_OK;
}
