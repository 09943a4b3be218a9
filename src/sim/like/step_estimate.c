#include "sim/like/step_estimate.h"

#include <math.h>

#include "sim/link_cost.h"

typedef struct estimate {
    const tri_run_sizes *run;
    const tri_software *w;
    const tri_device_profile *p;
    const tri_cluster *cluster;
    tri_link_terms terms;
    double tokens; /* of a micro-batch on a rank */
} estimate;

/* A layer on a rank, one micro-batch. */
typedef struct layer_time {
    tri_op_time forward, backward;
    double again;    /* seconds of the forward that the backward computes again */
    double sums;     /* over tp, of a forward, as far as they show */
    double elements; /* parameters */
} layer_time;

static tri_rank_group strided(double size, double stride)
{
    return (tri_rank_group){.size = (uint32_t)size,
                            .num_levels = 1,
                            .level = {{.size = (uint32_t)size, .stride = (uint32_t)stride}}};
}

static double collective(const estimate *e, tri_coll coll, double bytes, double size, double stride)
{
    const tri_rank_group group = strided(size, stride);
    return tri_link_collective(e->cluster, &group, coll, bytes, &e->terms);
}

static void add_work(tri_op_time *sum, tri_op_time more)
{
    sum->seconds += more.seconds;
    sum->kernels += more.kernels;
}

enum { NUM_LINEARS = 4 };
static void list_linears(const estimate *e, tri_linear_size *linears)
{
    const tri_run_sizes *r = e->run;
    double q = r->hidden / r->tp, kv = r->kv_heads * r->hidden / r->heads / r->tp;
    double up = (r->gated ? 2 : 1) * r->ffn / r->tp;
    const double sizes[NUM_LINEARS][2] = {
        {q + 2 * kv, r->hidden}, {r->hidden, q}, {up, r->hidden}, {r->hidden, r->ffn / r->tp}};
    for (int i = 0; i < NUM_LINEARS; i++)
        linears[i] = (tri_linear_size){.tokens = e->tokens,
                                       .outputs = sizes[i][0],
                                       .inputs = sizes[i][1],
                                       .rate = r->bits8 ? TRI_RATE_FP8 : TRI_RATE_16,
                                       .bias = !r->gated};
}

/* All of a layer but its products and attention. */
static tri_op_time other_work(const estimate *e, bool backward)
{
    const tri_run_sizes *r = e->run;
    double stream = e->tokens / (r->sequence_parallel ? r->tp : 1) * r->hidden;
    double inner = e->tokens * r->ffn / r->tp;
    tri_op_time sum = {0};
    for (int i = 0; i < 2; i++)
        add_work(&sum, tri_software_norm(e->w, e->p, stream, r->gated, backward));
    add_work(&sum, tri_software_activation(e->w, e->p, inner, r->gated, backward));
    add_work(&sum, tri_software_head_moves(e->w, e->p, e->tokens * r->hidden / r->tp, backward));
    return sum;
}

static double sums_over_tp(const estimate *e)
{
    const tri_run_sizes *r = e->run;
    double bytes = 2 * e->tokens * r->hidden;
    double one = collective(e, TRI_COLL_ALL_REDUCE, bytes, r->tp, 1);
    one += r->tp > 1 ? e->w->wait_s : 0;
    return 2 * one * (1 - (r->sequence_parallel ? e->w->tp_hides : 0));
}

static layer_time time_layer(const estimate *e)
{
    const tri_run_sizes *r = e->run;
    const tri_core_size core = {.rows = r->micro_batch,
                                .tokens = r->seq,
                                .heads = r->heads / r->tp,
                                .width = r->hidden / r->heads,
                                .ranks = r->cp};
    tri_linear_size linears[NUM_LINEARS];
    list_linears(e, linears);
    layer_time t = {.forward = other_work(e, false), .backward = other_work(e, true)};
    tri_op_time attention = tri_software_attention(e->w, e->p, &core, false), last = {0};
    add_work(&t.forward, attention);
    add_work(&t.backward, tri_software_attention(e->w, e->p, &core, true));
    for (int i = 0; i < NUM_LINEARS; i++) {
        double weights = linears[i].outputs * linears[i].inputs;
        last = tri_software_linear(e->w, e->p, &linears[i], false);
        add_work(&t.forward, last);
        add_work(&t.backward, tri_software_linear(e->w, e->p, &linears[i], true));
        add_work(&t.backward, tri_software_accumulate(e->w, e->p, weights));
        t.elements += weights;
    }
    t.elements += 4 * r->hidden;
    bool again = r->recompute == TRI_RUN_FULL && !e->w->never_again;
    if (again)
        t.again = t.forward.seconds - (e->w->stops_early ? last.seconds : 0);
    else if (r->recompute == TRI_RUN_SELECTIVE && !e->w->never_again)
        t.again = attention.seconds;
    t.backward.kernels += again ? t.forward.kernels : 0;
    t.sums = sums_over_tp(e);
    return t;
}

