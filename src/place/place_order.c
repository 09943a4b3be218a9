/* The order of messages among the nodes: started early, used late.
 *
 * The sweep puts a message where its result is wanted. That leaves nothing to compute while it is
 * under way, so here, when all other passes are done, nodes are moved:
 *   1. weights that ZeRO 3 gathers: some buckets ahead of the one whose turn it is;
 *   2. what reads a sum of gradients (ZeRO 2 and 3): to behind the sum of the next bucket;
 *   3. updated weights that are gathered (ZeRO 1 and 2): to right behind the update of their
 * bucket. The messages of an axis keep an order that is the same on every rank. The memory plan
 * sees the moved nodes, so it counts what lives longer. */
#include <stdlib.h>

#include "graph/passes.h"
#include "place/place.h"

/* Nodes that travel or move together: [begin, end) of the old order. */
typedef struct run {
    size_t begin, end;
} run;

typedef struct mover {
    const tri_graph *graph;
    tri_id *from, *to; /* nodes in the old order and in the new one */
    size_t num_to;
    run *runs;
    size_t num_runs;
} mover;

static const tri_node *node_at(const mover *m, size_t n)
{
    return &m->graph->nodes[m->from[n]];
}

static void put(mover *m, run r)
{
    for (size_t n = r.begin; n < r.end; n++)
        m->to[m->num_to++] = m->from[n];
}

/* The new order becomes the old one. */
static void turn(mover *m)
{
    tri_id *kept = m->from;
    m->from = m->to;
    m->to = kept;
    m->num_to = 0;
}

static uint32_t bucket_of(const mover *m, const tri_node *node)
{
    return m->graph->values[node->out[0]].bucket;
}

static bool gathers_ahead(const mover *m, size_t n, tri_phase phase)
{
    return node_at(m, n)->op == TRI_OP_UNSHARD && node_at(m, n)->phase == phase;
}

/* One bucket's gather, of the forward or the backward. */
static void find_gathers(mover *m, tri_phase phase)
{
    m->num_runs = 0;
    for (size_t n = 0; n < m->graph->num_nodes; n++) {
        if (!gathers_ahead(m, n, phase))
            continue;
        run *last = m->num_runs ? &m->runs[m->num_runs - 1] : NULL;
        bool same = last && last->end == n &&
                    bucket_of(m, node_at(m, n)) == bucket_of(m, node_at(m, last->begin));
        if (same)
            last->end++;
        else
            m->runs[m->num_runs++] = (run){n, n + 1};
    }
}

static int chunk_of(const mover *m, size_t n)
{
    return tri_node_chunk(m->graph, node_at(m, n));
}

/* Where the turn of a bucket comes, the one `ahead` of it is started; with the first of a chunk,
 * all that are up to so far ahead. */
static void prefetch(mover *m, tri_phase phase, size_t ahead)
{
    find_gathers(m, phase);
    for (size_t n = 0, j = 0; n < m->graph->num_nodes; n++) {
        if (j == m->num_runs || n != m->runs[j].begin) {
            put(m, (run){n, n + 1});
            continue;
        }
        int chunk = chunk_of(m, n);
        bool first = j == 0 || chunk_of(m, m->runs[j - 1].begin) != chunk;
        for (size_t k = first ? j : j + ahead; k <= j + ahead && k < m->num_runs; k++)
            if (chunk_of(m, m->runs[k].begin) == chunk)
                put(m, m->runs[k]);
        n = m->runs[j++].end - 1;
    }
    turn(m);
}

/* 0: not one that waits for a sum of gradients; 1: completes it over copies; 2: adds it up. */
static int stage_of(const mover *m, size_t n)
{
    const tri_node *node = node_at(m, n);
    if (node->phase != TRI_PHASE_BACKWARD || node->in[0] == TRI_NONE)
        return 0;
    const tri_value *in = &m->graph->values[node->in[0]];
    if (!in->bucket || in->producer == TRI_NONE ||
        !tri_op_get(m->graph->nodes[in->producer].op)->communicates)
        return 0;
    return node->op == TRI_OP_ALL_REDUCE ? 1 : node->op == TRI_OP_ACCUMULATE ? 2 : 0;
}

/* Runs of one stage that wait for their turn, the oldest first. */
typedef struct held {
    run runs[2];
    size_t num, most;
} held;

static void put_held(mover *m, held *h, size_t keep)
{
    while (h->num > keep) {
        put(m, h->runs[0]);
        h->runs[0] = h->runs[1];
        h->num--;
    }
}

