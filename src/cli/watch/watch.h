/* Runs as JSON documents, for the page of `trireme watch`: what the files of run directories say,
 * of runs that go on and of those that have ended. Nothing here changes a run, and no name that a
 * request has is ever a path: a run is asked for by an id that is looked up in a list. */
#ifndef TRI_CLI_WATCH_WATCH_H
#define TRI_CLI_WATCH_WATCH_H

#include "serve/http/http.h"

typedef struct tri_watch tri_watch;

/* roots: run directories, folders of such, or names of runs; whatever is in them later counts, too.
 * They stay the caller's. */
tr_status tri_watch_create(const char *const *roots, int num_roots, tri_watch **watch,
                           tr_error *err);
void tri_watch_destroy(tri_watch *watch);
/* For the server's configuration. */
tri_http_feed *tri_watch_feed(tri_watch *watch);
size_t tri_watch_num_runs(tri_watch *watch);

/* A thread that looks for what is new, and tells those who listen. */
tr_status tri_watch_follow(tri_watch *watch, tr_error *err);
void tri_watch_unfollow(tri_watch *watch);

/* The handlers of the server's routes; their context is the watch. */
extern const tri_http_route tri_watch_routes[];
void tri_watch_asset(void *context, const tri_http_request *request, tri_http_reply *reply);

#endif
