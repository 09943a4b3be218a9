/* How much of the time of messages lay under computation, from a trace. */
#ifndef TRI_RUN_TRACE_TRAVEL_H
#define TRI_RUN_TRACE_TRAVEL_H

#include "run/trace/trace.h"

typedef struct tri_trace_travel {
    int64_t num_messages;
    double total_s;  /* that messages took, each by itself */
    double beside_s; /* of it, while the rank computed; the rest is waited for */
} tri_trace_travel;

tri_trace_travel tri_trace_travel_of(const tri_trace *trace);

#endif
