/* Lines and JSONL on top of a reader. */
#include "data/lines.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FIRST_CAPACITY = 256 * 1024 };

struct tri_lines {
    tri_reader *reader;
    char *path;
    char *buffer;    /* capacity bytes and one for a NUL */
    size_t at, num;  /* what has been read and not handed out: [at, num) */
    size_t searched; /* no end of a line in [at, searched) */
    size_t capacity;
    int64_t number; /* of the line handed out last */
    bool ended;
};

tr_status tri_lines_open(const char *path, tri_lines **lines, tr_error *err)
{
    *lines = NULL;
    tri_lines *l = calloc(1, sizeof *l);
    if (l) {
        l->path = strdup(path);
        l->capacity = FIRST_CAPACITY;
        l->buffer = malloc(l->capacity + 1);
    }
    tr_status status = l && l->path && l->buffer
                           ? tri_reader_open(path, &l->reader, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "%s: out of memory", path);
    if (status != TR_OK)
        tri_lines_close(l);
    else
        *lines = l;
    return status;
}

void tri_lines_close(tri_lines *l)
{
    if (!l)
        return;
    tri_reader_close(l->reader);
    free(l->path);
    free(l->buffer);
    free(l);
}

const char *tri_lines_path(const tri_lines *l)
{
    return l->path;
}

uint64_t tri_lines_consumed(const tri_lines *l)
{
    return tri_reader_consumed(l->reader);
}

/* Moves what is left to the front, or makes room behind it. */
static tr_status make_room(tri_lines *l, tr_error *err)
{
    if (l->at > 0) {
        memmove(l->buffer, l->buffer + l->at, l->num - l->at);
        l->num -= l->at;
        l->searched -= l->at;
        l->at = 0;
    }
    if (l->num < l->capacity)
        return TR_OK;
    if (l->num >= TRI_LINE_MAX_BYTES)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s, line %lld: longer than %zu bytes; is this a file of lines?", l->path,
                        (long long)l->number + 1, TRI_LINE_MAX_BYTES);
    char *larger = realloc(l->buffer, 2 * l->capacity + 1);
    if (!larger)
        return tri_fail(err, TR_ERROR_RUNTIME, "%s, line %lld: out of memory", l->path,
                        (long long)l->number + 1);
    l->buffer = larger;
    l->capacity *= 2;
    return TR_OK;
}

static tr_status read_more(tri_lines *l, tr_error *err)
{
    size_t num;
    TRI_TRY(make_room(l, err));
    TRI_TRY(tri_reader_read(l->reader, l->buffer + l->num, l->capacity - l->num, &num, err));
    l->ended = num == 0;
    l->num += num;
    return TR_OK;
}

tr_status tri_lines_peek(tri_lines *l, char *first, tr_error *err)
{
    static const char blanks[] = " \t\r\n\v\f\xef\xbb\xbf";
    size_t at = l->at;
    *first = 0;
    for (;;) {
        while (at < l->num && memchr(blanks, l->buffer[at], sizeof blanks - 1))
            at++;
        if (at < l->num)
            *first = l->buffer[at];
        if (at < l->num || l->ended)
            return TR_OK;
        at -= l->at; /* what is left may move to the front */
        TRI_TRY(read_more(l, err));
        at += l->at;
    }
}

tr_status tri_lines_bytes(tri_lines *l, const char **text, size_t *num_bytes, tr_error *err)
{
    if (l->at == l->num && !l->ended)
        TRI_TRY(read_more(l, err));
    *text = l->buffer + l->at;
    *num_bytes = l->num - l->at;
    l->at = l->searched = l->num;
    return TR_OK;
}

tr_status tri_lines_next(tri_lines *l, tri_line *line, tr_error *err)
{
    *line = (tri_line){0};
    char *end = NULL;
    for (;;) {
        end = memchr(l->buffer + l->searched, '\n', l->num - l->searched);
        if (end || l->ended)
            break;
        l->searched = l->num;
        TRI_TRY(read_more(l, err));
    }
    if (!end && l->at == l->num)
        return TR_OK;
    char *text = l->buffer + l->at, *stop = end ? end : l->buffer + l->num;
    l->at = l->searched = (size_t)(stop - l->buffer) + (end ? 1 : 0);
    if (end && stop > text && stop[-1] == '\r')
        stop--;
    if (l->number == 0 && stop - text >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    *stop = 0; /* the end of the line, or the byte behind the buffer's last */
    *line = (tri_line){text, (size_t)(stop - text), ++l->number};
    return TR_OK;
}

/* ---- JSONL ---- */

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t num = strlen(end);
    return length > num && strncasecmp(text + length - num, end, num) == 0;
}

bool tri_is_jsonl_name(const char *path)
{
    size_t length = strlen(path);
    if (ends_with(path, length, ".gz"))
        length -= 3;
    else if (ends_with(path, length, ".zst"))
        length -= 4;
    return ends_with(path, length, ".jsonl") || ends_with(path, length, ".ndjson") ||
           ends_with(path, length, ".json");
}

bool tri_line_is_blank(const tri_line *line)
{
    return strspn(line->text, " \t\r\n\v\f") == line->num_bytes;
}

tr_status tri_json_line_parse(const char *path, const tri_line *line, json_t **object,
                              tr_error *err)
{
    json_error_t why;
    tr_status status =
        tri_json_load(path, line->text, line->num_bytes, JSON_ALLOW_NUL, object, &why, err);
    if (status == TR_ERROR_RUNTIME)
        return status;
    if (status != TR_OK)
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s, line %lld: not valid JSON at byte %d of its %zu: %s; each line must "
                        "be one whole JSON object",
                        path, (long long)line->number, why.position, line->num_bytes, why.text);
    if (json_is_object(*object))
        return TR_OK;
    json_decref(*object);
    *object = NULL;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s, line %lld: not a JSON object; each line must be one, such as "
                    "{\"text\": \"...\"}",
                    path, (long long)line->number);
}

tr_status tri_json_line_text(const char *path, int64_t number, const json_t *object,
                             const char *field, const char **text, size_t *num_bytes, tr_error *err)
{
    const json_t *value = json_object_get(object, field);
    if (json_is_string(value)) {
        *text = json_string_value(value);
        *num_bytes = json_string_length(value);
        return TR_OK;
    }
    if (value)
        return tri_fail(err, TR_ERROR_INPUT, "%s, line %lld: \"%.60s\" is not a text", path,
                        (long long)number, field);
    char names[200] = "";
    const char *key;
    json_t *other;
    json_object_foreach((json_t *)(uintptr_t)object, key, other)
    {
        size_t length = strlen(names);
        snprintf(names + length, sizeof names - length, "%s\"%.40s\"", length ? ", " : "", key);
    }
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s, line %lld: has no \"%.60s\"; its fields are: %s. Name the one to read: "
                    "data.field, or --field of `trireme data`",
                    path, (long long)number, field, names[0] ? names : "none");
}
