/* Rows with equal areas, and documents on few ranks.
 *
 * A row is cut into shares, runs of blocks that go to one rank each: a document that fits into a
 * rank is one, short neighbours are one together, and a document that does not fit is cut from its
 * end into chunks that give a rank the area it wants. The density of a share is its area for each
 * of its blocks. The densest share goes first, to the rank that needs the densest blocks: area
 * still wanted for each block still wanted. So all needs sink together, and when only thin shares
 * are left, only thin ones are needed.
 *
 * What fits nowhere is cut into the room that is left. Then the counts are exact, and areas nearly
 * equal. The rest is a trade of blocks for as many others (trade.c). */
#include "train/deal/balance.h"

#include <stdlib.h>

#include "train/deal/game.h"

enum {
    KEY_BITS = 11, /* of a pass of sorting; there are two */
    NEARLY = 8     /* a need that is less by such a part will do */
};

/* Tokens at the end of the row that a rank has besides its blocks. They have no less than a block,
 * where the rank has one: so no run is shorter. */
static int64_t tail_of(int64_t size, int64_t block)
{
    int64_t over = size % block;
    return over > 0 && size > block ? over + block : over;
}

tri_deal_table *tri_deal_table_create(int32_t num_ranks, const int64_t *sizes, int64_t length)
{
    tri_deal_table *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    int64_t block = length / num_ranks / TRI_DEAL_LEAST_BLOCKS, front = length;
    block = block < 1 ? 1 : block;
    block = block < TRI_DEAL_BLOCK ? block : TRI_DEAL_BLOCK;
    for (int32_t r = 0; r < num_ranks; r++)
        front -= tail_of(sizes[r], block);
    table->block = block;
    table->num_blocks = (int32_t)(front / block);
    /* A share has a block at least. Two neighbours of the first cut have 1 / TRI_DEAL_SHARES of a
     * rank, chunks and heads are at least a quarter of what they may be, and trades cut twice. */
    int64_t most = (int64_t)num_ranks * (4 * TRI_DEAL_SHARES + 2 * TRI_DEAL_TRADES) + 64;
    most = most < table->num_blocks ? most : table->num_blocks;
    size_t num = (size_t)most, ranks = (size_t)num_ranks, blocks = (size_t)table->num_blocks;
    table->max_shares = (int32_t)most;
    table->area = malloc((blocks + 1) * sizeof *table->area);
    table->doc = malloc((blocks + 1) * sizeof *table->doc);
    table->share = malloc((num + 1) * sizeof *table->share);
    table->order = malloc((num + 1) * sizeof *table->order);
    table->other_order = malloc((num + 1) * sizeof *table->other_order);
    table->key = malloc((num + 1) * sizeof *table->key);
    table->hand = malloc(ranks * sizeof *table->hand);
    table->begin = malloc(ranks * sizeof *table->begin);
    if (table->area && table->doc && table->share && table->order && table->other_order &&
        table->key && table->hand && table->begin)
        return table;
    tri_deal_table_destroy(table);
    return NULL;
}

void tri_deal_table_destroy(tri_deal_table *table)
{
    if (!table)
        return;
    free(table->area);
    free(table->doc);
    free(table->share);
    free(table->order);
    free(table->other_order);
    free(table->key);
    free(table->hand);
    free(table->begin);
    free(table);
}

static int64_t blocks_of(const tri_deal_share *x)
{
    return x->end - x->begin;
}

static int64_t area_of(const tri_deal_table *t, const tri_deal_share *x)
{
    return t->area[x->end] - t->area[x->begin];
}

int32_t tri_deal_cut_share(tri_deal_table *t, int32_t s, int32_t at)
{
    int32_t other = t->num_shares++;
    t->share[other] = t->share[s];
    t->share[s].end = t->share[other].begin = at;
    t->share[s].next = t->share[s].neighbour = other;
    return other;
}

/* One pass of sorting by some bits of the keys. */
static void sort_pass(const tri_deal_table *t, int shift, const int32_t *from, int32_t *to)
{
    int32_t count[1 << KEY_BITS] = {0}, sum = 0;
    const uint32_t mask = (1 << KEY_BITS) - 1;
    for (int32_t i = 0; i < t->num_shares; i++)
        count[t->key[i] >> shift & mask]++;
    for (uint32_t k = 0; k <= mask; k++) {
        int32_t num = count[k];
        count[k] = sum;
        sum += num;
    }
    for (int32_t i = 0; i < t->num_shares; i++)
        to[count[t->key[from[i]] >> shift & mask]++] = from[i];
}

/* The densest first; equal ones in the order of places. */
static void sort_shares(tri_deal_table *t)
{
    int64_t most = 0;
    for (int32_t s = 0; s < t->num_shares; s++) {
        int64_t density = area_of(t, &t->share[s]) * TRI_DEAL_UNIT / blocks_of(&t->share[s]);
        most = most < density ? density : most;
    }
    int drop = 0;
    while (most >> drop >= 1 << 2 * KEY_BITS)
        drop++;
    for (int32_t s = 0; s < t->num_shares; s++) {
        int64_t density = area_of(t, &t->share[s]) * TRI_DEAL_UNIT / blocks_of(&t->share[s]);
        t->order[s] = s;
        t->key[s] = (uint32_t)((most - density) >> drop);
    }
    sort_pass(t, 0, t->order, t->other_order);
    sort_pass(t, KEY_BITS, t->other_order, t->order);
}

void tri_deal_give(tri_deal_table *t, int32_t s, int32_t rank)
{
    tri_deal_share *x = &t->share[s];
    tri_deal_hand *h = &t->hand[rank];
    x->rank = rank;
    x->neighbour = h->shares;
    h->shares = s;
    h->blocks -= blocks_of(x);
    h->area -= area_of(t, x);
    h->need = h->blocks > 0 ? h->area * TRI_DEAL_UNIT / h->blocks : 0;
}

