/* Server-sent events: a ring of the latest ones, and the clients that read them.
 *
 * An event belongs to a topic, a number of the owner's; topic 0 is for everybody. A client has a
 * place in the ring and nothing else: it costs no memory however slowly it reads, and one that the
 * ring has overtaken is dropped. The same place lets a client that comes back go on where it was
 * (Last-Event-ID), as long as the ring still has what follows. Functions may be called from any
 * thread. */
#ifndef TRI_SERVE_HTTP_FEED_H
#define TRI_SERVE_HTTP_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { TRI_HTTP_MAX_TOPICS = 64 };

typedef struct tri_http_feed tri_http_feed;

typedef struct tri_http_feed_config {
    size_t max_events, max_bytes; /* of the ring */
    int max_clients;
} tri_http_feed_config;

tr_status tri_http_feed_create(const tri_http_feed_config *config, tri_http_feed **feed,
                               tr_error *err);
void tri_http_feed_destroy(tri_http_feed *feed); /* when the server is gone */

/* data: one line of JSON. What there is no memory for is left out. */
void tri_http_feed_add(tri_http_feed *feed, uint32_t topic, const char *kind, const char *data,
                       size_t num_bytes);
/* Whether somebody listens to a topic. */
bool tri_http_feed_wanted(tri_http_feed *feed, uint32_t topic);
int tri_http_feed_num_clients(tri_http_feed *feed);
/* Every few seconds: a sign of life to all, so that those that have gone are found out. */
void tri_http_feed_beat(tri_http_feed *feed);

#endif
