#include "cli/words/usage.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_TOKENS = 12 };

/* A place of an alternative: "diff", "RUN", "encode|decode|inspect". */
typedef struct usage_token {
    const char *text;
    int length;
} usage_token;

typedef struct usage_way {
    usage_token tokens[MOST_TOKENS];
    int num_tokens;
    bool repeats; /* the last one, any number of times */
} usage_way;

/* Reads the alternative at *at and goes on behind it; false at the end. Flags end it: they have a
 * list of their own. */
static bool next_way(const char **at, usage_way *way)
{
    bool flags = false;
    if (!**at)
        return false;
    *way = (usage_way){0};
    while (**at) {
        *at += strspn(*at, " ");
        usage_token token = {*at, (int)strcspn(*at, " ")};
        *at += token.length;
        if (token.length == 1 && *token.text == '|')
            return true;
        while (token.length > 0 && *token.text == '[')
            token = (usage_token){token.text + 1, token.length - 1};
        while (token.length > 0 && token.text[token.length - 1] == ']')
            token.length--;
        flags = flags || *token.text == '-' || *token.text == '\'';
        if (token.length == 3 && memcmp(token.text, "...", 3) == 0)
            way->repeats = true;
        else if (!flags && token.length > 0 && way->num_tokens < MOST_TOKENS)
            way->tokens[way->num_tokens++] = token;
    }
    return true;
}

/* The choices of a token, one after the other; false at its end. */
static bool next_choice(usage_token *rest, usage_token *choice)
{
    if (rest->length <= 0)
        return false;
    const char *bar = memchr(rest->text, '|', (size_t)rest->length);
    *choice = (usage_token){rest->text, bar ? (int)(bar - rest->text) : rest->length};
    *rest = (usage_token){rest->text + choice->length + 1, rest->length - choice->length - 1};
    return true;
}

static const usage_token *place(const usage_way *way, int i)
{
    if (i >= way->num_tokens && way->repeats)
        i = way->num_tokens - 1;
    return i >= 0 && i < way->num_tokens ? &way->tokens[i] : NULL;
}

/* How many operands are words of this way; -1 when the operands do not go this way. */
static int num_words(const usage_way *way, const char *const *operands, int num)
{
    int words = 0;
    for (int i = 0; i < num; i++) {
        const usage_token *at = place(way, i);
        usage_token rest = at ? *at : (usage_token){0}, choice;
        bool word = false, kind = false;
        while (next_choice(&rest, &choice)) {
            kind = kind || isupper((unsigned char)*choice.text);
            word = word || ((int)strlen(operands[i]) == choice.length &&
                            memcmp(operands[i], choice.text, (size_t)choice.length) == 0);
        }
        if (!word && !kind)
            return -1;
        words += word;
    }
    return words;
}

void tri_usage_next(const char *usage, const char *const *operands, int num_operands,
                    tri_usage_take_fn take, void *context)
{
    usage_way way;
    int most = 0;
    for (const char *at = usage; next_way(&at, &way);) {
        int words = num_words(&way, operands, num_operands);
        most = words > most ? words : most;
    }
    for (const char *at = usage; next_way(&at, &way);) {
        const usage_token *next = place(&way, num_operands);
        if (!next || num_words(&way, operands, num_operands) != most)
            continue;
        usage_token rest = *next, choice;
        while (next_choice(&rest, &choice))
            take(context, choice.text, choice.length);
    }
}
