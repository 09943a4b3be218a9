#include "data/source/entries.h"

#include "base/fs.h"
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

static tr_status each_in_dir(const char *dir, bool jsonl_only, tri_file_fn fn, void *context,
                             tr_error *err)
{
    tri_file_list list;
    TRI_TRY(tri_file_list_read(&list, dir, err));
    tr_status status = TR_OK;
    size_t num = 0;
    for (size_t i = 0; status == TR_OK && i < list.num; i++) {
        if (jsonl_only && !tri_is_jsonl_name(list.name[i]))
            continue;
        char *path = tri_path_join(dir, list.name[i]);
        status = path ? fn(context, path, err)
                      : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", dir);
        free(path);
        num++;
    }
    tri_file_list_free(&list);
    if (status == TR_OK && num == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: the directory holds no %s; data.source must name a file or a "
                        "directory of them (links, hidden files and subdirectories do not count)",
                        dir, jsonl_only ? "JSONL (files named .jsonl, .ndjson or .json)" : "text");
    return status;
}

tr_status tri_files_each(const char *source, bool jsonl_only, tri_file_fn fn, void *context,
                         tr_error *err)
{
    if (tri_path_is_dir(source))
        return each_in_dir(source, jsonl_only, fn, context, err);
    if (!tri_path_exists(source))
        return tri_fail_missing(err, source, "data.source must name a file or a directory");
    return fn(context, source, err);
}

tr_status tri_file_text(const char *path, tri_bytes *text, tr_error *err)
{
    enum { BLOCK = 1 << 18 };
    *text = (tri_bytes){0};
    tri_reader *reader;
    TRI_TRY(tri_reader_open(path, &reader, err));
    char *block = malloc(BLOCK);
    size_t num = 1;
    tr_status status = TR_OK;
    while (block && status == TR_OK && num > 0) {
        status = tri_reader_read(reader, block, BLOCK, &num, err);
        if (status == TR_OK)
            tri_bytes_add(text, block, num);
    }
    if (status == TR_OK && (!block || text->failed))
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    free(block);
    tri_reader_close(reader);
    if (status != TR_OK)
        tri_bytes_fini(text);
    return status;
}

/* ---- entries ---- */

typedef struct entry_walk {
    tri_entry_fn fn;
    void *context;
    int64_t num_files, num_entries;
} entry_walk;

static tr_status visit(entry_walk *w, const tri_entry *entry, tr_error *err)
{
    w->num_entries++;
    return w->fn(w->context, entry, err);
}

static tr_status each_line(entry_walk *w, tri_lines *lines, tri_line *line, tr_error *err)
{
    const char *path = tri_lines_path(lines);
    while (line->text) {
        json_t *object = NULL;
        if (!tri_line_is_blank(line)) {
            TRI_TRY(tri_json_line_parse(path, line, &object, err));
            tr_status status =
                visit(w, &(tri_entry){.path = path, .number = line->number, .object = object}, err);
            json_decref(object);
            TRI_TRY(status);
        }
        TRI_TRY(tri_lines_next(lines, line, err));
    }
    return TR_OK;
}

/* ---- lists ---- */

/* A list is read an entry at a time, so that it may be larger than memory. */
typedef struct list_reader {
    entry_walk *w;
    const char *path;
    tri_bytes item;
    int64_t line, item_line, number;
    enum { BEFORE, FIRST, NEXT, WITHIN, BEHIND } where; /* FIRST, NEXT: an entry is to begin */
    int depth;
    bool in_string, escaped;
} list_reader;

static tr_status bad_list(const list_reader *r, int64_t line, const char *why, tr_error *err)
{
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s, line %lld: not valid JSON: %s; the file begins as a list, which must be "
                    "one of objects",
                    r->path, (long long)line, why);
}

