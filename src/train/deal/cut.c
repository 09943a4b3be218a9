/* From documents to shares. */
#include "train/deal/game.h"

enum {
    HEADS = 4,   /* thin parts of cut documents are no larger than such a part of a rank */
    TOO_MUCH = 8 /* a chunk has no more area than a rank and such a part of it */
};

static int64_t area_of(const tri_deal_table *t, int64_t begin, int64_t end)
{
    return t->area[end] - t->area[begin];
}

/* Where the document at a place begins and ends; padding is one document, which begins there. */
static void document_at(const tri_deal_game *g, int64_t place, int32_t doc[2])
{
    int64_t length = g->deal->length, end = place;
    doc[0] = g->span ? g->span[place][0] : 0;
    doc[1] = g->span ? g->span[place][1] : (int32_t)length;
    if (doc[0] < doc[1])
        return;
    while (end < length && g->span[end][0] == g->span[end][1])
        end++;
    doc[0] = (int32_t)place;
    doc[1] = (int32_t)end;
}

/* Areas, documents and means of blocks, and the mean of those with less area than the mean. */
static void survey(tri_deal_game *g)
{
    tri_deal_table *t = g->table;
    const tri_deal *deal = g->deal;
    int64_t blocks = t->num_blocks, num_thin = 0, thin = 0;
    t->area[0] = 0;
    for (int64_t b = 0, end = 0; b < blocks; b++) {
        if (end <= b * t->block) {
            document_at(g, b * t->block, t->doc[b]);
            end = t->doc[b][1];
        } else {
            t->doc[b][0] = t->doc[b - 1][0];
            t->doc[b][1] = t->doc[b - 1][1];
        }
        t->area[b + 1] =
            t->area[b] + tri_deal_area(deal, g->span, b * t->block, (b + 1) * t->block);
    }
    int64_t front = t->area[blocks], mean = front / blocks;
    int64_t tail = tri_deal_area(deal, g->span, blocks * t->block, deal->length);
    for (int64_t b = 0; b < blocks; b++) {
        int64_t area = area_of(t, b, b + 1);
        if (area > mean)
            continue;
        num_thin++;
        thin += area;
    }
    g->size = blocks / deal->num_ranks;
    g->size = g->size > 0 ? g->size : 1;
    g->area = (front + tail) / deal->num_ranks;
    g->density = front * TRI_DEAL_UNIT / blocks;
    g->thin = num_thin > 0 ? thin * TRI_DEAL_UNIT / num_thin : 0;
}

/* Puts a share behind the last one. */
static void append(tri_deal_table *t, int64_t begin, int64_t end, int32_t first)
{
    int32_t s = t->num_shares++;
    t->share[s] = (tri_deal_share){.begin = (int32_t)begin,
                                   .end = (int32_t)end,
                                   .rank = -1,
                                   .next = -1,
                                   .neighbour = -1,
                                   .first = first};
    if (s > 0)
        t->share[s - 1].next = s;
}

static int64_t filled_area(const tri_deal_game *g, int64_t blocks, int64_t area)
{
    return area + (g->size - blocks) * g->thin / TRI_DEAL_UNIT;
}

/* Whether a rank that has this has its area, when the rest of its blocks are thin. */
static bool fills(const tri_deal_game *g, int64_t blocks, int64_t area)
{
    return blocks >= g->size || filled_area(g, blocks, area) >= g->area;
}

/* The smallest number of blocks before `end` that fill a rank; or all down to `begin`. Where blocks
 * are so dense that this is far too much, it is one less: others complete the rank. */
static int64_t chunk_size(const tri_deal_game *g, int64_t begin, int64_t end)
{
    int64_t low = g->size / TRI_DEAL_SHARES, high = g->size;
    low = low < 1 ? 1 : low;
    high = high < end - begin ? high : end - begin;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (fills(g, middle, area_of(g->table, end - middle, end)))
            high = middle;
        else
            low = middle + 1;
    }
    int64_t area = filled_area(g, high, area_of(g->table, end - high, end));
    return high > 1 && area > g->area + g->area / TOO_MUCH ? high - 1 : high;
}

/* Cuts a document from its end into chunks that fill a rank. What remains is thinner than the mean:
 * it is cut into equal parts that complete ranks. */
static void append_long(const tri_deal_game *g, int64_t begin, int64_t end)
{
    tri_deal_table *t = g->table;
    int64_t rest = end, head = g->size / HEADS;
    int32_t num_chunks = 0, first = t->num_shares;
    head = head < 1 ? 1 : head;
    while (rest > begin && fills(g, rest - begin, area_of(t, begin, rest))) {
        int64_t chunk = chunk_size(g, begin, rest);
        if (area_of(t, rest - chunk, rest) * TRI_DEAL_UNIT < chunk * g->density)
            break;
        t->order[num_chunks++] = (int32_t)rest; /* free until the shares are sorted */
        rest -= chunk;
    }
    int64_t num_heads = (rest - begin + head - 1) / head;
    for (int64_t k = 0; k < num_heads; k++)
        append(t, begin + (rest - begin) * k / num_heads,
               begin + (rest - begin) * (k + 1) / num_heads, first);
    for (int64_t from = rest; num_chunks > 0; from = t->order[num_chunks])
        append(t, from, t->order[--num_chunks], first);
}

/* The end of the document that the block at `begin` ends in, to the grid of blocks. A block of two
 * documents goes with the one that costs fewer keys: who has only the end of a document needs all
 * keys before it, who has all but its beginning needs that. */
static int64_t document_end(const tri_deal_game *g, int64_t begin)
{
    const tri_deal_table *t = g->table;
    int32_t doc[2], behind[2];
    document_at(g, (begin + 1) * t->block - 1, doc);
    int64_t end = doc[1] / t->block;
    if (end >= t->num_blocks)
        return t->num_blocks;
    if (end * t->block == doc[1])
        return end;
    document_at(g, (end + 1) * t->block - 1, behind);
    int64_t keys = end * t->block - doc[0], other_keys = (end + 1) * t->block - behind[0];
    return keys <= other_keys && behind[1] > (end + 1) * t->block ? end : end + 1;
}

void tri_deal_cut_row(tri_deal_game *g)
{
    tri_deal_table *t = g->table;
    survey(g);
    t->num_shares = 0;
    int64_t least = g->size / TRI_DEAL_SHARES, open = 0;
    for (int64_t begin = 0, end; begin < t->num_blocks; begin = end) {
        end = document_end(g, begin);
        if (end - begin < least && end - open < least && end < t->num_blocks)
            continue; /* waits for its neighbour */
        if (end - begin >= least && open < begin) {
            append(t, open, begin, -1);
            open = begin;
        }
        if (open == begin && (end - begin > g->size || area_of(t, begin, end) > g->area))
            append_long(g, begin, end);
        else
            append(t, open, end, -1);
        open = end;
    }
}