/* Columns of the table of the vocabulary on a rank, in multiples of 128. */
static double vocabulary_part(const tri_run_sizes *r)
{
    return ceil(r->vocab / (128 * r->tp)) * 128;
}

static double head_seconds(const estimate *e)
{
    const tri_run_sizes *r = e->run;
    const tri_linear_size head = {.tokens = e->tokens,
                                  .outputs = vocabulary_part(r),
                                  .inputs = r->hidden,
                                  .rate = TRI_RATE_16};
    double logits = e->tokens * head.outputs, seconds = 0;
    for (int back = 0; back < 2; back++)
        seconds += tri_software_linear(e->w, e->p, &head, back).seconds +
                   tri_software_loss(e->w, e->p, logits, back).seconds;
    double weights = head.outputs * head.inputs;
    return seconds + tri_software_accumulate(e->w, e->p, weights).seconds;
}

static double num_nodes(const estimate *e)
{
    const tri_run_sizes *r = e->run;
    return r->tp * r->pp * r->dp * r->cp / e->cluster->devices_per_node;
}

/* Of a step, whatever its size; more where more nodes wait for each other. */
static double fixed_seconds(const estimate *e)
{
    return e->w->step_s + e->w->spread_s * log2(fmax(1, num_nodes(e)));
}

/* Every layer's weights are gathered before its forward and (zero 3) its backward, and its
 * gradients scattered, beside the computation. */
static void fully_sharded(const estimate *e, const layer_time *layer, double table, double embed,
                          tri_step_estimate *s)
{
    const tri_run_sizes *r = e->run;
    double gather = collective(e, TRI_COLL_ALL_GATHER, 2 * layer->elements, r->dp, 1);
    double scatter =
        collective(e, TRI_COLL_REDUCE_SCATTER, e->w->gradient * layer->elements, r->dp, 1);
    double tables = collective(e, TRI_COLL_ALL_GATHER, 2 * table, r->dp, 1);
    double back = scatter + (r->zero >= 3 ? gather : 0);
    s->forward = fmax(s->forward, gather) + e->w->shown * fmin(s->forward, gather);
    s->backward = fmax(s->backward, back) + e->w->shown * fmin(s->backward, back);
    double micro = r->layers * (s->forward + s->backward) + s->head + 2 * embed + gather + scatter +
                   tables * (1 + e->w->gradient / 2);
    double parameters = (r->layers * layer->elements + table) / r->dp;
    s->compute = r->micro_batches * micro;
    s->update = tri_software_update(e->w, e->p, parameters).seconds + fixed_seconds(e);
    s->step = s->compute + s->update;
}

/* Of one message between stages, what is waited for. */
static double border_seconds(const estimate *e)
{
    const tri_run_sizes *r = e->run;
    if (r->pp <= 1)
        return 0;
    bool parts = r->sequence_parallel || e->w->scatters;
    double bytes = 2 * e->tokens * r->hidden / (parts ? r->tp : 1);
    uint32_t next = (uint32_t)(r->tp * r->dp * r->cp);
    return tri_link_send(e->cluster, 0, next, bytes, &e->terms) * e->w->pipe_shown;
}

/* Share of the network's bandwidth that sums of gradients keep. A group with several of a node's
 * ranks, but not all, leaves the node by the card of one and enters the next by that of another:
 * beyond a few nodes its messages meet those of the run's other groups in the upper switches.
 * Groups with one rank a node, or with all, stay on their cards' own switches. */
