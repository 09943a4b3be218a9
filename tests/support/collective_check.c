/* See collective_check.h. */
#include "collective_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAULT(text, ...) (void)snprintf((text), sizeof(coll_fault), __VA_ARGS__)

/* ---- form ---- */

static int order(const tri_transfer *a, const tri_transfer *b)
{
    if (a->from != b->from)
        return a->from - b->from;
    if (a->to != b->to)
        return a->to - b->to;
    return a->first_piece < b->first_piece ? -1 : 1;
}

static void check_transfer(const coll_call *c, const tri_transfer *t, coll_fault why)
{
    if (t->from < 0 || t->to < 0 || t->from >= c->size || t->to >= c->size)
        FAULT(why, "no such rank in %d>%d", t->from, t->to);
    else if (t->from == t->to)
        FAULT(why, "rank %d sends to itself", t->from);
    else if (t->first_piece + t->num_pieces > c->rounds.num_pieces)
        FAULT(why, "no such piece in %d>%d", t->from, t->to);
    else if (t->num_pieces == 0 && c->coll != TRI_COLL_BARRIER)
        FAULT(why, "%d>%d moves nothing", t->from, t->to);
}

/* Does `to` give the same piece back in this round? Such an exchange means what it says: both send
 * what they had. */
static bool exchanged(const coll_call *c, size_t round, int rank, uint32_t piece)
{
    for (size_t i = c->rounds.first[round]; i < c->rounds.first[round + 1]; i++) {
        const tri_transfer *in = &c->rounds.transfers[i];
        if (in->to != rank || piece - in->first_piece >= in->num_pieces)
            continue;
        for (size_t j = c->rounds.first[round]; j < c->rounds.first[round + 1]; j++) {
            const tri_transfer *out = &c->rounds.transfers[j];
            if (out->from == rank && out->to == in->from && out->combine == in->combine &&
                piece - out->first_piece < out->num_pieces)
                return true;
        }
    }
    return false;
}

/* Within a round: who reads and who writes each piece of each rank. */
static void check_timing(const coll_call *c, size_t round, coll_fault why)
{
    enum { READ = 1, REPLACED = 2, COMBINED = 4 };
    uint32_t num = c->rounds.num_pieces;
    uint8_t *seen = calloc((size_t)c->size * num + 1, 1);
    for (size_t i = c->rounds.first[round]; i < c->rounds.first[round + 1]; i++) {
        const tri_transfer *t = &c->rounds.transfers[i];
        for (uint32_t p = t->first_piece; p < t->first_piece + t->num_pieces; p++) {
            uint8_t *from = &seen[(size_t)t->from * num + p], *to = &seen[(size_t)t->to * num + p];
            if ((*to & REPLACED) || ((*to & COMBINED) && !t->combine))
                FAULT(why, "round %zu: rank %d gets piece %u twice", round, t->to, p);
            *from |= READ;
            *to |= t->combine ? COMBINED : REPLACED;
        }
    }
    /* A rank that combines several terms into a piece orders them by `from`; but what others read
     * of it in the same round would be the one or the other. */
    for (size_t i = 0; i < (size_t)c->size * num; i++)
        if ((seen[i] & READ) && (seen[i] & (REPLACED | COMBINED)) &&
            !exchanged(c, round, (int)(i / num), (uint32_t)(i % num)))
            FAULT(why, "round %zu: piece %zu of rank %zu is read and written", round, i % num,
                  i / num);
    free(seen);
}

void coll_check_form(const coll_call *c, coll_fault why)
{
    const tri_rounds *rounds = &c->rounds;
    if (rounds->first[0] != 0 || (c->size == 1 && rounds->num_rounds > 0) ||
        (c->size > 1 && rounds->num_rounds == 0))
        FAULT(why, "%zu rounds, the first at %zu", rounds->num_rounds, rounds->first[0]);
    if (c->coll != TRI_COLL_BARRIER && rounds->num_pieces == 0)
        FAULT(why, "no pieces");
    for (size_t round = 0; round < rounds->num_rounds && !*why; round++) {
        if (rounds->first[round] >= rounds->first[round + 1])
            FAULT(why, "round %zu is empty", round);
        for (size_t i = rounds->first[round]; i < rounds->first[round + 1] && !*why; i++) {
            check_transfer(c, &rounds->transfers[i], why);
            if (i > rounds->first[round] &&
                order(&rounds->transfers[i - 1], &rounds->transfers[i]) >= 0)
                FAULT(why, "round %zu is not sorted", round);
        }
        if (!*why)
            check_timing(c, round, why);
    }
}

/* ---- result ---- */

