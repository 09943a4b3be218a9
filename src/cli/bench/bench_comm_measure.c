/* One measurement of a collective: the ranks are started, call it back to back, and end.
 *
 * The result is the median over samples, or the lowest eighth of those that were taken in turns
 * (bench_comm_turns.c). The first call is not timed: its
 * result is compared with what it must be, element by element, on every rank. Several algorithms of
 * a case take their samples in turns, in the same vectors. So do, where times are to be predicted,
 * the same algorithms at sizes nearby: what they take is what the prediction is made of. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cli/bench/bench_comm.h"
#include "cli/bench/bench_comm_turns.h"
#include "trireme/comm.h"

static const tr_operation operations[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = TR_BARRIER,       [TRI_COLL_BROADCAST] = TR_BROADCAST,
    [TRI_COLL_REDUCE] = TR_REDUCE,         [TRI_COLL_ALL_REDUCE] = TR_ALL_REDUCE,
    [TRI_COLL_GATHER] = TR_GATHER,         [TRI_COLL_SCATTER] = TR_SCATTER,
    [TRI_COLL_ALL_GATHER] = TR_ALL_GATHER, [TRI_COLL_REDUCE_SCATTER] = TR_REDUCE_SCATTER,
    [TRI_COLL_ALL_TO_ALL] = TR_ALL_TO_ALL,
};

enum { ROOT = 0, PERIOD = 61 };

/* Shared between the ranks and whoever started them. */
typedef struct shared {
    tri_comm_case c;
    tri_comm_timing timings[TRI_MOST_IN_TURN]; /* written by rank 0 */
    tri_comm_tunings tunings;
    tri_call_sizes sizes; /* that will be called */
} shared;

/* Sizes around the one of a case, never itself: those of a grid of two for each power of two, in
 * whose middle it lies. */
enum { NUM_NEAR = 2, MOST_SERIES = TRI_MOST_IN_TURN * (1 + NUM_NEAR) };
static const uint64_t least_count = 64;
/* For the prices of predictions: long enough to outlast what else begins when somebody types a
 * command. */
static const double price_seconds = 3;

/* One rank's part. */
typedef struct bench_rank {
    const tri_comm_case *c;
    tr_group *group;
    int rank;
    tr_collective call;
    float *send, *recv;
    uint64_t num_send, num_recv; /* elements; num_recv is 0 where nothing is received */
    uint64_t near[NUM_NEAR];     /* counts as in call.count */
    int num_near;
    float sums[PERIOD];       /* of the inputs of all ranks, by element */
    tri_comm_timing *timings; /* [num_algorithms] */
} bench_rank;

static bool has_blocks(tri_coll coll)
{
    return coll == TRI_COLL_GATHER || coll == TRI_COLL_SCATTER || coll == TRI_COLL_ALL_GATHER ||
           coll == TRI_COLL_REDUCE_SCATTER || coll == TRI_COLL_ALL_TO_ALL;
}

uint64_t tri_comm_case_bytes(tri_coll coll, int num_ranks, uint64_t bytes)
{
    uint64_t unit = sizeof(float) * (has_blocks(coll) ? (uint64_t)num_ranks : 1);
    if (coll == TRI_COLL_BARRIER)
        return 0;
    return bytes < unit ? unit : bytes / unit * unit;
}

double tri_comm_formula_bytes(const tri_comm_case *c, double bytes)
{
    return c->coll == TRI_COLL_ALL_TO_ALL ? bytes * c->num_ranks : bytes;
}

/* ---- what goes in and what must come out ---- */

/* Small whole numbers: sums are exact in any order. */
static float input(int rank, uint64_t element)
{
    return (float)((element * 7 + (uint64_t)rank * 13) % PERIOD);
}

static float sum_of_inputs(int num_ranks, uint64_t element)
{
    float sum = 0;
    for (int rank = 0; rank < num_ranks; rank++)
        sum += input(rank, element);
    return sum;
}

/* Sender r's element e is input(r, e). */
static float expected(const bench_rank *b, uint64_t element)
{
    uint64_t block = b->call.count;
    switch (b->c->coll) {
    case TRI_COLL_REDUCE:
    case TRI_COLL_ALL_REDUCE:
        return b->sums[element % PERIOD];
    case TRI_COLL_REDUCE_SCATTER:
        return b->sums[(element + (uint64_t)b->rank * block) % PERIOD];
    case TRI_COLL_BROADCAST:
        return input(ROOT, element);
    case TRI_COLL_SCATTER:
        return input(ROOT, element + (uint64_t)b->rank * block);
    case TRI_COLL_GATHER:
    case TRI_COLL_ALL_GATHER:
        return input((int)(element / block), element % block);
    case TRI_COLL_ALL_TO_ALL:
        return input((int)(element / block), element % block + (uint64_t)b->rank * block);
    default:
        return 0;
    }
}

