/* Which rank is slower than others that do the same work.
 *
 * A rank is compared with its peers: ranks whose programs have the same arithmetic. Others may take
 * longer by right (a stage of a pipeline with the head). What is compared is own time (without
 * waiting, and without what is beside the program), step by step, with the median of the peers.
 *
 * The test is one of ranks, not of means: in 13 of the last 16 steps it took 5 % longer, and half
 * of them 6 %. A step that was disturbed counts once, however much. With independent noise of 3 %
 * of own time on each of two ranks a step is 5 % longer with a probability of 0.12, 13 of 16 with
 * one of 4e-10: about one false alarm in a billion steps. A rank that is 10 % slower with the same
 * noise is found within 18 steps in nine of ten cases, and soon after otherwise. */
#ifndef TRI_TRAIN_HEALTH_SLOW_H
#define TRI_TRAIN_HEALTH_SLOW_H

#include "base/error.h"
#include "train/ranks.h"

enum {
    TRI_SLOW_FIRST = 2, /* steps that are not judged: memory is touched for the first time */
    TRI_SLOW_WINDOW = 16,
    TRI_SLOW_OF = 13, /* steps of a window that must agree */
};

typedef enum tri_slow_news { TRI_SLOW_NAMED, TRI_SLOW_WORSE, TRI_SLOW_RECOVERED } tri_slow_news;

typedef struct tri_slow_finding {
    tri_slow_news news;
    int rank;
    tri_own_kind kind;       /* in which it takes longest beyond its peers */
    double own_ms, peers_ms; /* of a step: medians over the window */
} tri_slow_finding;

typedef struct tri_slow tri_slow;

tr_status tri_slow_create(int num_ranks, tri_slow **slow, tr_error *err);
void tri_slow_destroy(tri_slow *slow);
/* The words of all ranks after a step. Returns how many findings there are, at most `most`; a rank
 * that found no room is found again at the next step. */
size_t tri_slow_step(tri_slow *slow, const tri_rank_word *words, tri_slow_finding *findings,
                     size_t most);
/* The slowest of those that were named and have not recovered, or -1. */
int tri_slow_rank(const tri_slow *slow);
/* "rank 1 is slower than its peers: ...", for people; returns text. */
char *tri_slow_text(const tri_slow_finding *finding, char *text, size_t size);

#endif
