/* A text that grows: what printers write into. The owner of the text decides where it goes. */
#ifndef TRI_BASE_TEXT_H
#define TRI_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

typedef struct tri_text {
    char *chars; /* always ends in NUL once anything was added */
    size_t length, capacity;
    bool failed; /* memory ran out: the text ends here, and what is added later is not in it */
} tri_text;

void tri_text_init(tri_text *text);
void tri_text_fini(tri_text *text);
void tri_text_add(tri_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tri_text_vadd(tri_text *text, const char *format, va_list args);
void tri_text_add_bytes(tri_text *text, const void *data, size_t num_bytes); /* any, zeros too */

/* Decodes one character of UTF-8 and returns its length; 0 when it is not valid. */
int tri_utf8_decode(const char *text, uint32_t *code);

/* Text of a file or a peer may hold what a terminal obeys: escape sequences, carriage returns,
 * marks that turn the direction of writing. Adds it with all of that, and bytes that are no UTF-8,
 * spelt out ("\x1b"); ends of lines and tabs stay. */
void tri_text_add_printable(tri_text *text, const char *from);
/* The same within SVG, where it is what is drawn and never a tag. */
void tri_text_add_svg(tri_text *text, const char *from);
/* As fprintf, but printable: for whatever prints names, labels, metadata, messages. */
void tri_text_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tri_text_vprint(FILE *file, const char *format, va_list args);
/* Writes all of it into the file, or fails when it is not all there. */
tr_status tri_text_put(const tri_text *text, FILE *file, tr_error *err);

/* Short forms for people: "1.50 GiB", "124 M", "3.2 TFLOP". Each writes at most 16 bytes. */
char *tri_text_bytes(double bytes, char out[16]);
char *tri_text_count(double count, char out[16]);
/* "1,234,567"; returns text. */
char *tri_text_grouped(int64_t value, char text[32]);

/* Writes words from a column on, where the file is already, and breaks lines before `width`, but
 * not inside "(1 to 1000)". Ends the line. */
void tri_text_wrap(FILE *file, const char *text, int column, int width);

#endif
