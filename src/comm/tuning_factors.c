#include "comm/tuning_factors.h"

#include "comm/comm_internal.h"
#include "comm/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double usual[TRI_FACTOR_POINTS] = {1 << 10,   4 << 10,   16 << 10,  64 << 10,
                                                128 << 10, 256 << 10, 512 << 10, 1 << 20,
                                                2 << 20,   4 << 20,   16 << 20};

/* A run should not begin much later because of it. */
static const double slowest_bytes = 16 << 20, race_seconds = 2.5, race_on_seconds = 8;
/* How many times as long as the best it takes one not to be tried, and not to be tried again: the
 * more samples there are, the less. */
static const double too_long = 2, far_behind = 1.5, behind = 1.3, close_behind = 1.15;

enum { MOST_CALLS = 400, NUM_SAMPLES = 3 };

static bool is_tried(const tri_factors *f, tri_coll coll, int number)
{
    return f->num_points > 0 && number < TRI_FACTOR_ALGORITHMS && f->of[coll][number][0] > 0;
}

double tri_factors_of(const tri_factors *f, const tri_algorithm *algorithm, tri_coll coll, int size,
                      double bytes)
{
    int number = tri_algorithm_number(algorithm), last = f->num_points - 1, k = 0;
    if (!is_tried(f, coll, number))
        return 1;
    const double *of = f->of[coll][number];
    double own = coll == TRI_COLL_ALL_TO_ALL ? bytes / size : bytes;
    if (last == 0 || own <= f->bytes[0])
        return of[0];
    if (own >= f->bytes[last])
        return of[last];
    while (f->bytes[k + 1] < own)
        k++;
    double t = log(own / f->bytes[k]) / log(f->bytes[k + 1] / f->bytes[k]);
    return of[k] * (1 - t) + of[k + 1] * t;
}

/* ---- samples ---- */

static double formula_bytes(const tri_trial *trial, int size)
{
    return trial->coll == TRI_COLL_ALL_TO_ALL ? trial->bytes * size : trial->bytes;
}

static tr_status take_sample(tr_group *group, const tr_collective *call, int calls, double *seconds,
                             tr_error *err)
{
    TRI_TRY(tr_barrier(group, err));
    double begin = tri_now_s();
    for (int i = 0; i < calls; i++)
        TRI_TRY(tr_collective_run(group, call, err));
    float mean = (float)((tri_now_s() - begin) / calls), most = 0;
    TRI_TRY(tr_all_reduce(group, &mean, &most, 1, TR_F32, TR_MAX, err));
    *seconds = (double)most;
    return TR_OK;
}

/* How many calls make a sample; all ranks see the same time, so they agree. Also sets up buffers.
 * *second is the time of the second call, the first that is as later ones. */
static tr_status count_calls(tr_group *group, const tr_collective *call, double sample_seconds,
                             int *calls, double *second, tr_error *err)
{
    double first;
    TRI_TRY(take_sample(group, call, 1, &first, err));
    TRI_TRY(take_sample(group, call, 1, second, err));
    double guess = first < *second ? first : *second;
    double some = sample_seconds / (guess > 1e-8 ? guess : 1e-8);
    *calls = some < 1 ? 1 : some > MOST_CALLS ? MOST_CALLS : (int)some;
    return TR_OK;
}

tr_status tri_trial_run(tri_comm *comm, tri_trial *trial, void *send, void *recv, int samples,
                        double sample_seconds, tr_error *err)
{
    int calls[TRI_FACTOR_ALGORITHMS] = {0}, n = comm->boot.size;
    bool blocks = trial->coll >= TRI_COLL_GATHER;
    uint64_t elements = (uint64_t)(trial->bytes / sizeof(float) / (blocks ? n : 1));
    elements = elements > 0 ? elements : 1;
    trial->bytes = (double)elements * sizeof(float) * (blocks ? n : 1);
    tr_collective call = {.operation = (tr_operation)trial->coll,
                          .reduction = TR_SUM,
                          .dtype = TR_F32,
                          .send = send,
                          .recv = recv,
                          .count = elements};
    for (int i = 0; i < samples && trial->num < TRI_MOST_TRIALS; i++, trial->num++)
        for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++) {
            if (!trial->tries[a])
                continue;
            double *seconds = &trial->seconds[a][trial->num];
            call.algorithm = tri_algorithm_at((size_t)a)->name;
            if (i == 0)
                TRI_TRY(count_calls(comm->world, &call, sample_seconds, &calls[a], seconds, err));
            else if (trial->bytes < slowest_bytes) /* what another left in the caches is not ours */
                TRI_TRY(tr_collective_run(comm->world, &call, err));
            if (i > 0 || calls[a] > 1)
                TRI_TRY(take_sample(comm->world, &call, calls[a], seconds, err));
        }
    return TR_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the quicker half: a moment in which somebody else has a core hits up to half of the
 * samples without a trace, and of few samples a mean varies less than the one in the middle. */
