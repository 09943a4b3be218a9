#include "train/run/run_trace.h"

#include <stdio.h>

#include "program/messages.h"

tr_status tri_run_trace_open(tri_session *session, int rank, int64_t num_steps, tri_trace **trace,
                             tr_error *err)
{
    const tri_program *program = &session->programs[TRI_PROGRAM_TRAIN];
    size_t per_step = program->num_calls; /* actions as a whole */
    for (size_t c = 0; c < program->num_calls; c++)
        per_step += program->segments[program->calls[c].segment].count;
    per_step += 2 * program->num_flights; /* on their way, and waited for */
    int64_t wanted = (int64_t)per_step * num_steps, most = 1000000;
    TRI_TRY(tri_trace_create(rank, wanted < most ? wanted : most, trace, err));
    tri_trace_name_lane(*trace, 0, "compute");
    if (program->num_chunks > 1)
        tri_trace_name_lane(*trace, TRI_TRACE_ACTIONS, "actions");
    for (size_t f = 0; f < program->num_flights; f++) {
        const tri_message *message =
            &program->messages[program->instrs[program->flights[f].instr].message];
        char row[sizeof "over " + TRI_GROUP_NAME];
        tri_message_lane_text(program, message, row, sizeof row);
        tri_trace_name_lane(*trace, 1 + (int)message->lane, row);
    }
    session->executors[TRI_PROGRAM_TRAIN].trace = *trace;
    return TR_OK;
}

void tri_run_trace_path(const char *dir, int rank, char *path, size_t size)
{
    if (rank == 0)
        snprintf(path, size, "%s/trace.json", dir);
    else
        snprintf(path, size, "%s/trace-%d.json", dir, rank);
}

tr_status tri_run_trace_write(const tri_trace *trace, const char *dir, int rank, tr_error *err)
{
    char path[4200];
    tri_run_trace_path(dir, rank, path, sizeof path);
    return tri_trace_write(trace, path, err);
}
