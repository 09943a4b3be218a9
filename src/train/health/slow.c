#include "train/health/slow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ratios of a rank's own time to its peers'. */
#define SLOW_STEP   1.05 /* a step that counts against it */
#define SLOW_MEDIAN 1.06
#define WELL_STEP   1.03 /* a step that counts for it, once it was named */
#define SAME_WORK   0.01 /* by which the arithmetic of peers may differ */

typedef struct watched {
    float ratio[TRI_SLOW_WINDOW];
    float own_ms[TRI_SLOW_WINDOW][TRI_NUM_OWN];
    int first_peer, num_peers; /* in slow->order, this rank among them */
    uint32_t slow_steps;       /* bits, the newest is the lowest */
    double told;               /* excess that it was named with; 0: it is not named */
} watched;

struct tri_slow {
    int num_ranks;
    int64_t num_steps;
    bool grouped;
    int *order; /* [num_ranks] by work: peers stand together */
    watched *ranks;
    double *sorted; /* [num_ranks] own times of peers */
};

tr_status tri_slow_create(int num_ranks, tri_slow **out, tr_error *err)
{
    size_t num = (size_t)num_ranks;
    tri_slow *slow = *out = calloc(1, sizeof *slow);
    if (slow) {
        slow->num_ranks = num_ranks;
        slow->order = calloc(num, sizeof *slow->order);
        slow->ranks = calloc(num, sizeof *slow->ranks);
        slow->sorted = calloc(num, sizeof *slow->sorted);
    }
    if (slow && slow->order && slow->ranks && slow->sorted)
        return TR_OK;
    tri_slow_destroy(slow);
    *out = NULL;
    return tri_fail(err, TR_ERROR_RUNTIME, "no memory to compare %d ranks", num_ranks);
}

