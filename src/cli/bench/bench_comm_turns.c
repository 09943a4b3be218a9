/* A sample is the mean over some calls after a barrier, and of the ranks' means the largest. All
 * ranks see the same times, so they agree on how many calls, and how many samples, without asking
 * each other.
 *
 * The time of a call that is measured in turns with others is the lowest eighth of its samples:
 * what it takes when nobody else takes a core away, which may happen to more than half of them.
 * Turns go on until this is known to a few percent for all, whatever it is, and the median roughly.
 * Where calls are so long that this would take minutes, a few turns must do. */
#include "cli/bench/bench_comm_turns.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/samples.h"
#include "comm/tuning/tuning_samples.h"

enum { MOST_CALLS = 2000, FEWEST = 5, FEW = 9, ALONE = 41, WARM_CALLS = 3 };

static const double sample_seconds = 0.002, alone_seconds = 0.4;
/* Of all series together: what is enough, what may be when the machine is not quiet, and what must
 * do for FEW turns. */
static const double enough_seconds = 4, noisy_seconds = 10, most_seconds = 25;
/* How well a time should be known, and a median at least. */
static const double narrow = 0.02, narrow_median = 0.04;
/* Where a call takes this long, its vectors are far larger than the caches, and what the one before
 * left there does not matter. */
static const double cold_seconds = 0.01;

/* As whoever wanted the result does next: reads all of it once. */
static float read_result(const tri_series *s)
{
    float sums[16] = {0}, sum = 0;
    const float *recv = s->call.recv;
    for (size_t i = 0; i + 16 <= s->reads; i += 16)
        for (size_t k = 0; k < 16; k++)
            sums[k] += recv[i + k];
    for (int k = 0; k < 16; k++)
        sum += sums[k];
    return sum;
}

static tr_status call_and_read(tr_group *group, const void *context, tr_error *err)
{
    const tri_series *s = context;
    volatile float sum = 0;
    TRI_TRY(tr_collective_run(group, &s->call, err));
    if (s->reads > 0)
        sum = read_result(s);
    (void)sum;
    return TR_OK;
}

tr_status tri_series_begin(tr_group *group, tri_series *s, tr_error *err)
{
    double guess, seconds;
    s->num = 0;
    TRI_TRY(tri_take_sample(group, call_and_read, s, 1, &guess, err));
    /* The least of a few tries: one that was interrupted must not decide how much is measured. */
    for (int i = 0; i < 4 && guess < 10 * sample_seconds; i++) {
        TRI_TRY(tri_take_sample(group, call_and_read, s, guess < sample_seconds ? 8 : 2, &seconds,
                                err));
        guess = seconds < guess ? seconds : guess;
    }
    double calls = sample_seconds / (guess > 1e-9 ? guess : 1e-9);
    s->num_calls = calls < 1 ? 1 : (calls > MOST_CALLS ? MOST_CALLS : (int)calls);
    return TR_OK;
}

double tri_series_median(tri_series *s)
{
    tri_samples_sort(s->samples, (size_t)s->num);
    return (s->samples[(s->num - 1) / 2] + s->samples[s->num / 2]) / 2;
}

double tri_series_octile(tri_series *s)
{
    tri_series_median(s);
    return (s->samples[(s->num - 1) / 8] + s->samples[s->num / 8]) / 2;
}

/* A quarter of the samples lies around the octile: that of n is about as far off as they are from
 * each other, over the root of n. */
static bool is_known(const tri_series *s)
{
    tri_series sorted = *s;
    double time = tri_series_octile(&sorted);
    double around = sorted.samples[s->num / 4] - sorted.samples[0];
    return around / sqrt(s->num) < narrow * time;
}

/* The same of the median, with the half of the samples around it. */
static bool is_settled(const tri_series *s)
{
    tri_series sorted = *s;
    double time = tri_series_median(&sorted);
    double around = sorted.samples[3 * s->num / 4] - sorted.samples[s->num / 4];
    return around / sqrt(s->num) < narrow_median * time;
}

static bool goes_on(const tri_series *series, int num, int turn, double spent)
{
    if (turn < FEWEST)
        return true;
    if (num == 1)
        return turn < ALONE && (turn < FEW || spent < alone_seconds) && spent < most_seconds;
    if (turn < FEW || turn >= TRI_MOST_TURNS)
        return turn < FEW && spent < most_seconds;
    bool known = true, settled = true;
    for (int i = 0; i < num; i++) {
        known &= is_known(&series[i]);
        settled &= is_settled(&series[i]);
    }
    return (!known && spent < enough_seconds) || (!settled && spent < noisy_seconds);
}

tr_status tri_series_sample(tr_group *group, tri_series *series, int num, tri_sampled_fn after,
                            void *context, tr_error *err)
{
    double spent = 0, seconds = 0;
    for (int turn = 0; goes_on(series, num, turn, spent); turn++)
        for (int k = 0; k < num; k++) {
            /* Each turn begins with another, lest what comes and goes hit always the same ones. */
            int i = (k + turn * 7) % num;
            tri_series *s = &series[i];
            int warm = s->num_calls < WARM_CALLS ? s->num_calls : WARM_CALLS;
            bool cold = turn > 0 && s->samples[0] > cold_seconds;
            for (int w = 0; num > 1 && !cold && w < warm; w++)
                TRI_TRY(tr_collective_run(group, &s->call, err));
            TRI_TRY(tri_take_sample(group, call_and_read, s, s->num_calls, &seconds, err));
            s->samples[s->num++] = seconds;
            spent += seconds * (s->num_calls + (num > 1 && !cold ? warm : 0));
            if (after != NULL)
                TRI_TRY(after(context, i, err));
        }
    return TR_OK;
}
