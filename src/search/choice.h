/* A layout as the planner varies it: every setting of it that the search may choose. */
#ifndef TRI_SEARCH_CHOICE_H
#define TRI_SEARCH_CHOICE_H

#include "base/text.h"
#include "trireme/settings.h"

typedef enum tri_keeping {
    TRI_KEEP_ALL,       /* layout.recompute=none */
    TRI_KEEP_SELECTIVE, /* attention is computed again */
    TRI_KEEP_INPUTS,    /* full: all but the inputs of layers */
    TRI_KEEP_HALF,      /* every:2, the inputs alone of each second layer */
    TRI_KEEP_MOST,      /* every:4 */
    TRI_KEEP_FITTING,   /* budget: as little is computed again as fits the device */
    TRI_NUM_KEEPINGS
} tri_keeping;

typedef struct tri_layout_choice {
    uint32_t tp, cp, ep, pp, dp;
    uint32_t zero, shard_group; /* shard_group 0: all of dp x cp */
    uint32_t rows;              /* of a micro-batch, on one data-parallel rank */
    uint32_t microbatches;
    uint8_t schedule; /* of tri_search_order_at */
    uint8_t chunks;   /* of a rank; 0: what the order has */
    uint8_t keeping;
    uint8_t prefetch;
    bool sp, keep_gathered, whole_experts; /* whole_experts: layout.etp=1 */
    bool linear8;                          /* precision.linear=fp8 */
    bool group_lanes;                      /* run.lanes=group */
} tri_layout_choice;

/* A pipeline order that the search tries. */
typedef struct tri_search_order {
    const char *name;
    bool many_chunks; /* of any number; otherwise the order's own */
    uint8_t chunks;   /* the order's own */
    bool dominated;   /* another is never worse: it is tried when asked for */
    bool puts_off;    /* gradients of weights are made later than those of activations */
} tri_search_order;
const tri_search_order *tri_search_order_at(size_t i); /* NULL past the end */
size_t tri_search_order_find(const char *name);        /* the number of orders: none */

/* Gives the settings this layout. budget_bytes: what TRI_KEEP_FITTING may take. */
tr_status tri_choice_apply(const tri_layout_choice *choice, uint64_t budget_bytes,
                           tr_settings *settings, tr_error *err);
/* "--set layout.tp=8 --set ...": what a person adds to the settings to have this layout. */
void tri_choice_command(const tri_layout_choice *choice, uint64_t budget_bytes,
                        const tr_settings *settings, tri_text *text);
/* What an assignment, "layout.tp=8", is to a choice: it sets something else, the same, or another
 * value of what the search varies. */
typedef enum tri_choice_match {
    TRI_CHOICE_ELSE,
    TRI_CHOICE_SAME,
    TRI_CHOICE_OTHER
} tri_choice_match;
tri_choice_match tri_choice_compare(const tri_layout_choice *choice, uint64_t budget_bytes,
                                    const char *assignment);
/* "tp 8 sp, pp 4 interleaved x 2, dp 16 zero 1, 8 x 1 rows": for people. */
void tri_choice_text(const tri_layout_choice *choice, tri_text *text);
/* The axes alone are the same. */
bool tri_choice_same_mesh(const tri_layout_choice *a, const tri_layout_choice *b);

#endif
