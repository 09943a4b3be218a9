/* A text that grows: what printers write into. The owner of the text decides where it goes. */
#ifndef TRI_BASE_TEXT_H
#define TRI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct tri_text {
    char *chars; /* always ends in NUL once anything was added */
    size_t length, capacity;
    bool failed; /* memory ran out: the text is incomplete */
} tri_text;

void tri_text_init(tri_text *text);
void tri_text_fini(tri_text *text);
void tri_text_add(tri_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Short forms for people: "1.50 GiB", "124 M", "3.2 TFLOP". Each writes at most 16 bytes. */
char *tri_text_bytes(double bytes, char out[16]);
char *tri_text_count(double count, char out[16]);
/* "1,234,567"; returns text. */
char *tri_text_grouped(int64_t value, char text[32]);

/* Writes words from a column on, where the file is already, and breaks lines before `width`, but
 * not inside "(1 to 1000)". Ends the line. */
void tri_text_wrap(FILE *file, const char *text, int column, int width);

#endif
