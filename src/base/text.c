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

void tri_text_add(tri_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    size_t wanted = text->length + (length > 0 ? (size_t)length : 0) + 1;
    if (wanted > text->capacity) {
        size_t capacity = text->capacity ? text->capacity * 2 : 4096;
        while (capacity < wanted)
            capacity *= 2;
        char *grown = realloc(text->chars, capacity);
        if (!grown) {
            text->failed = true;
            va_end(args);
            return;
        }
        text->chars = grown;
        text->capacity = capacity;
    }
    if (length > 0)
        text->length += (size_t)vsnprintf(text->chars + text->length, text->capacity - text->length,
                                          format, args);
    text->chars[text->length] = 0;
    va_end(args);
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
