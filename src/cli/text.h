/* What the terminal is, and short forms for people (base/text.h has bytes and counts). */
#ifndef TRI_CLI_TEXT_H
#define TRI_CLI_TEXT_H

#include <stdbool.h>
#include <stdio.h>

#include "base/text.h"

/* A terminal on which a line can be redrawn: a tty, and not TERM=dumb. */
bool tri_terminal(FILE *file);
/* Such a terminal, and NO_COLOR is not set. */
bool tri_terminal_colour(FILE *file);
/* Its columns; 80 when it is not a terminal or does not say. COLUMNS in the environment wins. */
int tri_terminal_width(FILE *file);
int tri_terminal_width_of(int fd); /* the same of a descriptor */
/* Whether letters beyond ASCII can be drawn: no variable of the locale names one that is not UTF-8.
 */
bool tri_terminal_utf8(void);

/* Text that a model or a file made up. A terminal gets U+FFFD for what would command it (control
 * characters but for line ends and tabs) and for bytes that are not UTF-8; others get every byte.
 */
void tri_terminal_write(FILE *file, const char *text, size_t num_bytes);

/* "0.4s", "59s", "1m23s", "2h05m", "3d04h"; "?" when it is not a number. */
char *tri_text_duration(double seconds, char out[16]);

#endif
