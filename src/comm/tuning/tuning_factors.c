#include "comm/tuning/tuning_factors.h"

#include "base/samples.h"
#include "comm/comm_internal.h"
#include "comm/tuning/tuning.h"
#include "comm/tuning/tuning_samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run should not begin much later because of it: once this has passed no further size is begun.
 */
static const double race_seconds = 20;
/* For turns at one size: after the first few, and before: calls that take seconds each run once. */
static const double size_seconds = 1, most_size_seconds = 10;
/* Calls of this length are not repeated for the sake of a sample, nor to warm caches. */
static const double long_call = 0.02;
/* How many times as long as the best it takes one not to be tried: by the factors so far, and by
 * the formula alone, for who loses among small calls may win among large ones. Of long calls the
 * second number each. */
static const double too_long[2] = {2, 1.25}, too_long_plain[2] = {1.5, 1.2};

enum { MOST_CALLS = 400, FIRST_TURNS = 3, FEW_TURNS = 5 };

/* ---- sizes ---- */

void tri_call_sizes_add(tri_call_sizes *sizes, tri_coll coll, uint64_t bytes)
{
    int k = 0;
    while (k < TRI_FACTOR_POINTS - 1 && (uint64_t)1 << (TRI_LEAST_POWER + k) < bytes)
        k++;
    sizes->of[coll] |= UINT32_C(1) << k;
}

static double size_bytes(int k)
{
    return (double)((uint64_t)1 << (TRI_LEAST_POWER + k));
}

bool tri_is_call_size(double bytes)
{
    for (int k = 0; k < TRI_FACTOR_POINTS; k++)
        if (bytes == size_bytes(k))
            return true;
    return false;
}

static bool has_point(const tri_factors *f, int coll, int k)
{
    for (int i = 0; i < f->num_points[coll]; i++)
        if (f->bytes[coll][i] == size_bytes(k))
            return true;
    return false;
}

bool tri_factors_cover(const tri_factors *factors, const tri_call_sizes *sizes)
{
    for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
        for (int k = 0; k < TRI_FACTOR_POINTS; k++)
            if (sizes->of[coll] >> k & 1 && !has_point(factors, coll, k))
                return false;
    return true;
}

/* Room for the factors of a size among those that are there; which point it is. */
static int add_point(tri_factors *f, tri_coll coll, double bytes)
{
    int at = f->num_points[coll]++, last = at;
    while (at > 0 && f->bytes[coll][at - 1] > bytes)
        at--;
    size_t num = (size_t)(last - at) * sizeof(double);
    memmove(&f->bytes[coll][at + 1], &f->bytes[coll][at], num);
    f->bytes[coll][at] = bytes;
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++) {
        memmove(&f->of[coll][a][at + 1], &f->of[coll][a][at], num);
        f->of[coll][a][at] = 0;
    }
    return at;
}

double tri_factors_of(const tri_factors *f, const tri_algorithm *algorithm, tri_coll coll,
                      double bytes)
{
    int number = tri_algorithm_number(algorithm), last = f->num_points[coll] - 1, k = 0;
    if (last < 0 || number >= TRI_FACTOR_ALGORITHMS || !(f->of[coll][number][0] > 0))
        return 1;
    const double *of = f->of[coll][number], *at = f->bytes[coll];
    if (last == 0 || bytes <= at[0])
        return of[0];
    if (bytes >= at[last])
        return of[last];
    while (at[k + 1] < bytes)
        k++;
    double t = log(bytes / at[k]) / log(at[k + 1] / at[k]);
    return of[k] * (1 - t) + of[k + 1] * t;
}

/* ---- samples ---- */

/* Where the race takes place. */
typedef struct race {
    tri_comm *comm;
    tri_tuning *tuning;
    tri_coll_shape shape;
    void *send, *recv;
    double sample_seconds, begin;
} race;