static bool has_room(const tri_deal_game *g, int32_t rank, const tri_deal_share *x)
{
    const tri_deal_hand *h = &g->table->hand[rank];
    return h->blocks >= blocks_of(x) &&
           h->area + g->area / TRI_DEAL_GOOD_ENOUGH >= area_of(g->table, x);
}

/* The neediest rank with room that has some of the same document; -1: none. */
static int32_t rank_of_same(const tri_deal_game *g, const tri_deal_share *x)
{
    const tri_deal_table *t = g->table;
    int32_t best = -1;
    /* The shares of a document stand together, and the first cut leaves them in order. */
    for (int32_t k = x->first; k < t->num_shares && t->share[k].first == x->first; k++) {
        int32_t r = t->share[k].rank;
        if (r >= 0 && has_room(g, r, x) && (best < 0 || t->hand[r].need > t->hand[best].need))
            best = r;
    }
    return best;
}

static int32_t rank_in_need(const tri_deal_game *g, const tri_deal_share *x)
{
    int32_t best = -1;
    for (int32_t r = 0; r < g->deal->num_ranks; r++)
        if (has_room(g, r, x) && (best < 0 || g->table->hand[r].need > g->table->hand[best].need))
            best = r;
    return best;
}

/* The rank of the share before or behind, if it is nearly as much in need as `rank`: then there is
 * one run instead of two, and nobody else has a part of the block between two documents. */
static int32_t rank_beside(const tri_deal_game *g, int32_t s, int32_t rank)
{
    const tri_deal_table *t = g->table;
    int64_t least = t->hand[rank].need - t->hand[rank].need / NEARLY;
    for (int32_t k = s - 1; k <= s + 1; k += 2) {
        int32_t r = k >= 0 && k < t->num_shares ? t->share[k].rank : -1;
        if (r >= 0 && t->hand[r].need >= least && has_room(g, r, &t->share[s]))
            return r;
    }
    return rank;
}

/* Deals out what fits; the others are put in front of the order. Returns how many. */
static int32_t deal_whole(const tri_deal_game *g)
{
    tri_deal_table *t = g->table;
    int32_t num_left = 0;
    for (int32_t i = 0; i < t->num_shares; i++) {
        int32_t s = t->order[i], rank = -1;
        const tri_deal_share *x = &t->share[s];
        if (x->first >= 0 && area_of(t, x) * TRI_DEAL_UNIT < g->density * blocks_of(x))
            rank = rank_of_same(g, x);
        if (rank < 0)
            rank = rank_in_need(g, x);
        if (rank >= 0)
            rank = rank_beside(g, s, rank);
        if (rank >= 0)
            tri_deal_give(t, s, rank);
        else
            t->order[num_left++] = s;
    }
    return num_left;
}

static void deal_rest(const tri_deal_game *g, int32_t num_left)
{
    tri_deal_table *t = g->table;
    for (int32_t i = 0; i < num_left; i++)
        for (int32_t s = t->order[i]; s >= 0;) {
            int32_t best = -1, rest = -1;
            for (int32_t r = 0; r < g->deal->num_ranks; r++)
                if (t->hand[r].blocks > 0 && (best < 0 || t->hand[r].need > t->hand[best].need))
                    best = r;
            if (blocks_of(&t->share[s]) > t->hand[best].blocks)
                rest = tri_deal_cut_share(t, s, t->share[s].begin + (int32_t)t->hand[best].blocks);
            tri_deal_give(t, s, best);
            s = rest;
        }
}

/* Nobody has anything but a tail. */
static void begin_hands(const tri_deal_game *g)
{
    tri_deal_table *t = g->table;
    int64_t place = t->num_blocks * t->block;
    for (int32_t r = 0; r < g->deal->num_ranks; r++) {
        int64_t tail = tail_of(g->deal->sizes[r], t->block);
        tri_deal_hand *h = &t->hand[r];
        h->blocks = (g->deal->sizes[r] - tail) / t->block;
        h->area = g->area - tri_deal_area(g->deal, g->span, place, place + tail);
        h->need = h->area * TRI_DEAL_UNIT / (h->blocks > 0 ? h->blocks : 1);
        h->shares = -1;
        place += tail;
    }
}

static void write_run(int32_t *to, int64_t place, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        to[k] = (int32_t)(place + k);
}

static void write_places(const tri_deal_game *g, int32_t *places)
{
    const tri_deal_table *t = g->table;
    int64_t sum = 0, tails = t->num_blocks * t->block;
    for (int32_t r = 0; r < g->deal->num_ranks; r++) {
        int64_t size = g->deal->sizes[r], tail = tail_of(size, t->block);
        t->begin[r] = sum;
        sum += size;
        write_run(&places[sum - tail], tails, tail);
        tails += tail;
    }
    for (int32_t s = 0; s >= 0; s = t->share[s].next) {
        int64_t *at = &t->begin[t->share[s].rank], count = blocks_of(&t->share[s]) * t->block;
        write_run(&places[*at], t->share[s].begin * t->block, count);
        *at += count;
    }
}

void tri_deal_balance(const tri_deal *deal, const int32_t (*span)[2], int32_t *places)
{
    tri_deal_game g = {.deal = deal, .span = span, .table = deal->table};
    tri_deal_cut_row(&g);
    sort_shares(g.table);
    begin_hands(&g);
    deal_rest(&g, deal_whole(&g));
    tri_deal_trade(&g);
    write_places(&g, places);
}
