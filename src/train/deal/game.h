/* What the steps of TRI_DEAL_BALANCED share: the row as a game of blocks. balance.c says what it is
 * about.
 *
 * The front of the row is blocks of equally many tokens, and every cut is between two of them.
 * A rank whose size is no multiple of a block has a tail besides, a block and the tokens that are
 * over. Tails are the end of the row, where they come behind the blocks of every rank, so that all
 * of those begin at multiples of a block there too; nobody trades them. */
#ifndef TRI_TRAIN_DEAL_GAME_H
#define TRI_TRAIN_DEAL_GAME_H

#include "train/deal.h"
#include "train/deal/balance.h"

enum {
    TRI_DEAL_BLOCK = 128,      /* tokens, those of a tile of the kernels */
    TRI_DEAL_LEAST_BLOCKS = 8, /* of a rank: blocks of shorter rows are smaller */
    TRI_DEAL_TRADES = 8,       /* tries of a rank at most, on average */
    TRI_DEAL_SHARES = 64,      /* documents shorter than such a part of a rank go with others */
    TRI_DEAL_GOOD_ENOUGH = 80, /* no area is above the mean by more than such a part of it */
    TRI_DEAL_UNIT = 16         /* of densities */
};

/* A run of blocks that goes to one rank. */
typedef struct tri_deal_share {
    int32_t begin, end; /* blocks */
    int32_t rank;       /* -1: not yet dealt */
    int32_t next;       /* in the order of places; -1: none */
    int32_t neighbour;  /* the next of the same rank; -1: none */
    int32_t first;      /* the first share of the same document; -1: of no document that is cut */
} tri_deal_share;

typedef struct tri_deal_hand {
    int64_t blocks, area; /* still wanted */
    int64_t need;         /* area for each block, in UNITs */
    int32_t shares;       /* the first of them; -1: none */
} tri_deal_hand;

struct tri_deal_table {
    int64_t block; /* tokens */
    int32_t num_blocks;
    int64_t *area;     /* [num_blocks + 1], of the blocks before each */
    int32_t (*doc)[2]; /* [num_blocks], where the document of its first token begins and ends */
    tri_deal_share *share;
    int32_t num_shares, max_shares;
    int32_t *order, *other_order; /* of shares, the densest first; room for sorting */
    uint32_t *key;                /* of each share, to sort by */
    tri_deal_hand *hand;          /* [num_ranks] */
    int64_t *begin;               /* [num_ranks], where the positions of each begin */
};

typedef struct tri_deal_game {
    const tri_deal *deal;
    const int32_t (*span)[2];
    tri_deal_table *table;
    int64_t size;    /* blocks of a rank, on average */
    int64_t area;    /* of a rank, on average */
    int64_t density; /* of a block on average, in UNITs */
    int64_t thin;    /* of blocks below that, in UNITs */
} tri_deal_game;

/* Finds the areas of blocks, and cuts them into shares. */
void tri_deal_cut_row(tri_deal_game *g);
/* Cuts a share before a block. The second part is a new share, of the same rank. */
int32_t tri_deal_cut_share(tri_deal_table *t, int32_t s, int32_t at);
void tri_deal_give(tri_deal_table *t, int32_t s, int32_t rank);
/* Makes areas equal that are nearly so. */
void tri_deal_trade(const tri_deal_game *g);

#endif
