/* What can be asked for, beside the page's own files. */
#include "cli/view/view.h"
#include "cli/watch/watch_parts.h"

const tri_http_route tri_watch_routes[] = {
    {"/api/runs", tri_watch_get_runs, false},     {"/api/run", tri_watch_get_run, false},
    {"/api/curve", tri_watch_get_curve, false},   {"/api/keys", tri_watch_get_keys, false},
    {"/api/loads", tri_watch_get_loads, false},   {"/api/diff", tri_watch_get_diff, false},
    {"/api/ranks", tri_watch_get_ranks, false},   {"/api/trace", tri_watch_get_trace, false},
    {"/api/memory", tri_watch_get_memory, false}, {"/api/planner", tri_watch_get_planner, false},
    {"/metrics", tri_watch_get_metrics, false},   {"/events", tri_watch_get_events, true},
    TRI_VIEW_ROUTES(tri_watch_get_view),          {0},
};
