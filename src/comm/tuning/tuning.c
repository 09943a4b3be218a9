#include "comm/tuning/tuning.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/samples.h"
#include "comm/comm_internal.h"
#include "comm/reduce.h"

/* For the prices of work when a run starts, which should not begin much later because of them. */
static const double start_seconds = 0.6;

enum { NUM_SMALL = 31, NUM_LARGE = 7, LARGE_FLOATS = 1 << 18, MOST_WORKERS = 64 };

void tri_comm_read_tuning(const tri_comm *comm, tri_tuning *tuning)
{
    *tuning = *comm->tuning;
}

void tri_comm_set_tuning(tri_comm *comm, const tri_tuning *tuning)
{
    *comm->tuning = *tuning;
    for (tr_group *g = comm->groups; g != NULL; g = g->next)
        memset(g->choices, 0, sizeof g->choices);
}

/* Of ordinary machines and networks; only their proportions matter. */
void tri_tuning_guess(const tr_comm *comm, tri_tuning *tuning)
{
    bool shares = comm->transport->io == NULL, tcp = strcmp(comm->transport->name, "tcp") == 0;
    *tuning = (tri_tuning){.num_ranks = comm->boot.size, .num_machines = 1};
    snprintf(tuning->transport, sizeof tuning->transport, "%s", comm->transport->name);
    tuning->near = (tri_coll_prices){shares ? 1e-6 : tcp ? 20e-6 : 2e-6, 1 / 4e9, 1 / 8e9};
    tuning->far = (tri_coll_prices){tcp ? 50e-6 : 3e-6, 1 / 1.2e9, 1 / 8e9};
    tuning->shared = tuning->near;
    for (int i = 1; comm->machine != NULL && i < comm->boot.size; i++)
        tuning->num_machines += comm->machine[i] == i;
    if (tuning->num_machines == 1)
        tuning->far = tuning->near;
    if (tuning->num_machines == tuning->num_ranks)
        tuning->near = tuning->far;
}

/* ---- measuring ---- */

/* The median time of a call among two. */
static tr_status time_call(tr_group *pair, const tr_collective *call, int num, double *seconds,
                           tr_error *err)
{
    double times[NUM_SMALL];
    for (int i = -1; i < num; i++) { /* the first sets up buffers */
        double begin = tri_now_s();
        TRI_TRY(tr_collective_run(pair, call, err));
        if (i >= 0)
            times[i] = tri_now_s() - begin;
    }
    tri_samples_sort(times, (size_t)num);
    *seconds = times[num / 2];
    return TR_OK;
}

/* One round each: a message that says nothing, and a large one in both directions at once. */
static tr_status measure_pair(tr_group *pair, const char *algorithm, float *send, float *recv,
                              tri_coll_prices *prices, tr_error *err)
{
    tr_collective nothing = {.operation = TR_BARRIER, .algorithm = algorithm};
    tr_collective large = {.operation = TR_ALL_GATHER,
                           .send = send,
                           .recv = recv,
                           .count = LARGE_FLOATS,
                           .algorithm = algorithm};
    double alpha, both;
    TRI_TRY(time_call(pair, &nothing, NUM_SMALL, &alpha, err));
    TRI_TRY(time_call(pair, &large, NUM_LARGE, &both, err));
    double bytes = LARGE_FLOATS * sizeof(float);
    prices->alpha = alpha;
    prices->beta = both > alpha ? (both - alpha) / bytes : both / bytes;
    return TR_OK;
}

static double measure_combine(float *into, const float *from)
{
    double times[NUM_LARGE];
    for (int i = 0; i < NUM_LARGE; i++) {
        double begin = tri_now_s();
        tri_combine(TRI_F32, TRI_REDUCE_SUM, into, from, LARGE_FLOATS);
        times[i] = tri_now_s() - begin;
    }
    tri_samples_sort(times, NUM_LARGE);
    return times[NUM_LARGE / 2] / (LARGE_FLOATS * sizeof(float));
}

/* The first rank of rank 0's machine, or not of it; -1: there is none. */
static int partner(const tr_comm *comm, bool same_machine)
{
    for (int i = 1; i < comm->boot.size; i++) {
        bool same = comm->machine == NULL || comm->machine[i] == comm->machine[0];
        if (same == same_machine)
            return i;
    }
    return -1;
}

static tr_status measure_with(tri_comm *comm, int other, const char *algorithm, float *send,
                              float *recv, tri_coll_prices *prices, tr_error *err)
{
    int members[2] = {0, other}, rank = comm->boot.rank;
    tr_group *pair;
    if (other < 0 || (rank != 0 && rank != other))
        return TR_OK;
    TRI_TRY(tr_group_create(comm, "measuring", members, 2, &pair, err));
    tr_status status = measure_pair(pair, algorithm, send, recv, prices, err);
    tr_group_destroy(pair);
    return status;
}

static tr_status tell(tri_comm *comm, tri_tuning *tuning, tr_error *err)
{
    tr_collective call = {.operation = TR_BROADCAST,
                          .dtype = TR_U8,
                          .send = tuning,
                          .recv = tuning,
                          .count = sizeof *tuning,
                          .algorithm = "tree"};
    return tr_collective_run(comm->world, &call, err);
}

