/* Measures the prices of collective/work.h: a few calls at a few sizes, whose work is known, and
 * what is left of their times after the work whose price is known already.
 *
 *   barrier             what a call and a round cost, apart from the work
 *   ring all_gather     of blocks that just fit into a packet, and just do not: what that costs
 *   a plain copy        TRI_WORK_COPY and TRI_WORK_PACK, by all ranks and by one
 *   ring all_gather     TRI_WORK_MOVE       reduce_scatter    TRI_WORK_COMBINE
 *   pairwise all_to_all TRI_WORK_PULL
 *   tree broadcast      the same by one     tree reduce       the same by one
 *   direct all_to_all, all_gather       TRI_WORK_READ, TRI_WORK_WRITE
 *   direct reduce_scatter               TRI_WORK_TERM
 *
 * All ranks take part with as many at a time as later, so that cores, caches and the memory are
 * shared as they will be. Times are means over some calls, of the ranks' the longest, and of a few
 * such samples the quickest quarter, lest a moment in which somebody else had a core shape the
 * curve; all are taken again while there is time, and the least counts. */
#include "base/samples.h"
#include "collective/work.h"
#include "comm/comm_internal.h"
#include "comm/transport/io.h"
#include "comm/tuning/tuning.h"
#include "comm/tuning/tuning_samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double settle_seconds = 0.02;

#define PIECE_BYTES ((size_t)1 << 20)

enum { MOST_SAMPLES = 5, MOST_CALLS = 200 };

/* The times that prices are made of. */
typedef struct work_times {
    int num;
    double seconds[8 + 14 * TRI_WORK_POINTS];
} work_times;

typedef struct probe {
    tr_comm *comm;
    tr_group *world, *pair; /* pair: ranks 0 and 1, NULL elsewhere */
    float *send, *recv;
    size_t room;       /* bytes of each */
    double least_room; /* of any rank's */
    int hands;         /* ranks that work at a time */
    double empty_round, pair_call, pair_round, sample_seconds;
    double begin, seconds; /* when it began, and how long it may take */
    tri_work_prices *prices;
    work_times *times; /* of an earlier pass as far as they go, of this one so far */
    int at;
} probe;

/* ---- one time ---- */

/* A call; or, where there are copiers, copies by them in its vectors. */
typedef struct task {
    tr_group *group;
    tr_collective call;
    size_t copied, chunk;
    int copiers;
} task;

static tr_status perform(tr_group *group, const void *context, tr_error *err)
{
    const task *t = context;
    if (t->copiers == 0)
        return tr_collective_run(group, &t->call, err);
    for (size_t at = 0; group->rank < t->copiers && at < t->copied; at += t->chunk)
        memcpy((char *)t->call.recv + at, (const char *)t->call.send + at,
               t->copied - at < t->chunk ? t->copied - at : t->chunk);
    return TR_OK;
}

/* All members see the same times, so they agree on how often. */
static tr_status time_task(probe *p, const task *t, double *seconds, tr_error *err)
{
    double samples[MOST_SAMPLES], first, guess;
    TRI_TRY(tri_take_sample(t->group, perform, t, 1, &first,
                            err)); /* sets up buffers, touches memory */
    TRI_TRY(tri_take_sample(t->group, perform, t, 1, &guess, err));
    double calls = p->sample_seconds / (guess > 1e-9 ? guess : 1e-9);
    int num_calls = calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
    int num = guess > 5e-4 ? 3 : MOST_SAMPLES;
    for (int i = 0; i < num; i++)
        TRI_TRY(tri_take_sample(t->group, perform, t, num_calls, &samples[i], err));
    tri_samples_sort(samples, (size_t)num);
    *seconds = samples[num / 4];
    work_times *all = p->times;
    int i = p->at++;
    if (i < all->num && all->seconds[i] < *seconds)
        *seconds = all->seconds[i];
    all->seconds[i] = *seconds;
    return TR_OK;
}

