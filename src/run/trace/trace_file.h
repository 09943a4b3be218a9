/* The trace of all ranks as one file, which opens in Perfetto (Chrome's trace-event JSON): a
 * process for each rank, a thread for each row, all times of rank 0's clock, an event a line.
 *
 * Ranks write their parts beside it, DIR/trace-3.part, and one joins them: rank 0 at the end of a
 * run, or, when ranks are gone, whoever outlives them. A part is a line about its rank and then the
 * lines of the file. Both appear whole or not at all. */
#ifndef TRI_RUN_TRACE_FILE_H
#define TRI_RUN_TRACE_FILE_H

#include "run/trace/trace.h"

enum { TRI_TRACE_VERSION = 2 };

/* DIR/trace-RANK.part. */
tr_status tri_trace_write_part(const tri_trace *trace, const char *dir, tr_error *err);
/* DIR/trace.json, of this rank (NULL: only of parts) and of all parts that are there, which then
 * go. Without either it leaves what is there. */
tr_status tri_trace_join(const tri_trace *own, const char *dir, tr_error *err);
/* Whether parts lie in DIR that nobody has joined. */
bool tri_trace_has_parts(const char *dir);
/* What an earlier run left. */
void tri_trace_remove_parts(const char *dir);

#endif
