/* Names of other trainers for what the settings are. */
#ifndef TRI_CONFIG_ALIASES_H
#define TRI_CONFIG_ALIASES_H

#include <stdio.h>

typedef struct tri_alias {
    const char *trainer; /* who calls it so; NULL: many do, and the page leaves it out */
    const char *name;    /* as they write it: "--micro-batch-size", "checkpoint.interval" */
    const char *setting; /* here; NULL: there is none, and how says what to do instead */
    const char *how;     /* how a value of theirs becomes one of ours; NULL: it is the same */
} tri_alias;

/* Rows of one trainer stand together. */
extern const tri_alias tri_aliases[];
extern const int tri_num_aliases;

/* The row that a person means with a name, with or without sections, dashes and typing errors; NULL
 * when it is nobody's. */
const tri_alias *tri_alias_find(const char *typed);
/* The section here of what others keep in a section of this name ("checkpoint" is ckpt), or NULL.
 */
const char *tri_alias_section(const char *name);

/* trireme settings --aliases: a list for the terminal, or the page docs/coming-from.md. */
void tri_aliases_list(FILE *file, int width);
void tri_aliases_markdown(FILE *file);

#endif
