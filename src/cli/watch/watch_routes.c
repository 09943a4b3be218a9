/* What can be asked for, beside the page's own files. */
#include "cli/watch/watch_parts.h"

/* Pages of trireme view: what needs no run. */
static void get_view(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_watch *w = context;
    tr_error err = {0};
    pthread_mutex_lock(&w->view_lock);
    tr_status status = w->view ? TR_OK : tri_view_open(&w->view, &err);
    pthread_mutex_unlock(&w->view_lock);
    if (status == TR_OK)
        tri_view_reply(w->view, request, reply);
    else
        tri_watch_answer(reply, status, &err);
}

const tri_http_route tri_watch_routes[] = {
    {"/api/runs", tri_watch_get_runs, false},
    {"/api/run", tri_watch_get_run, false},
    {"/api/curve", tri_watch_get_curve, false},
    {"/api/keys", tri_watch_get_keys, false},
    {"/api/loads", tri_watch_get_loads, false},
    {"/api/diff", tri_watch_get_diff, false},
    {"/api/ranks", tri_watch_get_ranks, false},
    {"/api/trace", tri_watch_get_trace, false},
    {"/api/memory", tri_watch_get_memory, false},
    {"/api/planner", tri_watch_get_planner, false},
    {"/metrics", tri_watch_get_metrics, false},
    {"/events", tri_watch_get_events, true},
    TRI_VIEW_ROUTES(get_view),
    {0},
};
