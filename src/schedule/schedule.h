/* Pipeline schedules as data.
 *
 * The layers of a model are cut into chunks, numbered in the order in which data flows. A rank of
 * the pipeline holds one or several of them, and a schedule is an ordered list of actions for each
 * rank. An order (one row of the table, one short file) emits actions that compute and nothing
 * else; who sends what to whom follows from where the chunks live, and is added by lowering.
 *
 *   order ─▶ tri_schedule_build ─▶ tri_schedule_lower ─▶ tri_schedule_check ─▶ run, simulate, draw
 *            compute only           sends, receives      proof over all ranks
 *
 * Where chunks live: in most schedules a chunk has one home. In bidirectional ones it has two, and
 * a micro-batch takes one of two routes; home[route][chunk] is the rank. So (chunk, micro-batch)
 * always names one place, and one action of each kind. */
#ifndef TRI_SCHEDULE_SCHEDULE_H
#define TRI_SCHEDULE_SCHEDULE_H

#include "base/error.h"
#include "base/text.h"
#include "mesh/mesh.h"
#include "schedule/action.h"

enum {
    TRI_MAX_PIPELINE_RANKS = TRI_MAX_PP,
    TRI_MAX_ROUTES = 2,
    TRI_MAX_CHUNKS = 4096,           /* over all ranks */
    TRI_MAX_MICROBATCHES = 1 << 20,  /* and chunks x micro-batches at most this: */
    TRI_MAX_SCHEDULE_CELLS = 1 << 24 /* 16 M forwards */
};

typedef struct tri_action_list {
    tri_action *actions;
    size_t count, capacity;
} tri_action_list;

/* How many actions run as one from this one on: those of a pair, or 1. */
static inline size_t tri_actions_at_once(const tri_action_list *list, size_t i)
{
    size_t num = 1;
    while (num < TRI_MOST_PAIRED && i + num < list->count && list->actions[i + num - 1].overlap)
        num++;
    return num;
}

typedef struct tri_order tri_order;

typedef struct tri_schedule {
    const tri_order *order; /* NULL: read from a file */
    uint32_t num_ranks, num_chunks, num_microbatches, num_routes;
    uint32_t chunks_per_rank; /* of one route: the share of a chunk in a rank's layers */
    uint32_t *home;           /* [num_routes][num_chunks]: a rank */
    uint8_t *route;           /* of each micro-batch */
    tri_action_list *ranks;
    /* Asynchronous schedules: an update after every so many micro-batches; 0 when there is one at
     * the end of the step, which orders leave out. */
    uint32_t update_every;
    /* What a forward reads when updates happen in between: the newest weights (false), or those of
     * two updates before the one it contributes to, whatever has happened since (true: 2BW). */
    bool delayed;
    bool has_messages; /* lowered */
} tri_schedule;

/* Time of each action, in any unit; actions are of one chunk. */
typedef struct tri_action_costs {
    double kind[TRI_NUM_ACTIONS];
    double overlap; /* an overlapped pair; 0: as long as F and B one after the other */
    double message; /* a transfer between two ranks */
    /* Where chunks and ranks differ, or NULL: [TRI_NUM_ACTIONS][num_chunks] instead of kind, and
     * [num_ranks] instead of the update's. */
    const double *by_chunk, *update_by_rank;
    /* [num_chunks][num_chunks], of the forward and of the backward, instead of overlap; or NULL. */
    const double *by_pair;
} tri_action_costs;

typedef enum tri_order_flags {
    TRI_ORDER_SPLIT = 1,         /* I and W apart */
    TRI_ORDER_V = 2,             /* two chunks a rank: r and 2p-1-r */
    TRI_ORDER_BIDIRECTIONAL = 4, /* two homes: rank r has chunks r and p-1-r, and two routes */
    TRI_ORDER_ASYNCHRONOUS = 8,  /* updates while micro-batches are under way: no flush */
    TRI_ORDER_OVERLAP = 16       /* has FB pairs */
} tri_order_flags;