/* bytes: as tri_algorithm.cost counts them. */
static tr_status time_call(probe *p, tr_group *group, tr_operation operation, const char *algorithm,
                           double *bytes, double *seconds, tr_error *err)
{
    int n = group->size;
    double divisor = operation == TR_ALL_TO_ALL ? (double)n * n
                     : operation >= TR_GATHER   ? (double)n
                                                : 1;
    task t = {.group = group,
              .call = {.operation = operation,
                       .reduction = TR_SUM,
                       .dtype = TR_F32,
                       .send = p->send,
                       .recv = p->recv,
                       .algorithm = algorithm}};
    t.call.count = (uint64_t)(*bytes / divisor / sizeof(float));
    *bytes = (double)t.call.count * divisor * sizeof(float);
    return time_task(p, &t, seconds, err);
}

/* By all ranks and by one; in one go, or in pieces. */
static tr_status measure_copies(probe *p, int k, tri_work_kind kind, size_t chunk, tr_error *err)
{
    tri_work_prices *w = p->prices;
    int n = p->world->size;
    double seconds, bytes = floor(w->footprint[k] / (2 * n));
    task t = {.group = p->world,
              .call = {.send = p->send, .recv = p->recv},
              .copied = (size_t)bytes,
              .chunk = chunk,
              .copiers = n};
    TRI_TRY(time_task(p, &t, &seconds, err));
    w->all[kind][k] = seconds * p->hands / (n * bytes);
    t.copiers = 1;
    TRI_TRY(time_task(p, &t, &seconds, err));
    w->alone[kind][k] = seconds / bytes;
    return TR_OK;
}

/* ---- prices ---- */

/* What a core has to do because messages are cut. */
static double cut_seconds(const probe *p, double message_bytes, double messages)
{
    return message_bytes > p->prices->packet_bytes ? messages / p->hands * p->prices->cut : 0;
}

/* What is left for so many bytes; never nothing. */
static double left(double seconds, double known, double bytes)
{
    double rest = seconds - known;
    return (rest > seconds / 20 ? rest : seconds / 20) / bytes;
}

static tr_status measure_latencies(probe *p, tr_error *err)
{
    tri_work_prices *w = p->prices;
    bool shares = p->comm->transport->io == NULL;
    double none = 0, little, met, rounds = 0;
    int n = p->world->size;
    while (1 << (int)rounds < n)
        rounds++;
    w->call = 0;
    if (shares)
        TRI_TRY(time_call(p, p->world, TR_BARRIER, "direct", &none, &w->call, err));
    TRI_TRY(time_call(p, p->world, TR_BARRIER, "bruck", &none, &met, err));
    p->empty_round = left(met, w->call, rounds);
    little = 4.0 * n;
    if (n > 2) {
        TRI_TRY(time_call(p, p->world, TR_ALL_GATHER, "sharded_ps", &little, &met, err));
        double rest = met - w->call - p->empty_round;
        w->message = rest > 0 ? rest / (n - 2) : 0;
    }
    if (p->pair == NULL)
        return TR_OK;
    p->pair_call = 0;
    if (shares)
        TRI_TRY(time_call(p, p->pair, TR_BARRIER, "direct", &none, &p->pair_call, err));
    TRI_TRY(time_call(p, p->pair, TR_BARRIER, "bruck", &none, &met, err));
    p->pair_round = left(met, p->pair_call, 1);
    return TR_OK;
}

/* Connections begin with smaller ones, and grow with what they carry. */
static tr_status find_packet(probe *p, tr_error *err)
{
    const tri_io_def *io = p->comm->transport->io;
    double bytes = fmin((double)PIECE_BYTES, p->least_room), seconds;
    if (io == NULL || io->packet == NULL)
        return TR_OK;
    TRI_TRY(time_call(p, p->world, TR_ALL_GATHER, "ring", &bytes, &seconds, err));
    float own = (float)io->packet(&p->world->ports), most = 0;
    TRI_TRY(tr_all_reduce(p->world, &own, &most, 1, TR_F32, TR_MAX, err));
    p->prices->packet_bytes = (double)most;
    return TR_OK;
}

