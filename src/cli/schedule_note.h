/* What a person should know of a layout before its losses surprise them. */
#ifndef TRI_CLI_SCHEDULE_NOTE_H
#define TRI_CLI_SCHEDULE_NOTE_H

#include "train/session.h"

/* A line for a pipeline that updates while a step is under way; nothing for others. `indent` stands
 * before it. */
void tri_print_schedule_note(const tri_session *session, const char *indent);

#endif
