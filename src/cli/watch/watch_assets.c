/* The page itself: its files are in the program, and nothing here looks at a disk. */
#include <string.h>

#include "cli/page/page_assets.h"
#include "cli/watch/watch.h"

void tri_watch_asset(void *context, const tri_http_request *request, tri_http_reply *reply)
{
    const char *path = request->target.path;
    const char *name = strcmp(path, "/") == 0       ? "index.html"
                       : strcmp(path, "/view") == 0 ? "view.html"
                                                    : path + 1;
    (void)context;
    if (!tri_page_asset(name, &reply->bytes, &reply->num_bytes, &reply->type))
        tri_http_refuse(reply, 404, "there is nothing here: /, /api/runs, /events");
}
