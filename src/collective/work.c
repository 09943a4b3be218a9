/* Counts the work of a call, round by round. What is copied besides the messages is what
 * comm/rounds/rounds_run.c does: a rank's own part goes into the vector first, messages of several
 * runs, and those of pieces that are received into in the same round, are packed, and a block that
 * lies in the vector goes to its place at the end. */
#include "collective/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one rank does in one round. */
typedef struct labour {
    double copied, moved, pulled, combined, sent; /* bytes */
    double packed; /* the same: copied from and to the vector in pieces */
    int in, out;   /* messages */
    int cut;       /* of those that come in */
} labour;

typedef struct book {
    const tri_work_prices *prices;
    const tri_rounds *rounds;
    tri_coll coll;
    int size;
    double piece_bytes, footprint;
    labour *ranks;
    /* Transfers of the round by receiver: rank r's end at receipts[received_end[r]]. */
    size_t *receipts, *received_end;
} book;

/* On the line between two points, by the logarithm of the footprint; flat beyond the ends. */
static double on_curve(const tri_work_prices *prices, const double *curve, double footprint)
{
    int last = prices->num_points - 1, k = 0;
    if (last == 0 || footprint <= prices->footprint[0])
        return curve[0];
    while (k < last - 1 && prices->footprint[k + 1] < footprint)
        k++;
    double below = prices->footprint[k], above = prices->footprint[k + 1];
    double t = footprint < above ? log(footprint / below) / log(above / below) : 1;
    return curve[k] * (1 - t) + curve[k + 1] * t;
}

double tri_work_price(const tri_work_prices *prices, tri_work_kind kind, double footprint,
                      double share)
{
    double all = on_curve(prices, prices->all[kind], footprint), one = 1.0 / prices->num_cores;
    if (one >= 1 || share >= 1)
        return all;
    double alone = on_curve(prices, prices->alone[kind], footprint);
    return share <= one ? alone : alone + (all - alone) * (share - one) / (1 - one);
}

double tri_work_round(const tri_work_prices *prices, double footprint)
{
    return on_curve(prices, prices->round, footprint);
}

/* Of the operands, and of the vector where it lies in neither. */
static double vectors_bytes(tri_coll coll, int size, double bytes, bool scratch)
{
    switch (coll) {
    case TRI_COLL_BROADCAST:
        return bytes * (1 + size);
    case TRI_COLL_REDUCE:
        return bytes * (size + (scratch ? size : 1));
    case TRI_COLL_ALL_REDUCE:
        return bytes * 2 * size;
    case TRI_COLL_GATHER:
    case TRI_COLL_SCATTER:
        return bytes * (scratch ? 3 : 2);
    case TRI_COLL_ALL_GATHER:
        return bytes * (1 + size);
    case TRI_COLL_REDUCE_SCATTER:
        return bytes * (size + 1 + (scratch ? size : 0));
    case TRI_COLL_ALL_TO_ALL:
        return bytes * 2;
    default:
        return 0;
    }
}

/* ---- the work of a round ---- */

static bool overlap(const tri_transfer *a, const tri_transfer *b)
{
    return a->first_piece < b->first_piece + b->num_pieces &&
           b->first_piece < a->first_piece + a->num_pieces;
}

static void sort_receipts(book *b, size_t begin, size_t end)
{
    size_t at = 0;
    memset(b->received_end, 0, (size_t)b->size * sizeof *b->received_end);
    for (size_t i = begin; i < end; i++)
        b->received_end[b->rounds->transfers[i].to]++;
    for (int r = 0; r < b->size; r++) { /* where each begins */
        size_t num = b->received_end[r];
        b->received_end[r] = at;
        at += num;
    }
    for (size_t i = begin; i < end; i++)
        b->receipts[b->received_end[b->rounds->transfers[i].to]++] = i;
}

/* A send of what its sender receives into in the same round. */
static bool is_overwritten(const book *b, const tri_transfer *send)
{
    if (b->coll == TRI_COLL_ALL_TO_ALL)
        return false;
    for (size_t i = send->from > 0 ? b->received_end[send->from - 1] : 0;
         i < b->received_end[send->from]; i++)
        if (overlap(send, &b->rounds->transfers[b->receipts[i]]))
            return true;
    return false;
}

