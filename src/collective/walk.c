/* Time from the rounds themselves, by walking through them; what the formulas of the algorithms sum
 * up, and all there is where links differ. */
#include "collective/collective.h"

#include <stdlib.h>

/* One rank in one round. */
typedef struct walker {
    double ready; /* when it was done with the rounds before */
    double begin, in, out, combined, done;
    int num_in, num_out; /* messages */
    bool met, far;
} walker;

typedef struct walk {
    const tri_rounds *rounds;
    int size, per_machine; /* per_machine 0: all links are alike */
    bool shared;
    double piece_bytes;
    const tri_coll_prices *near, *far;
    walker *ranks;
    double *machine_in, *machine_out; /* bytes over the link of each */
} walk;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static int machine_of(const walk *w, int rank)
{
    return w->per_machine ? rank / w->per_machine : 0;
}

static void gather_round(walk *w, size_t round)
{
    for (int r = 0; r < w->size; r++) {
        w->ranks[r] = (walker){.ready = w->ranks[r].ready, .begin = w->ranks[r].ready};
        w->machine_in[r] = w->machine_out[r] = 0;
    }
    for (size_t i = w->rounds->first[round]; i < w->rounds->first[round + 1]; i++) {
        const tri_transfer *t = &w->rounds->transfers[i];
        walker *from = &w->ranks[t->from], *to = &w->ranks[t->to];
        double bytes = t->num_pieces * w->piece_bytes, both = larger(from->ready, to->ready);
        int m = machine_of(w, t->from), n = machine_of(w, t->to);
        from->begin = larger(from->begin, both);
        to->begin = larger(to->begin, both);
        to->combined += t->combine ? bytes : 0;
        to->met = true;
        bool same = i > w->rounds->first[round] && t[-1].from == t->from && t[-1].to == t->to;
        from->num_out += !same && !w->shared;
        to->num_in += !same && !w->shared;
        if (m != n) {
            w->machine_out[m] += bytes;
            w->machine_in[n] += bytes;
            from->far = to->far = from->met = true;
            continue;
        }
        from->out += w->shared ? 0 : bytes;
        to->in += bytes;
        from->met |= !w->shared;
    }
}

static void end_round(walk *w, size_t round)
{
    for (int r = 0; r < w->size; r++) {
        walker *rank = &w->ranks[r];
        rank->done = rank->ready;
        if (!rank->met)
            continue;
        int m = machine_of(w, r);
        double time = larger(rank->in, rank->out) * w->near->beta;
        if (rank->far) /* those of a machine share its link */
            time = larger(time, larger(w->machine_in[m], w->machine_out[m]) * w->far->beta);
        int messages = rank->num_in > rank->num_out ? rank->num_in : rank->num_out;
        double alpha = rank->far ? w->far->alpha : w->near->alpha;
        rank->done = rank->ready = rank->begin + time + rank->combined * w->near->gamma +
                                   alpha * (messages > 1 ? messages : 1);
    }
    for (size_t i = w->rounds->first[round]; w->shared && i < w->rounds->first[round + 1]; i++) {
        const tri_transfer *t = &w->rounds->transfers[i]; /* whoever is read waits for it */
        w->ranks[t->from].ready = larger(w->ranks[t->from].ready, w->ranks[t->to].done);
    }
}

/* Of the round that has just ended: only ranks that met somebody were in it. */
static tri_round_time time_of(const walk *w)
{
    tri_round_time time = {0};
    bool any = false;
    for (int r = 0; r < w->size; r++) {
        const walker *rank = &w->ranks[r];
        if (!rank->met)
            continue;
        time.begin = any && time.begin < rank->begin ? time.begin : rank->begin;
        time.end = larger(time.end, rank->done);
        any = true;
    }
    return time;
}

double tri_rounds_time(const tri_rounds *rounds, int size, double bytes, bool shared,
                       const tri_coll_prices *near, const tri_coll_prices *far, int per_machine)
{
    return tri_rounds_walk(rounds, size, bytes, shared, near, far, per_machine, NULL);
}

double tri_rounds_walk(const tri_rounds *rounds, int size, double bytes, bool shared,
                       const tri_coll_prices *near, const tri_coll_prices *far, int per_machine,
                       tri_round_time *times)
{
    walk w = {.rounds = rounds,
              .size = size,
              .per_machine = far ? per_machine : 0,
              .shared = shared,
              .piece_bytes = rounds->num_pieces ? bytes / rounds->num_pieces : 0,
              .near = near,
              .far = far ? far : near};
    size_t n = (size_t)size;
    w.ranks = calloc(n, sizeof *w.ranks);
    w.machine_in = calloc(n, sizeof *w.machine_in);
    w.machine_out = calloc(n, sizeof *w.machine_out);
    double last = -1;
    if (w.ranks && w.machine_in && w.machine_out) {
        last = 0;
        for (size_t round = 0; round < rounds->num_rounds; round++) {
            gather_round(&w, round);
            end_round(&w, round);
            if (times)
                times[round] = time_of(&w);
        }
        for (int r = 0; r < size; r++)
            last = larger(last, w.ranks[r].ready);
    }
    free(w.ranks);
    free(w.machine_in);
    free(w.machine_out);
    return last;
}
