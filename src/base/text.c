#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tri_text_init(tri_text *text)
{
    *text = (tri_text){0};
}

void tri_text_fini(tri_text *text)
{
    free(text->chars);
    *text = (tri_text){0};
}

/* For so many bytes more, and the zero that ends a text. */
static bool make_room(tri_text *text, size_t num_bytes)
{
    size_t wanted = text->length + num_bytes + 1;
    size_t capacity = text->capacity ? text->capacity : 4096;
    if (text->failed || wanted <= text->capacity)
        return !text->failed;
    while (capacity < wanted)
        capacity *= 2;
    char *grown = realloc(text->chars, capacity);
    text->failed = !grown;
    if (!grown)
        return false;
    text->chars = grown;
    text->capacity = capacity;
    return true;
}

void tri_text_add_bytes(tri_text *text, const void *data, size_t num_bytes)
{
    if (!make_room(text, num_bytes))
        return;
    if (num_bytes > 0) /* of nothing there may be no address */
        memcpy(text->chars + text->length, data, num_bytes);
    text->length += num_bytes;
    text->chars[text->length] = 0;
}

void tri_text_vadd(tri_text *text, const char *format, va_list args)
{
    if (text->failed)
        return;
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (!make_room(text, length > 0 ? (size_t)length : 0))
        return;
    if (length > 0)
        text->length += (size_t)vsnprintf(text->chars + text->length, text->capacity - text->length,
                                          format, args);
    text->chars[text->length] = 0;
}

void tri_text_add(tri_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tri_text_vadd(text, format, args);
    va_end(args);
}

int tri_utf8_decode(const char *text, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    int length = 0;
    if (s[0] < 0x80)
        length = 1;
    else if (s[0] >> 5 == 6)
        length = 2;
    else if (s[0] >> 4 == 14)
        length = 3;
    else if (s[0] >> 3 == 30)
        length = 4;
    else
        return 0;
    *code = length == 1 ? s[0] : s[0] & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        *code = *code << 6 | (s[i] & 0x3F);
    }
    if (*code < least[length] || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF))
        return 0;
    return length;
}

/* What a terminal may obey, or show in another place than where it stands. */
static bool is_command(uint32_t code)
{
    return (code < ' ' && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0) ||
           code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

/* The length of what may be shown as it is, from here on. */
static size_t plain_length(const char *from)
{
    size_t length = 0;
    uint32_t code = 0;
    for (int one; from[length]; length += (size_t)one) {
        one = tri_utf8_decode(from + length, &code);
        if (one == 0 || is_command(code))
            break;
    }
    return length;
}

/* Spells out the character that begins here; returns its length. */
static size_t spell_out(const char *from, char out[16])
{
    uint32_t code = 0;
    int length = tri_utf8_decode(from, &code);
    if (length > 1)
        snprintf(out, 16, "\\u%04x", (unsigned)code);
    else
        snprintf(out, 16, "\\x%02x", (unsigned char)*from);
    return length > 0 ? (size_t)length : 1;
}

void tri_text_add_printable(tri_text *text, const char *from)
{
    while (*from) {
        char spelt[16];
        size_t plain = plain_length(from);
        if (plain > 0)
            tri_text_add(text, "%.*s", (int)plain, from);
        from += plain;
        if (*from) {
            from += spell_out(from, spelt);
            tri_text_add(text, "%s", spelt);
        }
    }
}

/* Without memory a long text is cut, and ends in dots. */
void tri_text_vprint(FILE *file, const char *format, va_list args)
{
    char small[2048], *large = NULL;
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(small, sizeof small, format, args);
    if (length >= (int)sizeof small && (large = malloc((size_t)length + 1)))
        vsnprintf(large, (size_t)length + 1, format, again);
    va_end(again);
    for (const char *from = large ? large : small; length > 0 && *from;) {
        char spelt[16];
        size_t plain = plain_length(from);
        fwrite(from, 1, plain, file);
        from += plain;
        if (*from) {
            from += spell_out(from, spelt);
            fputs(spelt, file);
        }
    }
    if (length >= (int)sizeof small && !large)
        fputs("...\n", file);
    free(large);
}

void tri_text_add_svg(tri_text *text, const char *from)
{
    tri_text plain;
    tri_text_init(&plain);
    tri_text_add_printable(&plain, from);
    text->failed |= plain.failed;
    for (const char *c = plain.length > 0 ? plain.chars : ""; *c; c++)
        tri_text_add(text, *c == '<' ? "&lt;" : *c == '&' ? "&amp;" : "%c", *c);
    tri_text_fini(&plain);
}

void tri_text_print(FILE *file, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tri_text_vprint(file, format, args);
    va_end(args);
}

tr_status tri_text_put(const tri_text *text, FILE *file, tr_error *err)
{
    if (text->failed)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the text");
    if (text->length > 0)
        fwrite(text->chars, 1, text->length, file);
    return TR_OK;
}

char *tri_text_bytes(double bytes, char out[16])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    while (bytes >= 1024 && u < 5) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, 16, u == 0 ? "%.0f %s" : bytes < 10 ? "%.2f %s" : "%.1f %s", bytes, unit[u]);
    return out;
}

char *tri_text_count(double count, char out[16])
{
    static const char *const unit[] = {"", " k", " M", " G", " T", " P", " E"};
    int u = 0;
    while (count >= 1000 && u < 6) {
        count /= 1000;
        u++;
    }
    snprintf(out, 16, u == 0 ? "%.0f%s" : count < 10 ? "%.2f%s" : "%.1f%s", count, unit[u]);
    return out;
}

char *tri_text_grouped(int64_t value, char text[32])
{
    char plain[24];
    int digits = snprintf(plain, sizeof plain, "%lld", (long long)value);
    char *out = text;
    for (int i = 0; i < digits; i++) {
        if (i > 0 && (digits - i) % 3 == 0 && plain[i - 1] != '-')
            *out++ = ',';
        *out++ = plain[i];
    }
    *out = 0;
    return text;
}

void tri_text_wrap(FILE *file, const char *text, int column, int width)
{
    enum { SHORT_REMARK = 20 }; /* in parentheses; kept on one line */
    int at = column;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        const char *close = *word == '(' ? strchr(word, ')') : NULL;
        if (close && close - word < SHORT_REMARK) /* with a comma behind it, if there is one */
            length = (int)(close - word) + (int)strcspn(close, " ");
        if (at > column && at + 1 + length > width) {
            fprintf(file, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', file);
            at++;
        }
        fwrite(word, 1, (size_t)length, file);
        at += length;
        word += length;
        word += strspn(word, " ");
    }
    fputc('\n', file);
}