static int64_t random_term(int rank, size_t element)
{
    uint64_t x = (uint64_t)rank * 0x9e3779b97f4a7c15u + (element + 1) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
    return (int64_t)(x >> 24); /* 40 bits: sums of 16 fit, and equal ones are no accident */
}

size_t coll_piece_length(uint32_t piece, uint32_t shift)
{
    static const size_t lengths[] = {2, 0, 5, 1, 3, 2, 0};
    return lengths[(piece + shift) % 7];
}

void coll_make_world(coll_world *w, const coll_call *c, uint32_t shift)
{
    uint32_t num = c->rounds.num_pieces;
    w->begin = calloc(num + 1, sizeof *w->begin);
    for (uint32_t p = 0; p < num; p++)
        w->begin[p + 1] = w->begin[p] + coll_piece_length(p, shift);
    w->count = w->begin[num];
    w->data = calloc((size_t)c->size * (w->count + 1), sizeof *w->data);
}

void coll_free_world(coll_world *w)
{
    free(w->begin);
    free(w->data);
}

/* Who holds the element's term before the operation; -1 for all. */
static int holder_before(const coll_call *c, uint32_t piece)
{
    switch (c->coll) {
    case TRI_COLL_BROADCAST:
    case TRI_COLL_SCATTER:
        return c->root;
    case TRI_COLL_GATHER:
    case TRI_COLL_ALL_GATHER:
        return (int)piece;
    case TRI_COLL_ALL_TO_ALL:
        return (int)piece / c->size;
    default:
        return -1;
    }
}

/* Who must have it afterwards; -1 for all. */
static int holder_after(const coll_call *c, uint32_t piece)
{
    switch (c->coll) {
    case TRI_COLL_REDUCE:
    case TRI_COLL_GATHER:
        return c->root;
    case TRI_COLL_SCATTER:
    case TRI_COLL_REDUCE_SCATTER:
        return (int)piece;
    case TRI_COLL_ALL_TO_ALL:
        return (int)piece % c->size;
    default:
        return -1;
    }
}

/* Where a rank has nothing, it has something wrong. */
void coll_fill_world(coll_world *w, const coll_call *c)
{
    for (int rank = 0; rank < c->size; rank++)
        for (uint32_t p = 0; p < c->rounds.num_pieces; p++)
            for (size_t e = w->begin[p]; e < w->begin[p + 1]; e++) {
                int holder = holder_before(c, p);
                bool has = holder < 0 || holder == rank;
                w->data[(size_t)rank * w->count + e] = has ? random_term(rank, e) : -12345 - rank;
            }
}

int64_t coll_expected_value(const coll_call *c, uint32_t piece, size_t element)
{
    int holder = holder_before(c, piece);
    if (holder >= 0)
        return random_term(holder, element);
    int64_t sum = 0;
    for (int rank = 0; rank < c->size; rank++)
        sum += random_term(rank, element);
    return sum;
}

/* The header's meaning: all transfers of a round read the state before the round. */
void coll_run_rounds(coll_world *w, const coll_call *c, size_t num_rounds)
{
    size_t total = (size_t)c->size * w->count;
    int64_t *before = malloc((total + 1) * sizeof *before);
    for (size_t round = 0; round < num_rounds; round++) {
        memcpy(before, w->data, total * sizeof *before);
        for (size_t i = c->rounds.first[round]; i < c->rounds.first[round + 1]; i++) {
            const tri_transfer *t = &c->rounds.transfers[i];
            for (size_t e = w->begin[t->first_piece]; e < w->begin[t->first_piece + t->num_pieces];
                 e++) {
                int64_t value = before[(size_t)t->from * w->count + e];
                int64_t *to = &w->data[(size_t)t->to * w->count + e];
                *to = t->combine ? *to + value : value;
            }
        }
    }
    free(before);
}

/* A message tells what its sender had heard before the round; at the end all know that all came. */
static void check_barrier(const coll_call *c, coll_fault why)
{
    uint32_t heard[16], before[16];
    for (int rank = 0; rank < c->size; rank++)
        heard[rank] = 1u << rank;
    for (size_t round = 0; round < c->rounds.num_rounds; round++) {
        memcpy(before, heard, sizeof heard);
        for (size_t i = c->rounds.first[round]; i < c->rounds.first[round + 1]; i++)
            heard[c->rounds.transfers[i].to] |= before[c->rounds.transfers[i].from];
    }
    for (int rank = 0; rank < c->size; rank++)
        if (heard[rank] != (1u << c->size) - 1)
            FAULT(why, "rank %d left having heard of %#x only", rank, heard[rank]);
}

