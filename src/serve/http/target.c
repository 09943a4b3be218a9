#include "serve/http/target.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place, up to the end; false: it is malformed. */
static bool decode(char *text, bool plus)
{
    char *to = text;
    for (const char *c = text; *c; c++) {
        int high, low;
        char byte = *c;
        if (byte == '+' && plus)
            byte = ' ';
        if (byte == '%') {
            if ((high = digit(c[1])) < 0 || (low = digit(c[2])) < 0)
                return false;
            byte = (char)(high << 4 | low);
            c += 2;
        }
        if ((unsigned char)byte < ' ' || byte == 0x7f)
            return false;
        *to++ = byte;
    }
    *to = 0;
    uint32_t code;
    for (int n; *text; text += n)
        if ((n = tri_utf8_decode(text, &code)) == 0)
            return false;
    return true;
}

static bool add_arg(tri_http_target *t, char *text)
{
    char *value = strchr(text, '=');
    if (value)
        *value++ = 0;
    else
        value = text + strlen(text);
    if (!*text || !decode(text, true) || !decode(value, true) || t->num_args == TRI_HTTP_MAX_ARGS ||
        tri_http_target_arg(t, text))
        return false;
    t->args[t->num_args++] = (tri_http_arg){text, value};
    return true;
}

int tri_http_target_read(tri_http_target *t, const char *uri)
{
    enum { MALFORMED = 400, TOO_LONG = 414 };
    size_t length = strnlen(uri, TRI_HTTP_TARGET_BYTES + 1);
    t->path = "";
    t->num_args = 0;
    if (length > TRI_HTTP_TARGET_BYTES)
        return TOO_LONG;
    memcpy(t->text, uri, length + 1);
    char *query = strchr(t->text, '?');
    if (query)
        *query++ = 0;
    if (t->text[0] != '/' || !decode(t->text, false))
        return MALFORMED;
    t->path = t->text;
    while (query && *query) {
        char *next = strchr(query, '&');
        if (next)
            *next++ = 0;
        if (!add_arg(t, query))
            return MALFORMED;
        query = next;
    }
    return 0;
}

const char *tri_http_target_arg(const tri_http_target *t, const char *name)
{
    for (size_t i = 0; i < t->num_args; i++)
        if (strcmp(t->args[i].name, name) == 0)
            return t->args[i].value;
    return NULL;
}