static double typical(const double *samples, int num)
{
    double sorted[TRI_MOST_TRIALS], sum = 0;
    int half = (num + 1) / 2;
    memcpy(sorted, samples, (size_t)num * sizeof *sorted);
    qsort(sorted, (size_t)num, sizeof *sorted, ascending);
    for (int i = 0; i < half; i++)
        sum += sorted[i];
    return sum / half;
}

void tri_trial_use(const tri_trial *trial, int k, tri_tuning *tuning)
{
    tri_coll_shape shape = tri_shape_flat(tuning->num_ranks);
    for (int a = 0; trial->num > 0 && a < TRI_FACTOR_ALGORITHMS; a++) {
        if (!trial->tries[a])
            continue;
        double formula = tri_tuning_formula(tuning, tri_algorithm_at((size_t)a), trial->coll,
                                            &shape, formula_bytes(trial, shape.size));
        double factor = formula > 0 ? typical(trial->seconds[a], trial->num) / formula : 1;
        tuning->factors.of[trial->coll][a][k] =
            factor < 1e-3 ? 1e-3 : (factor > 1e3 ? 1e3 : factor);
    }
}

/* ---- all of them ---- */

/* Those that have the operation, without those that are far behind both by their factor so far and
 * by the formula alone: who loses among small calls may win among large ones. */
static void enter(const tri_tuning *tuning, bool shares, tri_trial *trial)
{
    tri_coll_shape shape = tri_shape_flat(tuning->num_ranks);
    double bytes = formula_bytes(trial, shape.size), least = INFINITY, least_plain = INFINITY;
    double times[TRI_FACTOR_ALGORITHMS] = {0}, plain[TRI_FACTOR_ALGORITHMS] = {0};
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS && tri_algorithm_at((size_t)a) != NULL; a++) {
        const tri_algorithm *algorithm = tri_algorithm_at((size_t)a);
        trial->tries[a] = (shares || !algorithm->needs_shared_memory) &&
                          tri_algorithm_supports(algorithm, trial->coll, &shape);
        if (!trial->tries[a])
            continue;
        times[a] = tri_tuning_time(tuning, algorithm, trial->coll, &shape, bytes);
        plain[a] = tri_tuning_formula(tuning, algorithm, trial->coll, &shape, bytes);
        least = fmin(least, times[a]);
        least_plain = fmin(least_plain, plain[a]);
    }
    for (int a = 0; tuning->factors.num_points > 0 && a < TRI_FACTOR_ALGORITHMS; a++)
        trial->tries[a] &= times[a] <= too_long * least || plain[a] <= far_behind * least_plain;
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
static tr_status is_late(tri_comm *comm, double begin, double seconds, bool *late, tr_error *err)
{
    float own = (float)(tri_now_s() - begin), most = 0;
    TRI_TRY(tr_all_reduce(comm->world, &own, &most, 1, TR_F32, TR_MAX, err));
    *late = (double)most > seconds;
    return TR_OK;
}

/* Where ranks outnumber cores, turns of the scheduler take their time: short samples
 * tell what a call takes after a barrier, not among others. */
static double race_sample(const tri_comm *comm)
{
    return comm->boot.size > comm->num_cores ? 1.5e-3 : 5e-4;
}

