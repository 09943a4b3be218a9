#include "train/health/survey.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/health/links.h"

enum {
    SHORT_BYTES = 8,
    SHORT_TRIPS = 50,
    ACK_BYTES = 8,
    FIRST_BYTES = 256 << 10, /* of long messages; more where they are fast */
    LONG_BYTES = 16 << 20,
    MOST_MESSAGES = 64,
    MOST_PAIRS = 8, /* of a node, that are tried one by one */
};

/* Of a try, and of how many latencies at least, so that the rate is the link's. */
static const double try_s = 0.02, try_latencies = 20;

/* What a rank does in a pattern; -1: nothing. */
typedef struct duty {
    int to, from;
} duty;

typedef struct tour {
    tri_links links;
    int rank, size;
    int nodes, per, node, place; /* this rank's, and its place among those of the node */
    int *at;                     /* [nodes][per]: ranks, node by node */
    double *seconds;             /* [ranks]: of a try; 0: it sent nothing */
    double *samples;
    size_t num_samples;
} tour;

/* ---- who is where ---- */

static tr_status uneven(const tri_comm *comm, const int *count, tr_error *err)
{
    int first = tri_comm_machine(comm, 0), other = 0;
    while (other < tr_comm_size(comm) && (count[other] == 0 || count[other] == count[first]))
        other++;
    return tri_fail(err, TR_ERROR_INPUT,
                    "the machine of rank %d has %d ranks and that of rank %d has %d, but nodes of "
                    "a cluster are alike; start equally many on each",
                    first, count[first], other, count[other]);
}

/* Machines in the order of their first ranks. */
static tr_status find_places(tour *t, const tri_comm *comm, tr_error *err)
{
    int *count = calloc((size_t)t->size, sizeof *count), filled = 0;
    if (!count)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", t->size);
    for (int r = 0; r < t->size; r++)
        count[tri_comm_machine(comm, r)]++;
    t->per = count[tri_comm_machine(comm, 0)];
    tr_status status = TR_OK;
    for (int m = 0; m < t->size && status == TR_OK; m++) {
        if (count[m] == 0)
            continue;
        if (count[m] != t->per) {
            status = uneven(comm, count, err);
            break;
        }
        for (int r = m; r < t->size; r++) {
            if (tri_comm_machine(comm, r) != m)
                continue;
            if (r == t->rank) {
                t->node = t->nodes;
                t->place = filled % t->per;
            }
            t->at[filled++] = r;
        }
        t->nodes++;
    }
    free(count);
    return status;
}

static int rank_at(const tour *t, int node, int place)
{
    return t->at[node * t->per + place];
}

/* ---- patterns ---- */

static duty neighbours(const tour *t, int pair)
{
    int next = (pair + 1) % t->per;
    return (duty){.to = t->place == pair ? rank_at(t, t->node, next) : -1,
                  .from = t->place == next ? rank_at(t, t->node, pair) : -1};
}

/* From each node to its counterpart `distance` on, of those of the first `nodes`: from one end
 * only, since links carry both ways at once. */
static duty across(const tour *t, int distance, int nodes, int places)
{
    int other = t->node ^ distance;
    duty none = {-1, -1};
    if (t->node >= nodes || other >= nodes || t->place >= places)
        return none;
    int peer = rank_at(t, other, t->place);
    return t->node < other ? (duty){.to = peer, .from = -1} : (duty){.to = -1, .from = peer};
}

/* ---- tries ---- */

static tr_status share(tour *t, double own, tr_error *err)
{
    return tr_all_gather(tr_comm_world(t->links.comm), &own, t->seconds, sizeof own, TR_U8, err);
}

/* There and back. */
static tr_status trip(tour *t, duty p, tr_error *err)
{
    if (p.to >= 0)
        TRI_TRY(tri_links_pass(&t->links, p.to, -1, SHORT_BYTES, err));
    if (p.from >= 0) {
        TRI_TRY(tri_links_pass(&t->links, -1, p.from, SHORT_BYTES, err));
        return tri_links_pass(&t->links, p.from, -1, SHORT_BYTES, err);
    }
    return p.to >= 0 ? tri_links_pass(&t->links, -1, p.to, SHORT_BYTES, err) : TR_OK;
}

static tr_status try_short(tour *t, duty p, tr_error *err)
{
    TRI_TRY(tr_barrier(tr_comm_world(t->links.comm), err));
    TRI_TRY(trip(t, p, err)); /* both are there */
    TRI_TRY(tri_links_settle(&t->links, err));
    double begin = tri_now_s();
    for (int i = 0; i < SHORT_TRIPS; i++)
        TRI_TRY(trip(t, p, err));
    TRI_TRY(tri_links_settle(&t->links, err));
    return share(t, p.to >= 0 ? (tri_now_s() - begin) / SHORT_TRIPS / 2 : 0, err);
}