static int64_t count_wrong(const bench_rank *b)
{
    int64_t wrong = 0;
    for (uint64_t i = 0; i < b->num_recv; i++)
        wrong += b->recv[i] != expected(b, i);
    return wrong;
}

/* ---- the ranks' vectors ---- */

static void set_sizes(bench_rank *b)
{
    uint64_t all = b->c->bytes / sizeof(float), n = (uint64_t)b->c->num_ranks;
    uint64_t block = has_blocks(b->c->coll) ? all / n : all;
    bool root = b->rank == ROOT;
    b->call.count = block;
    b->num_send = b->num_recv = block;
    switch (b->c->coll) {
    case TRI_COLL_BARRIER:
        b->num_send = b->num_recv = 0;
        break;
    case TRI_COLL_BROADCAST:
        b->num_send = root ? block : 0;
        break;
    case TRI_COLL_REDUCE:
        b->num_recv = root ? block : 0;
        break;
    case TRI_COLL_GATHER:
        b->num_recv = root ? all : 0;
        break;
    case TRI_COLL_SCATTER:
        b->num_send = root ? all : 0;
        break;
    case TRI_COLL_ALL_GATHER:
        b->num_recv = all;
        break;
    case TRI_COLL_REDUCE_SCATTER:
        b->num_send = all;
        break;
    case TRI_COLL_ALL_TO_ALL:
        b->num_send = b->num_recv = all;
        break;
    default:
        break;
    }
}

/* Elements of a vector that has so many in the case, at the largest size nearby. */
static uint64_t room_for(const bench_rank *b, uint64_t count)
{
    double larger = b->num_near > 0 ? (double)b->near[b->num_near - 1] / (double)b->call.count : 1;
    return (uint64_t)((double)count * larger) + 16;
}

static tr_status allocate(const bench_rank *b, tr_comm *comm, uint64_t count, float **memory,
                          tr_error *err)
{
    size_t bytes = room_for(b, count) * sizeof(float);
    void *data = NULL;
    if (!b->c->private_memory) {
        TRI_TRY(tr_comm_alloc(comm, bytes, &data, err));
    } else if (posix_memalign(&data, 4096, bytes) != 0) {
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a vector of %zu bytes", bytes);
    }
    *memory = data;
    return TR_OK;
}

static void release(const bench_rank *b, tr_comm *comm, float *memory)
{
    if (!memory)
        return;
    if (b->c->private_memory)
        free(memory);
    else
        tr_comm_free(comm, memory);
}

/* ---- timing ---- */

static tr_status check_result(bench_rank *b, tri_comm_timing *timing, tr_error *err)
{
    int64_t wrong = count_wrong(b), all = 0;
    TRI_TRY(tr_all_reduce(b->group, &wrong, &all, 1, TR_I64, TR_SUM, err));
    timing->num_wrong += all;
    if (b->num_recv > 0) /* so that the next result is not this one */
        memset(b->recv, 0xff, b->num_recv * sizeof *b->recv);
    return TR_OK;
}

static tr_status check_series(void *context, int number, tr_error *err)
{
    bench_rank *b = context;
    return number < b->c->num_algorithms ? check_result(b, &b->timings[number], err) : TR_OK;
}

/* ---- sizes nearby ---- */

/* In whole pages where there are several, so that blocks lie to each other as those of the case. */
static void find_near(bench_rank *b)
{
    uint64_t count = b->call.count, unit = count >= 4096 ? 1024 : 16;
    b->num_near = 0;
    if (count < least_count)
        return;
    for (int k = 0; k < NUM_NEAR; k++) {
        double wanted = (double)count * exp2(k == 0 ? -0.25 : 0.25);
        b->near[b->num_near++] = (uint64_t)(wanted / (double)unit + 0.5) * unit;
    }
}

/* The number of what an algorithm of the case runs; -1: not in the table. */
static int number_of(const bench_rank *b, int a)
{
    const tri_algorithm *algorithm;
    tri_coll_shape shape = tri_shape_flat(b->c->num_ranks);
    if (tri_algorithm_parse(b->timings[a].runs, &algorithm, &shape, NULL) != TR_OK)
        return -1;
    return tri_algorithm_number(algorithm);
}

