/* Routers: the constants of their operators. */
#ifndef TRI_GRAPH_ROUTE_ATTR_H
#define TRI_GRAPH_ROUTE_ATTR_H

#include <stdbool.h>
#include <stdint.h>

/* How logits of a router become scores of experts. */
typedef enum tri_route_score {
    TRI_ROUTE_SOFTMAX, /* over all experts */
    TRI_ROUTE_SIGMOID, /* of each by itself */
    TRI_ROUTE_CHOSEN,  /* the largest logits are chosen, and softmax is over these alone */
} tri_route_score;

/* Experts that a router has, and choices that a token makes, at most. */
enum { TRI_MAX_EXPERTS = 512, TRI_MAX_CHOICES = 32 };

/* A router. Selection goes by score plus bias; weights are of the score alone. */
typedef struct tri_route_attr {
    tri_route_score score;
    int32_t choices;     /* of each token */
    int32_t experts;     /* sort_rows, drop_rows, pack_rooms: how many there are */
    int32_t ranks;       /* pack_rooms: over so many, of which each has as many... */
    int64_t room;        /* ...and rows that a pair of ranks has room for */
    int64_t limit;       /* drop_rows: rows of a sequence that an expert takes at most */
    int32_t groups;      /* > 1: experts are in so many groups of equal size... */
    int32_t group_limit; /* ...and those of the best so many alone are chosen among */
    bool renorm;         /* weights of a token's choices are divided by their sum */
    bool whole;          /* route_sums: over the micro-batch; else of each row */
    float scale;         /* of the weights */
    /* route_sums: factor of z and entropy; count_dropped: of the count; balance: of the loss; its
     * gradient: with what the backward starts from; move_bias: the step */
    float alpha;
    float z; /* gradients: weight of the squared lse, with what the backward starts from */
} tri_route_attr;

/* What a router's sums have for each expert: tokens that chose it, its scores, and all tokens. */
enum { TRI_ROUTE_CHOSE, TRI_ROUTE_MASS, TRI_ROUTE_TOKENS, TRI_NUM_ROUTE_SUMS };

#endif
