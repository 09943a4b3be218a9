/* What an address asks for, with bounds: the words key=value behind its path. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/view/view_parts.h"

tr_status tri_view_query_int(const tri_http_target *query, const char *key, int64_t least,
                             int64_t most, int64_t *value, tr_error *err)
{
    const char *text = tri_http_target_arg(query, key);
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

tr_status tri_view_query_number(const tri_http_target *query, const char *key, double least,
                                double most, double *value, tr_error *err)
{
    const char *text = tri_http_target_arg(query, key);
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

tr_status tri_view_query_only(const tri_http_target *query, const char *known, tr_error *err)
{
    for (int i = 0; i < (int)query->num_args; i++) {
        size_t length = strlen(query->args[i].name);
        bool found = false;
        for (const char *at = known; *at && !found; at += strspn(at, " ")) {
            size_t word = strcspn(at, " ");
            found = word == length && memcmp(at, query->args[i].name, length) == 0;
            at += word;
        }
        if (!found)
            return tri_fail(err, TR_ERROR_INPUT, "%.100s takes no \"%.40s\"; it takes: %s",
                            query->path, query->args[i].name, *known ? known : "nothing");
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
