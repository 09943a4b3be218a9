#include "data/unicode/unicode.h"

#include "data/unicode/unicode_table.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- growing bytes ---- */

static bool reserve(tri_bytes *bytes, size_t more)
{
    if (bytes->capacity - bytes->num >= more)
        return true;
    size_t capacity = bytes->capacity ? bytes->capacity : 64;
    while (capacity - bytes->num < more) {
        if (capacity > SIZE_MAX / 2) {
            bytes->failed = true;
            return false;
        }
        capacity *= 2;
    }
    char *grown = realloc(bytes->data, capacity);
    if (!grown) {
        bytes->failed = true;
        return false;
    }
    bytes->data = grown;
    bytes->capacity = capacity;
    return true;
}

void tri_bytes_add(tri_bytes *bytes, const void *data, size_t num)
{
    if (num == 0 || !reserve(bytes, num))
        return;
    memcpy(bytes->data + bytes->num, data, num);
    bytes->num += num;
}

void tri_bytes_add_char(tri_bytes *bytes, uint32_t code_point)
{
    char out[4];
    int num = tri_utf8_put(code_point, out);
    tri_bytes_add(bytes, out, (size_t)num);
}

void tri_bytes_fini(tri_bytes *bytes)
{
    free(bytes->data);
    *bytes = (tri_bytes){0};
}

/* ---- UTF-8 ---- */

static bool continues(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

uint32_t tri_utf8_next_long(const char **p, const char *end)
{
    const unsigned char *s = (const unsigned char *)*p;
    ptrdiff_t left = end - *p;
    if (s[0] >= 0xC2 && s[0] < 0xE0 && left >= 2 && continues(s[1])) {
        *p += 2;
        return (uint32_t)(s[0] & 0x1F) << 6 | (s[1] & 0x3F);
    }
    if (s[0] >= 0xE0 && s[0] < 0xF0 && left >= 3 && continues(s[1]) && continues(s[2])) {
        uint32_t c = (uint32_t)(s[0] & 0x0F) << 12 | (uint32_t)(s[1] & 0x3F) << 6 | (s[2] & 0x3F);
        if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) {
            *p += 3;
            return c;
        }
    } else if (s[0] >= 0xF0 && s[0] < 0xF5 && left >= 4 && continues(s[1]) && continues(s[2]) &&
               continues(s[3])) {
        uint32_t c = (uint32_t)(s[0] & 0x07) << 18 | (uint32_t)(s[1] & 0x3F) << 12 |
                     (uint32_t)(s[2] & 0x3F) << 6 | (s[3] & 0x3F);
        if (c >= 0x10000 && c <= 0x10FFFF) {
            *p += 4;
            return c;
        }
    } else if (s[0] < 0x80) {
        *p += 1;
        return s[0];
    }
    *p += 1;
    return TRI_BROKEN + s[0];
}

uint32_t tri_utf8_previous(const char *begin, const char **p)
{
    const char *end = *p;
    for (int back = 1; back <= 4 && end - back >= begin; back++) {
        const char *at = end - back;
        if (continues((unsigned char)*at) && back < 4)
            continue;
        const char *next = at;
        uint32_t c = tri_utf8_next(&next, end);
        if (next == end) {
            *p = at;
            return c;
        }
        break;
    }
    *p = end - 1;
    return TRI_BROKEN + (unsigned char)end[-1];
}

