/* Gradients against finite differences, through the whole way: graph, autodiff, passes, program,
 * memory plan, checker, executor, kernels.
 *
 * A case is one operator whose operands are parameters. The sum of squared differences from a
 * random target (or the operator's own loss) closes the graph; every element of every parameter is
 * then moved by +-h and the difference of the loss compared with what the backward says. Each case
 * runs twice: on the parameters themselves, and behind a sum p + q with q = 0, so that the operator
 * reads temporaries that the memory plan may put its results on. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "device/cpu/isa.h"
#include "graph/emit.h"
#include "graph/passes.h"
#include "run/executor.h"

enum { MAX_PARAMS = 8, MAX_OPERANDS = 4, SEED = 20250917 };

/* What the graph is closed with. */
typedef enum closing { CLOSE_SSE, CLOSE_MSE, CLOSE_MEAN, CLOSE_CE, CLOSE_ROUTER } closing;

enum {
    USE_SUM = 1,      /* add_layernorm: the loss looks at the sum alone */
    USE_BOTH = 2,     /* ... at sum + gelu(y), so that the two gradients differ */
    AWAY_FROM_0 = 4,  /* no operand near the corner of a relu */
    WITH_DOCS = 8,    /* attention within documents, with padding behind them */
    WITH_SPAN = 16,   /* attention: an interval of places for each query */
    WITH_PLACES = 32, /* attention, dropout, select_row: tokens have places of their own */
    FAR_APART = 64,   /* no two logits of a token are close: nothing else is chosen nearby */
};

typedef struct grad_case {
    const char *name;
    tri_op op;                  /* TRI_NUM_OPS: none, the loss alone is looked at */
    tri_shape in[MAX_OPERANDS]; /* operands that are parameters; rank 0 ends the list */
    tri_attr attr;
    unsigned flags;
    float z; /* weight of a z-loss */
    closing close;
    /* For what is more than one operator: emits, and returns what the loss looks at. */
    tri_id (*emit)(tri_graph *graph, const tri_id *p);
} grad_case;

#define S1(a, x)                                                                                   \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            {                                                                                      \
                TRI_DIM_##a, x                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
