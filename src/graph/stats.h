/* Statistics and losses of a step.
 *
 * A statistic is a number that micro-batches and ranks join into: a state [1] of a graph, and a row
 * of the table in stats.c that says how it is joined and shown. A row that says what it takes of
 * each row of logits is computed by the operators of cross-entropy on every device; nothing else
 * has to know it. */
#ifndef TRI_GRAPH_STATS_H
#define TRI_GRAPH_STATS_H

#include <math.h>
#include <stddef.h>

#include "base/everywhere.h"
#include "base/id.h"
#include "graph/dtype.h"
#include "graph/placement.h"

/* What becomes of a number of a row before it is joined. */
typedef enum tri_row_map {
    TRI_ROW_SAME,
    TRI_ROW_SQUARE,
    TRI_ROW_NOT_NEGATIVE /* 1 or 0 */
} tri_row_map;

/* What a statistic takes of a row of logits that has a target: map(the sum of max times its largest
 * logit, lse times the log of the sum of exponentials, target times the target's logit). */
typedef struct tri_row_stat {
    float max, lse, target;
    tri_row_map map;
    tri_partial_how join;
} tri_row_stat;

typedef struct tri_stat_def {
    const char *name;     /* of its state, in settings and in metrics.jsonl */
    tri_dtype dtype;      /* of its state */
    tri_partial_how join; /* of micro-batches and ranks */
    bool mean;            /* shown divided by the count of targets */
    bool stops;           /* a step in which it is not 0 updates nothing */
    bool chosen;          /* it is there when train.stats names it */
    uint8_t digits;       /* in lines of progress; 0: it is in metrics.jsonl alone */
    tri_row_stat row;     /* of cross-entropy's statistics */
    const char *meaning;  /* for people */
} tri_stat_def;

/* Rows that the code itself knows; those behind them are known by name alone. */
enum {
    TRI_STAT_LOSS,
    TRI_STAT_COUNT,
    TRI_STAT_HITS,
    TRI_STAT_SQUARES,
    TRI_STAT_Z_LOSS,
    TRI_STAT_BALANCE,
    TRI_STAT_ROUTER_Z,
    TRI_STAT_ENTROPY,
    TRI_STAT_LOST,
    TRI_STAT_DROPPED,
    TRI_STAT_BIAS,
};

const tri_stat_def *tri_stat_at(size_t row); /* NULL past the end */
/* The row that train.stats calls so, or -1. */
int tri_stat_find(const char *name);

/* A statistic of a graph. */
typedef struct tri_stat {
    uint8_t row; /* of the table */
    tri_id state;
} tri_stat;

/* A loss: what training lessens is the sum of all, each its weight times its sum over its count. A
 * count that stays 0 divides by nothing: a summed loss counts once, however the batch is cut. */
typedef struct tri_loss {
    const char *name;   /* a literal: beside the others */
    uint8_t sum, count; /* of the graph's statistics */
    float weight;       /* of the backward's seed too */
} tri_loss;

/* FINISH has an input for each statistic that is shown. */
enum { TRI_MAX_STATS = 16, TRI_MAX_LOSSES = 8, TRI_MAX_HEAD_STATS = 3, TRI_MAX_SHOWN = 10 };

/* What a head of logits computes besides its loss. */
typedef struct tri_head_config {
    float z_loss; /* weight of the squared lse in the loss; 0: none */
    uint8_t num_stats, stat[TRI_MAX_HEAD_STATS]; /* rows of the table */
} tri_head_config;

TRI_EVERYWHERE double tri_row_stat_of(const tri_row_stat *stat, double max, double lse,
                                      double target)
{
    /* Logits may be -inf, and 0 times that is no number. */
    double x = stat->max != 0 ? (double)stat->max * max : 0;
    x += stat->lse != 0 ? (double)stat->lse * lse : 0;
    x += stat->target != 0 ? (double)stat->target * target : 0;
    return stat->map == TRI_ROW_SQUARE ? x * x : stat->map == TRI_ROW_SAME ? x : x >= 0;
}

/* What changes nothing when it is joined. */
TRI_EVERYWHERE double tri_join_start(tri_partial_how how)
{
    return how == TRI_PARTIAL_MAX   ? -(double)INFINITY
           : how == TRI_PARTIAL_MIN ? (double)INFINITY
                                    : 0;
}

TRI_EVERYWHERE double tri_join(tri_partial_how how, double a, double b)
{
    if (how == TRI_PARTIAL_SUM)
        return a + b;
    return how == TRI_PARTIAL_MAX ? (b > a ? b : a) : b < a ? b : a;
}

#endif