/* The same bytes but for a few, in one packet each and in two. Of tens of ranks the blocks together
 * are larger than what else is measured; what is cut is then the least of what their messages cost.
 */
static tr_status measure_cut(probe *p, tr_error *err)
{
    tri_work_prices *w = p->prices;
    int n = p->world->size;
    double some = 64, below, above, bytes;
    w->cut = 0;
    TRI_TRY(find_packet(p, err));
    if (w->packet_bytes <= 2 * some || n * (w->packet_bytes + some) > p->least_room)
        return TR_OK;
    bytes = n * (w->packet_bytes - some);
    TRI_TRY(time_call(p, p->world, TR_ALL_GATHER, "ring", &bytes, &below, err));
    bytes = n * (w->packet_bytes + some);
    TRI_TRY(time_call(p, p->world, TR_ALL_GATHER, "ring", &bytes, &above, err));
    double messages = (double)n * (n - 1) / p->hands; /* that one core has to do with */
    w->cut = above > below ? (above - below) / messages : 0;
    return TR_OK;
}

/* With more ranks than cores a round costs more than its work and an empty round's latency: the
 * next cannot begin while somebody waits for its turn. The same bytes in fewer rounds tell. */
static tr_status measure_round(probe *p, int k, double bytes, double ring, tr_error *err)
{
    tri_work_prices *w = p->prices;
    int n = p->world->size, rounds = 0;
    w->round[k] = p->empty_round;
    while (1 << rounds < n)
        rounds++;
    if (1 << rounds != n || rounds >= n - 1 || n <= p->hands)
        return TR_OK;
    double seconds;
    TRI_TRY(time_call(p, p->world, TR_ALL_GATHER, "doubling", &bytes, &seconds, err));
    ring -= cut_seconds(p, bytes / n, n * (n - 1));
    for (int i = 0; i < rounds; i++)
        seconds -= cut_seconds(p, (1 << i) * bytes / n, n);
    double round = (ring - seconds) / (n - 1 - rounds), most = (ring - w->call) / (2 * (n - 1));
    round = round > most ? most : round;
    w->round[k] = round > p->empty_round ? round : p->empty_round;
    return TR_OK;
}

static tr_status measure_together(probe *p, int k, tr_error *err)
{
    tri_work_prices *w = p->prices;
    int n = p->world->size;
    double f = w->footprint[k], seconds, bytes = f / (1 + n);
    TRI_TRY(measure_copies(p, k, TRI_WORK_COPY, p->room, err));
    TRI_TRY(measure_copies(p, k, TRI_WORK_PACK, PIECE_BYTES, err));
    double copy = w->all[TRI_WORK_COPY][k];
    TRI_TRY(time_call(p, p->world, TR_ALL_GATHER, "ring", &bytes, &seconds, err));
    TRI_TRY(measure_round(p, k, bytes, seconds, err));
    double waits = w->call + (n - 1) * w->round[k], messages = n * (n - 1);
    w->all[TRI_WORK_MOVE][k] =
        left(seconds, waits + cut_seconds(p, bytes / n, messages) + bytes * copy / p->hands,
             (n - 1) * bytes / p->hands);
    bytes = f / 2;
    TRI_TRY(time_call(p, p->world, TR_ALL_TO_ALL, "pairwise", &bytes, &seconds, err));
    w->all[TRI_WORK_PULL][k] =
        left(seconds, waits + cut_seconds(p, bytes / n / n, messages) + bytes / n * copy / p->hands,
             (n - 1) * bytes / n / p->hands);
    bytes = f / (2 * n + 1);
    TRI_TRY(time_call(p, p->world, TR_REDUCE_SCATTER, "ring", &bytes, &seconds, err));
    w->all[TRI_WORK_COMBINE][k] = left(
        seconds, waits + cut_seconds(p, bytes / n, messages) + (n + 1) * bytes * copy / p->hands,
        (n - 1) * bytes / p->hands);
    return TR_OK;
}