#define S2(a, x, b, y)                                                                             \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            {TRI_DIM_##a, x},                                                                      \
            {                                                                                      \
                TRI_DIM_##b, y                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
#define S3(a, x, b, y, c, z)                                                                       \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            {TRI_DIM_##a, x}, {TRI_DIM_##b, y},                                                    \
            {                                                                                      \
                TRI_DIM_##c, z                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
#define S4(a, x, b, y, c, z, d, w)                                                                 \
    {                                                                                              \
        4,                                                                                         \
        {                                                                                          \
            {TRI_DIM_##a, x}, {TRI_DIM_##b, y}, {TRI_DIM_##c, z},                                  \
            {                                                                                      \
                TRI_DIM_##d, w                                                                     \
            }                                                                                      \
        }                                                                                          \
    }
#define QKV(b, t, h, k)                                                                            \
    {                                                                                              \
        5,                                                                                         \
        {                                                                                          \
            {TRI_DIM_B, b}, {TRI_DIM_T, t}, {TRI_DIM_QKV, 3}, {TRI_DIM_H, h},                      \
            {                                                                                      \
                TRI_DIM_K, k                                                                       \
            }                                                                                      \
        }                                                                                          \
    }

#define APART(b, t, h, k, g)                                                                       \
    S4(B, b, T, t, H, h, K, k), S4(B, b, T, t, G, g, K, k), S4(B, b, T, t, G, g, K, k)

/* Two layers with all that the fusion pass looks for, and a value with two readers. */
static tri_id emit_pair(tri_graph *graph, const tri_id *p)
{
    tri_id h = tri_matmul(graph, "fc1", p[0], 1, false, p[1], 1, true);
    h = tri_node_out(
        graph, tri_graph_emit(graph, TRI_OP_BIAS_ADD, "b1", NULL, (tri_id[]){h, p[2]}, 2, 1), 0);
    h = tri_activation(graph, "gelu", TRI_ACT_GELU, h);
    tri_id y = tri_matmul(graph, "fc2", h, 1, false, p[3], 1, true);
    return tri_add(graph, "residual", y, p[0]);
}

/* A parameter read twice by one operator and a third time by another: three contributions. */
static tri_id emit_shared(tri_graph *graph, const tri_id *p)
{
    tri_id twice = tri_add(graph, "twice", p[0], p[0]);
    tri_id bent = tri_activation(graph, "bent", TRI_ACT_GELU, p[0]);
    return tri_add(graph, "all", twice, bent);
}

/* A router of tokens [B, T] among E experts. */
#define LOGITS(e) S3(B, 2, T, 3, E, e)
#define ROUTER(...)                                                                                \
    {                                                                                              \
        .route = {.choices = 2, .scale = 1.5f, __VA_ARGS__ }                                       \
    }
/* Of a router's losses; not 1, so that they show. */
static const float balance_weight = 5, balance_alpha = 2.5f, sums_alpha = 0.5f;

static const grad_case cases[] = {
    {"nn", TRI_OP_MATMUL, .in = {S2(B, 5, D, 7), S2(D, 7, F, 3)},
     .attr = {.matmul = {.split_a = 1, .split_b = 1}}},
    {"nt", TRI_OP_MATMUL, .in = {S2(B, 5, D, 7), S2(F, 3, D, 7)},
     .attr = {.matmul = {.split_a = 1, .split_b = 1, .trans_b = true}}},
    {"tn", TRI_OP_MATMUL, .in = {S2(D, 7, B, 5), S2(D, 7, F, 3)},
     .attr = {.matmul = {.split_a = 1, .split_b = 1, .trans_a = true}}},
    {"tt", TRI_OP_MATMUL, .in = {S2(D, 7, B, 5), S2(F, 3, D, 7)},
     .attr = {.matmul = {.split_a = 1, .split_b = 1, .trans_a = true, .trans_b = true}}},
    {"nn of several dims", TRI_OP_MATMUL,
     .in = {S4(B, 2, T, 3, H, 2, K, 3), S4(H, 2, K, 3, D, 2, F, 5)},
     .attr = {.matmul = {.split_a = 2, .split_b = 2}}},
    {"nt of several dims", TRI_OP_MATMUL,
     .in = {S4(B, 2, T, 3, H, 2, K, 3), S4(D, 2, F, 5, H, 2, K, 3)},
     .attr = {.matmul = {.split_a = 2, .split_b = 2, .trans_b = true}}},
    {"tn of several dims", TRI_OP_MATMUL,
     .in = {S4(H, 2, K, 3, B, 2, T, 3), S4(H, 2, K, 3, D, 2, F, 5)},
     .attr = {.matmul = {.split_a = 2, .split_b = 2, .trans_a = true}}},
    {"tt of several dims", TRI_OP_MATMUL,
     .in = {S4(H, 2, K, 3, B, 2, T, 3), S4(D, 2, F, 5, H, 2, K, 3)},
     .attr = {.matmul = {.split_a = 2, .split_b = 2, .trans_a = true, .trans_b = true}}},
    {"nt past a tile", TRI_OP_MATMUL, .in = {S3(B, 3, T, 7, D, 19), S2(F, 33, D, 19)},
     .attr = {.matmul = {.split_a = 2, .split_b = 1, .trans_b = true}}},

    {"odd", TRI_OP_ADD, .in = {S2(B, 3, D, 7), S2(B, 3, D, 7)}},
    {"odd", TRI_OP_BIAS_ADD, .in = {S3(B, 2, T, 3, D, 7), S1(D, 7)}},
    {"several dims", TRI_OP_BIAS_ADD, .in = {S4(B, 2, T, 3, H, 2, K, 5), S2(H, 2, K, 5)}},
    {"cast", TRI_OP_CAST, .in = {S2(B, 5, D, 17)}, .attr = {.cast = {.dtype = TRI_F32}}},
    {"gelu", TRI_OP_ACT, .in = {S2(B, 5, D, 17)}, .attr = {.act = {.kind = TRI_ACT_GELU}}},
    {"relu", TRI_OP_ACT, .in = {S2(B, 5, D, 17)}, .attr = {.act = {.kind = TRI_ACT_RELU}},
     .flags = AWAY_FROM_0},
    {"exact gelu", TRI_OP_ACT, .in = {S2(B, 5, D, 17)},
     .attr = {.act = {.kind = TRI_ACT_GELU_ERF}}},
    {"tanh", TRI_OP_ACT, .in = {S2(B, 5, D, 17)}, .attr = {.act = {.kind = TRI_ACT_TANH}}},
    {"silu", TRI_OP_ACT, .in = {S2(B, 5, D, 17)}, .attr = {.act = {.kind = TRI_ACT_SILU}}},
    {"odd", TRI_OP_SWIGLU, .in = {S2(B, 5, F, 17), S2(B, 5, F, 17)}},
    {"odd", TRI_OP_DROPOUT, .in = {S3(B, 3, T, 5, D, 7)},
     .attr = {.dropout = {.p = 0.3f, .stream = 11}}},
    {"long", TRI_OP_DROPOUT, .in = {S2(B, 3, D, 37)},
     .attr = {.dropout = {.p = 0.7f, .stream = 12}}},
    {"places", TRI_OP_DROPOUT, .in = {S3(B, 3, T, 5, D, 7)},
     .attr = {.dropout = {.p = 0.4f, .stream = 13}}, .flags = WITH_PLACES},
    {"odd", TRI_OP_JITTER, .in = {S3(B, 3, T, 5, D, 7)},
     .attr = {.dropout = {.p = 0.3f, .stream = 11}}},
    {"places", TRI_OP_JITTER, .in = {S3(B, 3, T, 5, D, 7)},
     .attr = {.dropout = {.p = 0.2f, .stream = 13}}, .flags = WITH_PLACES},
    {"ids repeat", TRI_OP_EMBED, .in = {S2(V, 9, D, 7)}},
    {"odd", TRI_OP_SELECT_ROW, .in = {S3(B, 3, T, 5, D, 7)}},
    {"places", TRI_OP_SELECT_ROW, .in = {S3(B, 3, T, 5, D, 7)}, .flags = WITH_PLACES},

    {"odd", TRI_OP_LAYERNORM, .in = {S3(B, 2, T, 3, D, 7), S1(D, 7), S1(D, 7)},
     .attr = {.norm = {.eps = 1e-5f}}},
    {"wide", TRI_OP_LAYERNORM, .in = {S2(B, 3, D, 33), S1(D, 33), S1(D, 33)},
     .attr = {.norm = {.eps = 1e-5f}}},
    {"norm alone", TRI_OP_ADD_LAYERNORM, .in = {S2(B, 5, D, 7), S2(B, 5, D, 7), S1(D, 7), S1(D, 7)},
     .attr = {.norm = {.eps = 1e-5f}}},
    {"sum alone", TRI_OP_ADD_LAYERNORM, .in = {S2(B, 5, D, 7), S2(B, 5, D, 7), S1(D, 7), S1(D, 7)},
     .attr = {.norm = {.eps = 1e-5f}}, .flags = USE_SUM},
    {"both", TRI_OP_ADD_LAYERNORM,
     .in = {S3(B, 2, T, 3, D, 9), S3(B, 2, T, 3, D, 9), S1(D, 9), S1(D, 9)},
     .attr = {.norm = {.eps = 1e-5f}}, .flags = USE_BOTH},

    {"odd", TRI_OP_RMSNORM, .in = {S3(B, 2, T, 3, D, 7), S1(D, 7)},
     .attr = {.norm = {.eps = 1e-5f}}},
    {"wide", TRI_OP_RMSNORM, .in = {S2(B, 3, D, 33), S1(D, 33)}, .attr = {.norm = {.eps = 1e-5f}}},
    {"heads", TRI_OP_RMSNORM, .in = {S4(B, 2, T, 3, H, 2, K, 5), S1(K, 5)},
     .attr = {.norm = {.eps = 1e-5f}}},
    {"all heads", TRI_OP_RMSNORM, .in = {S4(B, 2, T, 3, H, 3, K, 5), S2(H, 3, K, 5)},
     .attr = {.norm = {.eps = 1e-5f, .dims = 2}}},
    {"all heads", TRI_OP_ADD_RMSNORM,
     .in = {S3(B, 5, H, 2, K, 4), S3(B, 5, H, 2, K, 4), S2(H, 2, K, 4)},
     .attr = {.norm = {.eps = 1e-5f, .dims = 2}}, .flags = USE_BOTH},
    {"norm alone", TRI_OP_ADD_RMSNORM, .in = {S2(B, 5, D, 7), S2(B, 5, D, 7), S1(D, 7)},
     .attr = {.norm = {.eps = 1e-5f}}},
    {"sum alone", TRI_OP_ADD_RMSNORM, .in = {S2(B, 5, D, 7), S2(B, 5, D, 7), S1(D, 7)},
     .attr = {.norm = {.eps = 1e-5f}}, .flags = USE_SUM},
    {"both", TRI_OP_ADD_RMSNORM, .in = {S3(B, 2, T, 3, D, 9), S3(B, 2, T, 3, D, 9), S1(D, 9)},
     .attr = {.norm = {.eps = 1e-5f}}, .flags = USE_BOTH},

    {"odd", TRI_OP_SPLIT_QKV, .in = {QKV(2, 3, 2, 5)}},
    {"odd", TRI_OP_JOIN_QKV,
     .in = {S4(B, 2, T, 3, H, 2, K, 5), S4(B, 2, T, 3, H, 2, K, 5), S4(B, 2, T, 3, H, 2, K, 5)}},
    {"odd", TRI_OP_ROPE, .in = {S4(B, 2, T, 3, H, 3, K, 6)},
     .attr = {.rope = {.config = {.theta = 10000}}}},
    {"scaled", TRI_OP_ROPE, .in = {S4(B, 2, T, 3, G, 1, K, 10)},
     .attr = {.rope = {.config = {.theta = 500000,
                                  .factor = 8,
                                  .low_freq_factor = 1,
                                  .high_freq_factor = 4,
                                  .original_max_position = 8192}}}},
    {"ramp, a part of the head, scaled", TRI_OP_ROPE, .in = {S4(B, 2, T, 3, H, 2, K, 10)},
     .attr = {.rope = {.config = {.theta = 100,
                                  .factor = 4,
                                  .scaling = TRI_ROPE_RAMP,
                                  .low_freq_factor = 1,
                                  .high_freq_factor = 2,
                                  .turned = 6,
                                  .magnitude = 1.2f}}}},

    {"causal", TRI_OP_ATTENTION, .in = {QKV(2, 5, 2, 3)},
     .attr = {.attention = {.alpha = 0.6f, .causal = true}}},
    {"full", TRI_OP_ATTENTION, .in = {QKV(2, 5, 2, 3)}, .attr = {.attention = {.alpha = 0.6f}}},
    {"causal, odd", TRI_OP_ATTENTION, .in = {QKV(1, 9, 3, 5)},
     .attr = {.attention = {.alpha = 0.4f, .causal = true}}},
    {"causal, dropout", TRI_OP_ATTENTION, .in = {QKV(2, 6, 2, 4)},
     .attr = {.attention = {.alpha = 0.5f, .causal = true, .dropout = 0.3f, .stream = 5}}},
    {"full, dropout", TRI_OP_ATTENTION, .in = {QKV(2, 5, 3, 3)},
     .attr = {.attention = {.alpha = 0.6f, .dropout = 0.3f, .stream = 6}}},

    {"apart", TRI_OP_ATTENTION, .in = {APART(2, 5, 2, 3, 2)},
     .attr = {.attention = {.alpha = 0.6f, .causal = true}}},
    {"4:1", TRI_OP_ATTENTION, .in = {APART(2, 5, 4, 3, 1)}, .attr = {.attention = {.alpha = 0.6f}}},
    {"3:1, causal, dropout", TRI_OP_ATTENTION, .in = {APART(2, 6, 6, 3, 2)},
     .attr = {.attention = {.alpha = 0.6f, .causal = true, .dropout = 0.3f, .stream = 7}}},
    {"window", TRI_OP_ATTENTION, .in = {QKV(2, 7, 2, 3)},
     .attr = {.attention = {.alpha = 0.6f, .causal = true, .window = 3}}},
    {"documents", TRI_OP_ATTENTION, .in = {QKV(2, 9, 2, 3)}, .attr = {.attention = {.alpha = 0.6f}},
     .flags = WITH_DOCS},
    {"2:1, causal documents", TRI_OP_ATTENTION, .in = {APART(2, 9, 2, 3, 1)},
     .attr = {.attention = {.alpha = 0.6f, .causal = true, .window = 4}}, .flags = WITH_DOCS},

    {"span", TRI_OP_ATTENTION, .in = {QKV(2, 7, 2, 3)}, .attr = {.attention = {.alpha = 0.6f}},
     .flags = WITH_SPAN},
    {"places, more keys, wider values, sink", TRI_OP_ATTENTION,
     .in = {S4(B, 2, T, 5, H, 2, K, 3), S4(B, 2, T, 8, G, 1, K, 3), S4(B, 2, T, 8, G, 1, K, 4),
            S1(H, 2)},
     .attr =
         {.attention = {.alpha = 0.6f, .causal = true, .window = 6, .dropout = 0.3f, .stream = 8}},
     .flags = WITH_SPAN | WITH_PLACES},
    {"soft cap, sink", TRI_OP_ATTENTION, .in = {APART(2, 5, 2, 3, 1), S1(H, 2)},
     .attr = {.attention = {.alpha = 0.6f, .causal = true, .soft_cap = 0.8f}}},

    {"cross-entropy", TRI_NUM_OPS, .in = {S3(B, 2, T, 7, V, 11)}, .close = CLOSE_CE},
    {"cross-entropy, one row each", TRI_NUM_OPS, .in = {S3(B, 5, T, 1, V, 17)}, .close = CLOSE_CE},
    {"with a z-loss", TRI_NUM_OPS, .in = {S3(B, 2, T, 7, V, 11)}, .close = CLOSE_CE, .z = 0.1f},
    {"sse", TRI_NUM_OPS, .in = {S2(B, 3, D, 7)}, .close = CLOSE_SSE},
    {"mse", TRI_NUM_OPS, .in = {S2(B, 3, D, 7)}, .close = CLOSE_MSE},
    {"mean", TRI_NUM_OPS, .in = {S2(B, 3, D, 7)}, .close = CLOSE_MEAN},

    {"odd", TRI_OP_GATE_ROWS, .in = {S3(B, 2, T, 3, D, 7), S3(B, 2, T, 3, N, 1)}},
    {"softmax", TRI_OP_ROUTE, .in = {LOGITS(6)}, .attr = ROUTER(), .flags = FAR_APART},
    {"softmax, renorm", TRI_OP_ROUTE, .in = {LOGITS(6)}, .attr = ROUTER(.renorm = true),
     .flags = FAR_APART},
    {"softmax, bias", TRI_OP_ROUTE, .in = {LOGITS(6), S1(E, 6)}, .attr = ROUTER(.renorm = true),
     .flags = FAR_APART},
    {"sigmoid", TRI_OP_ROUTE, .in = {LOGITS(6)}, .attr = ROUTER(.score = TRI_ROUTE_SIGMOID),
     .flags = FAR_APART},
    {"sigmoid, bias, groups, renorm", TRI_OP_ROUTE, .in = {LOGITS(6), S1(E, 6)},
     .attr = ROUTER(.score = TRI_ROUTE_SIGMOID, .renorm = true, .groups = 3, .group_limit = 2),
     .flags = FAR_APART},
    {"chosen", TRI_OP_ROUTE, .in = {LOGITS(6)}, .attr = ROUTER(.score = TRI_ROUTE_CHOSEN),
     .flags = FAR_APART},
    {"rows", TRI_OP_ROUTE_SUMS, .in = {LOGITS(5)}, .attr = ROUTER()},
    {"whole", TRI_OP_ROUTE_SUMS, .in = {LOGITS(5)}, .attr = ROUTER(.whole = true)},
    {"sigmoid", TRI_OP_ROUTE_SUMS, .in = {LOGITS(5)}, .attr = ROUTER(.score = TRI_ROUTE_SIGMOID)},
    {"balance and z, rows", TRI_NUM_OPS, .in = {LOGITS(5)}, .attr = ROUTER(), .z = 0.8f,
     .close = CLOSE_ROUTER},
    {"balance and z, whole", TRI_NUM_OPS, .in = {LOGITS(5)}, .attr = ROUTER(.whole = true),
     .z = 0.8f, .close = CLOSE_ROUTER},
    {"balance, sigmoid", TRI_NUM_OPS, .in = {LOGITS(5)}, .attr = ROUTER(.score = TRI_ROUTE_SIGMOID),
     .close = CLOSE_ROUTER},
    {"to experts", TRI_OP_GATHER_ROWS, .in = {S3(B, 2, T, 3, D, 7)},
     .attr = {.gather = {.lead = 2, .each = true}}},
    {"back from experts", TRI_OP_GATHER_ROWS, .in = {S4(B, 2, T, 3, C, 2, D, 7)},
     .attr = {.gather = {.lead = 3}}},
    {"odd", TRI_OP_GROUPED, .in = {S3(B, 3, T, 4, D, 7), S3(E, 4, F, 5, D, 7)}},
    {"back", TRI_OP_GROUPED, .in = {S3(B, 3, T, 4, F, 5), S3(E, 4, F, 5, D, 7)},
     .attr = {.grouped = {.back = true}}},
    {"on one device", TRI_OP_DISPATCH, .in = {S4(B, 2, T, 3, C, 2, D, 7)}},
    {"on one device", TRI_OP_COLLECT, .in = {S4(B, 2, T, 3, C, 2, D, 7)}},
    {"odd", TRI_OP_SWIGLU_ROWS, .in = {S2(B, 5, F, 17), S2(B, 5, F, 17), S1(B, 5)}},

    {"shared parameter", TRI_OP_ADD, .in = {S2(B, 3, D, 7)}, .emit = emit_shared},
    {"two layers", TRI_OP_MATMUL, .in = {S2(B, 5, D, 7), S2(F, 9, D, 7), S1(F, 9), S2(D, 7, F, 9)},
     .emit = emit_pair},
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

/* One way of running a case. */
typedef struct setup {
    bool behind_sum;
    bool reference;
    tri_isa isa;
    bool fuse;
} setup;

/* A case made ready: program 0 makes gradients, program 1 the forward alone. */
typedef struct net {
    const grad_case *c;
    setup how;
    int num_operands;
    tri_param_table params;
    tri_program program[2];
    tri_executor executor[2];
    tri_device device;
    tri_store store;
    size_t num_products, num_nodes; /* of the graph with the backward */
    float *grad[MAX_PARAMS];
    double loss;
} net;

static const float loss_seed = 0.5f; /* the backward is linear in it: not 1, so that it shows */

static void must(tr_status status, const net *n, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("operator %d, \"%s\": %s", (int)n->c->op, n->c->name, err->message);
}

static void add_params(net *n)
{
    char name[16];
    tri_param_table_init(&n->params);
    while (n->num_operands < MAX_OPERANDS && n->c->in[n->num_operands].rank > 0)
        n->num_operands++;
    for (int copy = 0; copy <= n->how.behind_sum; copy++)
        for (int i = 0; i < n->num_operands; i++) {
            snprintf(name, sizeof name, "%c%d", copy ? 'q' : 'p', i);
            tri_param_add(&n->params, (tri_param){.name = name, .shape = n->c->in[i], .split = 1});
        }
}

/* What attention takes beside q, k, v and sinks; only as many as the case needs. */
static int add_masks(tri_graph *graph, const grad_case *c, tri_id *in, int num, tri_shape bt)
{
    const bool sinks = num == 4;
    tri_shape rows = {.rank = 1, .dim = {bt.dim[0]}};
    tri_shape span = {.rank = 3, .dim = {bt.dim[0], bt.dim[1], {TRI_DIM_N, 2}}};
    tri_shape keys = {.rank = 2, .dim = {bt.dim[0], c->in[num > 1].dim[1]}};
    in[TRI_ATTENTION_SINK] = sinks ? in[3] : TRI_NONE;
    for (int j = num; j < TRI_ATTENTION_SINK; j++)
        in[j] = TRI_NONE;
    in[TRI_ATTENTION_ROWS] = tri_graph_input(graph, "rows", TRI_I32, rows, true);
    in[TRI_ATTENTION_STEP] = tri_graph_input(graph, "step", TRI_I32, tri_shape_scalar(1), false);
    if (c->flags & WITH_DOCS)
        in[TRI_ATTENTION_DOCS] = tri_graph_input(graph, "docs", TRI_I32, bt, true);
    if (c->flags & WITH_SPAN)
        in[TRI_ATTENTION_SPAN] = tri_graph_input(graph, "span", TRI_I32, span, true);
    if (c->flags & WITH_PLACES) {
        in[TRI_ATTENTION_Q_PLACES] = tri_graph_input(graph, "q_places", TRI_I32, bt, true);
        in[TRI_ATTENTION_K_PLACES] = tri_graph_input(graph, "k_places", TRI_I32, keys, true);
    }
    return sinks                                  ? TRI_NUM_ATTENTION_IN
           : c->flags & (WITH_SPAN | WITH_PLACES) ? TRI_ATTENTION_SINK
                                                  : TRI_ATTENTION_SPAN;
}

/* Where the tokens of the first operand stand, if the case says so. */
static int add_places(tri_graph *graph, const grad_case *c, tri_id *in, int num, tri_shape bt)
{
    bt.dim[1].name = TRI_DIM_P;
    if (c->flags & WITH_PLACES)
        in[num++] = tri_graph_input(graph, "places", TRI_I32, bt, true);
    return num;
}

/* What routers and experts take beside parameters: choices, and where sorted rows are. */
static int add_routing(tri_graph *graph, const grad_case *c, tri_id *in, int num, tri_shape bt)
{
    tri_shape choices = {.rank = 3, .dim = {bt.dim[0], bt.dim[1], {TRI_DIM_C, 2}}};
    bool each = c->op == TRI_OP_GATHER_ROWS && c->attr.gather.each;
    switch (c->op) {
    case TRI_OP_ROUTE_SUMS:
        in[num++] = tri_graph_input(graph, "choice", TRI_I32, choices, true);
        in[num++] = tri_graph_input(graph, "targets", TRI_I32, bt, true);
        break;
    case TRI_OP_GATHER_ROWS:
        in[num++] = tri_graph_input(graph, each ? "row" : "place", TRI_I32, choices, true);
        in[num++] = tri_graph_input(graph, each ? "place" : "row", TRI_I32, choices, true);
        break;
    case TRI_OP_GROUPED:
        in[num++] = tri_graph_input(graph, "expert", TRI_I32, bt, true);
        break;
    case TRI_OP_DISPATCH:
    case TRI_OP_COLLECT:
        in[num++] = tri_graph_input(graph, "expert", TRI_I32, choices, true);
        break;
    default:
        break;
    }
    return num;
}

/* The one operator of a case, with the integer inputs that it takes beside the parameters. */
static tri_id emit_operator(tri_graph *graph, const grad_case *c, const tri_id *p, int num)
{
    tri_attr attr = c->attr;
    tri_id in[TRI_MAX_IN];
    memcpy(in, p, (size_t)num * sizeof *in);
    tri_shape rows = tri_shape_of(1, TRI_DIM_B, c->in[0].dim[0].size);
    tri_shape bt = {.rank = 2, .dim = {c->in[0].dim[0], c->in[0].dim[1]}};
    tri_shape ids = tri_shape_of(2, TRI_DIM_B, (int64_t)3, TRI_DIM_T, (int64_t)5);
    switch (c->op) {
    case TRI_OP_MATMUL:
        attr.matmul.alpha = 0.75f;
        break;
    case TRI_OP_ATTENTION:
        num = add_masks(graph, c, in, num, bt);
        break;
    case TRI_OP_ROPE:
        in[num++] = tri_graph_input(graph, "positions", TRI_I32, bt, true);
        break;
    case TRI_OP_SELECT_ROW:
        in[num++] = tri_graph_input(graph, "index", TRI_I32, rows, true);
        num = add_places(graph, c, in, num, bt);
        break;
    case TRI_OP_DROPOUT:
    case TRI_OP_JITTER:
        in[num++] = tri_graph_input(graph, "rows", TRI_I32, rows, true);
        in[num++] = tri_graph_input(graph, "step", TRI_I32, tri_shape_scalar(1), false);
        num = add_places(graph, c, in, num, bt);
        break;
    case TRI_OP_EMBED:
        in[num++] = tri_graph_input(graph, "ids", TRI_I32, ids, true);
        break;
    default:
        num = add_routing(graph, c, in, num, bt);
        break;
    }
    int num_out = tri_op_get(c->op)->min_out;
    tri_id node = tri_graph_emit(graph, c->op, "y", &attr, in, num, num_out);
    if (c->op == TRI_OP_SPLIT_QKV) { /* bent each in its way: no part stands for another */
        tri_id k = tri_activation(graph, "bent", TRI_ACT_GELU, tri_node_out(graph, node, 1));
        tri_id v = tri_activation(graph, "turned", TRI_ACT_TANH, tri_node_out(graph, node, 2));
        return tri_add(graph, "all", tri_add(graph, "two", tri_node_out(graph, node, 0), k), v);
    }
    bool two = c->op == TRI_OP_ADD_LAYERNORM || c->op == TRI_OP_ADD_RMSNORM;
    if (!two || c->flags & USE_SUM)
        return tri_node_out(graph, node, 0);
    tri_id y = tri_node_out(graph, node, 1);
    if (!(c->flags & USE_BOTH))
        return y;
    y = tri_activation(graph, "bent", TRI_ACT_GELU, y);
    return tri_add(graph, "both", tri_node_out(graph, node, 0), y);
}

/* Output k of a node is a loss beside the main one. */
static void add_loss(tri_graph *graph, tri_id node, int k, size_t row, float weight)
{
    uint8_t stat = tri_graph_stat(graph, row);
    if (node == TRI_NONE)
        return;
    tri_graph_write_state(graph, node, k, graph->stats[stat].state, TRI_WRITE_START);
    tri_graph_add_loss(graph,
                       &(tri_loss){tri_stat_at(row)->name, stat, graph->losses[0].count, weight});
}

/* The losses of a router whose logits are y. */
static void emit_balance(tri_graph *graph, const grad_case *c, tri_id y)
{
    tri_attr attr = c->attr;
    tri_id in[3] = {y};
    const tri_shape *logits = &graph->values[y].shape;
    tri_shape bt = {.rank = 2, .dim = {logits->dim[0], logits->dim[1]}};
    grad_case sums = {.op = TRI_OP_ROUTE_SUMS};
    attr.route.alpha = sums_alpha;
    add_routing(graph, &sums, in, 1, bt);
    tri_id node = tri_graph_emit(graph, TRI_OP_ROUTE_SUMS, "sums", &attr, in, 3, 3);
    if (c->z > 0)
        add_loss(graph, node, 1, TRI_STAT_ROUTER_Z, c->z);
    attr.route.alpha = balance_alpha;
    tri_id of[] = {tri_node_out(graph, node, 0)};
    add_loss(graph, tri_graph_emit(graph, TRI_OP_BALANCE, "balance", &attr, of, 1, 1), 0,
             TRI_STAT_BALANCE, balance_weight);
}

static void emit_closing(tri_graph *graph, closing how, tri_id y)
{
    static const tri_out_loss kinds[] = {TRI_LOSS_SSE, TRI_LOSS_MSE, TRI_LOSS_MEAN, 0,
                                         TRI_LOSS_SSE};
    if (y == TRI_NONE)
        return; /* the graph has kept the reason */
    tri_shape shape = graph->values[y].shape;
    if (how == CLOSE_CE) {
        shape.rank--;
        tri_cross_entropy(graph, y, tri_graph_input(graph, "targets", TRI_I32, shape, true),
                          &graph->head);
    } else {
        tri_id target = tri_graph_input(graph, "target", TRI_F32, shape, true);
        tri_output_loss(graph, kinds[how], y, target);
    }
}

static void emit_case(const net *n, tri_graph *graph, bool forward_only)
{
    graph->head.z_loss = n->c->z;
    tri_id p[MAX_OPERANDS];
    for (int i = 0; i < n->num_operands; i++) {
        p[i] = tri_graph_param(graph, (tri_id)i);
        if (n->how.behind_sum)
            p[i] =
                tri_add(graph, "pq", p[i], tri_graph_param(graph, (tri_id)(n->num_operands + i)));
    }
    tri_id y = n->c->emit                ? n->c->emit(graph, p)
               : n->c->op == TRI_NUM_OPS ? p[0]
                                         : emit_operator(graph, n->c, p, n->num_operands);
    /* For differences in double; the loss of a parameter alone is read from the statistic. */
    if (forward_only && n->c->op != TRI_NUM_OPS)
        tri_mark_output(graph, y);
    emit_closing(graph, n->c->close, y);
    if (n->c->close == CLOSE_ROUTER && y != TRI_NONE)
        emit_balance(graph, n->c, y);
}

/* The passes in the order of src/compile, each verified. */
static tr_status run_passes(net *n, tri_graph *graph, bool forward_only, tr_error *err)
{
    tri_fusions none = {0}, all = {.bias = true,
                                   .bias_gelu = true,
                                   .gelu_grad = true,
                                   .add = true,
                                   .norm_grads = true,
                                   .cross_entropy = true};
    emit_case(n, graph, forward_only);
    TRI_TRY(tri_graph_status(graph, err));
    TRI_TRY(tri_graph_verify(graph, err));
    if (!forward_only) {
        TRI_TRY(tri_autodiff(graph, loss_seed, err));
        TRI_TRY(tri_graph_verify(graph, err));
        TRI_TRY(tri_fold_accumulate(graph, err));
        TRI_TRY(tri_graph_verify(graph, err));
    }
    TRI_TRY(tri_fuse_epilogues(graph, n->how.fuse ? &all : &none, err));
    TRI_TRY(tri_graph_verify(graph, err));
    TRI_TRY(tri_fuse_backward(graph, n->how.fuse ? &all : &none, err));
    return tri_graph_verify(graph, err);
}

static void build_program(net *n, bool forward_only)
{
    static const tri_action schedule[] = {{.kind = TRI_ACTION_F}, {.kind = TRI_ACTION_B}};
    tr_error err = {0};
    tri_graph graph;
    tri_placed_params placed;
    must(tri_graph_init(&graph, &n->params, &err), n, &err);
    must(run_passes(n, &graph, forward_only, &err), n, &err);
    must(tri_placed_params_init(&placed, &n->params, &err), n, &err);
    tri_program *program = &n->program[forward_only];
    const tri_build_config wanted = {
        .schedule = schedule, .num_actions = forward_only ? 1 : 2, .num_microbatches = 1};
    must(tri_program_build(&graph, &placed, &wanted, program, &err), n, &err);
    must(tri_program_check(program, &err), n, &err);
    if (!forward_only) {
        n->num_nodes = graph.num_nodes;
        for (size_t i = 0; i < graph.num_nodes; i++)
            n->num_products += graph.nodes[i].op == TRI_OP_MATMUL;
    }
    tri_placed_params_fini(&placed);
    tri_graph_fini(&graph);
}

static float *weights_of(const net *n, size_t param)
{
    char name[16];
    snprintf(name, sizeof name, "%s", n->params.items[param].name);
    return tri_executor_memory(&n->executor[1], tri_program_find(&n->program[1], name), 0);
}

static void fill_normal(float *x, int64_t count, uint32_t stream)
{
    tri_random_normal(SEED, 0, (uint64_t)count, 0, stream, x);
}

static void fill_params(const net *n)
{
    for (size_t i = 0; i < n->params.count; i++) {
        float *w = weights_of(n, i);
        int64_t count = tri_shape_count(&n->params.items[i].shape);
        fill_normal(w, count, 100 + (uint32_t)i);
        for (int64_t e = 0; e < count; e++) {
            if (n->c->flags & AWAY_FROM_0)
                w[e] += w[e] < 0 ? -0.1f : 0.1f;
            if (n->c->flags & FAR_APART && i == 0) /* rows of 6 */
                w[e] = 0.6f * (float)((5 * (e % 6) + 2 * (e / 6)) % 6) - 1.3f;
            if (n->c->flags & FAR_APART && i == 1) /* what is added to the scores of 6 */
                w[e] = 0.37f * (float)(e * e % 5);
            if ((int)i >= n->num_operands)
                w[e] = 0; /* q */
        }
    }
}

/* Ids that repeat, two of them outside the table; targets of which some are ignored. */
static void fill_integers(const char *name, int32_t *x, int64_t count, int64_t limit)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t any = (int32_t)(tri_random_word(SEED, (uint64_t)i, 0, 3) % (uint32_t)limit);
        if (strcmp(name, "rows") == 0)
            x[i] = (int32_t)(2 * i + 1);
        else if (strcmp(name, "step") == 0)
            x[i] = 4;
        else if (strcmp(name, "positions") == 0)
            x[i] = (int32_t)(1013 * i);
        else if (strcmp(name, "index") == 0)
            x[i] = (int32_t)(i + 1);
        else if (strcmp(name, "docs") == 0) /* 0 0 1 1 1 2 2 and padding, then from 1 on */
            x[i] = i % 9 >= 7 ? -1 : (int32_t)((i % 9 + 1) / 3 + i / 9);
        else if (strcmp(name, "span") == 0) /* begin, end */
            x[i] = i % 2 == 0 ? (int32_t)(i / 2 % 5) - 1 : (int32_t)(i * 5 % 9);
        else if (strcmp(name, "places") == 0) /* rows of 5; the last has no 3, which is wanted */
            x[i] = i == 14 ? 7 : (int32_t)(3 * (i % 5 + i / 5) % 5);
        else if (strcmp(name, "q_places") == 0)
            x[i] = i == 3 ? -1 : (int32_t)(3 * i % 8);
        else if (strcmp(name, "k_places") == 0)
            x[i] = i == 5 ? -1 : (int32_t)(5 * i % 8);
        else if (strcmp(name, "choice") == 0) /* 2 of 5 */
            x[i] = (int32_t)((3 * (i / 2) + i % 2) % 5);
        else if (strcmp(name, "place") == 0) /* 12 choices of 6 tokens, in another order... */
            x[i] = (int32_t)(5 * i % 12);
        else if (strcmp(name, "row") == 0) /* ...which, done twice, is their own */
            x[i] = (int32_t)(5 * i % 12 / 2);
        else if (strcmp(name, "expert") == 0) /* 12 rows, sorted: none of expert 1 */
            x[i] = i < 4 ? 0 : i < 7 ? 2 : i < 10 ? 3 : -1;
        else if (strcmp(name, "targets") == 0)
            x[i] = i % 4 == 2 ? -1 : any;
        else
            x[i] = i == 1 ? -1 : i == 4 ? (int32_t)limit : any / 2;
    }
}

static void fill_inputs(const net *n, int which)
{
    const tri_program *program = &n->program[which];
    const tri_shape *first = &n->c->in[0];
    int64_t limit = n->c->close == CLOSE_CE ? first->dim[first->rank - 1].size : first->dim[0].size;
    for (size_t v = 0; v < program->num_values; v++) {
        const tri_value *value = &program->values[v];
        if (value->kind != TRI_VALUE_INPUT)
            continue;
        void *data = tri_executor_memory(&n->executor[which], (tri_id)v, 0);
        if (value->dtype == TRI_F32)
            fill_normal(data, tri_shape_count(&value->shape), 99);
        else
            fill_integers(value->name, data, tri_shape_count(&value->shape), limit);
    }
}

static void net_open(net *n, const grad_case *c, setup how)
{
    tr_error err = {0};
    memset(n, 0, sizeof *n);
    n->c = c;
    n->how = how;
    add_params(n);
    build_program(n, false);
    build_program(n, true);
    tri_device_config config = {
        .kind = "cpu", .num_threads = 1, .isa = tri_isa_name(how.isa), .reference = how.reference};
    must(tri_device_open(&config, &n->device, &err), n, &err);
    const tri_program *programs[] = {&n->program[0], &n->program[1]};
    tri_store_plan(&n->store, &n->device, programs, 2);
    must(tri_store_alloc(&n->store, &err), n, &err);
    for (int i = 0; i < 2; i++)
        must(tri_executor_init(&n->executor[i], &n->program[i], &n->store, SEED, &err), n, &err);
    fill_params(n);
}

static void net_close(net *n)
{
    for (int i = 0; i < MAX_PARAMS; i++)
        free(n->grad[i]);
    for (int i = 0; i < 2; i++) {
        tri_executor_fini(&n->executor[i]);
        tri_program_fini(&n->program[i]);
    }
    tri_store_free(&n->store);
    tri_device_close(&n->device);
    tri_param_table_fini(&n->params);
}

static float *memory_of(const net *n, int which, const char *name)
{
    tri_id value = tri_program_find(&n->program[which], name);
    assert_int_not_equal(value, TRI_NONE);
    return tri_executor_memory(&n->executor[which], value, 0);
}

/* The whole loss, as FINISH puts it together. */
static double loss_of(const net *n, int which)
{
    double z = (double)n->c->z, loss = (double)*memory_of(n, which, "loss");
    if (n->c->close == CLOSE_ROUTER) {
        loss += (double)balance_weight * (double)*memory_of(n, which, "balance_loss");
        return z > 0 ? loss + z * (double)*memory_of(n, which, "router_z") : loss;
    }
    return z > 0 ? loss + z * (double)*memory_of(n, which, "z_loss") : loss;
}

/* Runs the backward once and keeps loss and gradients. Wherever they lie there is rubbish before:
 * in memory of their own, or among the activations. */
static void make_gradients(net *n)
{
    static const tri_slab_kind kinds[] = {TRI_SLAB_GRAD, TRI_SLAB_SHARED};
    char name[32];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n->store.slabs[kinds[i]].bytes > 0)
            memset(n->store.slabs[kinds[i]].memory, 0xff, n->store.slabs[kinds[i]].bytes);
    fill_inputs(n, 0);
    assert_int_equal(tri_executor_run(&n->executor[0], NULL), TR_OK);
    n->loss = loss_of(n, 0);
    for (size_t i = 0; i < n->params.count; i++) {
        const tri_param *param = &n->params.items[i];
        size_t bytes = (size_t)tri_shape_count(&param->shape) * sizeof(float);
        snprintf(name, sizeof name, "grad.%s", param->name);
        if (tri_program_find(&n->program[0], name) == TRI_NONE)
            continue; /* the loss does not depend on it */
        n->grad[i] = malloc(bytes);
        assert_non_null(n->grad[i]);
        memcpy(n->grad[i], memory_of(n, 0, name), bytes);
    }
}

/* The value that the host reads of the forward program, or NULL. */
static const float *output_of(const net *n, int64_t *count)
{
    const tri_program *program = &n->program[1];
    for (size_t v = 0; v < program->num_values; v++)
        if (program->values[v].output) {
            *count = tri_shape_count(&program->values[v].shape);
            return tri_executor_memory(&n->executor[1], (tri_id)v, 0);
        }
    return NULL;
}

/* Loss at +h less loss at -h of one element. Of squares it is summed in double, from the outputs:
 * the sums themselves, in fp32, would leave few digits of their difference. */
static double loss_difference(net *n, float *element, float h, double *apart)
{
    float kept = *element, up = kept + h, down = kept - h;
    int64_t count = 0;
    const float *y = output_of(n, &count);
    double *first = calloc((size_t)count + 1, sizeof *first), sum = 0;
    assert_non_null(first);
    *apart = (double)up - (double)down;
    *element = up;
    assert_int_equal(tri_executor_run(&n->executor[1], NULL), TR_OK);
    double loss_up = loss_of(n, 1);
    for (int64_t i = 0; i < count; i++)
        first[i] = (double)y[i];
    *element = down;
    assert_int_equal(tri_executor_run(&n->executor[1], NULL), TR_OK);
    double loss_down = loss_of(n, 1);
    *element = kept;
    const float *target = y ? memory_of(n, 1, "target") : NULL;
    for (int64_t i = 0; i < count; i++) /* (a - t)^2 - (b - t)^2 = (a - b)(a + b - 2 t) */
        sum += 0.5 * (first[i] - (double)y[i]) * (first[i] + (double)y[i] - 2 * (double)target[i]);
    free(first);
    return y ? sum : loss_up - loss_down;
}

static void check_param(net *n, size_t param)
{
    float *w = weights_of(n, param), h = n->c->op == TRI_NUM_OPS ? 3e-2f : 4e-3f;
    int64_t count = tri_shape_count(&n->params.items[param].shape);
    double error = 0, norm = 0, tolerance = 2e-3;
    for (int64_t e = 0; e < count; e++) {
        double apart, difference = loss_difference(n, &w[e], h, &apart);
        double expected = (double)loss_seed * difference / apart;
        double off = (n->grad[param] ? (double)n->grad[param][e] : 0) - expected;
        error += off * off;
        norm += expected * expected;
    }
    if ((sqrt(norm) > 1e-2) != (n->grad[param] != NULL)) /* one that vanishes shows nothing */
        fail_msg("operator %d, \"%s\": the gradient of %s, by differences %g, is %s", (int)n->c->op,
                 n->c->name, n->params.items[param].name, sqrt(norm),
                 n->grad[param] ? "there" : "missing");
    if (!(sqrt(error) <= tolerance * sqrt(norm)))
        fail_msg("operator %d, \"%s\"%s, %s: the gradient of %s is off by %.3g of %.3g",
                 (int)n->c->op, n->c->name, n->how.behind_sum ? " behind a sum" : "",
                 n->how.reference ? "reference" : tri_isa_name(n->how.isa),
                 n->params.items[param].name, sqrt(error), sqrt(norm));
}

static void check_case(const grad_case *c, setup how)
{
    net n;
    net_open(&n, c, how);
    make_gradients(&n);
    fill_inputs(&n, 1); /* the two programs share memory, so only now */
    assert_int_equal(tri_executor_run(&n.executor[1], NULL), TR_OK);
    double loss = loss_of(&n, 1);
    if (!(fabs(loss - n.loss) <= 1e-6 * fabs(loss)))
        fail_msg("\"%s\": loss %.8g in training, %.8g forward", c->name, n.loss, loss);
    for (size_t i = 0; i < n.params.count; i++)
        check_param(&n, i);
    net_close(&n);
}

static void test_reference_kernels(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_CASES; i++)
        for (int behind = 0; behind < 2; behind++)
            check_case(&cases[i], (setup){.reference = true, .behind_sum = behind});
}

