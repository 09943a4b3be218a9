/* What a person should know of their settings before the run does something else than they think:
 * settings without effect, and a few that do harm. Each note ends with what to do. */
#ifndef TRI_CONFIG_NOTES_H
#define TRI_CONFIG_NOTES_H

#include "train/session.h"
#include "trireme/settings.h"

/* Is told of a note; row is its place in the tables. */
typedef void (*tri_note_fn)(void *context, int row, const char *note);
/* Rows of the tables. */
int tri_num_notes(void);

/* settings are complete, and session is compiled from them; when its data is open, that is asked,
 * too. Settings that nobody gave, or gave as the default, are not noted. */
void tri_notes(const tr_settings *settings, const tri_session *session, tri_note_fn say,
               void *context);

#endif