/* One message: the transfers first .. last - 1, all from one rank to another. */
static void count_message(book *b, size_t first, size_t last)
{
    const tri_transfer *t = &b->rounds->transfers[first];
    labour *from = &b->ranks[t->from], *to = &b->ranks[t->to];
    double bytes = 0;
    bool overwritten = false;
    for (size_t i = first; i < last; i++) {
        bytes += b->rounds->transfers[i].num_pieces * b->piece_bytes;
        overwritten |= is_overwritten(b, &b->rounds->transfers[i]);
    }
    bool runs = last - first > 1 || (b->coll == TRI_COLL_ALL_TO_ALL && t->num_pieces > 1);
    from->out++;
    to->in++;
    to->cut += b->prices != NULL && b->prices->packet_bytes > 0 && bytes > b->prices->packet_bytes;
    from->sent += bytes;
    from->packed += runs || overwritten ? bytes : 0;
    bool straight = b->coll == TRI_COLL_ALL_TO_ALL && !runs;
    to->moved += !straight && (runs || !t->combine) ? bytes : 0;
    to->pulled += straight ? bytes : 0;
    to->combined += t->combine ? bytes : 0;
    to->packed += runs ? bytes : 0;
}

static double packed_bytes(const book *b)
{
    double all = 0;
    for (int r = 0; r < b->size; r++)
        all += b->ranks[r].packed;
    return all;
}

static void count_round(book *b, size_t round)
{
    size_t begin = b->rounds->first[round], end = b->rounds->first[round + 1];
    memset(b->ranks, 0, (size_t)b->size * sizeof *b->ranks);
    sort_receipts(b, begin, end);
    for (size_t i = begin, next; i < end; i = next) {
        const tri_transfer *t = b->rounds->transfers;
        for (next = i + 1; next < end && t[next].from == t[i].from && t[next].to == t[i].to;)
            next++;
        count_message(b, i, next);
    }
}

static double labour_seconds(const book *b, const labour *w, double share)
{
    const tri_work_prices *p = b->prices;
    double move = tri_work_price(p, TRI_WORK_MOVE, b->footprint, share);
    double combine = tri_work_price(p, TRI_WORK_COMBINE, b->footprint, share);
    double copy = tri_work_price(p, TRI_WORK_COPY, b->footprint, share);
    double pack = tri_work_price(p, TRI_WORK_PACK, b->footprint, share);
    int messages = w->in > w->out ? w->in : w->out;
    double latency = (messages > 1 ? (messages - 1) * p->message : 0) + w->cut * p->cut;
    double pull = tri_work_price(p, TRI_WORK_PULL, b->footprint, share);
    double received = w->moved * move + w->pulled * pull + w->combined * combine;
    return latency + w->copied * copy + w->packed * pack + received +
           (w->sent - w->moved - w->pulled - w->combined) * move * p->sender;
}

static bool is_busy(const book *b, const labour *w)
{
    return w->copied + w->packed + w->moved + w->pulled + w->combined +
               (b->prices->sender > 0 ? w->sent : 0) >
           0;
}

static double round_seconds(const book *b)
{
    int busy = 0, cores = b->prices->num_cores;
    double longest = 0, sum = 0;
    for (int r = 0; r < b->size; r++)
        busy += is_busy(b, &b->ranks[r]);
    double share = busy < cores ? (double)busy / cores : 1;
    for (int r = 0; r < b->size; r++) {
        double seconds = labour_seconds(b, &b->ranks[r], share);
        longest = seconds > longest ? seconds : longest;
        sum += seconds;
    }
    return longest > sum / cores ? longest : sum / cores;
}

/* ---- what comes before and after the rounds ---- */

static double own_bytes(tri_coll coll, int size, int rank, double bytes)
{
    switch (coll) {
    case TRI_COLL_BROADCAST:
        return rank == 0 ? bytes : 0;
    case TRI_COLL_REDUCE:
    case TRI_COLL_ALL_REDUCE:
    case TRI_COLL_REDUCE_SCATTER:
        return bytes;
    case TRI_COLL_GATHER:
    case TRI_COLL_ALL_GATHER:
        return bytes / size;
    case TRI_COLL_ALL_TO_ALL: /* the block that stays */
        return bytes / size / size;
    default:
        return 0;
    }
}

static double copies_seconds(book *b, double bytes)
{
    memset(b->ranks, 0, (size_t)b->size * sizeof *b->ranks);
    for (int r = 0; r < b->size; r++)
        b->ranks[r].copied = own_bytes(b->coll, b->size, r, bytes);
    double seconds = round_seconds(b);
    bool blocks = b->coll == TRI_COLL_SCATTER || b->coll == TRI_COLL_REDUCE_SCATTER;
    for (int r = 0; r < b->size; r++)
        b->ranks[r].copied = blocks ? bytes / b->size : 0;
    return seconds + round_seconds(b);
}

