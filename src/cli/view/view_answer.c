/* From an address to a document. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cli/view/view_parts.h"

typedef struct view_row {
    const char *path;
    const char *keys; /* that it takes */
    tri_view_document document;
    bool compiles;
} view_row;

static const view_row rows[] = {
    {"/api/view/schedules", "", tri_view_schedules, false},
    {"/api/view/schedule", "name csv p m chunks F I W B FB U send", tri_view_schedule, false},
    {"/api/view/collectives", "", tri_view_collectives, false},
    {"/api/view/collective", "operation algorithm ranks root bytes latency bandwidth",
     tri_view_collective, false},
    {"/api/view/layout", TRI_VIEW_LAYOUT_KEYS, tri_view_settings, true},
    {"/api/view/mesh", TRI_VIEW_LAYOUT_KEYS, tri_view_mesh, true},
    {"/api/view/placement", "value " TRI_VIEW_LAYOUT_KEYS, tri_view_placement, true},
    {"/api/view/program", "rank " TRI_VIEW_LAYOUT_KEYS, tri_view_program, true},
};
enum { NUM_ROWS = sizeof rows / sizeof *rows };

/* Of all views: compiling takes memory, so one thread does it at a time. */
static pthread_mutex_t compiling = PTHREAD_MUTEX_INITIALIZER;

tr_status tri_view_create(const tri_cli *cli, tri_view **view, tr_error *err)
{
    *view = calloc(1, sizeof **view);
    if (!*view)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the view");
    (*view)->cli = cli;
    return TR_OK;
}

tr_status tri_view_open(tri_view **view, tr_error *err)
{
    TRI_TRY(tri_view_create(NULL, view, err));
    (*view)->cli = &(*view)->own;
    tr_status status = tri_cli_init(&(*view)->own, tri_verb_find("view"), 0, NULL, err);
    if (status != TR_OK) {
        free(*view);
        *view = NULL;
    }
    return status;
}

void tri_view_destroy(tri_view *view)
{
    if (!view)
        return;
    tri_view_layout_fini(&view->layout);
    if (view->cli == &view->own)
        tri_cli_fini(&view->own);
    free(view);
}

static tr_status make(tri_view *view, const view_row *row, const tri_http_target *query,
                      tri_text *text, tr_error *err)
{
    TRI_TRY(tri_view_query_only(query, row->keys, err));
    json_t *doc = tri_doc_begin();
    if (row->compiles)
        pthread_mutex_lock(&compiling);
    tr_status status = row->document(view, query, doc, err);
    if (row->compiles)
        pthread_mutex_unlock(&compiling);
    if (status == TR_OK)
        return tri_doc_add(doc, text, err);
    json_decref(doc);
    return status;
}

static int refuse(int code, const tr_error *err, tri_text *text)
{
    tr_error more = {0};
    json_t *doc = tri_doc_begin();
    tri_doc_text(doc, "error", err->message);
    if (tri_doc_add(doc, text, &more) != TR_OK)
        tri_text_add(text, "{\"error\":\"no memory\"}\n");
    return code;
}

int tri_view_answer(tri_view *view, const tri_http_target *address, tri_text *text)
{
    tr_error err = {0};
    const view_row *row = NULL;
    for (int i = 0; i < NUM_ROWS && !row; i++)
        row = strcmp(rows[i].path, address->path) == 0 ? &rows[i] : NULL;
    if (!row) {
        tri_fail(&err, TR_ERROR_INPUT, "there is no %.100s", address->path);
        return refuse(404, &err, text);
    }
    if (make(view, row, address, text, &err) == TR_OK)
        return 200;
    bool theirs = err.status == TR_ERROR_INPUT || err.status == TR_ERROR_DAMAGED;
    return refuse(theirs ? 400 : 500, &err, text);
}
