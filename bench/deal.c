/* Rows dealt out over ranks: build/bench/deal [ROWS [TOKENS]], of each mix of documents and of a
 * rank. Means over the rows, and the worst balance.
 *
 * Balance is the largest area of a rank over the mean one. Remote is the keys that a rank needs and
 * does not have: as a share of all keys of others, and in thousands for each rank. Runs are those
 * of consecutive places, for each rank; short ones have fewer than 128. Times are medians in
 * microseconds for one row: to deal it out, and to plan the exchange for rank 0. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "train/deal.h"
#include "train/deal_keys.h"

typedef struct mix {
    const char *name;
    double (*draw)(uint32_t a, uint32_t b);
} mix;

static double unit(uint32_t word)
{
    return (word + 0.5) / 4294967296.0;
}

static double normal(uint32_t a, uint32_t b)
{
    return sqrt(-2 * log(unit(a))) * cos(6.283185307179586 * unit(b));
}

static double log_normal(uint32_t a, uint32_t b)
{
    return 600 * exp(1.5 * normal(a, b));
}

static double log_normal_short(uint32_t a, uint32_t b)
{
    return 600 * exp(normal(a, b));
}

static double pareto(uint32_t a, uint32_t b)
{
    (void)b;
    return 200 * pow(unit(a), -1 / 1.1);
}

static double pareto_heavy(uint32_t a, uint32_t b)
{
    (void)b;
    return 300 * pow(unit(a), -1 / 0.7);
}

static const mix mixes[] = {{"log-normal, s 1.0", log_normal_short},
                            {"log-normal, s 1.5", log_normal},
                            {"pareto, a 1.1", pareto},
                            {"pareto, a 0.7", pareto_heavy}};
static const char *const kinds[] = {"plain", "zigzag", "balanced"};

/* A row full of documents of a mix, none longer than a quarter of it. */
static void fill_row(const mix *m, uint64_t seed, int64_t length, int32_t *docs)
{
    int32_t id = 0;
    for (int64_t t = 0; t < length; id++) {
        uint32_t word[4];
        tri_philox(seed, (uint64_t)id, 0, tri_stream("bench", m->name), word);
        double size = fmin(fmax(m->draw(word[0], word[1]), 1), (double)(length / 4));
        for (int64_t end = t + (int64_t)size; t < end && t < length; t++)
            docs[t] = id;
    }
}

static int64_t num_remote(const tri_deal *deal, const int32_t *places, const tri_deal_runs *needed)
{
    int64_t sum = 0, i = 0, end = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++) {
        for (int32_t k = needed->first[r]; k < needed->first[r + 1]; k++)
            sum += needed->run[k][1] - needed->run[k][0];
        /* A query that sees anything sees itself. */
        int32_t k = needed->first[r];
        for (end += deal->sizes[r]; i < end; i++) {
            while (k < needed->first[r + 1] && needed->run[k][1] <= places[i])
                k++;
            sum -= k < needed->first[r + 1] && needed->run[k][0] <= places[i];
        }
    }
    return sum;
}

/* Adds to the numbers of runs, all and short ones. */
static void count_runs(const tri_deal *deal, const int32_t *places, int64_t num[2])
{
    int64_t i = 0, end = 0;
    for (int32_t r = 0; r < deal->num_ranks; r++)
        for (end += deal->sizes[r]; i < end;) {
            int64_t next = tri_deal_run_end(places, i, end);
            num[0]++;
            num[1] += next - i < 128;
            i = next;
        }
}

typedef struct result {
    double worst, mean, remote;
    double runs, short_runs;
    double row_us, plan_us;
} result;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int num)
{
    qsort(values, (size_t)num, sizeof *values, ascending);
    return values[num / 2];
}

static void *room_for(int64_t num, size_t each)
{
    void *memory = calloc((size_t)num, each);
    if (!memory)
        abort();
    return memory;
}

static result measure(const mix *m, int kind, int32_t num_ranks, int64_t size, int num_rows)
{
    const int64_t length = num_ranks * size;
    int64_t *sizes = room_for(num_ranks, sizeof *sizes),
            *areas = room_for(num_ranks, sizeof *areas);
    int32_t *docs = room_for(length, sizeof *docs), *places = room_for(length, sizeof *places);
    int32_t(*span)[2] = room_for(length, sizeof *span);
    double *row_us = room_for(num_rows, sizeof *row_us),
           *plan_us = room_for(num_rows, sizeof *plan_us);
    for (int32_t r = 0; r < num_ranks; r++)
        sizes[r] = size;
    tri_deal deal;
    tri_key_exchange keys;
    if (tri_deal_init(&deal, (tri_deal_kind)kind, num_ranks, sizes, true, 0, NULL) ||
        tri_key_exchange_init(&keys, &deal, 0, 1, NULL))
        abort();
    result sum = {0};
    int64_t num_runs[2] = {0};
    for (int row = 0; row < num_rows; row++) {
        fill_row(m, (uint64_t)row, length, docs);
        tri_deal_spans(docs, length, span);
        double begin = tri_now_s();
        tri_deal_row(&deal, (const int32_t(*)[2])span, places);
        row_us[row] = 1e6 * (tri_now_s() - begin);
        begin = tri_now_s();
        tri_key_exchange_plan(&keys, &deal, (const int32_t(*)[2])span, places);
        plan_us[row] = 1e6 * (tri_now_s() - begin);
        tri_deal_areas(&deal, (const int32_t(*)[2])span, places, areas);
        double most = 0, total = 0;
        for (int32_t r = 0; r < num_ranks; r++) {
            most = fmax(most, (double)areas[r]);
            total += (double)areas[r];
        }
        sum.worst = fmax(sum.worst, most * num_ranks / total);
        sum.mean += most * num_ranks / total / num_rows;
        count_runs(&deal, places, num_runs);
        tri_deal_needed(&deal, (const int32_t(*)[2])span, places, &keys.needed);
        sum.remote += (double)num_remote(&deal, places, &keys.needed) / num_rows / num_ranks;
    }
    sum.runs = (double)num_runs[0] / num_rows / num_ranks;
    sum.short_runs = (double)num_runs[1] / num_rows / num_ranks;
    sum.row_us = median(row_us, num_rows);
    sum.plan_us = median(plan_us, num_rows);
    tri_key_exchange_fini(&keys);
    tri_deal_fini(&deal);
    free(sizes), free(areas), free(docs), free(places), free(span), free(row_us), free(plan_us);
    return sum;
}

int main(int num_args, char **args)
{
    int num_rows = num_args > 1 ? atoi(args[1]) : 20;
    int64_t size = num_args > 2 ? atoll(args[2]) : 8192;
    if (num_rows < 1 || size < 1)
        return 2;
    printf("%-18s %5s  %-8s %9s %9s %9s %9s %6s %6s %8s %8s\n", "mix", "ranks", "kind", "mean",
           "worst", "remote", "k / rank", "runs", "short", "row us", "plan us");
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++)
        for (int32_t num_ranks = 8; num_ranks <= 64; num_ranks *= 2)
            for (int kind = 0; kind < 3; kind++) {
                result x = measure(&mixes[m], kind, num_ranks, size, num_rows);
                printf("%-18s %5d  %-8s %9.4f %9.4f %8.2f%% %9.2f %6.1f %6.2f %8.0f %8.0f\n",
                       mixes[m].name, num_ranks, kinds[kind], x.mean, x.worst,
                       100 * x.remote / (double)((num_ranks - 1) * size), x.remote / 1000, x.runs,
                       x.short_runs, x.row_us, x.plan_us);
            }
    return 0;
}
