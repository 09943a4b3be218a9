/* trireme view's server: documents by view_answer.c, pages from the program itself. */
#include <stdio.h>
#include <unistd.h>

#include "cli/page/page_assets.h"
#include "cli/signals.h"
#include "cli/view/view.h"
#include "serve/http/http.h"

enum { TICK_US = 50000, TICKS_A_SECOND = 20 };

void tri_view_reply(tri_view *view, const tri_http_request *request, tri_http_reply *reply)
{
    reply->status = tri_view_answer(view, &request->target, &reply->text);
}

static void answer(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    tri_view_reply(context, request, reply);
}

static const tri_http_route routes[] = {
    TRI_VIEW_ROUTES(answer),
    {0},
};

static void show_page(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    (void)context;
    const char *path = request->target.path;
    if (!tri_page_asset(path[1] ? path + 1 : "view.html", &reply->bytes, &reply->num_bytes,
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
