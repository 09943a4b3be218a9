/* What the documents of trireme view share. */
#ifndef TRI_CLI_VIEW_VIEW_PARTS_H
#define TRI_CLI_VIEW_VIEW_PARTS_H

#include "api/api.h"
#include "cli/doc/json_doc.h"
#include "cli/view/view.h"

/* Bounds of what is drawn. */
enum {
    TRI_VIEW_RANKS = 64,
    TRI_VIEW_MICROBATCHES = 256,
    TRI_VIEW_CHUNKS = 16,           /* of a rank */
    TRI_VIEW_CELLS = 1 << 15,       /* ranks x chunks x micro-batches */
    TRI_VIEW_INSTRUCTIONS = 120000, /* of all programs of a layout together */
    TRI_VIEW_VALUES = 5000
};

/* ---- view_query.c: what an address asks for ---- */

/* *value is left alone where there is none. */
tr_status tri_view_query_int(const tri_http_target *query, const char *key, int64_t least,
                             int64_t most, int64_t *value, tr_error *err);
tr_status tri_view_query_number(const tri_http_target *query, const char *key, double least,
                                double most, double *value, tr_error *err);
/* Refuses a key that is not among those, a list with blanks. */
tr_status tri_view_query_only(const tri_http_target *query, const char *known, tr_error *err);
/* Lists the words of a table: "there is no X "foo"; it can be a, b". */
tr_status tri_view_query_unknown(const char *what, const char *word, const char *(*at)(size_t),
                                 tr_error *err);

/* ---- view_layout.c: programs of the layout that an address asks for ---- */

/* Keys by which an address changes the layout. */
#define TRI_VIEW_LAYOUT_KEYS "recipe dp cp tp pp ep zero sp microbatches schedule batch"

typedef struct tri_view_layout {
    char *words; /* what it was made of: owned; NULL: there is none */
    tri_cli cli; /* as if it had been typed */
    int num_ranks;
    tr_session *session[TRI_VIEW_RANKS]; /* compiled so far */
    bool all;                            /* all of them are */
} tri_view_layout;

struct tri_view {
    const tri_cli *cli;
    tri_cli own;            /* where that is not the caller's */
    tri_view_layout layout; /* the newest one */
};

/* Of the address: the last one, if it is the same. Valid until the next call. */
tr_status tri_view_layout_of(tri_view *view, const tri_http_target *query, tri_view_layout **layout,
                             tr_error *err);
tr_status tri_view_compile(tri_view_layout *layout, int rank, const tri_session **session,
                           tr_error *err);
/* Of every rank; refused where they are too many, or too large together. */
tr_status tri_view_compile_all(tri_view_layout *layout, tr_error *err);
void tri_view_layout_fini(tri_view_layout *layout);
void tri_view_put_recipes(const tri_view *view, json_t *doc);

/* ---- the documents ---- */

typedef tr_status (*tri_view_document)(tri_view *view, const tri_http_target *query, json_t *doc,
                                       tr_error *err);
tr_status tri_view_schedules(tri_view *view, const tri_http_target *query, json_t *doc,
                             tr_error *err);
tr_status tri_view_schedule(tri_view *view, const tri_http_target *query, json_t *doc,
                            tr_error *err);
tr_status tri_view_collectives(tri_view *view, const tri_http_target *query, json_t *doc,
                               tr_error *err);
tr_status tri_view_collective(tri_view *view, const tri_http_target *query, json_t *doc,
                              tr_error *err);
tr_status tri_view_settings(tri_view *view, const tri_http_target *query, json_t *doc,
                            tr_error *err);
tr_status tri_view_mesh(tri_view *view, const tri_http_target *query, json_t *doc, tr_error *err);
tr_status tri_view_placement(tri_view *view, const tri_http_target *query, json_t *doc,
                             tr_error *err);
tr_status tri_view_program(tri_view *view, const tri_http_target *query, json_t *doc,
                           tr_error *err);

#endif