/* The rank's part of a call of so many bytes. */
static tr_collective call_of(const race *r, tri_coll coll, double bytes)
{
    int n = r->shape.size;
    double divisor = coll == TRI_COLL_ALL_TO_ALL ? (double)n * n
                     : coll >= TRI_COLL_GATHER   ? (double)n
                                                 : 1;
    uint64_t count = (uint64_t)(bytes / divisor / sizeof(float));
    return (tr_collective){.operation = (tr_operation)coll,
                           .reduction = TR_SUM,
                           .dtype = TR_F32,
                           .send = r->send,
                           .recv = r->recv,
                           .count = count > 0 ? count : 1};
}

/* How many calls make a sample; all ranks see the same times, so they agree. */
static tr_status count_calls(const race *r, const tri_trial *trial, const tr_collective *call,
                             int number, int *calls, tr_error *err)
{
    double first, second;
    *calls = 1;
    if (trial->formula[number] > long_call)
        return TR_OK;
    TRI_TRY(tri_sample_call(r->comm->world, call, 1, &first, err)); /* sets up buffers */
    TRI_TRY(tri_sample_call(r->comm->world, call, 1, &second, err));
    double guess = fmin(first, second), some = r->sample_seconds / fmax(guess, 1e-8);
    *calls = some < 1 ? 1 : some > MOST_CALLS ? MOST_CALLS : (int)some;
    return TR_OK;
}

/* One sample of each that tries. Each turn begins with another, lest what comes and goes hit always
 * the same. */
static tr_status take_turn(const race *r, tri_trial *trial, tr_error *err)
{
    tr_collective call = call_of(r, trial->coll, trial->bytes);
    for (int i = 0; i < TRI_FACTOR_ALGORITHMS; i++) {
        int a = (i + 5 * trial->num) % TRI_FACTOR_ALGORITHMS, *calls = &trial->calls[a];
        double *seconds = &trial->seconds[a][trial->num];
        if (!trial->tries[a])
            continue;
        call.algorithm = tri_algorithm_at((size_t)a)->name;
        if (*calls == 0)
            TRI_TRY(count_calls(r, trial, &call, a, calls, err));
        else if (trial->seconds[a][0] < long_call) /* what another left in the caches is not ours */
            TRI_TRY(tr_collective_run(r->comm->world, &call, err));
        TRI_TRY(tri_sample_call(r->comm->world, &call, *calls, seconds, err));
        trial->spent += *seconds * *calls;
    }
    trial->num++;
    return TR_OK;
}

/* ---- what they tell ---- */

/* The mean of the quickest quarter: what it takes while nobody else takes part of a core away,
 * which comes and goes, lasts for tenths of a second, and does not slow all algorithms down alike.
 */
static double undisturbed(const double *samples, int num)
{
    double sorted[TRI_MOST_TRIALS], sum = 0;
    int quarter = (num + 3) / 4;
    memcpy(sorted, samples, (size_t)num * sizeof *sorted);
    tri_samples_sort(sorted, (size_t)num);
    for (int i = 0; i < quarter; i++)
        sum += sorted[i];
    return sum / quarter;
}

/* Seconds of each that was tried, 0 of others. */
static void estimate(const tri_trial *trial, double *times)
{
    double least = INFINITY;
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++) {
        times[a] = trial->tries[a] ? undisturbed(trial->seconds[a], trial->num) : 0;
        if (trial->tries[a])
            least = fmin(least, times[a]);
    }
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++)
        if (trial->behind[a] > 0)
            times[a] = trial->behind[a] * least;
}

void tri_trial_use(const tri_trial *trial, int k, tri_tuning *tuning)
{
    tri_coll_shape shape = tri_shape_flat(tuning->num_ranks);
    double times[TRI_FACTOR_ALGORITHMS] = {0};
    if (trial->num > 0)
        estimate(trial, times);
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++) {
        if (times[a] == 0)
            continue;
        double formula = trial->formula[a];
        if (formula == 0)
            formula = tri_tuning_formula(tuning, tri_algorithm_at((size_t)a), trial->coll, &shape,
                                         trial->bytes);
        double factor = formula > 0 ? times[a] / formula : 1;
        tuning->factors.of[trial->coll][a][k] =
            factor < 1e-3 ? 1e-3 : (factor > 1e3 ? 1e3 : factor);
    }
}

