/* An address: a path, and words key=value behind a question mark, with % for bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/view/view_parts.h"

static int digit_of(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c | (c >= 'A' ? 0x20 : 0)) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* In place. A byte of 0 would end a text early, and is refused with what is no two digits. */
static bool decode(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        if (*at != '%') {
            *to++ = *at == '+' ? ' ' : *at;
            continue;
        }
        int high = digit_of(at[1]), low = high < 0 ? -1 : digit_of(at[2]);
        if (low < 0 || high + low == 0)
            return false;
        *to++ = (char)(high * 16 + low);
        at += 2;
    }
    *to = 0;
    return true;
}

static tr_status read_word(char *word, tri_view_query *query, tr_error *err)
{
    char *equals = strchr(word, '=');
    if (!equals || equals == word)
        return tri_fail(err, TR_ERROR_INPUT, "\"%.40s\" in the address is not key=value", word);
    if (query->num == TRI_VIEW_WORDS)
        return tri_fail(err, TR_ERROR_INPUT, "the address has more than %d words key=value",
                        TRI_VIEW_WORDS);
    *equals = 0;
    if (!decode(word) || !decode(equals + 1))
        return tri_fail(err, TR_ERROR_INPUT,
                        "after a %% in the address come two hexadecimal digits, and not 00");
    if (tri_view_query_text(query, word))
        return tri_fail(err, TR_ERROR_INPUT, "\"%.40s\" is twice in the address", word);
    query->key[query->num] = word;
    query->value[query->num++] = equals + 1;
    return TR_OK;
}

tr_status tri_view_query_read(const char *address, tri_view_query *query, tr_error *err)
{
    *query = (tri_view_query){0};
    if (strlen(address) > TRI_VIEW_ADDRESS)
        return tri_fail(err, TR_ERROR_INPUT, "an address has at most %d letters", TRI_VIEW_ADDRESS);
    query->text = strdup(address);
    if (!query->text)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for an address");
    query->path = query->text;
    char *at = strchr(query->text, '?');
    while (at) {
        *at++ = 0;
        char *word = at;
        at = strchr(word, '&');
        if (at)
            *at = 0;
        tr_status status = *word ? read_word(word, query, err) : TR_OK;
        if (status != TR_OK) {
            tri_view_query_fini(query);
            return status;
        }
    }
    return TR_OK;
}

void tri_view_query_fini(tri_view_query *query)
{
    free(query->text);
    *query = (tri_view_query){0};
}

const char *tri_view_query_text(const tri_view_query *query, const char *key)
{
    for (int i = 0; i < query->num; i++)
        if (strcmp(query->key[i], key) == 0)
            return query->value[i];
    return NULL;
}

tr_status tri_view_query_int(const tri_view_query *query, const char *key, int64_t least,
                             int64_t most, int64_t *value, tr_error *err)
{
    const char *text = tri_view_query_text(query, key);
    char *end;
    if (!text || !*text)
        return TR_OK;
    long long number = strtoll(text, &end, 10);
    if (*end || number < least || number > most || text[0] == ' ')
        return tri_fail(err, TR_ERROR_INPUT,
                        "%s is \"%.40s\"; it must be a whole number from %lld to %lld", key, text,
                        (long long)least, (long long)most);
    *value = number;
    return TR_OK;
}

tr_status tri_view_query_number(const tri_view_query *query, const char *key, double least,
                                double most, double *value, tr_error *err)
{
    const char *text = tri_view_query_text(query, key);
    char *end;
    if (!text || !*text)
        return TR_OK;
    double number = strtod(text, &end);
    if (*end || !(number >= least && number <= most))
        return tri_fail(err, TR_ERROR_INPUT, "%s is \"%.40s\"; it must be a number from %g to %g",
                        key, text, least, most);
    *value = number;
    return TR_OK;
}

tr_status tri_view_query_only(const tri_view_query *query, const char *known, tr_error *err)
{
    for (int i = 0; i < query->num; i++) {
        size_t length = strlen(query->key[i]);
        bool found = false;
        for (const char *at = known; *at && !found; at += strspn(at, " ")) {
            size_t word = strcspn(at, " ");
            found = word == length && memcmp(at, query->key[i], length) == 0;
            at += word;
        }
        if (!found)
            return tri_fail(err, TR_ERROR_INPUT, "%.100s takes no \"%.40s\"; it takes: %s",
                            query->path, query->key[i], *known ? known : "nothing");
    }
    return TR_OK;
}

tr_status tri_view_query_unknown(const char *what, const char *word, const char *(*at)(size_t),
                                 tr_error *err)
{
    tri_text text;
    tri_text_init(&text);
    for (size_t i = 0; at(i); i++)
        tri_text_add(&text, "%s%s", i > 0 ? ", " : "", at(i));
    tri_fail(err, TR_ERROR_INPUT, "there is no %s \"%.40s\"; it can be %s", what, word,
             text.failed || !text.length ? "nothing" : text.chars);
    tri_text_fini(&text);
    return TR_ERROR_INPUT;
}
