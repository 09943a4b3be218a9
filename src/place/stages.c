/* Which layers a rank of a pipeline has. */
#include "place/stages.h"

#include <stdlib.h>
#include <string.h>

#include "graph/op_table.h"

/* A machine does about this many operations in the time it moves a byte: what turns the two numbers
 * of a cost into one. */
static const double flops_per_byte = 20;

void tri_stages_costs(const tri_graph *graph, double *cost)
{
    memset(cost, 0, (size_t)(graph->num_layers + 2) * sizeof *cost);
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node *node = &graph->nodes[n];
        tri_cost c = tri_node_cost(graph, node);
        if (node->op == TRI_OP_EMBED) /* reads the rows it looks up, not the table */
            c.bytes = 8 * (double)tri_shape_count(&graph->values[node->out[0]].shape);
        if (node->phase == TRI_PHASE_FORWARD)
            cost[node->layer + 1] += c.flops + flops_per_byte * c.bytes;
    }
}

/* "4,4,3,5": layers of each chunk. */
static tr_status divide_by_list(tri_stages *s, const char *list, tr_error *err)
{
    long sum = 0;
    int chunks = 0;
    for (const char *at = list; *at; chunks++) {
        char *end;
        long count = strtol(at, &end, 10);
        bool edge = chunks == 0 || chunks == s->num_chunks - 1;
        if (end == at || (*end && *end != ',') || count < 0 || count > 1000000)
            return tri_fail(err, TR_ERROR_INPUT,
                            "layout.stages is \"%s\"; give the layers of each chunk in order, such "
                            "as 4,4,3,5",
                            list);
        if (count == 0 && !edge)
            return tri_fail(err, TR_ERROR_INPUT,
                            "layout.stages is \"%s\", which leaves chunk %d without a layer; only "
                            "the first and the last can do without",
                            list, chunks);
        for (long i = 0; i < count; i++, sum++)
            if (sum < s->num_layers)
                s->chunk_of[sum + 1] = chunks;
        at = *end ? end + 1 : end;
    }
    if (chunks != s->num_chunks || sum != s->num_layers)
        return tri_fail(err, TR_ERROR_INPUT,
                        "layout.stages is \"%s\": %d chunk%s and %ld layers in all, but the "
                        "pipeline has %d chunks and the model %d layers",
                        list, chunks, chunks == 1 ? "" : "s", sum, s->num_chunks, s->num_layers);
    s->chunk_of[0] = 0;
    s->chunk_of[s->num_layers + 1] = s->num_chunks - 1;
    return TR_OK;
}

/* What a division costs: the largest chunk, then how uneven all are. */
typedef struct price {
    double most, squares;
} price;

static bool cheaper(price a, price b)
{
    return a.most < b.most || (a.most == b.most && a.squares < b.squares);
}

/* best[k][u]: the units before u as k chunks; from[k][u]: where the last of them begins. */
static tr_status divide_by_cost(tri_stages *s, const double *cost, tr_error *err)
{
    int units = s->num_layers + 2, chunks = s->num_chunks;
    size_t row = (size_t)units + 1;
    price *best = calloc(row * (size_t)(chunks + 1), sizeof *best);
    int *from = calloc(row * (size_t)(chunks + 1), sizeof *from);
    double *before = calloc(row + 1, sizeof *before);
    if (!best || !from || !before) {
        free(best);
        free(from);
        free(before);
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to divide the layers");
    }
    for (int u = 0; u < units; u++)
        before[u + 1] = before[u] + cost[u];
    for (int k = 1; k <= chunks; k++)
        for (int u = k; u <= units; u++) {
            bool any = false;
            for (int begin = k == 1 ? 0 : k - 1; begin < (k == 1 ? 1 : u); begin++) {
                price rest = best[(size_t)(k - 1) * row + (size_t)begin];
                double own = before[u] - before[begin];
                price p = {own > rest.most ? own : rest.most, rest.squares + own * own};
                if (!any || cheaper(p, best[(size_t)k * row + (size_t)u])) {
                    best[(size_t)k * row + (size_t)u] = p;
                    from[(size_t)k * row + (size_t)u] = begin;
                    any = true;
                }
            }
        }
    int end = units;
    for (int k = chunks; k > 0; k--) {
        int begin = from[(size_t)k * row + (size_t)end];
        for (int u = begin; u < end; u++)
            s->chunk_of[u] = k - 1;
        end = begin;
    }
    free(best);
    free(from);
    free(before);
    return TR_OK;
}

tr_status tri_stages_divide(tri_stages *s, const double *cost, const char *list, tr_error *err)
{
    if (s->num_chunks > s->num_layers + 2)
        return tri_fail(err, TR_ERROR_INPUT,
                        "a model of %d layers cannot be cut into %d chunks; use a layout.pp x "
                        "layout.chunks of %d at most",
                        s->num_layers, s->num_chunks, s->num_layers + 2);
    if (list && list[0])
        return divide_by_list(s, list, err);
    return divide_by_cost(s, cost, err);
}

/* Ranks that have a chunk, ascending and each once, at most TRI_MAX_ROUTES; returns their number.
 */
static int homes_of(const tri_stages *s, int chunk, int *ranks)
{
    int num = 0;
    for (int r = 0; r < s->num_ranks; r++)
        for (int route = 0; route < s->num_routes; route++)
            if ((int)s->home[route * s->num_chunks + chunk] == r &&
                (num == 0 || ranks[num - 1] != r))
                ranks[num++] = r;
    return num;
}

