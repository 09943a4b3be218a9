/* Settings files that come with the program, by their names. */
#ifndef TRI_CLI_RECIPE_H
#define TRI_CLI_RECIPE_H

#include <stdbool.h>

#include "base/error.h"

/* The path of the settings file that was meant, on the heap: name itself where there is such a file
 * or directory; else recipes/NAME.yaml here, then in share/trireme/recipes of where the program is
 * installed. NAME, NAME.yaml and recipes/NAME.yaml all name a recipe. When there is none, the error
 * lists those that there are. */
tr_status tri_recipe_find(const char *name, char **path, tr_error *err);
/* Whether a word is the name of a recipe. */
bool tri_recipe_exists(const char *name);
/* Calls take with the name of every recipe, from all the places where they are looked for. */
void tri_recipes_list(void (*take)(void *context, const char *name), void *context);

#endif