/* Pieces that lie with ranks on their way have a place there, too. */
static double relays_bytes(const book *b)
{
    double all = 0;
    uint32_t size = (uint32_t)b->size;
    for (size_t i = 0; b->rounds->relays && i < b->rounds->first[b->rounds->num_rounds]; i++) {
        const tri_transfer *t = &b->rounds->transfers[i];
        for (uint32_t p = t->first_piece; p < t->first_piece + t->num_pieces; p++)
            all += (uint32_t)t->to != p % size ? b->piece_bytes : 0;
    }
    return all;
}

static void close_book(book *b, tri_rounds *rounds)
{
    free(b->receipts);
    free(b->received_end);
    free(b->ranks);
    tri_rounds_free(rounds);
}

static bool open_book(book *b, tri_rounds *rounds, const tri_algorithm *algorithm, tri_coll coll,
                      const tri_coll_shape *shape, double bytes)
{
    if (tri_algorithm_rounds(algorithm, coll, shape, 0, rounds, NULL) != TR_OK)
        return false;
    *b = (book){.rounds = rounds,
                .coll = coll,
                .size = shape->size,
                .piece_bytes = rounds->num_pieces ? bytes / rounds->num_pieces : 0,
                .ranks = calloc((size_t)shape->size, sizeof *b->ranks),
                .receipts = calloc(rounds->first[rounds->num_rounds] + 1, sizeof *b->receipts),
                .received_end = calloc((size_t)shape->size, sizeof *b->received_end)};
    if (b->ranks == NULL || b->receipts == NULL || b->received_end == NULL) {
        close_book(b, rounds);
        return false;
    }
    double packed = 0;
    for (size_t round = 0; round < rounds->num_rounds; round++) {
        count_round(b, round);
        packed = packed_bytes(b) > packed ? packed_bytes(b) : packed;
    }
    b->footprint = vectors_bytes(coll, shape->size, bytes, true) + packed + relays_bytes(b);
    return true;
}

double tri_work_footprint(const tri_algorithm *algorithm, tri_coll coll,
                          const tri_coll_shape *shape, double bytes)
{
    book b;
    tri_rounds rounds;
    if (algorithm->needs_shared_memory || !open_book(&b, &rounds, algorithm, coll, shape, bytes))
        return vectors_bytes(coll, shape->size, bytes, false);
    close_book(&b, &rounds);
    return b.footprint;
}

static double messages_seconds(const tri_work_prices *prices, const tri_algorithm *algorithm,
                               tri_coll coll, const tri_coll_shape *shape, double bytes)
{
    book b;
    tri_rounds rounds;
    if (!open_book(&b, &rounds, algorithm, coll, shape, bytes))
        return -1;
    b.prices = prices;
    double seconds = prices->call + copies_seconds(&b, bytes);
    for (size_t round = 0; round < rounds.num_rounds; round++) {
        count_round(&b, round);
        seconds += tri_work_round(prices, b.footprint) + round_seconds(&b);
    }
    close_book(&b, &rounds);
    return seconds;
}

/* ---- direct ---- */

/* Every byte is read from each source and written to each target, once; whoever is awake does it.
 * Ranks find each other before, and wait for the last unit after. */
static double direct_seconds(const tri_work_prices *prices, tri_coll coll, int size, double bytes)
{
    bool reduces =
        coll == TRI_COLL_REDUCE || coll == TRI_COLL_ALL_REDUCE || coll == TRI_COLL_REDUCE_SCATTER;
    bool to_all =
        coll == TRI_COLL_BROADCAST || coll == TRI_COLL_ALL_REDUCE || coll == TRI_COLL_ALL_GATHER;
    double footprint = vectors_bytes(coll, size, bytes, false);
    double reads = coll == TRI_COLL_BARRIER ? 0 : bytes * (reduces ? size : 1);
    double writes = coll == TRI_COLL_BARRIER ? 0 : bytes * (to_all ? size : 1);
    int hands = size < prices->num_cores ? size : prices->num_cores;
    tri_work_kind read = reduces ? TRI_WORK_TERM : TRI_WORK_READ;
    double work = reads * tri_work_price(prices, read, footprint, 1) +
                  writes * tri_work_price(prices, TRI_WORK_WRITE, footprint, 1);
    return prices->call * (bytes > 0 ? 2 : 1) + work / hands;
}

double tri_work_time(const tri_work_prices *prices, const tri_algorithm *algorithm, tri_coll coll,
                     const tri_coll_shape *shape, double bytes)
{
    if (prices->num_points < 1)
        return -1;
    if (shape->size < 2)
        return 0;
    if (algorithm->needs_shared_memory)
        return direct_seconds(prices, coll, shape->size, bytes);
    return messages_seconds(prices, algorithm, coll, shape, bytes);
}