/* One rank at work, where memory is shared; elsewhere the two ends of a message work at once, and
 * the longer part of it shows. */
static tr_status measure_alone(probe *p, int k, tr_error *err)
{
    tri_work_prices *w = p->prices;
    double f = w->footprint[k], seconds, bytes = f / 3, waits = p->pair_call + p->pair_round;
    double copy = w->all[TRI_WORK_COPY][k], copy_alone = w->alone[TRI_WORK_COPY][k];
    for (int kind = TRI_WORK_MOVE; kind < TRI_NUM_WORK; kind++)
        w->alone[kind][k] = w->all[kind][k];
    if (p->pair == NULL)
        return TR_OK;
    TRI_TRY(time_call(p, p->pair, TR_BROADCAST, "tree", &bytes, &seconds, err));
    double cut = bytes > w->packet_bytes ? w->cut : 0;
    double one_way = left(seconds, waits + cut + bytes * copy_alone, bytes);
    if (p->comm->transport->io != NULL) {
        bytes = f / 3;
        TRI_TRY(time_call(p, p->pair, TR_ALL_GATHER, "ring", &bytes, &seconds, err));
        cut = bytes / 2 > w->packet_bytes ? w->cut : 0;
        double both = left(seconds, waits + cut + bytes / 2 * copy, bytes / 2);
        double share = 1 - one_way / both;
        w->sender += share < 0 ? 0 : share > 0.5 ? 0.5 : share;
        return TR_OK;
    }
    w->alone[TRI_WORK_MOVE][k] = one_way;
    bytes = f / 4;
    TRI_TRY(time_call(p, p->pair, TR_REDUCE, "tree", &bytes, &seconds, err));
    w->alone[TRI_WORK_COMBINE][k] = left(seconds, waits + bytes * copy, bytes);
    return TR_OK;
}

/* An all_to_all reads and writes every byte once, an all_gather writes it to each rank. */
static tr_status measure_direct(probe *p, int k, tr_error *err)
{
    static const tr_operation operations[] = {TR_ALL_TO_ALL, TR_ALL_GATHER, TR_REDUCE_SCATTER};
    tri_work_prices *w = p->prices;
    int n = p->world->size;
    double f = w->footprint[k], each[3], bytes, seconds;
    for (int i = 0; i < 3; i++) {
        bytes = i == 0 ? f / 2 : f / (1 + n);
        TRI_TRY(time_call(p, p->world, operations[i], "direct", &bytes, &seconds, err));
        each[i] = left(seconds, 2 * w->call, bytes / p->hands);
    }
    double write = (each[1] - each[0]) / (n - 1), most = 0.9 * each[0];
    write = write > most ? most : write < each[0] / 10 ? each[0] / 10 : write;
    w->all[TRI_WORK_WRITE][k] = write;
    w->all[TRI_WORK_READ][k] = each[0] - write;
    w->all[TRI_WORK_TERM][k] = left(each[2], write, n);
    for (int kind = TRI_WORK_READ; kind < TRI_NUM_WORK; kind++)
        w->alone[kind][k] = w->all[kind][k];
    return TR_OK;
}

/* Since the beginning; the same on all ranks. */
static tr_status time_spent(probe *p, double *seconds, tr_error *err)
{
    float own = (float)(tri_now_s() - p->begin), most = 0;
    TRI_TRY(tr_all_reduce(p->world, &own, &most, 1, TR_F32, TR_MAX, err));
    *seconds = (double)most;
    return TR_OK;
}