static tr_status end_item(list_reader *r, tr_error *err)
{
    json_error_t why;
    json_t *object;
    tri_entry entry = {.path = r->path, .number = ++r->number, .in_list = true};
    if (r->item.failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", r->path);
    tr_status status = tri_json_load(r->path, r->item.data, r->item.num,
                                     JSON_ALLOW_NUL | JSON_DECODE_ANY, &object, &why, err);
    r->item.num = 0;
    if (status == TR_ERROR_INPUT)
        return bad_list(r, r->item_line + why.line - 1, why.text, err);
    TRI_TRY(status);
    entry.object = object;
    status = json_is_object(object)
                 ? visit(r->w, &entry, err)
                 : tri_entry_fail(&entry, err, "not a JSON object, such as {\"text\": \"...\"}");
    json_decref(object);
    return status;
}

/* Whether the character ends the entry at hand: a comma or a bracket that is the list's own. */
static bool ends_item(list_reader *r, char c)
{
    if (r->in_string) {
        r->in_string = c != '"' || r->escaped;
        r->escaped = c == '\\' && !r->escaped;
        return false;
    }
    if (r->depth == 0 && (c == ',' || c == ']'))
        return true;
    r->in_string = c == '"';
    r->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    return false;
}

/* Outside of entries. */
static tr_status take_between(list_reader *r, char c, tr_error *err)
{
    if (strchr(" \t\r\n", c) && c)
        return TR_OK;
    if (r->where == BEHIND)
        return bad_list(r, r->line, "there is something behind the end of the list", err);
    if (c == ']' && r->where == FIRST) {
        r->where = BEHIND;
        return TR_OK;
    }
    if (c == ']' || c == ',')
        return bad_list(r, r->line, "an entry is missing", err);
    r->where = WITHIN;
    r->item_line = r->line;
    r->depth = 0;
    return TR_OK;
}

static tr_status take_block(list_reader *r, const char *text, size_t num_bytes, tr_error *err)
{
    size_t begin = 0; /* of what the entry at hand has of the block */
    for (size_t i = 0; i < num_bytes; i++) {
        char c = text[i];
        if (r->where == BEFORE) { /* blanks, a byte order mark, the bracket: it has been seen */
            r->where = c == '[' ? FIRST : BEFORE;
        } else if (r->where != WITHIN) {
            TRI_TRY(take_between(r, c, err));
            begin = i;
        }
        if (r->where == WITHIN && ends_item(r, c)) {
            tri_bytes_add(&r->item, text + begin, i - begin);
            TRI_TRY(end_item(r, err));
            r->where = c == ',' ? NEXT : BEHIND;
        }
        r->line += c == '\n';
    }
    if (r->where == WITHIN)
        tri_bytes_add(&r->item, text + begin, num_bytes - begin);
    if (r->item.num > TRI_LINE_MAX_BYTES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s, line %lld: an entry of the list is longer than %zu bytes; make it a "
                        "file of JSONL, with an object on each line",
                        r->path, (long long)r->item_line, TRI_LINE_MAX_BYTES);
    return TR_OK;
}

static tr_status each_in_list(entry_walk *w, tri_lines *lines, tr_error *err)
{
    list_reader r = {.w = w, .path = tri_lines_path(lines), .line = 1};
    const char *text;
    size_t num_bytes = 1;
    tr_status status = TR_OK;
    while (status == TR_OK && num_bytes > 0) {
        status = tri_lines_bytes(lines, &text, &num_bytes, err);
        if (status == TR_OK)
            status = take_block(&r, text, num_bytes, err);
    }
    if (status == TR_OK && r.where != BEHIND)
        status = bad_list(&r, r.line, "the list has no end: the file was cut short", err);
    tri_bytes_fini(&r.item);
    return status;
}

static tr_status each_in_file(void *context, const char *path, tr_error *err)
{
    entry_walk *w = context;
    tri_lines *lines;
    tri_line line;
    char first;
    TRI_TRY(tri_lines_open(path, &lines, err));
    w->num_files++;
    tr_status status = tri_lines_peek(lines, &first, err);
    if (status == TR_OK && first == '[') {
        status = each_in_list(w, lines, err);
    } else if (status == TR_OK) {
        status = tri_lines_next(lines, &line, err);
        if (status == TR_OK)
            status = each_line(w, lines, &line, err);
    }
    tri_lines_close(lines);
    return status;
}

tr_status tri_entries_each(const char *source, tri_entry_fn fn, void *context, int64_t *num_files,
                           tr_error *err)
{
    entry_walk w = {.fn = fn, .context = context};
    TRI_TRY(tri_files_each(source, true, each_in_file, &w, err));
    if (num_files)
        *num_files = w.num_files;
    if (w.num_entries == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s: is empty; there must be at least one JSON object in it, one a line",
                        source);
    return TR_OK;
}

/* ---- messages ---- */

tr_status tri_entry_prefix(const tri_entry *entry, tr_status status, tr_error *err)
{
    return tri_fail_prefix(err, status, "%s, %s %lld", entry->path,
                           entry->in_list ? "item" : "line", (long long)entry->number);
}

tr_status tri_entry_fail(const tri_entry *entry, tr_error *err, const char *format, ...)
{
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    tri_fail(err, TR_ERROR_INPUT, "%s", message);
    return tri_entry_prefix(entry, TR_ERROR_INPUT, err);
}

tr_status tri_entry_text(const tri_entry *entry, const char *field, const char *key, bool optional,
                         const char **text, size_t *num_bytes, tr_error *err)
{
    const json_t *value = json_object_get(entry->object, field);
    *text = "";
    *num_bytes = 0;
    if (json_is_string(value)) {
        *text = json_string_value(value);
        *num_bytes = json_string_length(value);
        return TR_OK;
    }
    if (optional && (!value || json_is_null(value)))
        return TR_OK;
    if (value)
        return tri_entry_fail(entry, err, "\"%.60s\" must be a text in quotes (%s)", field, key);
    char names[160] = "";
    const char *name;
    json_t *other;
    json_object_foreach((json_t *)(uintptr_t)entry->object, name, other)
    {
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s\"%.40s\"", length ? ", " : "", name);
    }
    return tri_entry_fail(entry, err, "has no \"%.60s\"; its fields are: %s. Set %s", field,
                          names[0] ? names : "none", key);
}
