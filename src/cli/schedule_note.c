#include "cli/schedule_note.h"

#include <stdio.h>

void tri_print_schedule_note(const tri_session *session, const char *indent)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    if (program->num_updates == 0)
        return;
    printf("%s%s is asynchronous: %u update%s a step, from gradients of older weights, so losses "
           "depend on layout.pp and layout.microbatches, though not on dp, tp or zero\n",
           indent, session->config.compile.schedule, program->num_updates,
           program->num_updates == 1 ? "" : "s");
}
