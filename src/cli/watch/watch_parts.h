/* What the files of the watch share. */
#ifndef TRI_CLI_WATCH_WATCH_PARTS_H
#define TRI_CLI_WATCH_WATCH_PARTS_H

#include <jansson.h>
#include <pthread.h>

#include "cli/runs/run_row.h"
#include "cli/view/view.h"
#include "cli/watch/tail.h"
#include "cli/watch/watch.h"
#include "train/log/columns/columns.h"

enum { TRI_WATCH_MAX_RUNS = 4096, TRI_WATCH_ID = 17 };

/* A run that was found once. It stays, so that its id means the same for as long as the server
 * lives. */
typedef struct tri_watched_run {
    char id[TRI_WATCH_ID];
    char *dir;
    uint32_t topic; /* of its events: its place in the list, from 1 */
    bool gone;      /* there is no such run any more */
    /* Of the thread that follows: */
    tri_tail metrics, events, samples;
    double wanted_at, changed_at, looked_at, ranks_at;
    char ranks[96]; /* which status file was told last */
    bool follows;
} tri_watched_run;

/* A document that takes long to make, for as long as what it is made of stays as it is. */
typedef struct tri_watch_kept {
    char key[64];
    char stamp[96];
    char *text;
    uint64_t used;
} tri_watch_kept;
enum { TRI_WATCH_MAX_KEPT = 32 };

/* Columns of a run, while there is room for them. */
typedef struct tri_watch_store {
    const tri_watched_run *run;
    tri_columns *columns;
    uint64_t used;
} tri_watch_store;
enum { TRI_WATCH_MAX_STORES = 64 };
#define TRI_WATCH_STORE_BYTES ((size_t)256 << 20)

struct tri_watch {
    const char *const *roots;
    int num_roots;
    tri_http_feed *feed;
    pthread_mutex_t lock; /* of the list */
    tri_watched_run *runs[TRI_WATCH_MAX_RUNS];
    size_t num_runs;
    double listed_at;
    pthread_mutex_t list_lock; /* of the document of all runs */
    char *list, *brief;
    double list_at;
    pthread_mutex_t store_lock;
    tri_watch_store stores[TRI_WATCH_MAX_STORES];
    pthread_mutex_t kept_lock, making_lock, view_lock;
    tri_view *view; /* NULL: nobody has asked for its pages */
    tri_watch_kept kept[TRI_WATCH_MAX_KEPT];
    uint64_t num_uses;
    pthread_t thread;
    bool follows;
    _Atomic bool ends;
};

/* watch_list.c */
/* Looks for runs, unless that was done a moment ago. */
tr_status tri_watch_look(tri_watch *watch, tr_error *err);
/* NULL: there is none of that id. */
tri_watched_run *tri_watch_find(tri_watch *watch, const char *id);
/* The n-th that is not gone, NULL behind the last. */
tri_watched_run *tri_watch_at(tri_watch *watch, size_t *n);
/* The document of all runs, on the heap; brief: without what seldom changes, "time" too. */
tr_status tri_watch_list_doc(tri_watch *watch, bool brief, char **text, tr_error *err);

/* watch_plan.c: a document that is made only when what it is made of has changed since. make runs
 * alone; its text is on the heap. */
typedef tr_status (*tri_watch_make)(void *context, char **text, tr_error *err);
tr_status tri_watch_keep(tri_watch *watch, const char *key, const char *stamp, tri_watch_make make,
                         void *context, char **text, tr_error *err);
/* What changes with a file of a run; "" where there is none. */
void tri_watch_stamp(const char *dir, const char *name, char *stamp, size_t size);
/* The document of `trireme plan --page`, or one that says "why" there is none; the caller's. */
tr_status tri_watch_plan(tri_watch *watch, const tri_watched_run *run, int rank, json_t **plan,
                         tr_error *err);

/* watch_ranks.c */
tr_status tri_watch_ranks_doc(const char *dir, tri_text *text, tr_error *err);

/* watch_docs.c: the run that is asked for, or a refusal; and what becomes of a status. */
tri_watched_run *tri_watch_asked(tri_watch *watch, const tri_http_request *request,
                                 const char *name, tri_http_reply *reply);
void tri_watch_answer(tri_http_reply *reply, tr_status status, const tr_error *err);

/* Handlers, for the table in watch_routes.c. */
void tri_watch_get_runs(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_run(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_curve(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_keys(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_loads(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_ranks(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_trace(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_memory(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_planner(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_diff(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_events(void *watch, const tri_http_request *request, tri_http_reply *reply);
void tri_watch_get_metrics(void *watch, const tri_http_request *request, tri_http_reply *reply);

#endif