/* Behind those of the case; what `auto` chose once, although it may be listed as well. */
static int add_near(const bench_rank *b, tri_series *series, int *numbers)
{
    int num = b->c->num_algorithms;
    for (int a = 0; b->num_near > 0 && a < b->c->num_algorithms; a++) {
        int number = number_of(b, a);
        bool known = number < 0;
        for (int i = b->c->num_algorithms; i < num; i++)
            known |= numbers[i] == number;
        for (int k = 0; !known && k < b->num_near; k++, num++) {
            series[num] = (tri_series){.call = b->call};
            series[num].call.algorithm = b->timings[a].runs;
            series[num].call.count = b->near[k];
            numbers[num] = number;
        }
    }
    return num;
}

/* A call right after a barrier takes longer than one after another. So what is compared has as many
 * in a sample: as the quickest of them, for one that was interrupted seemed slow. */
static void align_calls(tri_series *series, const int *numbers, int num)
{
    for (int i = 0; i < num; i++)
        for (int j = 0; j < num; j++)
            if (numbers[i] == numbers[j] && series[j].num_calls > series[i].num_calls)
                series[i].num_calls = series[j].num_calls;
}

/* Factors of the sizes nearby. */
static void use_near(const bench_rank *b, tri_series *series, const int *numbers, int num,
                     tri_tuning *tuning)
{
    tri_trial trials[NUM_NEAR] = {0};
    for (int i = b->c->num_algorithms; i < num; i++) {
        tri_trial *trial = &trials[(i - b->c->num_algorithms) % NUM_NEAR];
        trial->coll = b->c->coll;
        trial->bytes = tri_comm_formula_bytes(
            b->c, (double)series[i].call.count / (double)b->call.count * (double)b->c->bytes);
        trial->num = 1;
        trial->tries[numbers[i]] = true;
        trial->seconds[numbers[i]][0] = tri_series_octile(&series[i]);
    }
    tri_factors *f = &tuning->factors;
    int num_points = num > b->c->num_algorithms ? NUM_NEAR : 0;
    *f = (tri_factors){0};
    f->num_points[b->c->coll] = num_points;
    for (int k = 0; k < num_points; k++) {
        f->bytes[b->c->coll][k] = trials[k].bytes;
        tri_trial_use(&trials[k], k, tuning);
    }
}

/* ---- all of a case ---- */

/* The tuning, where it is not NULL, gets the factors. */
static tr_status time_series(bench_rank *b, tri_series *series, tri_tuning *tuning, tr_error *err)
{
    int numbers[MOST_SERIES], num = b->c->num_algorithms;
    for (int a = 0; a < num; a++) {
        series[a] = (tri_series){.call = b->call, .reads = b->c->uses ? b->num_recv : 0};
        series[a].call.algorithm = b->c->algorithms[a];
        snprintf(b->timings[a].runs, sizeof b->timings[a].runs, "%s",
                 tri_comm_would_run(b->group, &series[a].call));
        numbers[a] = number_of(b, a);
        TRI_TRY(tri_series_begin(b->group, &series[a], err));
        TRI_TRY(check_result(b, &b->timings[a], err));
    }
    num = add_near(b, series, numbers);
    for (int i = b->c->num_algorithms; i < num; i++)
        TRI_TRY(tri_series_begin(b->group, &series[i], err));
    align_calls(series, numbers, num);
    TRI_TRY(
        tri_series_sample(b->group, series, num, b->c->check_all ? check_series : NULL, b, err));
    for (int a = 0; a < b->c->num_algorithms; a++) {
        tri_comm_timing *t = &b->timings[a];
        t->seconds = num > 1 ? tri_series_octile(&series[a]) : tri_series_median(&series[a]);
        t->fastest = series[a].samples[0];
        t->median = tri_series_median(&series[a]);
        t->slowest = series[a].samples[series[a].num - 1];
        t->num_samples = series[a].num;
        t->num_calls = series[a].num_calls;
    }
    if (tuning != NULL)
        use_near(b, series, numbers, num, tuning);
    return TR_OK;
}

