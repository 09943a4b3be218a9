/* How the rows of the first batch are dealt out over context-parallel ranks: measured for each way
 * to deal, and drawn. trireme explain --deal shows it. */
#ifndef TRI_CLI_DEAL_DEAL_VIEW_H
#define TRI_CLI_DEAL_DEAL_VIEW_H

#include "cli/cli.h"
#include "train/session.h"

enum { TRI_NUM_DEALS = TRI_DEAL_BALANCED + 1 };

/* What a rank of the ring has of all rows. */
typedef struct tri_deal_part {
    int64_t tokens, runs; /* runs of consecutive places */
    int64_t area;         /* pairs of a query of the rank and a key that it sees */
    int64_t remote;       /* keys of other ranks that some query of it sees */
} tri_deal_part;

/* One way to deal. */
typedef struct tri_deal_facts {
    tri_context *context; /* holds the first row, dealt out; of the last kind read, the row too */
    tri_deal_part *ranks; /* [num_ranks] */
    tri_deal_part *first; /* [num_ranks], of the first row */
    double largest,
        worst;      /* largest over mean area: of all rows, and of the row where it is most */
    double remote;  /* pairs of a rank and a key of another rank that it sees */
    double seconds; /* to deal out a row, by this machine */
} tri_deal_facts;

typedef struct tri_deal_view {
    int32_t num_ranks; /* of the ring */
    int64_t num_rows;  /* of the first batch that are no padding */
    double all_remote; /* pairs of a rank and a key of another rank */
    tri_deal_facts kind[TRI_NUM_DEALS];
} tri_deal_view;

extern const char *const tri_deal_names[TRI_NUM_DEALS];

/* The session has opened its data, and divides tokens over the ranks of a ring. On failure nothing
 * is left to free. */
tr_status tri_deal_view_init(tri_deal_view *view, const tri_session *session, tr_error *err);
void tri_deal_view_fini(tri_deal_view *view);

/* deal_draw.c: the first row as SVG, a column for each way to deal. */
tr_status tri_deal_view_draw(const tri_deal_view *view, const char *title, tri_text *text,
                             tr_error *err);

/* verbs/explain_deal.c: trireme explain --deal. */
tr_status tri_explain_deal(const tri_cli *cli, tr_error *err);

#endif
