/* What tokenizers need to know of Unicode: decoding UTF-8 that may be broken, the classes of
 * characters that patterns name, normal forms and lower case.
 *
 * Text is bytes. A byte that is no part of valid UTF-8 counts as one character of its own, in no
 * class, and every transformation here passes it on unchanged. */
#ifndef TRI_DATA_UNICODE_UNICODE_H
#define TRI_DATA_UNICODE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRI_NUM_CODE_POINTS = 0x110000 };

/* A growing run of bytes. When memory runs out `failed` is set and stays set, so that code which
 * appends much may check once at its end. */
typedef struct tri_bytes {
    char *data;
    size_t num, capacity;
    bool failed;
} tri_bytes;

void tri_bytes_add(tri_bytes *bytes, const void *data, size_t num);
void tri_bytes_add_char(tri_bytes *bytes, uint32_t code_point); /* or TRI_BROKEN + byte */
void tri_bytes_fini(tri_bytes *bytes);

enum {
    TRI_CLASS_LETTER = 1,       /* \p{L} */
    TRI_CLASS_NUMBER = 2,       /* \p{N} */
    TRI_CLASS_SPACE = 4,        /* White_Space */
    TRI_CLASS_MARK = 8,         /* \p{M} of an old Unicode, as StripAccents has it */
    TRI_CLASS_NONSPACING = 16,  /* \p{Mn} of an old Unicode, as BERT has it */
    TRI_CLASS_PUNCTUATION = 32, /* \p{P} of an old Unicode and the ASCII symbols, as BERT has it */
    TRI_CLASS_OTHER = 64,       /* \p{C} without the unassigned, as BERT has it */
    TRI_CLASS_WORD = 128        /* \w of Rust: alphabetic, marks, digits, connectors, joiners */
};

/* The classes of the first 65,536 code points; the rest are looked up when they occur. */
typedef struct tri_unicode {
    uint8_t plane0[65536];
} tri_unicode;

void tri_unicode_init(tri_unicode *unicode);
uint8_t tri_unicode_class_of(uint32_t code_point); /* slow; 0 for a broken byte */

static inline uint8_t tri_unicode_class(const tri_unicode *unicode, uint32_t code_point)
{
    return code_point < 65536 ? unicode->plane0[code_point] : tri_unicode_class_of(code_point);
}

/* The character at p < end, and p moved behind it. A byte b that is not valid UTF-8 comes out as
 * TRI_BROKEN + b and moves p by one. */
#define TRI_BROKEN 0x80000000u
uint32_t tri_utf8_next_long(const char **p, const char *end);

static inline uint32_t tri_utf8_next(const char **p, const char *end)
{
    unsigned char byte = (unsigned char)**p;
    if (byte < 0x80) {
        (*p)++;
        return byte;
    }
    return tri_utf8_next_long(p, end);
}

/* The character that ends at p > begin; p moves to its beginning. */
uint32_t tri_utf8_previous(const char *begin, const char **p);

/* Bytes written to out (at most 4). */
int tri_utf8_put(uint32_t code_point, char out[4]);

/* As memmem, for num_what > 0. The texts that are looked for begin with a byte that is rare or
 * that occurs nearby, so memchr is fast; and memmem under ThreadSanitizer reads all of the text in
 * every call. */
const char *tri_find(const char *text, size_t num_bytes, const char *what, size_t num_what);

bool tri_is_ascii(const char *text, size_t num_bytes);
bool tri_is_late_number(uint32_t code_point); /* one that Digits knows and \p{N} does not */
bool tri_is_cjk(uint32_t code_point); /* an ideograph, as BERT has it: spaces go around it */

typedef enum tri_form { TRI_FORM_NFC, TRI_FORM_NFD, TRI_FORM_NFKC, TRI_FORM_NFKD } tri_form;

/* Each appends to out. */
void tri_unicode_normalize(tri_form form, const char *text, size_t num_bytes, tri_bytes *out);
void tri_unicode_lower(const char *text, size_t num_bytes, tri_bytes *out);

#endif
