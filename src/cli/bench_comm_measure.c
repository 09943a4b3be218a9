/* One measurement of a collective: the ranks are started, call it back to back, and end.
 *
 * A sample is the mean over some calls after a barrier, and of the ranks' means the largest; the
 * result is the median over the samples. The first call is not timed: its result is compared with
 * what it must be, element by element, on every rank. Several algorithms of a case take their
 * samples in turns, in the same vectors, so that whatever else the machine does hits all alike. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "cli/bench_comm.h"
#include "trireme/comm.h"

static const tr_operation operations[TRI_NUM_COLLS] = {
    [TRI_COLL_BARRIER] = TR_BARRIER,       [TRI_COLL_BROADCAST] = TR_BROADCAST,
    [TRI_COLL_REDUCE] = TR_REDUCE,         [TRI_COLL_ALL_REDUCE] = TR_ALL_REDUCE,
    [TRI_COLL_GATHER] = TR_GATHER,         [TRI_COLL_SCATTER] = TR_SCATTER,
    [TRI_COLL_ALL_GATHER] = TR_ALL_GATHER, [TRI_COLL_REDUCE_SCATTER] = TR_REDUCE_SCATTER,
    [TRI_COLL_ALL_TO_ALL] = TR_ALL_TO_ALL,
};

enum { MOST_SAMPLES = 41, FEWEST_SAMPLES = 5, ROOT = 0 };

static const double sample_seconds = 0.004, row_seconds = 0.4;

/* Shared between the ranks and whoever started them. */
typedef struct shared {
    tri_comm_case c;
    tri_comm_timing timings[TRI_MOST_IN_TURN]; /* written by rank 0 */
    tri_tuning tuning;
    tri_comm_asked asked;
    tri_factors factors;
} shared;

/* Sizes around the one of a case, never itself: half of it, and twice as much. */
enum { MOST_TRIALS = 2 };
static const double least_predicted = 64 << 10, most_tried = 64 << 20;

typedef struct trials {
    tri_trial of[MOST_TRIALS];
    int num;
    void *send, *recv;
} trials;