tr_status tri_tuning_measure(tri_comm *comm, const tri_call_sizes *sizes, tri_tuning *tuning,
                             tr_error *err)
{
    void *send = NULL, *recv = NULL;
    int near = partner(comm, true), far = partner(comm, false);
    bool shares = comm->transport->io == NULL;
    tri_tuning_guess(comm, tuning);
    if (comm->boot.size < 2)
        return TR_OK;
    tr_status status = tr_comm_alloc(comm, LARGE_FLOATS * sizeof(float), &send, err);
    if (status == TR_OK)
        status = tr_comm_alloc(comm, 2 * LARGE_FLOATS * sizeof(float), &recv, err);
    if (status == TR_OK)
        status = measure_with(comm, near, "doubling", send, recv, &tuning->near, err);
    if (status == TR_OK)
        status = measure_with(comm, far, "doubling", send, recv, &tuning->far, err);
    if (status == TR_OK && shares)
        status = measure_with(comm, near, "direct", send, recv, &tuning->shared, err);
    if (status == TR_OK && tuning->num_machines == 1 && comm->boot.size <= MOST_WORKERS)
        status = tri_work_measure(comm, start_seconds, &tuning->work, err);
    if (status == TR_OK) {
        double gamma = measure_combine(recv, send);
        if (near < 0)
            tuning->near = tuning->far;
        if (far < 0)
            tuning->far = tuning->near;
        if (!shares)
            tuning->shared = tuning->near;
        tuning->near.gamma = tuning->far.gamma = tuning->shared.gamma = gamma;
        tuning->measured = true;
        status = tell(comm, tuning, err);
    }
    if (status == TR_OK && tuning->work.num_points > 0 && !shares)
        status = tri_factors_measure(comm, sizes, tuning, err);
    tr_comm_free(comm, send);
    tr_comm_free(comm, recv);
    return status;
}

tr_status tri_tuning_reprice(tri_comm *comm, double seconds, tri_tuning *tuning, tr_error *err)
{
    tuning->factors = (tri_factors){0};
    if (tuning->work.num_points == 0)
        return TR_OK;
    TRI_TRY(tri_work_measure(comm, seconds, &tuning->work, err));
    return tell(comm, tuning, err);
}

/* Those of any rank. */
static tr_status agree_on_sizes(tri_comm *comm, tri_call_sizes *sizes, tr_error *err)
{
    enum { NUM = TRI_NUM_COLLS * TRI_FACTOR_POINTS };
    float own[NUM], any[NUM] = {0};
    tr_collective call = {.operation = TR_ALL_REDUCE,
                          .reduction = TR_MAX,
                          .dtype = TR_F32,
                          .send = own,
                          .recv = any,
                          .count = NUM,
                          .algorithm = "tree"};
    for (int i = 0; i < NUM; i++)
        own[i] = (float)(sizes->of[i / TRI_FACTOR_POINTS] >> i % TRI_FACTOR_POINTS & 1);
    TRI_TRY(tr_collective_run(comm->world, &call, err));
    for (int i = 0; i < NUM; i++)
        sizes->of[i / TRI_FACTOR_POINTS] |= (uint32_t)any[i] << i % TRI_FACTOR_POINTS;
    return TR_OK;
}

/* What was measured stays, for the sake of the bits; sizes that are new are added. */
static tr_status complete(tri_comm *comm, const tri_call_sizes *sizes, tri_tuning *tuning,
                          tr_error *err)
{
    if (!tuning->measured)
        return tri_tuning_measure(comm, sizes, tuning, err);
    return tri_factors_measure(comm, sizes, tuning, err);
}

/* What measuring took, which no plan of memory knows: the world keeps room for the largest of its
 * calls, though those of a run are of other groups, and the C library keeps what is freed. */
static void give_back(tri_comm *comm)
{
    tri_rounds_forget(comm->world);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

tr_status tri_comm_tune(tri_comm *comm, const char *path, const tri_call_sizes *sizes,
                        tri_measuring_fn measuring, tr_error *err)
{
    tri_tuning tuning;
    tri_call_sizes all = *sizes;
    tri_comm_read_tuning(comm, &tuning);
    if (comm->transport->io == NULL || comm->boot.size < 2)
        return TR_OK;
    bool found = false;
    TRI_TRY(agree_on_sizes(comm, &all, err));
    if (comm->boot.rank == 0 && path != NULL)
        TRI_TRY(tri_tuning_load(path, &tuning, &found, err));
    tuning.measured = found;
    TRI_TRY(tell(comm, &tuning, err));
    /* Calls between several machines are not tried. */
    if (!tuning.measured ||
        (tuning.work.num_points > 0 && !tri_factors_cover(&tuning.factors, &all))) {
        if (comm->boot.rank == 0 && measuring != NULL)
            measuring(path);
        TRI_TRY(complete(comm, &all, &tuning, err));
        if (comm->boot.rank == 0 && path != NULL)
            TRI_TRY(tri_tuning_save(path, &tuning, err));
        give_back(comm);
    }
    tri_comm_set_tuning(comm, &tuning);
    return TR_OK;
}
