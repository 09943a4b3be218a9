/* Lines of what a run is: a short word, then what there is to say of it. */
#ifndef TRI_CLI_LINES_H
#define TRI_CLI_LINES_H

#include "train/session.h"
#include "trireme/settings.h"

/* "batch   8 rows x 64 tokens". On a terminal long ones go on below, behind the column of the
 * words; in a pipe a line stays a line. */
void tri_cli_line(const char *word, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line for each note on the settings (config/notes.h). */
void tri_print_notes(const tr_settings *settings, const tri_session *session);

#endif
