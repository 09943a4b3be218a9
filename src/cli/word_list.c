#include "cli/word_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings/nearest.h"
#include "base/text.h"

tr_status tri_word_list_read(const tri_cli *cli, const char *flag, const char *otherwise,
                             tri_word_list *list, tr_error *err)
{
    const char *given = tri_cli_flag(cli, flag);
    *list = (tri_word_list){.text = strdup(given ? given : otherwise)};
    if (!list->text)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the command line");
    char *rest = NULL;
    for (char *word = strtok_r(list->text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        if (list->num == TRI_MOST_WORDS)
            return tri_fail(err, TR_ERROR_INPUT, "--%s lists more than %d names", flag,
                            TRI_MOST_WORDS);
        list->words[list->num++] = word;
    }
    if (list->num == 0)
        return tri_fail(err, TR_ERROR_INPUT, "--%s is empty", flag);
    return TR_OK;
}

tr_status tri_word_unknown(const char *flag, const char *word, const char *(*name_at)(size_t),
                           tr_error *err)
{
    const char *best = name_at(0);
    for (size_t i = 1; name_at(i); i++)
        if (tri_edit_distance(word, name_at(i)) < tri_edit_distance(word, best))
            best = name_at(i);
    tri_text all;
    tri_text_init(&all);
    for (size_t i = 0; name_at(i); i++)
        tri_text_add(&all, "%s%s", i ? ", " : "", name_at(i));
    bool slip = tri_is_slip(word, best);
    tri_fail(err, TR_ERROR_INPUT, "--%s: \"%.40s\" is not known; %s%s%s are %s", flag, word,
             slip ? "did you mean " : "", slip ? best : "", slip ? "? There" : "there",
             all.chars ? all.chars : "");
    tri_text_fini(&all);
    return TR_ERROR_INPUT;
}

const char *tri_coll_name_at(size_t i)
{
    return i < TRI_NUM_COLLS ? tri_coll_name((tri_coll)i) : NULL;
}

const char *tri_algorithm_name_at(size_t i)
{
    return tri_algorithm_at(i) ? tri_algorithm_at(i)->name : NULL;
}

tr_status tri_word_algorithm(const char *flag, const char *word, const char *(*name_at)(size_t),
                             int64_t num_ranks, const tri_algorithm **algorithm,
                             tri_coll_shape *shape, tr_error *err)
{
    char name[40];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, ":"), word);
    if (!tri_algorithm_find(name))
        return tri_word_unknown(flag, word, name_at, err);
    *shape = tri_shape_flat((int)num_ranks);
    tr_status status = tri_algorithm_parse(word, algorithm, shape, err);
    return status == TR_OK ? TR_OK : tri_fail_prefix(err, status, "--%s", flag);
}
