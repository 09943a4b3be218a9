/* The layouts that are worth a thought: all products of axes that make up the devices, with
 * everything else that a layout may vary, less what rules leave out. */
#ifndef TRI_SEARCH_SPACE_H
#define TRI_SEARCH_SPACE_H

#include "search/choice.h"

/* What rules need to know of the model, the batch and the machine. */
typedef struct tri_space_facts {
    uint32_t devices, node; /* node: devices of one */
    uint32_t layers, heads, experts;
    int64_t batch, seq_len;
    bool half;        /* weights have 16-bit copies */
    bool can_linear8; /* fp8 is to be tried, too */
    bool only_linear8;
    bool can_cp; /* tokens of a row may be divided */
} tri_space_facts;

/* Settings that are to stay as they are: a value for each, or TRI_FREE. */
enum { TRI_FREE = -1 };
typedef struct tri_space_fixed {
    int64_t tp, cp, ep, pp, dp, zero, shard_group, microbatches, chunks, prefetch;
    int64_t schedule, keeping, sp, keep_gathered, whole_experts;
} tri_space_fixed;
tri_space_fixed tri_space_all_free(void);

/* Takes "layout.tp=8". False: the search does not vary such a setting, or not to this value. */
bool tri_space_fix(tri_space_fixed *fixed, const char *assignment);

typedef struct tri_choices {
    tri_layout_choice *items;
    size_t count, capacity;
    bool failed; /* no memory */
} tri_choices;

void tri_space_list(const tri_space_facts *facts, const tri_space_fixed *fixed,
                    tri_choices *choices);

#endif
