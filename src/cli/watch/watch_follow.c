/* What is new, for those who listen: one thread looks at the files of runs that somebody has on the
 * screen, ten times a second while they change, and once a second otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/watch/watch_parts.h"
#include "run/status_file.h"

enum {
    TICK_MS = 100,
    MOST_BYTES = 256 << 10, /* of new lines of a file at a time */
    MOST_STEPS = 100        /* lines in an event */
};
static const double lingers_s = 60, quiet_s = 5, list_s = 2, beat_s = 10;

void tri_watch_get_events(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_watch *w = context;
    const char *at = tri_http_target_arg(&request->target, "id");
    while (at && *at) {
        size_t length = strcspn(at, ",");
        char id[TRI_WATCH_ID] = "";
        if (length < sizeof id)
            memcpy(id, at, length);
        const tri_watched_run *run = tri_watch_find(w, id);
        if (!run || reply->num_topics == TRI_HTTP_MAX_TOPICS) {
            tri_http_refuse(reply, run ? 400 : 404, "%s",
                            run ? "too many ids" : "there is no run of this id (any more)");
            return;
        }
        reply->topics[reply->num_topics++] = run->topic;
        at += length + (at[length] == ',');
    }
    reply->events = true;
}

/* ---- lines ---- */

/* A line with the id of its run in it: whatever it is, it is one object. */
static bool add_with_id(tri_text *text, const tri_watched_run *run, const char *line, size_t length,
                        const char *before)
{
    json_t *object = NULL;
    bool ours =
        tri_json_load("a line", line, length, JSON_ALLOW_NUL, &object, NULL, NULL) == TR_OK &&
        json_is_object(object);
    char *made = NULL;
    if (ours) {
        json_object_set_new(object, "id", json_string(run->id));
        made = json_dumps(object, JSON_COMPACT);
    }
    if (made)
        tri_text_add(text, "%s%s", before, made);
    json_decref(object);
    free(made);
    return ours && made;
}

static void tell_each(tri_watch *w, const tri_watched_run *run, const char *kind,
                      const tri_text *lines)
{
    for (size_t at = 0, length; at < lines->length; at += length + 1) {
        tri_text text;
        tri_text_init(&text);
        length = strcspn(lines->chars + at, "\n");
        if (add_with_id(&text, run, lines->chars + at, length, ""))
            tri_http_feed_add(w->feed, run->topic, kind, text.chars, text.length);
        tri_text_fini(&text);
    }
}

static size_t count_lines(const tri_text *lines)
{
    size_t num = 0;
    for (size_t i = 0; i < lines->length; i++)
        num += lines->chars[i] == '\n';
    return num;
}

/* One line as itself, several as a list; of very many, some that lie evenly and the last. */
static void tell_steps(tri_watch *w, const tri_watched_run *run, const tri_text *lines)
{
    size_t num = count_lines(lines), n = 0, told = 0;
    size_t every = (num + MOST_STEPS - 1) / MOST_STEPS;
    tri_text text;
    tri_text_init(&text);
    for (size_t at = 0, length; at < lines->length; at += length + 1, n++) {
        length = strcspn(lines->chars + at, "\n");
        if (n % every == (num - 1) % every)
            told += add_with_id(&text, run, lines->chars + at, length,
                                num == 1    ? ""
                                : told == 0 ? "["
                                            : ",");
    }
    if (num > 1)
        tri_text_add(&text, "]");
    if (told > 0 && !text.failed)
        tri_http_feed_add(w->feed, run->topic, "step", text.chars, text.length);
    tri_text_fini(&text);
}

/* ---- a run ---- */

static void begin(tri_watched_run *run)
{
    tri_tail_begin(&run->metrics, run->dir, "metrics.jsonl");
    tri_tail_begin(&run->events, run->dir, "events.jsonl");
    tri_tail_begin(&run->samples, run->dir, "samples.jsonl");
    run->follows = true;
    run->changed_at = tri_now_s();
}

