/* Trades. Of two ranks, the one with too much area gives blocks for as many of the other. They are
 * the first or last of a share, so that few runs are cut; of all trades that make the two equal
 * enough, that with the fewest keys. */
#include "train/deal/game.h"

/* Blocks of a share, from one of its ends. */
typedef struct parcel {
    int32_t share, begin, end;
} parcel;

typedef struct swap {
    parcel given, taken;
    int64_t miss; /* how far areas stay from what is wanted */
    int64_t keys; /* that are needed in addition */
} swap;

static parcel parcel_of(const tri_deal_table *t, int32_t s, bool last, int32_t blocks)
{
    const tri_deal_share *x = &t->share[s];
    return last ? (parcel){s, x->end - blocks, x->end} : (parcel){s, x->begin, x->begin + blocks};
}

static int64_t area_of(const tri_deal_table *t, parcel x)
{
    return t->area[x.end] - t->area[x.begin];
}

/* How many more keys of others a rank needs with a parcel than without it. Only the document that
 * the parcel begins in counts: of others there is no key before it. */
static int64_t keys_of(const tri_deal_game *g, int32_t rank, parcel x)
{
    const tri_deal_table *t = g->table;
    const int64_t block = t->block, first = t->doc[x.begin][0], last = t->doc[x.begin][1];
    int64_t begin = x.begin * block, end = x.end * block < last ? x.end * block : last;
    int64_t top = g->deal->window > 0 ? begin + 1 - g->deal->window : 0;
    top = top < first ? first : top; /* keys before that are needed anyway, or not seen */
    for (int32_t s = t->hand[rank].shares; s >= 0; s = t->share[s].neighbour) {
        int64_t from = t->share[s].begin, to = t->share[s].end;
        if (s == x.share && from == x.begin)
            from = x.end;
        else if (s == x.share)
            to = x.begin;
        if (from < to && from * block < last && to * block > top)
            top = g->deal->causal ? to * block : last;
    }
    int64_t reach = g->deal->causal ? end : last;
    return (reach > top ? reach - top : 0) - (end - begin);
}

/* The number of blocks that gains most, but no more than `most`: the last of one share for the
 * first of another, or the other way round; 0: none gains anything. */
static int32_t num_blocks(const tri_deal_table *t, int32_t give, int32_t take, bool last,
                          int64_t most)
{
    const tri_deal_share *x = &t->share[give], *y = &t->share[take];
    const int64_t *given = &t->area[last ? x->end : x->begin];
    const int64_t *taken = &t->area[last ? y->begin : y->end];
    int32_t limit = x->end - x->begin < y->end - y->begin ? x->end - x->begin : y->end - y->begin;
    int32_t best = 0, step = last ? -1 : 1;
    int64_t best_gain = 0;
    for (int32_t n = 1; n <= limit; n++) {
        int64_t gain = step * (given[step * n] - *given + taken[-step * n] - *taken);
        if (gain > best_gain && gain <= most) {
            best = n;
            best_gain = gain;
        }
    }
    return best;
}

/* Takes a swap for the best one if it is better. */
static void consider(const tri_deal_game *g, parcel given, parcel taken, int64_t least, swap *best)
{
    const tri_deal_table *t = g->table;
    int64_t gain = area_of(t, given) - area_of(t, taken);
    swap x = {.given = given, .taken = taken, .miss = gain < least ? least - gain : 0};
    if (x.miss > best->miss)
        return;
    int32_t rich = t->share[x.given.share].rank, poor = t->share[x.taken.share].rank;
    x.keys = keys_of(g, poor, x.given) - keys_of(g, rich, x.given) + keys_of(g, rich, x.taken) -
             keys_of(g, poor, x.taken);
    if (x.miss < best->miss || x.keys < best->keys)
        *best = x;
}

/* Makes a parcel a share of another rank. */
static void move_parcel(tri_deal_table *t, parcel x, int32_t rank)
{
    int32_t s = x.share;
    if (x.end < t->share[s].end)
        tri_deal_cut_share(t, s, x.end);
    if (x.begin > t->share[s].begin)
        s = tri_deal_cut_share(t, s, x.begin);
    tri_deal_hand *from = &t->hand[t->share[s].rank];
    int32_t *link = &from->shares;
    while (*link != s)
        link = &t->share[*link].neighbour;
    *link = t->share[s].neighbour;
    from->blocks += x.end - x.begin;
    from->area += area_of(t, x);
    tri_deal_give(t, s, rank);
}

/* Rank `rich` gives blocks for as many thinner ones of `poor`. False: nothing is gained. */
static bool trade(const tri_deal_game *g, int32_t rich, int32_t poor)
{
    tri_deal_table *t = g->table;
    int64_t slack = g->area / TRI_DEAL_GOOD_ENOUGH;
    int64_t least = -t->hand[rich].area - slack, most = t->hand[poor].area + slack;
    least = least < most ? least : most;
    if (least <= 0)
        return false;
    swap best = {.miss = least};
    for (int32_t a = t->hand[rich].shares; a >= 0; a = t->share[a].neighbour)
        for (int32_t b = t->hand[poor].shares; b >= 0; b = t->share[b].neighbour)
            for (int last = 0; last < 2; last++) {
                int32_t blocks = num_blocks(t, a, b, last, most);
                if (blocks > 0)
                    consider(g, parcel_of(t, a, last, blocks), parcel_of(t, b, !last, blocks),
                             least, &best);
            }
    if (best.miss == least || t->num_shares + 2 > t->max_shares)
        return false;
    move_parcel(t, best.given, poor);
    move_parcel(t, best.taken, rich);
    return true;
}

/* The poorest rank of all, or after `last` in the order of poverty; -1: none. */
static int32_t next_poor(const tri_deal_game *g, int32_t last)
{
    const tri_deal_hand *hands = g->table->hand;
    int32_t best = -1;
    for (int32_t r = 0; r < g->deal->num_ranks; r++) {
        bool is_after = last < 0 || hands[r].area < hands[last].area ||
                        (hands[r].area == hands[last].area && r > last);
        if (is_after && (best < 0 || hands[r].area > hands[best].area))
            best = r;
    }
    return best;
}

void tri_deal_trade(const tri_deal_game *g)
{
    const tri_deal_hand *hands = g->table->hand;
    int32_t rich = 0, poor = -1;
    /* The poorest is asked first. Who gains nothing from it asks the next poorest. */
    for (int64_t k = 0; k < (int64_t)TRI_DEAL_TRADES * g->deal->num_ranks; k++) {
        for (int32_t r = 0; poor < 0 && r < g->deal->num_ranks; r++)
            rich = hands[r].area < hands[rich].area ? r : rich;
        poor = next_poor(g, poor);
        if (-hands[rich].area <= g->area / TRI_DEAL_GOOD_ENOUGH || poor < 0)
            return;
        if (trade(g, rich, poor))
            poor = -1;
    }
}