/* Where messages go one way, the last one is acknowledged. */
static tr_status try_long(tour *t, duty p, size_t bytes, int messages, tr_error *err)
{
    TRI_TRY(tr_barrier(tr_comm_world(t->links.comm), err));
    double begin = tri_now_s();
    for (int i = 0; i < messages; i++)
        TRI_TRY(tri_links_pass(&t->links, p.to, p.from, bytes, err));
    if (p.to >= 0 && p.from < 0)
        TRI_TRY(tri_links_pass(&t->links, -1, p.to, ACK_BYTES, err));
    if (p.from >= 0 && p.to < 0)
        TRI_TRY(tri_links_pass(&t->links, p.from, -1, ACK_BYTES, err));
    TRI_TRY(tri_links_settle(&t->links, err));
    return share(t, p.to >= 0 ? tri_now_s() - begin : 0, err);
}

/* Every node by itself, all nodes at once. */
static tr_status try_gather(tour *t, int calls, tr_error *err)
{
    TRI_TRY(tr_barrier(tr_comm_world(t->links.comm), err));
    double begin = tri_now_s();
    for (int i = 0; i < calls; i++)
        TRI_TRY(tri_links_gather(&t->links, LONG_BYTES / (size_t)t->per, err));
    TRI_TRY(tri_links_settle(&t->links, err));
    return share(t, (tri_now_s() - begin) / calls, err);
}

static double slowest(const tour *t)
{
    double most = 0;
    for (int r = 0; r < t->size; r++)
        most = t->seconds[r] > most ? t->seconds[r] : most;
    return most;
}

/* All ranks see the same seconds, and so come to the same sizes. */
static tr_status choose_sizes(tour *t, duty p, double latency, size_t *bytes, int *messages,
                              tr_error *err)
{
    double target = latency * try_latencies > try_s ? latency * try_latencies : try_s;
    *bytes = FIRST_BYTES;
    *messages = 2;
    TRI_TRY(try_long(t, p, *bytes, *messages, err)); /* to get warm */
    for (;;) {
        TRI_TRY(try_long(t, p, *bytes, *messages, err));
        if (slowest(t) >= target / 2 || *messages == MOST_MESSAGES)
            return TR_OK;
        if (*bytes < LONG_BYTES)
            *bytes *= 2;
        else
            *messages *= 2;
    }
}

static void keep(tour *t, double sample)
{
    t->samples[t->num_samples++] = sample;
}

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of the samples that were kept, which are then forgotten. */
static double median(tour *t)
{
    size_t num = t->num_samples;
    t->num_samples = 0;
    qsort(t->samples, num, sizeof *t->samples, by_size);
    return (t->samples[(num - 1) / 2] + t->samples[num / 2]) / 2;
}

static tr_status sample_latency(tour *t, duty p, tr_error *err)
{
    for (int i = 0; i < TRI_SURVEY_TRIES; i++) {
        TRI_TRY(try_short(t, p, err));
        for (int r = 0; r < t->size; r++)
            if (t->seconds[r] > 0)
                keep(t, t->seconds[r]);
    }
    return TR_OK;
}

/* Bytes a second without the latency, unless nothing but latency was seen. */
static double rate_of(double bytes, double seconds, double latencies)
{
    double net = seconds - latencies;
    return bytes / (net > seconds / 2 ? net : seconds);
}

/* Keeps the rates of all that send; together: one of all of them, by the last to be done. */
static tr_status sample_rate(tour *t, duty p, double latency, bool together, tr_error *err)
{
    size_t bytes;
    int messages;
    TRI_TRY(choose_sizes(t, p, latency, &bytes, &messages, err));
    for (int i = 0; i < TRI_SURVEY_TRIES; i++) {
        TRI_TRY(try_long(t, p, bytes, messages, err));
        double each = (double)bytes * messages, latencies = (messages + 1) * latency;
        int senders = 0;
        for (int r = 0; r < t->size; r++) {
            senders += t->seconds[r] > 0;
            if (t->seconds[r] > 0 && !together)
                keep(t, rate_of(each, t->seconds[r], latencies));
        }
        if (together)
            keep(t, rate_of(each * senders, slowest(t), latencies));
    }
    return TR_OK;
}

/* What a device sends to others of the node, as rings do. */
static tr_status sample_gather(tour *t, tr_error *err)
{
    double sent = (double)(LONG_BYTES / (size_t)t->per) * (t->per - 1);
    TRI_TRY(try_gather(t, 1, err)); /* to get warm */
    TRI_TRY(try_gather(t, 1, err));
    double calls = try_s / slowest(t);
    int num = calls < 1 ? 1 : calls > MOST_MESSAGES ? MOST_MESSAGES : (int)calls;
    for (int i = 0; i < TRI_SURVEY_TRIES; i++) {
        TRI_TRY(try_gather(t, num, err));
        for (int r = 0; r < t->size; r++)
            keep(t, sent / t->seconds[r]);
    }
    return TR_OK;
}

/* ---- all of it ---- */

/* A rank that is alone on its node sends nothing there; some figure a file must have. */
static double copy_rate(tour *t)
{
    for (int i = 0; i < TRI_SURVEY_TRIES; i++) {
        double begin = tri_now_s();
        memcpy(t->links.recv, t->links.send, LONG_BYTES);
        keep(t, LONG_BYTES / (tri_now_s() - begin));
    }
    return median(t);
}