/* How many times as long as the best one may take after so many turns, and go on. */
static double tolerance(int turns)
{
    return turns < 6 ? 1.4 : turns < 12 ? 1.25 : 1.15;
}

/* How many go on. */
static int drop_out(tri_trial *trial)
{
    double times[TRI_FACTOR_ALGORITHMS], least = INFINITY;
    int num = 0;
    estimate(trial, times);
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++)
        if (trial->tries[a])
            least = fmin(least, times[a]);
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++) {
        if (trial->tries[a] && times[a] > tolerance(trial->num) * least) {
            trial->tries[a] = false;
            trial->behind[a] = times[a] / least;
        }
        num += trial->tries[a];
    }
    return num;
}

/* ---- all of them ---- */

/* Those that have the operation, without those that are far behind. */
static void enter(const race *r, tri_trial *trial)
{
    double least = INFINITY, least_plain = INFINITY;
    double times[TRI_FACTOR_ALGORITHMS] = {0}, *plain = trial->formula;
    bool shares = r->comm->transport->io == NULL;
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS && tri_algorithm_at((size_t)a) != NULL; a++) {
        const tri_algorithm *algorithm = tri_algorithm_at((size_t)a);
        trial->tries[a] = (shares || !algorithm->needs_shared_memory) &&
                          tri_algorithm_supports(algorithm, trial->coll, &r->shape);
        if (!trial->tries[a])
            continue;
        plain[a] = tri_tuning_formula(r->tuning, algorithm, trial->coll, &r->shape, trial->bytes);
        times[a] =
            plain[a] * tri_factors_of(&r->tuning->factors, algorithm, trial->coll, trial->bytes);
        least = fmin(least, times[a]);
        least_plain = fmin(least_plain, plain[a]);
    }
    int is_long = least > long_call;
    for (int a = 0; r->tuning->factors.num_points[trial->coll] > 0 && a < TRI_FACTOR_ALGORITHMS;
         a++)
        trial->tries[a] &= times[a] <= too_long[is_long] * least ||
                           plain[a] <= too_long_plain[is_long] * least_plain;
}

/* What was left out gets the factor of the size before; and where those that ran became worse, for
 * a reason that prices do not know, as much worse as the worst of them: not having been tried is no
 * merit. */
static void carry_on(tri_coll coll, int k, tri_factors *f)
{
    double worse = 1;
    for (int a = 0; k > 0 && a < TRI_FACTOR_ALGORITHMS; a++)
        if (f->of[coll][a][k] > worse * f->of[coll][a][k - 1] && f->of[coll][a][k - 1] > 0)
            worse = f->of[coll][a][k] / f->of[coll][a][k - 1];
    for (int a = 0; k > 0 && a < TRI_FACTOR_ALGORITHMS; a++)
        if (f->of[coll][a][k] == 0)
            f->of[coll][a][k] = worse * f->of[coll][a][k - 1];
}

/* The same answer on all ranks. */
static tr_status is_late(const race *r, bool *late, tr_error *err)
{
    float own = (float)(tri_now_s() - r->begin), most = 0;
    TRI_TRY(tr_all_reduce(r->comm->world, &own, &most, 1, TR_F32, TR_MAX, err));
    *late = (double)most > race_seconds;
    return TR_OK;
}

/* A size of an operation, and where its factors go: those after it are of larger ones, and do not
 * move it. */
typedef struct heat {
    tri_trial trial;
    int point;
    bool open;
} heat;

