/* The prompts of `trireme generate`: from the settings, a file, standard input, or as tokens. */
#ifndef TRI_CLI_VERBS_PROMPTS_H
#define TRI_CLI_VERBS_PROMPTS_H

#include "cli/cli.h"
#include "serve/vocabulary.h"

typedef struct tri_prompts {
    char **text; /* as given; NULL for prompts of tokens */
    size_t *num_bytes;
    tri_ids *ids;
    size_t num;
} tri_prompts;

/* All of a file, or of standard input for "-". */
tr_status tri_cli_read_all(const char *path, tri_bytes *bytes, tr_error *err);

/* By --prompt-ids, --prompts, --prompt or generate.prompt. place: for messages. */
tr_status tri_prompts_read(const tri_cli *cli, const tri_vocabulary *vocabulary, const char *place,
                           tri_prompts *prompts, tr_error *err);
void tri_prompts_free(tri_prompts *prompts);

#endif