void tri_slow_destroy(tri_slow *slow)
{
    if (!slow)
        return;
    free(slow->order);
    free(slow->ranks);
    free(slow->sorted);
    free(slow);
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

typedef struct work_of {
    float work;
    int rank;
} work_of;

static int by_work(const void *a, const void *b)
{
    const work_of *x = a, *y = b;
    return x->work != y->work ? (x->work > y->work) - (x->work < y->work) : x->rank - y->rank;
}

/* Who does the same as whom, once: programs do not change. Without memory all are peers. */
static void group(tri_slow *slow, const tri_rank_word *words)
{
    int num = slow->num_ranks, first = 0;
    work_of *list = calloc((size_t)num, sizeof *list);
    for (int r = 0; list && r < num; r++)
        list[r] = (work_of){words[r].work, r};
    if (list)
        qsort(list, (size_t)num, sizeof *list, by_work);
    for (int i = 0; i < num; i++)
        slow->order[i] = list ? list[i].rank : i;
    for (int end = 1; end <= num; end++) {
        bool same = !list || (end < num && (double)(list[end].work - list[first].work) <=
                                               SAME_WORK * (double)list[first].work);
        if (same && end < num)
            continue;
        for (int i = first; i < end; i++) {
            slow->ranks[slow->order[i]].first_peer = first;
            slow->ranks[slow->order[i]].num_peers = end - first;
        }
        first = end;
    }
    free(list);
    slow->grouped = true;
}

/* Of the program: what is beside it is no rank's fault. */
static double own_of(const float own_ms[TRI_NUM_OWN])
{
    double sum = 0;
    for (int k = 0; k < TRI_NUM_OWN; k++)
        sum += k == TRI_OWN_OTHER ? 0 : (double)own_ms[k];
    return sum;
}

/* Of the others among so many sorted numbers, of which own is one. */
static double median_of_others(const double *sorted, int num, double own)
{
    int middle = (num - 1) / 2; /* of num - 1 numbers, whose middle two are these when it is even */
    int low = (num - 2) / 2;
    double above = sorted[middle] >= own ? sorted[middle + 1] : sorted[middle];
    double below = sorted[low] >= own ? sorted[low + 1] : sorted[low];
    return (above + below) / 2;
}

/* Ratios of a group of peers for this step. */
static void compare_peers(tri_slow *slow, const tri_rank_word *words, int first, int num, int slot)
{
    for (int i = 0; i < num; i++)
        slow->sorted[i] = own_of(words[slow->order[first + i]].own_ms);
    qsort(slow->sorted, (size_t)num, sizeof *slow->sorted, by_size);
    for (int i = 0; i < num; i++) {
        int r = slow->order[first + i];
        watched *w = &slow->ranks[r];
        double own = own_of(words[r].own_ms);
        double others = median_of_others(slow->sorted, num, own);
        double ratio = others > 0 ? own / others : 1;
        memcpy(w->own_ms[slot], words[r].own_ms, sizeof w->own_ms[slot]);
        w->ratio[slot] = (float)ratio;
        w->slow_steps = w->slow_steps << 1 | (ratio > SLOW_STEP);
    }
}

/* ---- over the window ---- */

static void sort_window(const watched *w, double sorted[TRI_SLOW_WINDOW])
{
    for (int i = 0; i < TRI_SLOW_WINDOW; i++)
        sorted[i] = (double)w->ratio[i];
    qsort(sorted, TRI_SLOW_WINDOW, sizeof *sorted, by_size);
}

static double median_of(double *numbers, int num)
{
    qsort(numbers, (size_t)num, sizeof *numbers, by_size);
    return (numbers[(num - 1) / 2] + numbers[num / 2]) / 2;
}

/* A rank's time for a kind; TRI_NUM_OWN: for all that is judged. */
static double median_time(const watched *w, int kind)
{
    double times[TRI_SLOW_WINDOW];
    for (int i = 0; i < TRI_SLOW_WINDOW; i++)
        times[i] = kind == TRI_NUM_OWN ? own_of(w->own_ms[i]) : (double)w->own_ms[i][kind];
    return median_of(times, TRI_SLOW_WINDOW);
}

static double peers_time(tri_slow *slow, int rank, int kind)
{
    const watched *w = &slow->ranks[rank];
    int num = 0;
    for (int i = 0; i < w->num_peers; i++) {
        int r = slow->order[w->first_peer + i];
        if (r != rank)
            slow->sorted[num++] = median_time(&slow->ranks[r], kind);
    }
    return median_of(slow->sorted, num);
}

static tri_slow_finding find(tri_slow *slow, int rank, tri_slow_news news)
{
    const watched *w = &slow->ranks[rank];
    tri_slow_finding finding = {.news = news,
                                .rank = rank,
                                .own_ms = median_time(w, TRI_NUM_OWN),
                                .peers_ms = peers_time(slow, rank, TRI_NUM_OWN)};
    double most = -INFINITY;
    for (int k = 0; k < TRI_OWN_OTHER; k++) {
        double excess = median_time(w, k) - peers_time(slow, rank, k);
        if (excess > most)
            finding.kind = (tri_own_kind)k;
        most = excess > most ? excess : most;
    }
    return finding;
}

/* Whether there is something to tell of a rank after this step. */
static bool judge(watched *w, tri_slow_news *news)
{
    double sorted[TRI_SLOW_WINDOW];
    uint32_t window = w->slow_steps & ((1u << TRI_SLOW_WINDOW) - 1);
    bool slow = __builtin_popcount(window) >= TRI_SLOW_OF;
    if (!slow && w->told == 0)
        return false;
    sort_window(w, sorted);
    double median = (sorted[TRI_SLOW_WINDOW / 2 - 1] + sorted[TRI_SLOW_WINDOW / 2]) / 2;
    double reached = sorted[TRI_SLOW_WINDOW - TRI_SLOW_OF]; /* by enough steps */
    if (w->told == 0) {
        *news = TRI_SLOW_NAMED;
        if (median < SLOW_MEDIAN)
            return false;
        w->told = median - 1;
        return true;
    }
    if (sorted[TRI_SLOW_OF - 1] < WELL_STEP) {
        *news = TRI_SLOW_RECOVERED;
        w->told = 0;
        return true;
    }
    if (reached - 1 < 2 * w->told)
        return false;
    *news = TRI_SLOW_WORSE;
    w->told = median - 1;
    return true;
}

size_t tri_slow_step(tri_slow *slow, const tri_rank_word *words, tri_slow_finding *findings,
                     size_t most)
{
    size_t num = 0;
    if (!slow->grouped)
        group(slow, words);
    int64_t seen = slow->num_steps++ - TRI_SLOW_FIRST;
    for (int i = 0; seen >= 0 && i < slow->num_ranks;) {
        const watched *first = &slow->ranks[slow->order[i]];
        if (first->num_peers > 1)
            compare_peers(slow, words, i, first->num_peers, (int)(seen % TRI_SLOW_WINDOW));
        i += first->num_peers;
    }
    for (int r = 0; seen + 1 >= TRI_SLOW_WINDOW && r < slow->num_ranks && num < most; r++) {
        tri_slow_news news;
        if (slow->ranks[r].num_peers > 1 && judge(&slow->ranks[r], &news))
            findings[num++] = find(slow, r, news);
    }
    return num;
}

int tri_slow_rank(const tri_slow *slow)
{
    int rank = -1;
    for (int r = 0; r < slow->num_ranks; r++)
        if (slow->ranks[r].told > (rank < 0 ? 0 : slow->ranks[rank].told))
            rank = r;
    return rank;
}

char *tri_slow_text(const tri_slow_finding *f, char *text, size_t size)
{
    static const char *const kinds[TRI_NUM_OWN] = {[TRI_OWN_COMPUTE] = "forward and backward",
                                                   [TRI_OWN_UPDATE] = "the update",
                                                   [TRI_OWN_MESSAGES] = "copying messages",
                                                   [TRI_OWN_COPIES] = "copies to and from the host",
                                                   [TRI_OWN_DATA] = "reading the batch",
                                                   [TRI_OWN_OTHER] = "what is beside the program"};
    double percent = 100 * (f->own_ms / f->peers_ms - 1);
    if (f->news == TRI_SLOW_RECOVERED)
        snprintf(text, size,
                 "rank %d is as fast as its peers again: %.3g ms of own time a step, theirs %.3g",
                 f->rank, f->own_ms, f->peers_ms);
    else
        snprintf(text, size,
                 "rank %d %s: %.3g ms of own time a step, its peers %.3g (%.0f %% more, over %d "
                 "steps), most of that in %s",
                 f->rank, f->news == TRI_SLOW_WORSE ? "became slower still" : "is slow", f->own_ms,
                 f->peers_ms, percent, TRI_SLOW_WINDOW, kinds[f->kind]);
    return text;
}