static void check_values(const coll_call *c, uint32_t shift, coll_fault why)
{
    coll_world w;
    coll_make_world(&w, c, shift);
    coll_fill_world(&w, c);
    coll_run_rounds(&w, c, c->rounds.num_rounds);
    for (int rank = 0; rank < c->size; rank++)
        for (uint32_t p = 0; p < c->rounds.num_pieces; p++)
            for (size_t e = w.begin[p]; e < w.begin[p + 1]; e++)
                if ((holder_after(c, p) < 0 || holder_after(c, p) == rank) &&
                    w.data[(size_t)rank * w.count + e] != coll_expected_value(c, p, e))
                    FAULT(why, "rank %d has a wrong piece %u", rank, p);
    coll_free_world(&w);
}

/* No piece is empty under both shifts. */
void coll_check_result(const coll_call *c, coll_fault why)
{
    if (c->coll == TRI_COLL_BARRIER) {
        check_barrier(c, why);
        return;
    }
    check_values(c, 0, why);
    check_values(c, 1, why);
}

/* ---- time ---- */

/* When the last rank is done. In a round a rank pays one alpha for each message, the larger of what
 * it sends and receives (links carry both ways at once), and what it combines; it begins when it
 * and those it meets in the round are ready. Reads of shared memory are paid by the reader alone,
 * and the one who is read waits for it. */
static double rounds_time(const coll_call *c, double piece_bytes, const double price[3])
{
    double ready[16] = {0}, last = 0;
    for (size_t round = 0; round < c->rounds.num_rounds; round++) {
        double begin[16], in[16] = {0}, out[16] = {0}, combined[16] = {0}, done[16] = {0};
        bool shared = c->algorithm->needs_shared_memory, met[16] = {0};
        int sent[16] = {0}, got[16] = {0};
        const tri_transfer *last_one = NULL;
        memcpy(begin, ready, sizeof begin);
        for (size_t i = c->rounds.first[round]; i < c->rounds.first[round + 1]; i++) {
            const tri_transfer *t = &c->rounds.transfers[i];
            double bytes = t->num_pieces * piece_bytes, both = fmax(ready[t->from], ready[t->to]);
            begin[t->from] = fmax(begin[t->from], both);
            begin[t->to] = fmax(begin[t->to], both);
            out[t->from] += shared ? 0 : bytes;
            in[t->to] += bytes;
            combined[t->to] += t->combine ? bytes : 0;
            if (!shared && (!last_one || last_one->from != t->from || last_one->to != t->to))
                sent[t->from]++, got[t->to]++;
            last_one = t;
            met[t->to] = true;
            met[t->from] |= !shared;
        }
        for (int r = 0; r < c->size; r++)
            done[r] =
                begin[r] + (met[r] ? price[0] * fmax(1, fmax(sent[r], got[r])) +
                                         price[1] * fmax(in[r], out[r]) + price[2] * combined[r]
                                   : 0);
        memcpy(ready, done, sizeof ready);
        for (size_t i = c->rounds.first[round]; shared && i < c->rounds.first[round + 1]; i++) {
            const tri_transfer *t = &c->rounds.transfers[i];
            ready[t->from] = fmax(ready[t->from], done[t->to]);
        }
    }
    for (int r = 0; r < c->size; r++)
        last = fmax(last, ready[r]);
    return last;
}

void coll_check_time(const coll_call *c, coll_fault why)
{
    static const double prices[][3] = {{1, 0, 0}, {0, 1, 0},      {0, 0, 1}, {5e-6, 2e-11, 1e-10},
                                       {3, 2, 7}, {1e-3, 1e-9, 0}};
    for (size_t i = 0; i < sizeof prices / sizeof *prices; i++) {
        double bytes = 1000.0 * c->rounds.num_pieces;
        tri_coll_cost cost = c->algorithm->cost(c->coll, &c->shape, bytes);
        double walked =
            tri_rounds_time(&c->rounds, c->size, bytes, c->algorithm->needs_shared_memory,
                            &(tri_coll_prices){prices[i][0], prices[i][1], prices[i][2]}, NULL, 0);
        double formula = cost.alpha_count * prices[i][0] + cost.beta_bytes * prices[i][1] +
                         cost.gamma_bytes * prices[i][2];
        double timed = rounds_time(c, 1000, prices[i]);
        if (fabs(formula - timed) > 1e-12 * fabs(timed))
            FAULT(why, "the formula gives %.9g, the rounds %.9g at price %zu", formula, timed, i);
        if (fabs(walked - timed) > 1e-12 * fabs(timed))
            FAULT(why, "tri_rounds_time gives %.9g, the rounds %.9g", walked, timed);
    }
}
