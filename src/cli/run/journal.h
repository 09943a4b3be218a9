/* What a training run leaves in events.jsonl, whatever becomes of it.
 *
 * The process that holds run.dir writes it: the launcher, which outlives its ranks, or rank 0 where
 * somebody else started them. What it could not write because it was itself killed, the next start
 * in that directory adds. The functions are callbacks of tri_launch_options; context is a
 * tri_recovery. */
#ifndef TRI_CLI_RUN_JOURNAL_H
#define TRI_CLI_RUN_JOURNAL_H

#include "cli/launch/recovery.h"
#include "train/log/events.h"

void tri_journal_begin(void *context, int num_ranks);
void tri_journal_failed(void *context, const tri_launch_result *result);
void tri_journal_ended(void *context, int code, int64_t steps, bool made);
void tri_journal_note(void *context, const char *text);

/* Adds an event of a failure; signal 0: there was none. */
void tri_journal_add(const tr_settings *settings, tri_event *event, int signal);

#endif
