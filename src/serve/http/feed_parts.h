/* What the server knows of a feed. */
#ifndef TRI_SERVE_HTTP_FEED_PARTS_H
#define TRI_SERVE_HTTP_FEED_PARTS_H

#include <microhttpd.h>

#include "serve/http/feed.h"

/* An answer that never ends; NULL: there are too many clients, or no memory. last_event may be
 * NULL, or whatever a client has sent. */
struct MHD_Response *tri_http_feed_response(tri_http_feed *feed, struct MHD_Connection *connection,
                                            const uint32_t *topics, size_t num_topics,
                                            const char *last_event);
/* Ends all clients, and lets nobody in any more: no connection is left suspended. */
void tri_http_feed_close(tri_http_feed *feed);

#endif
