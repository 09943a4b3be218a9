/* A line of trace.json, as trace_file.c writes it: an object of texts and numbers, with one such
 * object in it. Any other JSON is refused. It needs no memory, so that a long file is read quickly
 * and nothing can be missing. */
#ifndef TRI_RUN_TRACE_TRACE_LINE_H
#define TRI_RUN_TRACE_TRACE_LINE_H

#include "run/trace/trace_read.h"

/* The text ends where the object does, and is changed: line points into it. *told: it is an event
 * or the name of a row; arrows and the order of rows say nothing that other lines do not. False: it
 * is none of ours. */
bool tri_trace_line_parse(char *text, int num_ranks, tri_trace_line *line, bool *told);

#endif