/* Each stage is a bucket behind the one before it. */
static void delay_readers(mover *m)
{
    held stages[3] = {[1] = {.most = 1}, [2] = {.most = 1}};
    size_t count = m->graph->num_nodes;
    for (size_t n = 0; n < count; n++)
        if (stage_of(m, n) == 1)
            stages[2].most = 2;
    for (size_t n = 0; n < count; n++) {
        int stage = stage_of(m, n);
        bool ended = n > 0 && (node_at(m, n)->phase == TRI_PHASE_UPDATE ||
                               chunk_of(m, n) != chunk_of(m, n - 1));
        for (int s = 1; s <= 2 && ended; s++)
            put_held(m, &stages[s], 0); /* the backward of a chunk */
        if (stage == 0) {
            put(m, (run){n, n + 1});
            continue;
        }
        size_t end = n;
        while (end < count && stage_of(m, end) == stage)
            end++;
        held *h = &stages[stage];
        put_held(m, h, h->most - 1);
        h->runs[h->num++] = (run){n, end};
        n = end - 1;
    }
    turn(m);
}

/* Buckets of updated weights; the first tensor of one lies at its beginning. */
static void find_updates(mover *m)
{
    m->num_runs = 0;
    for (size_t n = 0; n < m->graph->num_nodes; n++) {
        const tri_node *node = node_at(m, n);
        if (node->op != TRI_OP_SHARD_GATHER)
            continue;
        run *last = m->num_runs ? &m->runs[m->num_runs - 1] : NULL;
        if (last && last->end == n && node->attr.flat.offset > 0)
            last->end++;
        else
            m->runs[m->num_runs++] = (run){n, n + 1};
    }
}

/* Behind the last update of a bucket, and never before a bucket that all ranks gather earlier. */
static tr_status gather_early(mover *m, tr_error *err)
{
    size_t count = m->graph->num_nodes, last = 0, next = 0;
    find_updates(m);
    size_t *place = calloc(count + 1, sizeof *place); /* of each node in the old order */
    size_t *behind = calloc(m->num_runs + 1, sizeof *behind);
    if (!place || !behind) {
        free(place);
        free(behind);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to order the messages");
    }
    for (size_t n = 0; n < count; n++) {
        const tri_node *node = node_at(m, n);
        place[m->from[n]] = n;
        if (tri_op_get(node->op)->communicates && node->op != TRI_OP_SHARD_GATHER)
            last = n;
    }
    for (size_t r = 0; r < m->num_runs; r++) {
        for (size_t n = m->runs[r].begin; n < m->runs[r].end; n++) {
            tri_id producer = m->graph->values[node_at(m, n)->in[0]].producer;
            if (producer != TRI_NONE && place[producer] > last)
                last = place[producer];
        }
        behind[r] = last < m->runs[r].begin ? last : m->runs[r].begin - 1;
    }
    for (size_t n = 0; n < count; n++) {
        if (node_at(m, n)->op != TRI_OP_SHARD_GATHER)
            put(m, (run){n, n + 1});
        while (next < m->num_runs && behind[next] == n)
            put(m, m->runs[next++]);
    }
    free(place);
    free(behind);
    turn(m);
    return TR_OK;
}

tr_status tri_place_order(tri_graph *graph, const tri_zero_plan *zero, int ahead, tr_error *err)
{
    size_t count = graph->num_nodes;
    if (!zero->flats)
        return TR_OK;
    mover m = {.graph = graph};
    m.from = calloc(count + 1, sizeof *m.from);
    m.to = calloc(count + 1, sizeof *m.to);
    m.runs = calloc(count + 1, sizeof *m.runs);
    tr_status status = m.from && m.to && m.runs
                           ? TR_OK
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory to order the messages");
    for (size_t n = 0; n < count && status == TR_OK; n++)
        m.from[n] = (tri_id)n;
    if (status == TR_OK && ahead > 0) {
        prefetch(&m, TRI_PHASE_FORWARD, (size_t)ahead);
        prefetch(&m, TRI_PHASE_BACKWARD, (size_t)ahead);
    }
    if (status == TR_OK) {
        delay_readers(&m);
        status = gather_early(&m, err);
    }
    if (status == TR_OK)
        status = tri_graph_reorder(graph, m.from, err);
    free(m.from);
    free(m.to);
    free(m.runs);
    return status;
}