static tr_status time_calls(bench_rank *b, tri_tuning *tuning, tr_error *err)
{
    tri_series *series = calloc(MOST_SERIES, sizeof *series);
    if (series == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the samples of a measurement");
    tr_status status = time_series(b, series, tuning, err);
    free(series);
    return status;
}

/* Which ranks share a core would otherwise be chance, and decide which algorithm is the best. */
static void bind_rank(const tri_comm_case *c, int rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    int at = rank * CPU_COUNT(&all) / c->num_ranks;
    if (c->num_ranks < CPU_COUNT(&all))
        at = rank;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && at-- == 0)
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static tr_status run_rank(tr_comm *comm, void *context, tr_error *err)
{
    shared *s = context;
    tri_comm_timing timings[TRI_MOST_IN_TURN] = {0};
    tri_tuning beside = s->tunings.prediction;
    bench_rank b = {.c = &s->c, .group = tr_comm_world(comm), .rank = tr_comm_rank(comm)};
    b.call = (tr_collective){
        .operation = operations[s->c.coll], .reduction = TR_SUM, .dtype = TR_F32, .root = ROOT};
    if (s->tunings.choice.measured)
        tri_comm_set_tuning(comm, &s->tunings.choice);
    if (s->c.bound)
        bind_rank(&s->c, b.rank);
    bool predicts = b.c->predicts && beside.work.num_points > 0;
    b.timings = timings;
    set_sizes(&b);
    for (uint64_t i = 0; i < PERIOD; i++)
        b.sums[i] = sum_of_inputs(s->c.num_ranks, i);
    if (predicts)
        find_near(&b);
    tr_status status = allocate(&b, comm, b.num_send, &b.send, err);
    if (status == TR_OK)
        status = allocate(&b, comm, b.num_recv, &b.recv, err);
    if (status == TR_OK) {
        for (uint64_t i = 0; i < room_for(&b, b.num_send); i++)
            b.send[i] = input(b.rank, i);
        b.call.send = b.send;
        b.call.recv = b.recv;
        status = time_calls(&b, predicts ? &beside : NULL, err);
        if (predicts && b.rank == 0)
            s->tunings.prediction = beside;
    }
    release(&b, comm, b.send);
    release(&b, comm, b.recv);
    if (b.rank == 0)
        memcpy(s->timings, timings, sizeof timings);
    return status;
}

tr_status tri_comm_measure_on(tr_comm *comm, const tri_comm_case *c, tri_comm_tunings *tunings,
                              tri_comm_timing *timings, tr_error *err)
{
    shared s = {.c = *c, .tunings = *tunings};
    tr_status status = run_rank(comm, &s, err);
    *tunings = s.tunings;
    memcpy(timings, s.timings, (size_t)c->num_algorithms * sizeof *timings);
    return status;
}

tr_status tri_comm_measure_prices_on(tr_comm *comm, const tri_comm_case *c,
                                     const tri_call_sizes *sizes, tri_comm_tunings *tunings,
                                     tr_error *err)
{
    TRI_TRY(tri_tuning_measure(comm, sizes, &tunings->choice, err));
    tunings->prediction = tunings->choice;
    return c->predicts ? tri_tuning_reprice(comm, price_seconds, &tunings->prediction, err) : TR_OK;
}

static tr_status price_rank(tr_comm *comm, void *context, tr_error *err)
{
    shared *s = context;
    tri_comm_tunings tunings;
    if (s->c.bound)
        bind_rank(&s->c, tr_comm_rank(comm));
    TRI_TRY(tri_comm_measure_prices_on(comm, &s->c, &s->sizes, &tunings, err));
    if (tr_comm_rank(comm) == 0)
        s->tunings = tunings;
    return TR_OK;
}

/* Starts the ranks of a case, and takes along what rank 0 leaves. */
static tr_status run_world(shared *result, tr_rank_fn fn, tr_error *err)
{
    const tri_comm_case *c = &result->c;
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the result of a measurement");
    *s = *result;
    tr_comm_options options = {.transport = c->transport};
    tr_status status = strcmp(c->transport, "thread") == 0
                           ? tr_comm_run_threads(c->num_ranks, &options, fn, s, err)
                           : tr_comm_spawn(c->num_ranks, &options, fn, s, err);
    *result = *s;
    munmap(s, sizeof *s);
    return status;
}

tr_status tri_comm_measure(const tri_comm_case *c, tri_comm_tunings *tunings,
                           tri_comm_timing *timings, tr_error *err)
{
    shared s = {.c = *c, .tunings = *tunings};
    tr_status status = run_world(&s, run_rank, err);
    *tunings = s.tunings;
    memcpy(timings, s.timings, (size_t)c->num_algorithms * sizeof *timings);
    return status;
}

tr_status tri_comm_measure_prices(const tri_comm_case *c, const tri_call_sizes *sizes,
                                  tri_comm_tunings *tunings, tr_error *err)
{
    shared s = {.c = *c, .sizes = *sizes};
    tr_status status = run_world(&s, price_rank, err);
    *tunings = s.tunings;
    return status;
}
