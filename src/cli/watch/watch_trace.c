/* The last step of a trace, for drawing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "cli/doc/json_doc.h"
#include "cli/watch/watch_parts.h"
#include "run/trace/trace_read.h"

enum { MOST_SPANS = 20000, MOST_LANES = 4096 };
static const int64_t most_bytes = (int64_t)2 << 30;

typedef struct trace_reading {
    tri_trace_head head;
    json_t *lanes[MOST_LANES]; /* in the order in which they are met; of the list */
    int rank[MOST_LANES], lane[MOST_LANES];
    size_t num_lanes, num_spans;
    json_t *list;
    int64_t step, first_ns; /* that is drawn; where it begins, -1: not known */
    bool cut;
} trace_reading;

static json_t *lane_of(trace_reading *t, const tri_trace_line *line)
{
    for (size_t i = 0; i < t->num_lanes; i++)
        if (t->rank[i] == line->rank && t->lane[i] == line->lane)
            return t->lanes[i];
    if (t->num_lanes == MOST_LANES)
        return NULL;
    json_t *item = tri_doc_item(t->list);
    tri_doc_count(item, "rank", line->rank);
    tri_doc_text(item, "lane", "");
    tri_doc_list(item, "spans");
    t->rank[t->num_lanes] = line->rank;
    t->lane[t->num_lanes] = line->lane;
    return t->lanes[t->num_lanes++] = item;
}

static void append_number(json_t *list, int64_t value)
{
    json_array_append_new(list, value >= 0 ? json_integer(value) : json_null());
}

static tr_status take(void *context, const tri_trace_line *line, tr_error *err)
{
    trace_reading *t = context;
    bool row = strcmp(line->category, "row") == 0;
    (void)err;
    if (t->step < 0)
        t->step = t->head.first_step + t->head.num_steps - 1;
    if (!row && line->step != t->step)
        return TR_OK;
    json_t *lane = lane_of(t, line);
    if (!lane)
        t->cut = true;
    if (row && lane)
        tri_doc_text(lane, "lane", line->name);
    if (row || !lane)
        return TR_OK;
    t->cut |= t->num_spans == MOST_SPANS;
    if (t->num_spans == MOST_SPANS)
        return TR_OK;
    t->num_spans++;
    if (t->first_ns < 0 || line->start_ns < t->first_ns)
        t->first_ns = line->start_ns;
    json_t *span = json_array();
    json_array_append_new(span, json_real((double)line->start_ns / 1e3));
    json_array_append_new(span, json_real((double)(line->start_ns + line->duration_ns) / 1e3));
    tri_doc_text_item(span, line->name);
    tri_doc_text_item(span, line->category);
    append_number(span, line->chunk);
    append_number(span, line->microbatch);
    tri_doc_text_item(span, strcmp(line->category, "action") == 0 ? line->name : NULL);
    append_number(span, line->instruction);
    json_array_append_new(json_object_get(lane, "spans"), span);
    return TR_OK;
}

/* Times from the beginning of the step, in thousandths of a microsecond; lanes without spans go. */
static void settle(trace_reading *t)
{
    for (size_t i = json_array_size(t->list); i-- > 0;) {
        json_t *spans = json_object_get(json_array_get(t->list, i), "spans"), *span;
        size_t k;
        if (json_array_size(spans) == 0) {
            json_array_remove(t->list, i);
            continue;
        }
        json_array_foreach(spans, k, span)
        {
            for (size_t end = 0; end < 2; end++) {
                double us = json_real_value(json_array_get(span, end)) - (double)t->first_ns / 1e3;
                json_array_set_new(span, end, json_real((double)(int64_t)(us * 1e3 + 0.5) / 1e3));
            }
        }
    }
}

static tr_status make_trace(void *context, char **made, tr_error *err)
{
    const tri_watched_run *run = context;
    struct stat info;
    tri_text text;
    trace_reading *t = calloc(1, sizeof *t);
    char *path = tri_path_join(run->dir, "trace.json");
    if (!t || !path) {
        free(t);
        free(path);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a trace");
    }
    json_t *root = tri_doc_begin();
    t->list = tri_doc_list(root, "lanes");
    t->step = t->first_ns = -1;
    bool there = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    tr_status status = TR_OK;
    if (there && info.st_size > most_bytes)
        status = tri_fail(err, TR_ERROR_INPUT,
                          "the trace is too long to be drawn here; open "
                          "trace.json in Perfetto");
    else if (there)
        status = tri_trace_read(path, &t->head, take, t, err);
    settle(t);
    tri_doc_count(root, "step", t->step);
    tri_doc_flag(root, "cut", t->cut);
    free(t);
    free(path);
    tri_text_init(&text);
    if (status != TR_OK || !there) {
        json_decref(root);
        tri_text_add(&text, "null\n");
    } else {
        status = tri_doc_add(root, &text, err);
    }
    if (status == TR_OK && text.failed)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for a trace");
    if (status != TR_OK)
        tri_text_fini(&text);
    *made = text.chars;
    return status;
}

void tri_watch_get_trace(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tr_error err = {0};
    char key[64], stamp[96], *text = NULL;
    tri_watched_run *run = tri_watch_asked(context, request, "id", reply);
    if (!run)
        return;
    snprintf(key, sizeof key, "trace %s", run->id);
    tri_watch_stamp(run->dir, "trace.json", stamp, sizeof stamp);
    tr_status status = tri_watch_keep(context, key, stamp, make_trace, run, &text, &err);
    if (text)
        tri_text_add_bytes(&reply->text, text, strlen(text));
    free(text);
    tri_watch_answer(reply, status, &err);
}
