/* Lists after a flag, "ring,tree", and names of tables in them. */
#ifndef TRI_CLI_WORD_LIST_H
#define TRI_CLI_WORD_LIST_H

#include "cli/cli.h"
#include "collective/collective.h"

enum { TRI_MOST_WORDS = 32 };

typedef struct tri_word_list {
    char *text; /* owned; the words point into it */
    const char *words[TRI_MOST_WORDS];
    int num;
} tri_word_list;

/* The words of a flag, or those of otherwise where it is not given. */
tr_status tri_word_list_read(const tri_cli *cli, const char *flag, const char *otherwise,
                             tri_word_list *list, tr_error *err);

/* Fails with the nearest word and all of them. name_at gives them, NULL at the end. */
tr_status tri_word_unknown(const char *flag, const char *word, const char *(*name_at)(size_t),
                           tr_error *err);

const char *tri_coll_name_at(size_t i);
const char *tri_algorithm_name_at(size_t i);
/* A name of the table, perhaps with dims: "torus2d:8x4". */
tr_status tri_word_algorithm(const char *flag, const char *word, const char *(*name_at)(size_t),
                             int64_t num_ranks, const tri_algorithm **algorithm,
                             tri_coll_shape *shape, tr_error *err);

#endif
