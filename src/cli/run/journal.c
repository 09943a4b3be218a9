#include "cli/run/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/auto/auto_layout.h"
#include "cli/run/detach.h"
#include "run/status_file.h"
#include "train/run/run_trace.h"

void tri_journal_add(const tr_settings *settings, tri_event *event, int signal)
{
    char name[24];
    const char *known = sigabbrev_np(signal);
    if (known)
        snprintf(name, sizeof name, "SIG%s", known);
    else
        snprintf(name, sizeof name, "signal %d", signal);
    if (signal != 0)
        event->signal = name;
    tri_events_add(tr_settings_string(settings, "run.dir"), event);
    event->signal = NULL;
}

static void add_word(tri_text *line, const char *word)
{
    bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                             "0123456789_-+=./:,@%")];
    tri_text_add(line, line->length > 0 ? " " : "");
    if (plain) {
        tri_text_add(line, "%s", word);
        return;
    }
    tri_text_add(line, "'");
    for (const char *c = word; *c; c++)
        if (*c == '\'')
            tri_text_add(line, "'\\''");
        else
            tri_text_add(line, "%c", *c);
    tri_text_add(line, "'");
}

/* As a shell would take it again. */
static void read_command(tri_text *line)
{
    enum { MOST = 64 << 10 };
    char *words = calloc(1, MOST + 2);
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    size_t num = 0;
    ssize_t n = 0;
    while (words && fd >= 0 && num < MOST && (n = read(fd, words + num, MOST - num)) > 0)
        num += (size_t)n;
    for (size_t at = 0; at < num; at += strlen(words + at) + 1)
        add_word(line, words + at);
    if (fd >= 0)
        close(fd);
    free(words);
}

void tri_journal_begin(void *context, int num_ranks)
{
    const tri_recovery *r = context;
    const tr_settings *settings = r->cli->settings;
    tri_text command;
    tri_text_init(&command);
    read_command(&command);
    tri_events_add_start(settings, command.chars, num_ranks, r->from_step);
    tri_text_fini(&command);
    if (!r->layout || !r->layout->note.chars)
        return;
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "layout";
    event.reason = r->layout->note.chars;
    tri_journal_add(settings, &event, 0);
}

void tri_journal_failed(void *context, const tri_launch_result *result)
{
    const tri_recovery *r = context;
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "failed";
    event.rank = result->failed_rank;
    event.at_step = result->step;
    event.reason = result->report.chars;
    tri_journal_add(r->cli->settings, &event, result->signal);
    tri_run_trace_gather(tr_settings_string(r->cli->settings, "run.dir"));
}

/* A command with a mistake in it leaves nothing behind, least of all a directory that looks like a
 * run. */
static void forget(const char *run_dir, int64_t num_ranks)
{
    static const char *const last[] = {"log", TRI_RUN_OUTPUT, TRI_STATUS_FOLDER "/0.json",
                                       TRI_STATUS_FOLDER};
    enum { NUM_LAST = sizeof last / sizeof *last };
    char name[48] = "events.jsonl";
    for (int64_t rank = 0; rank <= num_ranks + NUM_LAST; rank++) {
        char *path = tri_path_join(run_dir, name);
        if (path)
            (void)remove(path);
        free(path);
        snprintf(name, sizeof name, "log/rank-%lld.log", (long long)rank);
        if (rank >= num_ranks && rank < num_ranks + NUM_LAST)
            strcpy(name, last[rank - num_ranks]);
    }
}

void tri_journal_ended(void *context, int code, int64_t steps, bool made)
{
    const tri_recovery *r = context;
    if (code == TRI_EXIT_USAGE && steps < 0 && made) {
        forget(tr_settings_string(r->cli->settings, "run.dir"), tri_cli_num_ranks(r->cli));
        return;
    }
    if (ferror(stderr) && !r->noted)
        tri_journal_note(context, "messages (standard error) could not be written");
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "end";
    event.exit_code = code;
    event.steps = steps >= 0 ? steps : r->from_step;
    event.saved = tri_recovery_saved(r->cli->settings);
    tri_journal_add(r->cli->settings, &event, 0);
}

void tri_journal_note(void *context, const char *text)
{
    tri_recovery *r = context;
    r->noted = true;
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "note";
    event.reason = text;
    tri_journal_add(r->cli->settings, &event, 0);
}
