/* The rounds of an algorithm as text, a line for each: who gives which pieces to whom. */
#include <stdio.h>

#include "cli/bench/bench_comm.h"

enum { WIDTH = 8 }; /* transfers on a line */

/* One line, or a few, for each of copy and combine that the round has. */
static void draw_round(const tri_rounds *rounds, size_t round, bool combine)
{
    int num = 0;
    for (size_t i = rounds->first[round]; i < rounds->first[round + 1]; i++) {
        const tri_transfer *t = &rounds->transfers[i];
        if (t->combine != combine)
            continue;
        bool same = num > 0 && t[-1].from == t->from && t[-1].to == t->to;
        if (num == 0)
            printf("  round %-3zu %-7s", round + 1,
                   t->num_pieces == 0 ? "signal" : (combine ? "combine" : "copy"));
        else if (!same && num % WIDTH == 0)
            printf("\n%19s", "");
        num += !same;
        if (same) /* more of the same message */
            printf(",%u", t->first_piece);
        else if (t->num_pieces == 0)
            printf("  %d>%d", t->from, t->to);
        else
            printf("  %d>%d:p%u", t->from, t->to, t->first_piece);
        if (t->num_pieces > 1)
            printf("-%u", t->first_piece + t->num_pieces - 1);
    }
    if (num > 0)
        printf("\n");
}

/* Of each number the largest over the ranks, in units of S: what tri_comm_case calls bytes. */
static void draw_totals(const tri_algorithm *algorithm, tri_coll coll, const tri_coll_shape *shape,
                        const tri_rounds *rounds)
{
    int num_ranks = shape->size;
    /* Divides into any pieces that occur here, so that the parts of S are exact. */
    const uint64_t piece = 1000, all = piece * rounds->num_pieces;
    double unit = (double)all / (coll == TRI_COLL_ALL_TO_ALL ? num_ranks : 1);
    uint64_t messages = 0, sent = 0, received = 0;
    for (int rank = 0; rank < num_ranks; rank++) {
        tri_coll_traffic t = tri_rounds_traffic(rounds, rank, all);
        uint64_t own = algorithm->needs_shared_memory ? t.messages_received : t.messages_sent;
        messages = own > messages ? own : messages;
        sent = t.bytes_sent > sent ? t.bytes_sent : sent;
        received = t.bytes_received > received ? t.bytes_received : received;
    }
    tri_coll_cost cost = algorithm->cost(coll, shape, (double)all);
    printf("  the busiest rank %s %llu time%s", algorithm->needs_shared_memory ? "reads" : "sends",
           (unsigned long long)messages, messages == 1 ? "" : "s");
    if (all > 0)
        printf(", gives %.4g S and gets %.4g S", (double)sent / unit, (double)received / unit);
    printf("\n  time: %.4g alpha", cost.alpha_count);
    if (cost.beta_bytes > 0)
        printf(" + %.4g S beta", cost.beta_bytes / unit);
    if (cost.gamma_bytes > 0)
        printf(" + %.4g S gamma", cost.gamma_bytes / unit);
    printf("\n");
}

tr_status tri_comm_draw(const tri_algorithm *algorithm, tri_coll coll, const tri_coll_shape *shape,
                        int root, tr_error *err)
{
    tri_rounds rounds;
    int num_ranks = shape->size;
    TRI_TRY(tri_algorithm_rounds(algorithm, coll, shape, root, &rounds, err));
    printf("%s, %s, %d ranks: %u piece%s, %zu round%s%s\n", tri_coll_name(coll), algorithm->name,
           num_ranks, rounds.num_pieces, rounds.num_pieces == 1 ? "" : "s", rounds.num_rounds,
           rounds.num_rounds == 1 ? "" : "s",
           algorithm->needs_shared_memory ? "; a>b:p is b reading p from a" : "");
    for (size_t round = 0; round < rounds.num_rounds; round++) {
        draw_round(&rounds, round, true);
        draw_round(&rounds, round, false);
    }
    draw_totals(algorithm, coll, shape, &rounds);
    tri_rounds_free(&rounds);
    return TR_OK;
}
