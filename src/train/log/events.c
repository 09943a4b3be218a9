#include "train/log/events.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "trireme/version.h"

/* Version 1 counted the steps of failures from 0. */
enum { VERSION = 2 };

static void set_number(json_t *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_object_set_new(object, key, json_integer(value));
}

static void set_text(json_t *object, const char *key, const char *text)
{
    if (text) /* what is not UTF-8 is left out */
        json_object_set_new(object, key, json_stringn(text, strcspn(text, "\n")));
}

static void set_start(json_t *object, const tri_event_start *start)
{
    set_text(object, "host", start->host);
    set_number(object, "pid", start->pid);
    set_text(object, "program", start->program);
    set_text(object, "command", start->command);
    json_t *layout = json_object();
    set_number(layout, "dp", start->dp);
    set_number(layout, "cp", start->cp);
    set_number(layout, "tp", start->tp);
    set_number(layout, "pp", start->pp);
    json_object_set_new(object, "layout", layout);
}

static void set_replay(json_t *object, const tri_event_replay *replay)
{
    set_number(object, "other", replay->other);
    json_object_set_new(object, "sure", json_boolean(replay->sure));
    set_number(object, "microbatch", replay->microbatch);
    set_number(object, "instruction", replay->instruction);
    set_text(object, "op", replay->op);
    set_text(object, "result", replay->result);
    set_text(object, "sum", replay->sum);
    set_text(object, "replayed_sum", replay->replayed_sum);
}

static char *line_of(const tri_event *event)
{
    char when[32] = "";
    struct tm now;
    time_t seconds = time(NULL);
    if (gmtime_r(&seconds, &now))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &now);
    json_t *object = json_object();
    set_text(object, "time", when);
    set_text(object, "event", event->event);
    if (event->start)
        set_start(object, event->start);
    set_number(object, "rank", event->rank);
    set_text(object, "signal", event->signal);
    set_number(object, "at_step", event->at_step);
    if (event->replay)
        set_replay(object, event->replay);
    set_number(object, "from_step", event->from_step);
    set_number(object, "steps", event->steps);
    set_number(object, "saved", event->saved);
    set_number(object, "ranks", event->ranks);
    set_number(object, "number", event->number);
    set_number(object, "exit_code", event->exit_code);
    set_text(object, "reason", event->reason);
    set_number(object, "version", VERSION);
    char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return line;
}

void tri_events_add(const char *run_dir, const tri_event *event)
{
    char *path = tri_path_join(run_dir, "events.jsonl"), *line = line_of(event);
    size_t length = line ? strlen(line) : 0;
    char *whole = line ? realloc(line, length + 2) : NULL;
    if (whole) {
        memcpy(whole + length, "\n", 2);
        line = whole;
    }
    int fd = path && whole
                 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666)
                 : -1;
    if (fd >= 0) {
        ssize_t written = write(fd, line, length + 1);
        (void)written;
        close(fd);
    }
    free(line);
    free(path);
}

void tri_events_add_missing_end(const char *run_dir)
{
    tri_run_story story;
    if (tri_events_read(run_dir, &story, NULL) != TR_OK || !story.started || story.ended)
        return;
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "failed";
    event.reason = "the start before this one ended without a word: it was killed, or its machine "
                   "went down";
    tri_events_add(run_dir, &event);
}

void tri_events_add_start(const tr_settings *settings, const char *command, int num_ranks,
                          int64_t from_step)
{
    const char *dir = tr_settings_string(settings, "run.dir");
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    tri_event_start start = {.host = host,
                             .pid = getpid(),
                             .program = TRIREME_VERSION,
                             .command = command,
                             .dp = tr_settings_int(settings, "layout.dp"),
                             .cp = tr_settings_int(settings, "layout.cp"),
                             .tp = tr_settings_int(settings, "layout.tp"),
                             .pp = tr_settings_int(settings, "layout.pp")};
    tri_event event = TRI_EVENT_NOTHING;
    event.event = "start";
    event.start = &start;
    event.ranks = num_ranks;
    event.from_step = from_step;
    tri_events_add_missing_end(dir);
    tri_events_add(dir, &event);
}
