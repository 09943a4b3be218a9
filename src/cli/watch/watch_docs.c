/* The documents of all runs, of two, and of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "cli/doc/json_doc.h"
#include "cli/runs/runs_table.h"
#include "cli/runs/runs_verbs.h"
#include "cli/watch/watch_parts.h"
#include "config/settings_table.h"

/* ---- what handlers share ---- */

tri_watched_run *tri_watch_asked(tri_watch *w, const tri_http_request *request, const char *name,
                                 tri_http_reply *reply)
{
    const char *id = tri_http_target_arg(&request->target, name);
    tri_watched_run *run = id ? tri_watch_find(w, id) : NULL;
    if (!id)
        tri_http_refuse(reply, 400, "%s is missing: the id of a run, as /api/runs has it", name);
    else if (!run)
        tri_http_refuse(reply, 404, "there is no run of this id (any more)");
    return run;
}

void tri_watch_answer(tri_http_reply *reply, tr_status status, const tr_error *err)
{
    if (status == TR_ERROR_RUNTIME || status == TR_ERROR_INTERNAL)
        tri_http_refuse(reply, 429, "this cannot be told now: %s", err->message);
    else if (status != TR_OK)
        tri_http_refuse(reply, 404, "%s", err->message);
}

/* ---- all runs, and two ---- */

void tri_watch_get_runs(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tr_error err = {0};
    char *text = NULL;
    (void)request;
    tr_status status = tri_watch_list_doc(context, false, &text, &err);
    if (text)
        tri_text_add_bytes(&reply->text, text, strlen(text));
    free(text);
    tri_watch_answer(reply, status, &err);
}

void tri_watch_get_diff(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tr_error err = {0};
    const tri_watched_run *a = tri_watch_asked(context, request, "a", reply);
    const tri_watched_run *b = a ? tri_watch_asked(context, request, "b", reply) : NULL;
    if (b)
        tri_watch_answer(reply, tri_runs_diff_doc(a->dir, b->dir, &reply->text, &err), &err);
}

/* ---- a run ---- */

static json_t *value_of(const tr_settings *settings, const tri_setting *row)
{
    switch (row->type) {
    case TRI_SETTING_BOOL:
        return json_boolean(tr_settings_bool(settings, row->name));
    case TRI_SETTING_INT:
        return json_integer(tr_settings_int(settings, row->name));
    case TRI_SETTING_FLOAT:
        return json_real(tr_settings_float(settings, row->name));
    case TRI_SETTING_STRING:
    case TRI_SETTING_CHOICE:
        break;
    }
    return NULL;
}

static void put_layout(json_t *root, const tr_settings *settings)
{
    static const char *const sizes[] = {"dp", "cp", "tp", "pp", "ep", "zero", "microbatches"};
    json_t *layout = tri_doc_object(root, "layout");
    char name[40];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(name, sizeof name, "layout.%s", sizes[i]);
        tri_doc_count(layout, sizes[i], tr_settings_int(settings, name));
    }
    tri_doc_flag(layout, "sp", tr_settings_bool(settings, "layout.sp"));
    tri_doc_text(layout, "schedule", tr_settings_string(settings, "layout.schedule"));
}

static tr_status put_settings(json_t *root, const char *dir, tr_error *err)
{
    tr_settings *settings = NULL;
    tr_error why = {0};
    char *path = tri_path_join(dir, "config.yaml");
    tr_status status = path ? tr_settings_create(&settings, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    tr_status loaded = status == TR_OK ? tri_settings_look(settings, path, &why) : status;
    if (status == TR_OK && loaded == TR_OK) {
        const tri_table *table = tri_settings_table(settings);
        json_t *all = tri_doc_object(root, "settings");
        for (int i = 0; i < table->num; i++) {
            json_t *value = value_of(settings, table->row[i]);
            if (value)
                json_object_set_new(all, table->row[i]->name, value);
            else
                tri_doc_text(all, table->row[i]->name,
                             tr_settings_string(settings, table->row[i]->name));
        }
        put_layout(root, settings);
    } else {
        tri_doc_null(root, "settings");
        tri_doc_null(root, "layout");
    }
    tr_settings_destroy(settings);
    free(path);
    return status;
}

/* Of those that a run writes. */
static void put_files(json_t *root, const char *dir)
{
    static const char *const names[] = {"config.yaml",
                                        "metrics.jsonl",
                                        "events.jsonl",
                                        "samples.jsonl",
                                        "trace.json",
                                        "loss.svg",
                                        "weights.safetensors",
                                        "tokenizer.json",
                                        "status",
                                        "ckpt",
                                        "metrics.csv",
                                        "metrics.prom",
                                        "tensorboard",
                                        "wandb",
                                        "output.log",
                                        "tuning.json",
                                        "log",
                                        "data",
                                        "samples"};
    json_t *list = tri_doc_list(root, "files");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (tri_dir_has(dir, names[i]))
            tri_doc_text_item(list, names[i]);
}

/* Of the plan of rank 0. */
static tr_status put_plan(json_t *root, tri_watch *w, const tri_watched_run *run, tr_error *err)
{
    static const char *const keys[] = {"memory", "messages", "why"};
    json_t *plan;
    TRI_TRY(tri_watch_plan(w, run, 0, &plan, err));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(plan, keys[i]);
        if (value)
            json_object_set(root, keys[i], value);
        else
            tri_doc_null(root, keys[i]);
    }
    json_decref(plan);
    return TR_OK;
}

void tri_watch_get_run(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    enum { MOST_EVENTS = 200, MOST_SAMPLES = 50 };
    tri_watch *w = context;
    tr_error err = {0};
    tri_run_row row;
    const tri_watched_run *run = tri_watch_asked(w, request, "id", reply);
    if (!run)
        return;
    tr_status status = tri_run_row_read(&row, run->dir, tri_unix_s(), &err);
    if (status == TR_OK) {
        json_t *root = tri_doc_begin(), *o = tri_doc_object(root, "run");
        tri_doc_text(o, "id", run->id);
        tri_runs_doc(o, &row);
        status = put_settings(root, run->dir, &err);
        json_object_set_new(root, "events", tri_tail_last(run->dir, "events.jsonl", MOST_EVENTS));
        json_object_set_new(root, "samples",
                            tri_tail_last(run->dir, "samples.jsonl", MOST_SAMPLES));
        put_files(root, run->dir);
        if (status == TR_OK)
            status = put_plan(root, w, run, &err);
        if (status == TR_OK)
            status = tri_doc_add(root, &reply->text, &err);
        else
            json_decref(root);
    }
    tri_watch_answer(reply, status, &err);
}
