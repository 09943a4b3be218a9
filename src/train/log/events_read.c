#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/json.h"
#include "train/log/events.h"

static int64_t number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static void copy_text(const json_t *object, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, size, "%s", text ? text : "");
}

/* 0 when it is not such a text. */
static double time_of(const json_t *object)
{
    const char *text = json_string_value(json_object_get(object, "time"));
    struct tm when = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &when) : NULL;
    return end && !*end ? (double)timegm(&when) : 0;
}

static void begin(tri_run_story *s, const json_t *object, double when)
{
    const json_t *layout = json_object_get(object, "layout");
    double began = s->started ? s->began : when;
    *s = (tri_run_story){.started = true,
                         .began = began,
                         .last_start = when,
                         .pid = number_of(object, "pid"),
                         .dp = number_of(layout, "dp"),
                         .cp = number_of(layout, "cp"),
                         .tp = number_of(layout, "tp"),
                         .pp = number_of(layout, "pp"),
                         .steps = -1,
                         .saved = -1,
                         .exit_code = -1};
    copy_text(object, "host", s->host, sizeof s->host);
}

static void add_event(tri_run_story *s, const json_t *object)
{
    const char *event = json_string_value(json_object_get(object, "event"));
    double when = time_of(object);
    if (!event)
        return;
    if (strcmp(event, "start") == 0)
        begin(s, object, when);
    else if (strcmp(event, "failed") == 0 || strcmp(event, "gave_up") == 0)
        copy_text(object, "reason", s->reason, sizeof s->reason);
    else if (strcmp(event, "restart") == 0 || strcmp(event, "shrink") == 0)
        s->restarts++;
    else if (strcmp(event, "stop") == 0)
        s->asked = true;
    else if (strcmp(event, "end") == 0) {
        s->ended = true;
        s->steps = number_of(object, "steps");
        s->saved = number_of(object, "saved");
        s->exit_code = number_of(object, "exit_code");
    }
    s->last_event = when;
}

static tr_status add_lines(tri_run_story *story, const char *text, size_t num_bytes, tr_error *err)
{
    for (size_t at = 0, length; at < num_bytes; at += length) {
        const char *end = memchr(text + at, '\n', num_bytes - at);
        length = end ? (size_t)(end - text) + 1 - at : num_bytes - at;
        json_t *object;
        if (tri_json_load("events.jsonl", text + at, length, 0, &object, NULL, err) ==
            TR_ERROR_RUNTIME)
            return TR_ERROR_RUNTIME;
        add_event(story, object);
        json_decref(object);
    }
    return TR_OK;
}

tr_status tri_events_read(const char *run_dir, tri_run_story *story, tr_error *err)
{
    char *path = tri_path_join(run_dir, "events.jsonl"), *text = NULL;
    size_t num_bytes = 0;
    tr_error why = {0};
    *story = (tri_run_story){.pid = -1,
                             .dp = -1,
                             .cp = -1,
                             .tp = -1,
                             .pp = -1,
                             .steps = -1,
                             .saved = -1,
                             .exit_code = -1};
    tr_status status = path ? tri_file_read(path, &text, &num_bytes, &why)
                            : tri_fail(&why, TR_ERROR_RUNTIME, "no memory for a path");
    if (status == TR_OK)
        status = add_lines(story, text, num_bytes, err);
    else if (status == TR_ERROR_RUNTIME)
        status = tri_fail(err, TR_ERROR_RUNTIME, "%s", why.message);
    free(text);
    free(path);
    return status == TR_ERROR_RUNTIME ? status : TR_OK;
}