/* trials: one for each operation. */
static tr_status try_point(tri_comm *comm, unsigned colls, int k, void *send, void *recv,
                           tri_trial *trials, tri_tuning *tuning, tr_error *err)
{
    bool shares = comm->transport->io == NULL;
    for (int coll = 0; coll < TRI_NUM_COLLS; coll++) {
        tri_trial *trial = &trials[coll];
        if (!(colls >> coll & 1) || coll == TRI_COLL_BARRIER)
            continue;
        *trial = (tri_trial){.coll = (tri_coll)coll, .bytes = usual[k]};
        enter(tuning, shares, trial);
        TRI_TRY(tri_trial_run(comm, trial, send, recv, NUM_SAMPLES, race_sample(comm), err));
        tri_trial_use(trial, k, tuning);
        carry_on(trial->coll, k, &tuning->factors);
    }
    return TR_OK;
}

/* Those whose time so far is near the best's; how many they are. */
static int keep_near(tri_trial *trial)
{
    double least = INFINITY;
    double limit = trial->num <= NUM_SAMPLES       ? far_behind
                   : trial->num <= 2 * NUM_SAMPLES ? behind
                                                   : close_behind;
    int num = 0;
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++)
        if (trial->tries[a])
            least = fmin(least, typical(trial->seconds[a], trial->num));
    for (int a = 0; a < TRI_FACTOR_ALGORITHMS; a++) {
        trial->tries[a] =
            trial->tries[a] && typical(trial->seconds[a], trial->num) <= limit * least;
        num += trial->tries[a];
    }
    return num;
}

/* Between those that are near each other more samples decide, for as long as there is time; not at
 * the last size, of which it does not allow many. */
static tr_status race_on(tri_comm *comm, double begin, int num, void *send, void *recv,
                         tri_trial (*trials)[TRI_NUM_COLLS], tri_tuning *tuning, tr_error *err)
{
    bool late = false;
    for (int num_taken = NUM_SAMPLES; num_taken < TRI_MOST_TRIALS; num_taken += NUM_SAMPLES)
        for (int k = 0; k < num; k++)
            for (int coll = 0; coll < TRI_NUM_COLLS; coll++) {
                tri_trial *trial = &trials[k][coll];
                if (trial->num == 0 || trial->bytes >= slowest_bytes || keep_near(trial) < 2)
                    continue;
                TRI_TRY(is_late(comm, begin, race_on_seconds, &late, err));
                if (late)
                    return TR_OK;
                TRI_TRY(
                    tri_trial_run(comm, trial, send, recv, NUM_SAMPLES, race_sample(comm), err));
                tri_trial_use(trial, k, tuning);
            }
    return TR_OK;
}

tr_status tri_factors_measure(tri_comm *comm, unsigned colls, double most_bytes, tri_tuning *tuning,
                              tr_error *err)
{
    int num = TRI_FACTOR_POINTS;
    while (num > 1 && usual[num - 2] >= most_bytes)
        num--;
    void *send = NULL, *recv = NULL;
    size_t room = (size_t)usual[num - 1] + 4096;
    bool late = false;
    double begin = tri_now_s();
    tuning->factors = (tri_factors){.most_bytes = most_bytes};
    tri_trial(*trials)[TRI_NUM_COLLS] = calloc((size_t)num, sizeof *trials);
    tr_status status =
        trials ? tr_comm_alloc(comm, room, &send, err)
               : tri_fail(err, TR_ERROR_RUNTIME, "no memory to try the algorithms of collectives");
    if (status == TR_OK)
        status = tr_comm_alloc(comm, room, &recv, err);
    if (status == TR_OK) {
        memset(send, 0, room);
        memset(recv, 0, room);
    }
    for (int k = 0; k < num && status == TR_OK && !late; k++) {
        tuning->factors.bytes[k] = usual[k];
        status = try_point(comm, colls, k, send, recv, trials[k], tuning, err);
        tuning->factors.num_points = k + 1;
        if (status == TR_OK)
            status = is_late(comm, begin, race_seconds, &late, err);
    }
    if (status == TR_OK)
        status = race_on(comm, begin, num, send, recv, trials, tuning, err);
    free(trials);
    tr_comm_free(comm, send);
    tr_comm_free(comm, recv);
    return status;
}