/* What the literature says, to be compared with the simulation. Activations and weights are in
 * units of a rank's share of the layers (times one micro-batch). NAN: no formula. */
typedef struct tri_order_facts {
    double idle; /* time within the span of the busiest stage */
    double activations;
    double weight_copies;
} tri_order_facts;

/* A row of the table. What the constraints do not allow is refused before emit is called. */
struct tri_order {
    const char *name;
    const char *help;
    unsigned flags;
    uint32_t min_chunks, max_chunks, default_chunks; /* for each rank */
    uint32_t min_ranks;
    bool even_ranks;
    bool even_microbatches;
    bool microbatches_by_ranks;                    /* a multiple of the number of ranks */
    uint32_t min_microbatches_per_rank;            /* at least this times the number of ranks */
    const char *idle_formula, *activation_formula; /* as docs/pipelines.md writes them */
    /* Appends actions; shape, homes, routes and empty lists are there already. */
    tr_status (*emit)(tri_schedule *schedule, tr_error *err);
    void (*facts)(const tri_schedule *schedule, const tri_action_costs *costs,
                  tri_order_facts *facts);
};

/* table.c */
const tri_order *tri_order_at(size_t i); /* NULL past the end */
const tri_order *tri_order_find(const char *name);
/* An error that lists them when there is none of that name; csv:FILE is not looked at. */
tr_status tri_order_known(const char *name, tr_error *err);

typedef struct tri_schedule_config {
    const char *order; /* a name of the table, or csv:FILE */
    uint32_t num_ranks, num_microbatches;
    uint32_t chunks_per_rank; /* 0: what the order has by default */
} tri_schedule_config;

/* Builds what the config names: compute only (a file may also hold messages). With csv:FILE the
 * numbers of the config that are not 0 must be those of the file. The schedule needs a fini only
 * after TR_OK. */
tr_status tri_schedule_build(const tri_schedule_config *config, tri_schedule *schedule,
                             tr_error *err);
void tri_schedule_fini(tri_schedule *schedule);

/* Says in one sentence what an order asks for: "an even number of ranks, ...". */
void tri_order_needs(const tri_order *order, tri_text *text);
/* Refuses what the order's constraints do not allow, with the nearest values that work. */
tr_status tri_order_check(const tri_order *order, uint32_t num_ranks, uint32_t num_microbatches,
                          uint32_t chunks_per_rank, tr_error *err);

/* For orders. */
tr_status tri_schedule_add(tri_schedule *schedule, uint32_t rank, tri_action action, tr_error *err);

static inline uint32_t tri_schedule_home(const tri_schedule *s, uint32_t chunk, uint32_t microbatch)
{
    return s->home[(size_t)s->route[microbatch] * s->num_chunks + chunk];
}
size_t tri_schedule_num_actions(const tri_schedule *schedule);

/* lower.c: an I with its W right behind it becomes a B. */
void tri_schedule_join_backward(tri_schedule *schedule);
/* Adds sends and receives between chunks that live on different ranks. Proof that the result cannot
 * deadlock: a send and its receive enter both lists at the same moment of one walk over all ranks.
 * So the messages of each rank, in issue order, are a part of one common order in which every
 * message comes after what it needs; the first message of that order that is not done can always
 * go, however the lanes are arranged. */
tr_status tri_schedule_lower(tri_schedule *schedule, tr_error *err);

/* check.c: every action exactly once, at home and in a possible order; every message there and
 * matched; then the machine of machine.h, with lanes free and with all messages in one lane. The
 * error names the two actions that do not go together. */
tr_status tri_schedule_check(const tri_schedule *schedule, tr_error *err);

/* csv.c: a row for each rank, cells as tri_action_text writes them, (0F7;7B3)OVERLAP_F_B for a
 * pair; empty cells are idle time. `source` names the text in errors. */
tr_status tri_schedule_parse(const char *text, size_t length, const char *source,
                             tri_schedule *schedule, tr_error *err);
void tri_schedule_write(const tri_schedule *schedule, tri_text *text);

#endif