static void test_fast_kernels(void **state)
{
    (void)state;
    for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
        for (int i = 0; i < NUM_CASES; i++)
            for (int behind = 0; behind < 2; behind++)
                check_case(&cases[i], (setup){.isa = isa, .behind_sum = behind, .fuse = behind});
}

static const grad_case *case_named(const char *name)
{
    for (int i = 0; i < NUM_CASES; i++)
        if (strcmp(cases[i].name, name) == 0)
            return &cases[i];
    fail_msg("no case \"%s\"", name);
    return NULL;
}

static double distance(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

static void compare_fused(setup how)
{
    net plain, fused;
    const grad_case *c = case_named("two layers");
    how.fuse = false;
    net_open(&plain, c, how);
    make_gradients(&plain);
    how.fuse = true;
    net_open(&fused, c, how);
    make_gradients(&fused);
    /* bias_add and gelu went into the product before them, and gelu' into the one behind; the
     * addition behind a product likewise, and another with the sum. */
    assert_int_equal(fused.num_products, plain.num_products);
    assert_int_equal(fused.num_nodes, plain.num_nodes - (how.behind_sum ? 5 : 4));
    assert_float_equal((float)fused.loss, (float)plain.loss, 1e-6f * (float)plain.loss);
    for (size_t i = 0; i < plain.params.count; i++) {
        int64_t count = tri_shape_count(&plain.params.items[i].shape);
        float *zero = calloc((size_t)count, sizeof *zero);
        double norm = distance(plain.grad[i], zero, count);
        double off = distance(plain.grad[i], fused.grad[i], count);
        free(zero);
        if (!(off <= 1e-6 * norm))
            fail_msg("fused: the gradient of %s is off by %g of %g", plain.params.items[i].name,
                     off, norm);
    }
    net_close(&plain);
    net_close(&fused);
}

static void test_fused_epilogues_change_nothing(void **state)
{
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        compare_fused((setup){.reference = true, .behind_sum = behind});
        for (tri_isa isa = TRI_ISA_BASE; isa <= tri_isa_detect(); isa++)
            compare_fused((setup){.isa = isa, .behind_sum = behind});
    }
}

/* A new operator with a gradient must get a case. */
static void test_every_gradient_has_a_case(void **state)
{
    (void)state;
    for (int op = 0; op < TRI_NUM_OPS; op++) {
        if (!tri_op_get((tri_op)op)->grad)
            continue;
        bool found = false;
        for (int i = 0; i < NUM_CASES; i++) {
            bool is_ce = op == TRI_OP_CE_STATS || op == TRI_OP_CE_LOSS;
            found |= cases[i].op == (tri_op)op && !cases[i].emit;
            found |= cases[i].op == TRI_NUM_OPS &&
                     (is_ce ? cases[i].close == CLOSE_CE
                            : op == TRI_OP_OUT_LOSS && cases[i].close != CLOSE_CE);
            found |= op == TRI_OP_BALANCE && cases[i].close == CLOSE_ROUTER;
        }
        if (!found)
            fail_msg("%s has a gradient and no case", tri_op_get((tri_op)op)->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_gradient_has_a_case),
        cmocka_unit_test(test_reference_kernels),
        cmocka_unit_test(test_fast_kernels),
        cmocka_unit_test(test_fused_epilogues_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