static void look(tri_watch *w, tri_watched_run *run, double now)
{
    static const struct {
        const char *file, *kind;
        size_t tail;
    } files[] = {{"metrics.jsonl", "step", offsetof(tri_watched_run, metrics)},
                 {"events.jsonl", "note", offsetof(tri_watched_run, events)},
                 {"samples.jsonl", "sample", offsetof(tri_watched_run, samples)}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        tri_text lines;
        tri_text_init(&lines);
        tri_tail *tail = (tri_tail *)(void *)((char *)run + files[i].tail);
        if (tri_tail_new(tail, run->dir, files[i].file, MOST_BYTES, &lines) && !lines.failed) {
            run->changed_at = now;
            if (i == 0)
                tell_steps(w, run, &lines);
            else
                tell_each(w, run, files[i].kind, &lines);
        }
        tri_text_fini(&lines);
    }
}

/* As /api/ranks has it, once a second while it changes. */
static void tell_ranks(tri_watch *w, tri_watched_run *run, double now)
{
    char stamp[96];
    tri_text text;
    tri_watch_stamp(run->dir, TRI_STATUS_FOLDER "/0.json", stamp, sizeof stamp);
    if (now - run->ranks_at < 1 || !*stamp || strcmp(stamp, run->ranks) == 0)
        return;
    tri_text_init(&text);
    if (tri_watch_ranks_doc(run->dir, &text, NULL) == TR_OK && !text.failed)
        tri_http_feed_add(w->feed, run->topic, "ranks", text.chars, text.length);
    tri_text_fini(&text);
    run->ranks_at = run->changed_at = now;
    snprintf(run->ranks, sizeof run->ranks, "%s", stamp);
}

/* Whoever comes back within a minute finds what they missed. */
static void follow_run(tri_watch *w, tri_watched_run *run, double now)
{
    if (tri_http_feed_wanted(w->feed, run->topic))
        run->wanted_at = now;
    else if (run->wanted_at == 0 || now - run->wanted_at > lingers_s) {
        run->follows = false;
        return;
    }
    if (!run->follows)
        begin(run);
    if (now - run->changed_at > quiet_s && now - run->looked_at < 1)
        return;
    run->looked_at = now;
    look(w, run, now);
    tell_ranks(w, run, now);
}

static void tell_list(tri_watch *w, char **told)
{
    char *text = NULL;
    if (tri_watch_list_doc(w, true, &text, NULL) == TR_OK && (!*told || strcmp(*told, text) != 0)) {
        tri_http_feed_add(w->feed, 0, "runs", text, strlen(text));
        free(*told);
        *told = text;
        text = NULL;
    }
    free(text);
}

static void *follow(void *context)
{
    tri_watch *w = context;
    char *told = NULL;
    double listed_at = 0, beat_at = 0;
    while (!w->ends) {
        double now = tri_now_s();
        size_t n = 0;
        tri_watched_run *run;
        bool listens = tri_http_feed_num_clients(w->feed) > 0;
        while ((run = tri_watch_at(w, &n)))
            follow_run(w, run, now);
        if (listens && now - listed_at > list_s) {
            tell_list(w, &told);
            listed_at = tri_now_s();
        }
        if (now - beat_at > beat_s) {
            tri_http_feed_beat(w->feed);
            beat_at = now;
        }
        usleep(TICK_MS * 1000);
    }
    free(told);
    return NULL;
}

tr_status tri_watch_follow(tri_watch *w, tr_error *err)
{
    if (pthread_create(&w->thread, NULL, follow, w) != 0)
        return tri_fail(err, TR_ERROR_RUNTIME, "no thread can be started to follow the runs");
    w->follows = true;
    return TR_OK;
}

void tri_watch_unfollow(tri_watch *w)
{
    if (!w->follows)
        return;
    w->ends = true;
    pthread_join(w->thread, NULL);
    w->follows = false;
}
