/* "Did you mean ...?" */
#ifndef TRI_BASE_SETTINGS_NEAREST_H
#define TRI_BASE_SETTINGS_NEAREST_H

#include <stdbool.h>

/* The edits (insert, delete, replace, swap neighbours; letter case and '-' for '_' are free) that
 * turn a into b. Only the first 64 bytes of each count. */
int tri_edit_distance(const char *a, const char *b);
/* Whether word may be a slip of the finger for name: less than half of it differs. */
bool tri_is_slip(const char *word, const char *name);

#endif
