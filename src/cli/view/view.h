/* trireme view: documents of what needs no run (schedules, placements, collectives, programs), for
 * pages that draw them. A document is asked for by an address, "/api/view/schedule?name=zb-v&p=4",
 * and is bounded in size and time whatever the address says: strangers may ask.
 *
 * An address names no file. What is compiled is the settings that the command line gave, or a
 * recipe of the list, with the few settings of layouts that view_layout.c allows. */
#ifndef TRI_CLI_VIEW_VIEW_H
#define TRI_CLI_VIEW_VIEW_H

#include "base/text.h"
#include "cli/cli.h"
#include "serve/http/http.h"

typedef struct tri_view tri_view;

/* The command must outlive it. */
tr_status tri_view_create(const tri_cli *cli, tri_view **view, tr_error *err);
/* Of the default settings. */
tr_status tri_view_open(tri_view **view, tr_error *err);
void tri_view_destroy(tri_view *view);

/* Adds the document of an address, or {"error": "..."}, and a line end. Returns the status of HTTP:
 * 200, 400, 404 or 500. Several threads may ask; one compiles at a time. */
int tri_view_answer(tri_view *view, const tri_http_target *address, tri_text *text);
/* The same for a server whose routes have these rows; the handler says which view is asked. */
void tri_view_reply(tri_view *view, const tri_http_request *request, tri_http_reply *reply);
#define TRI_VIEW_ROUTES(handler)                                                                   \
    {"/api/view/schedules", handler, false}, {"/api/view/schedule", handler, false},               \
        {"/api/view/collectives", handler, false}, {"/api/view/collective", handler, false},       \
        {"/api/view/layout", handler, false}, {"/api/view/mesh", handler, false},                  \
        {"/api/view/placement", handler, false},                                                   \
    {                                                                                              \
        "/api/view/program", handler, false                                                        \
    }

/* Serves documents and pages on this machine, until somebody asks the process to end. port 0: any
 * that is free. */
tr_status tri_view_serve(tri_view *view, int port, tr_error *err);

#endif
