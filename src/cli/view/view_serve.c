/* trireme view's server: documents by view_answer.c, pages from the program itself. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/page/page_assets.h"
#include "cli/signals.h"
#include "cli/view/view.h"
#include "serve/http/http.h"

enum { TICK_US = 50000, TICKS_A_SECOND = 20 };

static void answer(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    reply->status = tri_view_answer(context, &request->target, &reply->text);
}

static const tri_http_route routes[] = {
    {"/api/view/schedules", answer, false},
    {"/api/view/schedule", answer, false},
    {"/api/view/collectives", answer, false},
    {"/api/view/collective", answer, false},
    {"/api/view/layout", answer, false},
    {"/api/view/mesh", answer, false},
    {"/api/view/placement", answer, false},
    {"/api/view/program", answer, false},
    {0},
};

static void show_page(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    (void)context;
    const char *path = request->target.path;
    bool first = strcmp(path, "/") == 0 || strcmp(path, "/view") == 0;
    if (!tri_page_asset(first ? "view.html" : path + 1, &reply->bytes, &reply->num_bytes,
                        &reply->type))
        tri_http_refuse(reply, 404, "there is no such page");
}

tr_status tri_view_serve(tri_view *view, int port, tr_error *err)
{
    tri_http_config config = {.port = port, .routes = routes, .other = show_page, .context = view};
    tri_http_server *server;
    TRI_TRY(tri_http_start(&config, &server, err));
    printf("http://127.0.0.1:%d/\nCtrl-C ends it\n", tri_http_port(server));
    fflush(stdout);
    for (int n = 0; !tri_signals_caught(); n++) {
        usleep(TICK_US);
        if (n % TICKS_A_SECOND == 0)
            tri_http_tick(server);
    }
    tri_http_stop(server);
    return TR_OK;
}