int tri_utf8_put(uint32_t c, char out[4])
{
    if (c >= TRI_BROKEN) {
        out[0] = (char)(c - TRI_BROKEN);
        return 1;
    }
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

const char *tri_find(const char *text, size_t num_bytes, const char *what, size_t num_what)
{
    const char *end = text + num_bytes;
    while ((size_t)(end - text) >= num_what) {
        const char *found = memchr(text, what[0], (size_t)(end - text) - num_what + 1);
        if (!found || memcmp(found, what, num_what) == 0)
            return found;
        text = found + 1;
    }
    return NULL;
}

bool tri_is_ascii(const char *text, size_t num_bytes)
{
    size_t i = 0;
    for (; i + 8 <= num_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        if (word & 0x8080808080808080u)
            return false;
    }
    for (; i < num_bytes; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

/* ---- classes ---- */

uint8_t tri_unicode_class_of(uint32_t c)
{
    if (c > 0x10FFFF)
        return 0;
    int low = 0, high = TRI_NUM_CLASS_RUNS; /* the run of c is at low or behind it, before high */
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (tri_class_run[middle] >> 8 <= c)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)tri_class_run[low];
}

void tri_unicode_init(tri_unicode *unicode)
{
    for (int i = 0; i < TRI_NUM_CLASS_RUNS && tri_class_run[i] >> 8 < 65536; i++) {
        uint32_t end = i + 1 < TRI_NUM_CLASS_RUNS ? tri_class_run[i + 1] >> 8 : 65536;
        for (uint32_t c = tri_class_run[i] >> 8; c < end && c < 65536; c++)
            unicode->plane0[c] = (uint8_t)tri_class_run[i];
    }
}

static bool is_in(uint32_t c, const uint32_t range[][2], int num)
{
    int low = 0, high = num;
    while (low < high) {
        int middle = (low + high) / 2;
        if (range[middle][1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < num && range[low][0] <= c;
}

bool tri_is_late_number(uint32_t c)
{
    return is_in(c, tri_late_number, TRI_NUM_LATE_NUMBERS);
}

bool tri_is_cjk(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* ---- transformations ---- */

/* Everything below U+0300 is in NFC already, and most text is. */
static bool is_plainly_nfc(const char *text, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return false;
    return true;
}

static void normalize_valid(tri_form form, const char *text, size_t num_bytes, tri_bytes *out)
{
    static const unsigned option[] = {
        [TRI_FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [TRI_FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [TRI_FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [TRI_FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t num = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)num_bytes,
                                        &mapped, (utf8proc_option_t)option[form]);
    if (num < 0)
        out->failed = true; /* the text is valid, so it can only be memory */
    else
        tri_bytes_add(out, mapped, (size_t)num);
    free(mapped);
}

void tri_unicode_normalize(tri_form form, const char *text, size_t num_bytes, tri_bytes *out)
{
    if (tri_is_ascii(text, num_bytes) ||
        (form == TRI_FORM_NFC && is_plainly_nfc(text, num_bytes))) {
        tri_bytes_add(out, text, num_bytes);
        return;
    }
    /* What stands on either side of something untouched does not see the other side. */
    const char *end = text + num_bytes, *valid = text, *p = text;
    while (p < end) {
        const char *at = p;
        uint32_t c = tri_utf8_next(&p, end);
        if (c < TRI_BROKEN && (c < 0x300 || !is_in(c, tri_untouched, TRI_NUM_UNTOUCHED)))
            continue;
        if (at > valid)
            normalize_valid(form, valid, (size_t)(at - valid), out);
        tri_bytes_add(out, at, (size_t)(p - at));
        valid = p;
    }
    if (end > valid)
        normalize_valid(form, valid, (size_t)(end - valid), out);
}

static uint32_t lower(uint32_t c)
{
    for (int i = 0; c >= 0x1C89 && i < TRI_NUM_LATE_LOWER; i++)
        if ((int32_t)c >= tri_late_lower[i][0] && (int32_t)c <= tri_late_lower[i][1])
            return (uint32_t)((int32_t)c + tri_late_lower[i][2]);
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

void tri_unicode_lower(const char *text, size_t num_bytes, tri_bytes *out)
{
    const char *p = text, *end = text + num_bytes;
    while (p < end) {
        uint32_t c = tri_utf8_next(&p, end);
        if (c < 0x80) {
            char lower = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
            tri_bytes_add(out, &lower, 1);
        } else if (c == 0x130) { /* the only capital whose small letter is two characters */
            tri_bytes_add(out, "i\xCC\x87", 3);
        } else {
            tri_bytes_add_char(out, c >= TRI_BROKEN ? c : lower(c));
        }
    }
}