/* One rank's part. */
typedef struct bench_rank {
    const tri_comm_case *c;
    tr_group *group;
    int rank;
    tr_collective call;
    float *send, *recv;
    uint64_t num_send, num_recv; /* elements; num_recv is 0 where nothing is received */
    tr_comm *comm;
    trials *trials; /* NULL: none */
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

/* ---- what goes in and what must come out ---- */

/* Small whole numbers: sums are exact in any order. */
static float input(int rank, uint64_t element)
{
    return (float)((element * 7 + (uint64_t)rank * 13) % 61);
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
    int n = b->c->num_ranks;
    switch (b->c->coll) {
    case TRI_COLL_REDUCE:
    case TRI_COLL_ALL_REDUCE:
        return sum_of_inputs(n, element);
    case TRI_COLL_REDUCE_SCATTER:
        return sum_of_inputs(n, element + (uint64_t)b->rank * block);
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

static tr_status allocate(const bench_rank *b, tr_comm *comm, uint64_t count, float **memory,
                          tr_error *err)
{
    size_t bytes = count * sizeof(float) + 64;
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

/* As whoever wanted the result does next: reads all of it once. */
static float read_result(const bench_rank *b)
{
    float sums[16] = {0}, sum = 0;
    for (uint64_t i = 0; i + 16 <= b->num_recv; i += 16)
        for (int k = 0; k < 16; k++)
            sums[k] += b->recv[i + (uint64_t)k];
    for (int k = 0; k < 16; k++)
        sum += sums[k];
    return sum;
}

static tr_status take_sample(bench_rank *b, int num_calls, double *seconds, tr_error *err)
{
    volatile float sum = 0;
    TRI_TRY(tr_barrier(b->group, err));
    double begin = tri_now_s();
    for (int i = 0; i < num_calls; i++) {
        TRI_TRY(tr_collective_run(b->group, &b->call, err));
        if (b->c->uses)
            sum = read_result(b);
    }
    (void)sum;
    float mean = (float)((tri_now_s() - begin) / num_calls), most = 0;
    TRI_TRY(tr_all_reduce(b->group, &mean, &most, 1, TR_F32, TR_MAX, err));
    *seconds = (double)most;
    return TR_OK;
}

static tr_status check_result(bench_rank *b, tri_comm_timing *timing, tr_error *err)
{
    int64_t wrong = count_wrong(b), all = 0;
    TRI_TRY(tr_all_reduce(b->group, &wrong, &all, 1, TR_I64, TR_SUM, err));
    timing->num_wrong += all;
    if (b->num_recv > 0) /* so that the next result is not this one */
        memset(b->recv, 0xff, b->num_recv * sizeof *b->recv);
    return TR_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least of a few tries: one that was interrupted must not decide how much is measured. */
static tr_status guess_time(bench_rank *b, double *guess, tr_error *err)
{
    double seconds;
    TRI_TRY(take_sample(b, 1, guess, err));
    for (int i = 0; i < 3 && *guess < row_seconds / 10; i++) {
        TRI_TRY(take_sample(b, *guess < sample_seconds / 4 ? 8 : 1, &seconds, err));
        *guess = seconds < *guess ? seconds : *guess;
    }
    return TR_OK;
}

/* All ranks see the same times, so they agree on how often without asking each other. num: how many
 * algorithms take turns. */
static tr_status warm_up(bench_rank *b, int num, tri_comm_timing *timing, tr_error *err)
{
    double guess;
    TRI_TRY(tr_collective_run(b->group, &b->call, err));
    TRI_TRY(check_result(b, timing, err));
    TRI_TRY(guess_time(b, &guess, err));
    double calls = sample_seconds / guess, seconds = num > 1 ? row_seconds / 2 : row_seconds;
    timing->num_calls = calls < 1 ? 1 : (calls > 2000 ? 2000 : (int)calls);
    double samples = seconds / (guess * timing->num_calls);
    samples = samples < FEWEST_SAMPLES ? FEWEST_SAMPLES : samples;
    timing->num_samples = samples > MOST_SAMPLES ? MOST_SAMPLES : (int)samples;
    return TR_OK;
}

/* Between the turns, so that what happens to the samples happens to the trials. */
static tr_status run_trials(bench_rank *b, int turn, tr_error *err)
{
    trials *t = b->trials;
    bool now = turn < 3 || (turn & (turn - 1)) == 0;
    for (int k = 0; now && t != NULL && k < t->num; k++)
        TRI_TRY(tri_trial_run(b->comm, &t->of[k], t->send, t->recv, t->of[k].bytes > 20e6 ? 1 : 2,
                              sample_seconds, err));
    return TR_OK;
}

static tr_status sample_in_turn(bench_rank *b, double (*samples)[MOST_SAMPLES],
                                tri_comm_timing *timings, tr_error *err)
{
    int most = 0;
    for (int a = 0; a < b->c->num_algorithms; a++)
        most = timings[a].num_samples > most ? timings[a].num_samples : most;
    for (int i = 0; i < most; i++) {
        TRI_TRY(run_trials(b, i, err));
        for (int a = 0; a < b->c->num_algorithms; a++) {
            b->call.algorithm = b->c->algorithms[a];
            if (i >= timings[a].num_samples)
                continue;
            /* What the one before left in the caches is not ours. */
            int warm = timings[a].num_calls < 3 ? timings[a].num_calls : 3;
            for (int k = 0; b->c->num_algorithms > 1 && k < warm; k++)
                TRI_TRY(tr_collective_run(b->group, &b->call, err));
            TRI_TRY(take_sample(b, timings[a].num_calls, &samples[a][i], err));
            if (b->c->check_all)
                TRI_TRY(check_result(b, &timings[a], err));
        }
    }
    return TR_OK;
}

static tr_status time_calls(bench_rank *b, tri_comm_timing *timings, tr_error *err)
{
    double samples[TRI_MOST_IN_TURN][MOST_SAMPLES];
    int num = b->c->num_algorithms;
    for (int a = 0; a < num; a++) {
        b->call.algorithm = b->c->algorithms[a];
        snprintf(timings[a].runs, sizeof timings[a].runs, "%s",
                 tri_comm_would_run(b->group, &b->call));
        TRI_TRY(warm_up(b, num, &timings[a], err));
    }
    TRI_TRY(sample_in_turn(b, samples, timings, err));
    for (int a = 0; a < num; a++) {
        tri_comm_timing *t = &timings[a];
        qsort(samples[a], (size_t)t->num_samples, sizeof **samples, ascending);
        t->seconds = samples[a][t->num_samples / 2];
        t->fastest = samples[a][0];
        t->slowest = samples[a][t->num_samples - 1];
    }
    return TR_OK;
}

/* ---- prices beside the samples ---- */

static const double least_footprint = 64 << 10, most_footprint = 256 << 20;

/* From the least to the most that the algorithms of a case touch, twice as much each time. */
static int case_footprints(const tri_comm_case *c, double *out)
{
    double least = most_footprint, most = least_footprint;
    for (int a = 0; a < c->num_algorithms; a++) {
        const tri_algorithm *algorithm;
        tri_coll_shape shape = tri_shape_flat(c->num_ranks);
        double bytes = (double)c->bytes * (c->coll == TRI_COLL_ALL_TO_ALL ? c->num_ranks : 1);
        if (tri_algorithm_parse(c->algorithms[a], &algorithm, &shape, NULL) != TR_OK)
            continue;
        double footprint = tri_work_footprint(algorithm, c->coll, &shape, bytes);
        least = footprint < least ? footprint : least;
        most = footprint > most ? footprint : most;
    }
    least = least < least_footprint ? least_footprint : least;
    most = most > most_footprint ? most_footprint : most;
    out[0] = least;
    int num = 1;
    while (num < TRI_WORK_POINTS && out[num - 1] * 1.2 < most) {
        out[num] = out[num - 1] * 2 < most ? out[num - 1] * 2 : most;
        num++;
    }
    return num;
}

static void plan_trials(bench_rank *b, trials *t)
{
    double bytes = (double)b->c->bytes;
    *t = (trials){0};
    if (bytes < least_predicted)
        return;
    t->of[t->num++].bytes = bytes / 2;
    if (bytes * 2 <= most_tried)
        t->of[t->num++].bytes = bytes * 2;
    for (int k = 0; k < t->num; k++) {
        t->of[k].coll = b->c->coll;
        for (int a = 0; a < b->c->num_algorithms; a++) {
            const tri_algorithm *algorithm;
            tri_coll_shape shape = tri_shape_flat(b->c->num_ranks);
            b->call.algorithm = b->c->algorithms[a];
            if (tri_algorithm_parse(tri_comm_would_run(b->group, &b->call), &algorithm, &shape,
                                    NULL) == TR_OK)
                t->of[k].tries[tri_algorithm_number(algorithm)] = true;
        }
    }
}

/* A machine's memory may be twice as fast a minute later. Prices measured before and after the
 * samples, and algorithms tried at other sizes between, tell how good a prediction is; prices of
 * the beginning tell how good a forecast is. */
static tr_status time_beside_prices(bench_rank *b, tr_comm *comm, tri_comm_timing *timings,
                                    tri_tuning *tuning, tr_error *err)
{
    double footprints[TRI_WORK_POINTS];
    int num = case_footprints(b->c, footprints);
    tri_work_times times = {0};
    trials t;
    plan_trials(b, &t);
    size_t room = t.num > 0 ? (size_t)t.of[t.num - 1].bytes + 4096 : 0;
    tr_status status = room ? tr_comm_alloc(comm, room, &t.send, err) : TR_OK;
    if (status == TR_OK && room)
        status = tr_comm_alloc(comm, room, &t.recv, err);
    if (status == TR_OK && room) {
        memset(t.send, 0, room);
        memset(t.recv, 0, room);
    }
    if (status == TR_OK)
        status = tri_work_measure(comm, footprints, num, &times, &tuning->work, err);
    b->comm = comm;
    b->trials = &t;
    if (status == TR_OK)
        status = time_calls(b, timings, err);
    b->trials = NULL;
    if (status == TR_OK)
        status = tri_work_measure(comm, footprints, num, &times, &tuning->work, err);
    tuning->factors = (tri_factors){.num_points = t.num};
    for (int k = 0; status == TR_OK && b->rank == 0 && k < t.num; k++) {
        tuning->factors.bytes[k] = t.of[k].bytes;
        tri_trial_use(&t.of[k], k, tuning);
    }
    tr_comm_free(comm, t.send);
    tr_comm_free(comm, t.recv);
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
    tri_tuning beside = s->tuning;
    bench_rank b = {.c = &s->c, .group = tr_comm_world(comm), .rank = tr_comm_rank(comm)};
    b.call = (tr_collective){
        .operation = operations[s->c.coll], .reduction = TR_SUM, .dtype = TR_F32, .root = ROOT};
    if (s->tuning.measured)
        tri_comm_set_tuning(comm, &s->tuning);
    if (s->c.bound)
        bind_rank(&s->c, b.rank);
    set_sizes(&b);
    tr_status status = allocate(&b, comm, b.num_send, &b.send, err);
    if (status == TR_OK)
        status = allocate(&b, comm, b.num_recv, &b.recv, err);
    if (status == TR_OK) {
        for (uint64_t i = 0; i < b.num_send; i++)
            b.send[i] = input(b.rank, i);
        b.call.send = b.send;
        b.call.recv = b.recv;
        bool prices = b.c->prices_beside && beside.work.num_points > 0;
        status = prices ? time_beside_prices(&b, comm, timings, &beside, err)
                        : time_calls(&b, timings, err);
        if (prices && b.rank == 0)
            s->tuning = beside;
    }
    release(&b, comm, b.send);
    release(&b, comm, b.recv);
    if (b.rank == 0)
        memcpy(s->timings, timings, sizeof timings);
    return status;
}

tr_status tri_comm_measure_on(tr_comm *comm, const tri_comm_case *c, tri_tuning *tuning,
                              tri_comm_timing *timings, tr_error *err)
{
    shared s = {.c = *c, .tuning = *tuning};
    tr_status status = run_rank(comm, &s, err);
    *tuning = s.tuning;
    memcpy(timings, s.timings, (size_t)c->num_algorithms * sizeof *timings);
    return status;
}

tr_status tri_comm_measure_prices_on(tr_comm *comm, const tri_comm_asked *asked, tri_tuning *tuning,
                                     tri_factors *factors, tr_error *err)
{
    *factors = (tri_factors){0};
    TRI_TRY(tri_tuning_measure(comm, tuning, err));
    tri_tuning full = *tuning;
    if (asked->algorithms == 0 || tuning->work.num_points == 0)
        return TR_OK;
    TRI_TRY(tri_factors_measure(comm, asked->colls, asked->algorithms, asked->most_bytes, false,
                                &full, err));
    *factors = full.factors;
    return TR_OK;
}

static tr_status price_rank(tr_comm *comm, void *context, tr_error *err)
{
    shared *s = context;
    tri_tuning tuning;
    tri_factors factors;
    if (s->c.bound)
        bind_rank(&s->c, tr_comm_rank(comm));
    TRI_TRY(tri_comm_measure_prices_on(comm, &s->asked, &tuning, &factors, err));
    if (tr_comm_rank(comm) == 0) {
        s->tuning = tuning;
        s->factors = factors;
    }
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

tr_status tri_comm_measure(const tri_comm_case *c, tri_tuning *tuning, tri_comm_timing *timings,
                           tr_error *err)
{
    shared s = {.c = *c, .tuning = *tuning};
    tr_status status = run_world(&s, run_rank, err);
    *tuning = s.tuning;
    memcpy(timings, s.timings, (size_t)c->num_algorithms * sizeof *timings);
    return status;
}

tr_status tri_comm_measure_prices(const tri_comm_case *c, const tri_comm_asked *asked,
                                  tri_tuning *tuning, tri_factors *factors, tr_error *err)
{
    shared s = {.c = *c, .asked = *asked};
    tr_status status = run_world(&s, price_rank, err);
    *tuning = s.tuning;
    *factors = s.factors;
    return status;
}
