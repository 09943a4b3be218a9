/* What is shown by a browser. */
#include <string.h>

#include "cli/watch/watch.h"

/* Until there is more. */
static const char index_page[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Trireme</title>"
    "<h1>Trireme</h1><p><a href=\"/api/runs\">runs</a></html>\n";

void tri_watch_asset(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    (void)context;
    if (strcmp(request->target.path, "/") != 0) {
        tri_http_refuse(reply, 404, "there is no such page");
        return;
    }
    reply->type = "text/html; charset=utf-8";
    reply->bytes = index_page;
    reply->num_bytes = sizeof index_page - 1;
}
