/* Reading text that may be large and may be compressed, from its first byte to its last: as blocks,
 * as lines, or as JSONL (one JSON object a line).
 *
 * gzip and zstd are known by their first bytes, not by the name of the file; several members or
 * frames one after the other are one text. Nothing is ever held whole: a reader owns a buffer or
 * two, lines one as long as the longest line.
 *
 * Every error names the file; those about lines also name the line, counted from 1. */
#ifndef TRI_DATA_LINES_H
#define TRI_DATA_LINES_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- bytes ---- */

typedef struct tri_reader tri_reader;

tr_status tri_reader_open(const char *path, tri_reader **reader, tr_error *err);
void tri_reader_close(tri_reader *reader); /* NULL is fine */

/* The next bytes of the text, at most num_bytes of them; *num_read is 0 at its end only. A file
 * that ends in the middle of its compressed data is an error. */
tr_status tri_reader_read(tri_reader *reader, void *data, size_t num_bytes, size_t *num_read,
                          tr_error *err);

/* Bytes of the file itself that were taken so far: for progress. */
uint64_t tri_reader_consumed(const tri_reader *reader);

/* ---- lines ---- */

typedef struct tri_lines tri_lines;

typedef struct tri_line {
    const char *text; /* without its end, "\n" or "\r\n"; a NUL follows; NULL: there are no more */
    size_t num_bytes;
    int64_t number;
} tri_line;

/* A line may have this many bytes. */
#define TRI_LINE_MAX_BYTES ((size_t)1 << 30)

tr_status tri_lines_open(const char *path, tri_lines **lines, tr_error *err);
void tri_lines_close(tri_lines *lines); /* NULL is fine */
const char *tri_lines_path(const tri_lines *lines);
uint64_t tri_lines_consumed(const tri_lines *lines);

/* Before the first line: what the text begins with, blanks and a byte order mark left out; 0 for an
 * empty one. Takes nothing. */
tr_status tri_lines_peek(tri_lines *lines, char *first, tr_error *err);
/* Instead of lines: the next bytes as they are; *num_bytes is 0 at the end. They stay until the
 * next call. */
tr_status tri_lines_bytes(tri_lines *lines, const char **text, size_t *num_bytes, tr_error *err);

/* The text stays until the next call. A byte order mark at the beginning is left out. */
tr_status tri_lines_next(tri_lines *lines, tri_line *line, tr_error *err);

/* ---- JSONL ---- */

/* Whether a file is JSONL by its name: .jsonl, .ndjson or .json, before any .gz or .zst. */
bool tri_is_jsonl_name(const char *path);

/* A line as an object, which the caller gives back with json_decref. */
tr_status tri_json_line_parse(const char *path, const tri_line *line, json_t **object,
                              tr_error *err);
/* Nothing but white space. */
bool tri_line_is_blank(const tri_line *line);

/* A member that must be a text; it belongs to the object. */
tr_status tri_json_line_text(const char *path, int64_t number, const json_t *object,
                             const char *field, const char **text, size_t *num_bytes,
                             tr_error *err);

#endif