static tr_status measure_node(tour *t, tri_cluster_found *found, tr_error *err)
{
    int pairs = t->per == 2 ? 1 : t->per < MOST_PAIRS ? t->per : MOST_PAIRS;
    if (t->per == 1) {
        TRI_TRY(share(t, copy_rate(t), err)); /* every rank needs the same */
        found->node_bytes_per_s = t->seconds[0];
        return TR_OK;
    }
    for (int i = 0; i < pairs; i++)
        TRI_TRY(sample_latency(t, neighbours(t, i), err));
    found->latency_s = median(t);
    for (int i = 0; i < pairs; i++)
        TRI_TRY(sample_rate(t, neighbours(t, i), found->latency_s, false, err));
    found->pair_bytes_per_s = median(t);
    TRI_TRY(sample_gather(t, err));
    found->node_bytes_per_s = median(t);
    return TR_OK;
}

static tr_status measure_network(tour *t, tri_cluster_found *found, tr_error *err)
{
    if (t->nodes == 1)
        return TR_OK;
    TRI_TRY(sample_latency(t, across(t, 1, 2, 1), err));
    double latency = found->cross_latency_s = median(t);
    TRI_TRY(sample_rate(t, across(t, 1, 2, 1), latency, true, err));
    found->cross_bytes_per_s = found->cross_pair_bytes_per_s = median(t);
    if (t->per > 1) {
        TRI_TRY(sample_rate(t, across(t, 1, 2, t->per), latency, true, err));
        found->cross_bytes_per_s = median(t);
    }
    for (int d = 1; t->nodes > 2 && d < t->nodes; d *= 2) {
        int senders = 0;
        for (int n = 0; n < t->nodes; n++)
            senders += n < (n ^ d) && (n ^ d) < t->nodes;
        TRI_TRY(sample_rate(t, across(t, d, t->nodes, t->per), latency, true, err));
        found->distance_bytes_per_s[found->num_distances++] = median(t) / senders;
    }
    return TR_OK;
}

/* The machines' names, as many as there is room for. */
static tr_status name_hosts(tour *t, tri_survey *survey, tr_error *err)
{
    enum { NAME = 64 };
    char own[NAME] = "", *all = calloc((size_t)t->size, NAME);
    size_t used = 0, size = sizeof survey->hosts;
    gethostname(own, sizeof own - 1);
    tr_status status = all ? tr_all_gather(tr_comm_world(t->links.comm), own, all, NAME, TR_U8, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", t->size);
    for (int n = 0; n < t->nodes && status == TR_OK; n++) {
        const char *name = all + (size_t)rank_at(t, n, 0) * NAME;
        if (used + NAME + 32 > size) {
            snprintf(survey->hosts + used, size - used, " and %d more", t->nodes - n);
            break;
        }
        used += (size_t)snprintf(survey->hosts + used, size - used, "%s%.63s", n ? ", " : "", name);
    }
    free(all);
    return status;
}

static void describe(const tour *t, const tri_device *device, tri_survey *survey)
{
    const char *transport = t->links.nccl ? "nccl" : tr_comm_transport(t->links.comm);
    survey->found.nodes = (uint32_t)t->nodes;
    survey->found.devices_per_node = (uint32_t)t->per;
    survey->num_ranks = t->size;
    survey->by_host = device->def->queue && !t->links.nccl;
    snprintf(survey->transport, sizeof survey->transport, "%s", transport);
    snprintf(survey->device, sizeof survey->device, "%s", device->description);
    for (int i = 0; i < t->size; i++)
        survey->scattered |= t->at[i] != i;
}

static tr_status take(tour *t, tri_device *device, const tri_nccl_api *api, tri_survey *survey,
                      tr_error *err)
{
    tri_comm *comm = t->links.comm;
    size_t room = (size_t)t->size * TRI_SURVEY_TRIES * MOST_PAIRS;
    t->at = calloc((size_t)t->size, sizeof *t->at);
    t->seconds = calloc((size_t)t->size, sizeof *t->seconds);
    t->samples = calloc(room, sizeof *t->samples);
    if (!t->at || !t->seconds || !t->samples)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", t->size);
    TRI_TRY(find_places(t, comm, err));
    tri_links_config config = {comm, device, api, t->at + t->node * t->per, t->per, LONG_BYTES};
    TRI_TRY(tri_links_open(&t->links, &config, err));
    describe(t, device, survey);
    TRI_TRY(name_hosts(t, survey, err));
    TRI_TRY(measure_node(t, &survey->found, err));
    return measure_network(t, &survey->found, err);
}

tr_status tri_survey_take(tri_comm *comm, tri_device *device, const tri_nccl_api *api,
                          tri_survey *survey, tr_error *err)
{
    tour t = {.links = {.comm = comm}, .rank = tr_comm_rank(comm), .size = tr_comm_size(comm)};
    double begin = tri_now_s();
    *survey = (tri_survey){0};
    tr_status status = take(&t, device, api, survey, err);
    survey->seconds = tri_now_s() - begin;
    tri_links_close(&t.links);
    free(t.at);
    free(t.seconds);
    free(t.samples);
    return status;
}