static double crossing_share(const estimate *e)
{
    const tri_run_sizes *r = e->run;
    enum { FEW_NODES = 4 };
    double node = e->cluster->devices_per_node, ranks = r->dp * r->cp;
    double inside = fmin(floor(node / r->tp), ranks);
    bool crosses = inside > 1 && inside < node && ranks * r->tp > FEW_NODES * node;
    if (!crosses || e->w->crossing <= 0)
        return 1;
    return fmin(1, e->w->crossing / log2(fmax(2, num_nodes(e))));
}

/* The sums of gradients of so many parameters: all-reduced, or scattered and the weights gathered
 * in 16 bits. */
static double gradient_seconds(const estimate *e, double parameters)
{
    const tri_run_sizes *r = e->run;
    double there = e->w->gradient * parameters;
    double back = r->zero > 0 ? 2 * parameters : there;
    estimate crossing = *e;
    crossing.terms.far_share *= crossing_share(e);
    return collective(&crossing, TRI_COLL_REDUCE_SCATTER, there, r->dp * r->cp, r->tp) +
           collective(&crossing, TRI_COLL_ALL_GATHER, back, r->dp * r->cp, r->tp);
}

static void pipelined(const estimate *e, const layer_time *layer, double table, double embed,
                      tri_step_estimate *s)
{
    const tri_run_sizes *r = e->run;
    double per = r->layers / r->pp, one = s->forward + s->backward, send = border_seconds(e);
    double slowest = per * one + s->head + 2 * embed;
    if (r->pp > 1) /* stages have whole layers, those at the ends not the more */
        slowest = fmax(ceil(per - 1e-9) * one + 2 * send * r->vpp,
                       floor(per + 1e-9) * one + fmax(s->head, 2 * embed + 2 * send));
    s->compute = r->micro_batches * slowest;
    s->bubble = (r->pp - 1) / r->vpp * (per * one + 2 * send * r->vpp);
    double local = per * layer->elements + table;
    s->gradients = gradient_seconds(e, local);
    if (r->pp > 1) { /* the table of the first and the last stage */
        uint32_t end = (uint32_t)(r->tp * r->dp * r->cp * r->pp) - 1;
        uint32_t tier = tri_cluster_tier_between(e->cluster, 0, end);
        double rate = e->cluster->tier[tier].bytes_per_s;
        rate *= tier == 0 ? e->terms.near_share : e->terms.far_share;
        s->gradients += table * e->w->gradient / rate;
    }
    s->gradients *= e->w->dp_shown;
    double parameters = local / (r->zero > 0 ? r->dp : 1);
    s->update = tri_software_update(e->w, e->p, parameters).seconds + fixed_seconds(e);
    s->step = s->compute + s->bubble + s->gradients + s->update;
}

tri_step_estimate tri_estimate_step(const tri_run_sizes *run, const tri_software *w,
                                    const tri_device_profile *p, const tri_cluster *cluster)
{
    const estimate e = {
        .run = run,
        .w = w,
        .p = p,
        .cluster = cluster,
        .terms = {.near_share = cluster->measured ? 1 : p->link, .far_share = w->network},
        .tokens = run->micro_batch * run->seq / run->cp};
    layer_time t = time_layer(&e);
    tri_step_estimate s = {.head = head_seconds(&e)};
    double slow = 1 + w->contention, table = vocabulary_part(run) * run->hidden;
    double forward = t.forward.seconds * slow + t.sums;
    /* With sequence parallelism the backward gathers once more. */
    double backward = (t.backward.seconds + t.again) * slow +
                      t.sums * (1 + (run->sequence_parallel ? 0.5 : 0)) +
                      (run->recompute == TRI_RUN_FULL && !w->never_again ? t.sums : 0);
    s.forward = tri_software_pace(w, forward, t.forward.kernels, run->tp);
    s.backward = tri_software_pace(w, backward, t.backward.kernels, run->tp);
    double embed = tri_profile_memory(p, 8 * e.tokens * run->hidden, 3, w->gap_s);
    if (w->fully_sharded)
        fully_sharded(&e, &t, table, embed, &s);
    else
        pipelined(&e, &t, table, embed, &s);
    return s;
}