/* The first turns. */
static tr_status begin_heat(const race *r, heat *h, tr_error *err)
{
    tri_trial *trial = &h->trial;
    tri_factors *f = &r->tuning->factors;
    bool late = false;
    TRI_TRY(is_late(r, &late, err));
    if (!late) {
        enter(r, trial);
        h->open = true;
    }
    for (int turn = 0; h->open && turn < FIRST_TURNS && trial->spent < most_size_seconds; turn++)
        TRI_TRY(take_turn(r, trial, err));
    h->open = h->open && drop_out(trial) > 1;
    if (trial->num == 0 && f->num_points[trial->coll] == 0)
        return TR_OK; /* there is nothing to go by; the next start may have the time */
    h->point = add_point(f, trial->coll, trial->bytes);
    tri_trial_use(trial, h->point, r->tuning);
    carry_on(trial->coll, h->point, f);
    return TR_OK;
}

/* Where several are near the best, further turns decide: one at a time at each size, so that a
 * moment of noise hits one of many. */
static tr_status race_on(const race *r, heat *heats, int num, tr_error *err)
{
    for (int turn = FIRST_TURNS; turn < TRI_MOST_TRIALS; turn++)
        for (int i = 0; i < num; i++) {
            tri_trial *trial = &heats[i].trial;
            double enough = turn < FEW_TURNS ? most_size_seconds : size_seconds;
            if (!heats[i].open || trial->spent > enough)
                continue;
            TRI_TRY(take_turn(r, trial, err));
            heats[i].open = drop_out(trial) > 1;
            tri_trial_use(trial, heats[i].point, r->tuning);
        }
    return TR_OK;
}

static tr_status run_race(const race *r, heat *heats, int num, tr_error *err)
{
    for (int i = 0; i < num; i++)
        TRI_TRY(begin_heat(r, &heats[i], err));
    return race_on(r, heats, num, err);
}

/* What was not tried yet, from small to large: what is far behind is known before it becomes
 * expensive. Host calls are small, so the least is always among them. */
static int list_heats(const tri_factors *f, const tri_call_sizes *sizes, heat *heats)
{
    int num = 0;
    for (int k = 0; k < TRI_FACTOR_POINTS; k++)
        for (int coll = 0; coll < TRI_NUM_COLLS; coll++)
            if ((sizes->of[coll] >> k & 1 || (k == 0 && sizes->of[coll] != 0)) &&
                !has_point(f, coll, k))
                heats[num++].trial = (tri_trial){.coll = (tri_coll)coll, .bytes = size_bytes(k)};
    return num;
}

tr_status tri_factors_measure(tri_comm *comm, const tri_call_sizes *sizes, tri_tuning *tuning,
                              tr_error *err)
{
    enum { MOST_HEATS = TRI_NUM_COLLS * TRI_FACTOR_POINTS };
    /* Where ranks outnumber cores, turns of the scheduler take their time: short samples tell what
     * a call takes after a barrier, not among others. */
    race r = {.comm = comm,
              .tuning = tuning,
              .shape = tri_shape_flat(comm->boot.size),
              .sample_seconds = comm->boot.size > comm->num_cores ? 1.5e-3 : 5e-4,
              .begin = tri_now_s()};
    heat *heats = calloc(MOST_HEATS, sizeof *heats);
    if (heats == NULL)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to try the algorithms of collectives");
    int num = list_heats(&tuning->factors, sizes, heats);
    size_t room = num > 0 ? (size_t)heats[num - 1].trial.bytes + 4096 : 0;
    tr_status status = num > 0 ? tr_comm_alloc(comm, room, &r.send, err) : TR_OK;
    if (status == TR_OK && num > 0)
        status = tr_comm_alloc(comm, room, &r.recv, err);
    if (status == TR_OK && num > 0) {
        memset(r.send, 0, room);
        memset(r.recv, 0, room);
        status = run_race(&r, heats, num, err);
    }
    free(heats);
    tr_comm_free(comm, r.send);
    tr_comm_free(comm, r.recv);
    return status;
}