/* On a busy machine the first pass leaves large footprints out: their prices are then those of the
 * largest that was measured. */
static tr_status measure_all(probe *p, tr_error *err)
{
    tri_work_prices *w = p->prices;
    double spent = 0;
    w->sender = 0;
    TRI_TRY(measure_latencies(p, err));
    TRI_TRY(measure_cut(p, err));
    for (int k = 0; k < w->num_points; k++) {
        TRI_TRY(measure_together(p, k, err));
        TRI_TRY(measure_alone(p, k, err));
        if (p->comm->transport->io == NULL)
            TRI_TRY(measure_direct(p, k, err));
        TRI_TRY(time_spent(p, &spent, err));
        if (p->times->num == 0 && spent > p->seconds / 2)
            w->num_points = k + 1;
    }
    w->sender /= w->num_points;
    return TR_OK;
}

/* Ranks that were just started may be on one core, until the system moves them apart. */
static tr_status settle(probe *p, tr_error *err)
{
    double begin = tri_now_s();
    float own, most = 0;
    while ((double)most < settle_seconds) {
        for (int i = 0; i < 20; i++)
            TRI_TRY(tr_barrier(p->world, err));
        own = (float)(tri_now_s() - begin);
        TRI_TRY(tr_all_reduce(p->world, &own, &most, 1, TR_F32, TR_MAX, err));
    }
    return TR_OK;
}

static tr_status measure_pass(probe *p, tr_error *err)
{
    p->at = 0;
    if (p->times->num == 0)
        TRI_TRY(settle(p, err));
    TRI_TRY(measure_all(p, err));
    p->times->num = p->at;
    return TR_OK;
}

/* As often as there is time for another like the first, and at least once. */
static tr_status measure_passes(probe *p, tr_error *err)
{
    double first = 0, spent = 0;
    p->begin = tri_now_s();
    while (spent + first <= p->seconds) {
        TRI_TRY(measure_pass(p, err));
        TRI_TRY(time_spent(p, &spent, err));
        first = first > 0 ? first : spent;
    }
    return TR_OK;
}

tr_status tri_work_measure(tri_comm *comm, double seconds, tri_work_prices *prices, tr_error *err)
{
    static const double footprints[TRI_WORK_POINTS] = {256 << 10, 1 << 20, 4 << 20, 16 << 20,
                                                       64 << 20};
    int n = comm->boot.size, two[2] = {0, 1}, num = TRI_WORK_POINTS;
    work_times times = {0};
    probe p = {
        .comm = comm, .world = comm->world, .prices = prices, .times = &times, .seconds = seconds};
    *prices = (tri_work_prices){.num_points = num,
                                .num_cores = comm->num_cores > 0 ? comm->num_cores : 1};
    memcpy(prices->footprint, footprints, sizeof footprints);
    p.hands = n < prices->num_cores ? n : prices->num_cores;
    p.sample_seconds =
        n > prices->num_cores ? 2e-3 : 5e-4; /* turns of the scheduler take their time */
    p.least_room = floor(footprints[num - 1] / (1 + n));
    p.room = (size_t)(comm->boot.rank < 2 ? footprints[num - 1] / 3 : p.least_room) + 4096;
    void *send = NULL, *recv = NULL;
    tr_status status = tr_comm_alloc(comm, p.room, &send, err);
    if (status == TR_OK)
        status = tr_comm_alloc(comm, p.room, &recv, err);
    if (status == TR_OK && comm->boot.rank < 2)
        status = tr_group_create(comm, "measuring", two, 2, &p.pair, err);
    p.send = send;
    p.recv = recv;
    if (status == TR_OK) {
        memset(send, 0, p.room);
        memset(recv, 0, p.room);
        status = measure_passes(&p, err);
    }
    if (p.pair != NULL)
        tr_group_destroy(p.pair);
    tr_comm_free(comm, send);
    tr_comm_free(comm, recv);
    return status;
}