int tri_home_set_ranks(const tri_stages *s, tri_home_set set, uint32_t *ranks)
{
    int homes[2][TRI_MAX_HOMES], num = 0;
    int first = homes_of(s, (int)set.first, homes[0]);
    int last = homes_of(s, (int)set.last, homes[1]);
    for (int r = 0; r < s->num_ranks; r++) {
        bool has = false;
        for (int i = 0; i < first; i++)
            has |= homes[0][i] == r;
        for (int i = 0; i < last; i++)
            has |= homes[1][i] == r;
        if (has)
            ranks[num++] = (uint32_t)r;
    }
    return num;
}

tr_status tri_stages_settle(tri_graph *graph, const tri_stages *s, tri_placed_params *placed,
                            tr_error *err)
{
    size_t count = graph->params->count;
    tri_homes *homes = &placed->homes;
    graph->chunk_of = s->chunk_of;
    homes->set = tri_arena_alloc(&placed->arena, (count + 1) * sizeof *homes->set);
    homes->elsewhere = tri_arena_alloc(&placed->arena, (count + 1) * sizeof *homes->elsewhere);
    homes->first = tri_arena_alloc(&placed->arena, (count + 1) * sizeof *homes->first);
    homes->last = tri_arena_alloc(&placed->arena, (count + 1) * sizeof *homes->last);
    if (!homes->set || !homes->elsewhere || !homes->first || !homes->last)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to settle the parameters");
    for (size_t i = 0; i < count; i++) {
        uint32_t chunk = (uint32_t)s->chunk_of[graph->params->items[i].layer + 1];
        homes->set[i] = (tri_home_set){chunk, chunk};
    }
    for (size_t n = 0; n < graph->num_nodes; n++) {
        const tri_node *node = &graph->nodes[n];
        uint32_t chunk = (uint32_t)tri_node_chunk(graph, node);
        for (int j = 0; j < node->num_in && node->phase != TRI_PHASE_UPDATE; j++) {
            tri_id state = node->in[j] == TRI_NONE ? TRI_NONE : graph->values[node->in[j]].state;
            tri_id param = state == TRI_NONE ? TRI_NONE : graph->states[state].param;
            if (param == TRI_NONE)
                continue;
            uint32_t first = homes->set[param].first, last = homes->set[param].last;
            if (chunk > first && chunk < last)
                return tri_fail(err, TR_ERROR_INPUT,
                                "%s is used in more than two places, which a pipeline cannot "
                                "keep in step; use layout.pp=1",
                                graph->params->items[param].name);
            first = chunk < first ? chunk : first;
            last = chunk > last ? chunk : last;
            homes->set[param] = (tri_home_set){first, last};
        }
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t ranks[TRI_MAX_HOMES];
        int num = tri_home_set_ranks(s, homes->set[i], ranks);
        homes->first[i] = ranks[0];
        homes->last[i] = ranks[num - 1];
        homes->elsewhere[i] = true;
        for (int k = 0; k < num; k++)
            homes->elsewhere[i] &= (int)ranks[k] != s->rank;
    }
    return TR_OK;
}

static int producer_chunk(const tri_graph *graph, const tri_stages *s, tri_id value)
{
    tri_id producer = graph->values[value].producer;
    return producer == TRI_NONE ? -1 : s->chunk_of[graph->nodes[producer].layer + 1];
}

/* The norm that goes without the sum before it; TRI_NUM_OPS: there is none. */
static tri_op plain_norm(tri_op op)
{
    return op == TRI_OP_ADD_LAYERNORM ? TRI_OP_LAYERNORM
           : op == TRI_OP_ADD_RMSNORM ? TRI_OP_RMSNORM
                                      : TRI_NUM_OPS;
}

tr_status tri_stages_open(tri_graph *graph, const tri_stages *s, tr_error *err)
{
    tri_node *old = graph->nodes;
    size_t num_old = graph->num_nodes;
    tri_node *nodes = calloc(2 * num_old + 1, sizeof *nodes);
    if (!nodes)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to cut the graph");
    size_t num = 0;
    for (size_t n = 0; n < num_old; n++) {
        tri_node node = old[n];
        int chunk = s->chunk_of[node.layer + 1];
        if (plain_norm(node.op) != TRI_NUM_OPS && producer_chunk(graph, s, node.in[0]) < chunk &&
            producer_chunk(graph, s, node.in[1]) < chunk &&
            graph->values[node.in[1]].producer != TRI_NONE) {
            tri_node sum = {.op = TRI_OP_ADD,
                            .num_in = 2,
                            .num_out = 1,
                            .in = {node.in[0], node.in[1]},
                            .out = {node.out[0]},
                            .prev = {TRI_NONE},
                            .phase = node.phase,
                            .layer = old[graph->values[node.in[1]].producer].layer};
            nodes[num++] = sum;
            node.op = plain_norm(node.op);
            node.num_in--;
            node.in[0] = sum.out[0];
            for (int j = 1; j < node.num_in; j++)
                node.in[j] = node.in[j + 1];
            node.num_out--;
            for (int k = 0; k < node.num_out; k++)
                node.out[k] = node.out[k + 1];
        }
        nodes[num++] = node;
    }
    for (size_t n = 0; n < num; n++)
        for (int k = 0; k < nodes[n].num_out; k++)
            graph->values[nodes[n].out[k]].producer = (tri_id)n;
    free(old);
    graph->nodes = nodes;
    graph->num_nodes = num;
    graph->nodes_capacity = 2 * num_old + 1;
    return TR_OK;
}
