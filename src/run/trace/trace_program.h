/* The trace of a program: labels of its instructions, made once, and numbers of its messages. */
#ifndef TRI_RUN_TRACE_PROGRAM_H
#define TRI_RUN_TRACE_PROGRAM_H

#include "run/trace/message_numbers.h"
#include "run/trace/trace.h"

typedef struct tri_program_trace {
    const tri_program *program;
    tri_trace *events;
    tri_trace_label *instrs;   /* [num_instrs] */
    tri_trace_label *segments; /* [num_segments], of the row of actions */
    tri_trace_label step_label;
    tri_message_numbers numbers;
    int64_t step; /* that runs now, from 1 */
    int64_t step_began_ns;
    int64_t last_step; /* the last that there is room for */
} tri_program_trace;

/* Events of a step, at most. */
int64_t tri_program_trace_events(const tri_program *program);
/* With room for so many steps. The program must outlive it. */
tr_status tri_program_trace_create(const tri_program *program, int64_t num_steps,
                                   tri_program_trace **trace, tr_error *err);
void tri_program_trace_destroy(tri_program_trace *trace);

/* Around each step; between them what follows. */
void tri_program_trace_begin(tri_program_trace *trace, int64_t step);
void tri_program_trace_end(tri_program_trace *trace);

void tri_program_trace_instr(const tri_program_trace *trace, const tri_call *call, uint32_t instr,
                             int64_t start_ns, int64_t end_ns);
/* A message beside the computation, and what that waited for it. */
void tri_program_trace_flight(const tri_program_trace *trace, const tri_flight *flight,
                              int64_t begin_ns, int64_t end_ns, int64_t waits_ns,
                              int64_t goes_on_ns);
/* An action as a whole, where the program is one of a pipeline. */
void tri_program_trace_action(const tri_program_trace *trace, const tri_call *call,
                              int64_t start_ns, int64_t end_ns);

#endif
