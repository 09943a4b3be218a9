/* The graph: the whole step on one imaginary device, in single assignment.
 *
 * A value is an input of the step, a version of a state, or a temporary; exactly one node produces
 * a version or a temporary. Nodes stand in an order in which they may run. A state (parameter,
 * gradient accumulator, moment) changes by getting a new version: the node that makes it names the
 * version it replaces (`prev`), both share one address, and nothing may read the old one
 * afterwards. So does a sum in a temporary, term by term.
 *
 * Building is without ceremony: a failure (a wrong shape, no memory) is kept in the graph, calls
 * after it do nothing, and tri_graph_status tells at the end. */
#ifndef TRI_GRAPH_GRAPH_H
#define TRI_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "graph/op.h"
#include "graph/param.h"
#include "graph/step_rows.h"
#include "graph/where.h"

typedef enum tri_value_kind { TRI_VALUE_INPUT, TRI_VALUE_STATE, TRI_VALUE_TEMP } tri_value_kind;

typedef struct tri_value {
    const char *name;
    tri_shape shape;
    tri_dtype dtype;
    tri_value_kind kind;
    tri_id producer;     /* node, or TRI_NONE for inputs and first versions */
    tri_id state;        /* of which state this is a version, or TRI_NONE */
    bool per_microbatch; /* inputs: one for each micro-batch, or one for the step */
    int64_t most;     /* inputs of whole numbers: the host gives none larger; 0: nothing is said */
    bool output;      /* the host reads it after the program has run */
    tri_placement at; /* where it lies; its shape is this rank's piece of... */
    tri_shape whole;  /* ...this logical tensor, once it has been placed: rank 0 before */
    tri_flat flat;    /* parts > 0: its shape is this rank's slice */
    uint32_t bucket;  /* temporaries of one bucket lie together, as flat says; 0: none */
    tri_flat place;   /* of a temporary in its bucket */
    tri_where where;  /* its memory lies */
} tri_value;

typedef enum tri_state_kind {
    TRI_STATE_PARAM,
    TRI_STATE_COPY,  /* 16-bit copies of parameters, which products read */
    TRI_STATE_GRAD,  /* gradient accumulators */
    TRI_STATE_OPTIM, /* moments; the loss scaler, which belongs to no parameter */
    TRI_STATE_STAT,  /* statistics of the step: graph/stats.h */
    TRI_STATE_CACHE, /* keys and values of earlier positions */
    TRI_NUM_STATE_KINDS
} tri_state_kind;

typedef struct tri_state {
    const char *name;
    tri_state_kind kind;
    tri_shape shape;
    tri_dtype dtype;
    tri_id param;    /* row of the parameter table that it belongs to, or TRI_NONE */
    tri_id latest;   /* its newest version */
    tri_where where; /* it rests between steps; that of all its versions */
} tri_state;

typedef enum tri_phase { TRI_PHASE_FORWARD, TRI_PHASE_BACKWARD, TRI_PHASE_UPDATE } tri_phase;

/* How an output meets what its memory held before. */
typedef enum tri_write {
    TRI_WRITE_NEW,   /* a fresh value */
    TRI_WRITE_START, /* accumulator: overwrites on the first micro-batch, adds on the others */
    TRI_WRITE_ADD,   /* accumulator: always adds. A temporary may be one too: the first that adds to
                      * it makes it NEW, and each version takes over the one before */
    /* A new version of a state, or of a copy of one that a node works on, in the place of the old
     * one, which is an input of the node. */
    TRI_WRITE_UPDATE
} tri_write;

/* A node of the backward that recomputation made: the clone of one of the forward. */
typedef enum tri_redo {
    TRI_REDO_NO,
    TRI_REDO_CHAIN, /* for the gradients of activations */
    TRI_REDO_LATER  /* for those of weights, in a backward that is split */
} tri_redo;

typedef struct tri_node {
    tri_op op;
    tri_attr attr;
    uint8_t num_in, num_out;
    tri_id in[TRI_MAX_IN]; /* TRI_NONE: an optional input that is absent */
    tri_id out[TRI_MAX_OUT];
    tri_write write[TRI_MAX_OUT];
    tri_id prev[TRI_MAX_OUT]; /* the version that the output replaces, unless it is new */
    tri_phase phase;
    int layer; /* as of the model: -1 before the first layer, num_layers after the last */
    /* Backward of a node that has only parameters to pass gradients to (an embedding, the first
     * product): what it reads is as far as the gradient of activations goes. */
    bool ends_chain;
    /* Backward: runs with the gradients of activations even if only those of weights need it, since
     * what it reads does not stay until those are made. */
    bool with_chain;
    /* Backward: runs for the last micro-batch only, when accumulators hold all of them. */
    bool last_only;
    /* Runs for the first micro-batch only, since no other changes its result: that stays for all of
     * the step. */
    bool first_only;
    /* A message to or from another stage of the pipeline. */
    bool border;
    tri_redo redo;
    tri_where where; /* it computes: on the device, or on the host */
} tri_node;

/* Types of a program's numbers. Parameters, moments and statistics are always f32; with 16-bit
 * activations, embeddings, matrices and biases have a copy of that type, which the update writes
 * anew. Which operands of an operator stay f32 is in the operator table. */
typedef struct tri_precision {
    tri_dtype compute; /* activations, their gradients, and the copies */
    tri_dtype grad;    /* accumulators of what has a copy: f32, or as compute */
    bool linear8;      /* in training, products of linear layers have 8-bit operands */
    /* f16: the loss scale at the start, and the good steps in a row after which it doubles. */
    float scale;
    int32_t growth_interval;
} tri_precision;

/* What attention keeps between programs. rows 0: nothing is kept, and attention is over the batch
 * itself. */
typedef struct tri_cache_shape {
    int64_t rows;  /* texts that are kept at a time */
    int64_t len;   /* positions of each */
    int64_t block; /* new positions that one program writes at most, over all programs that share
                      it: a layer with a window keeps no more than it needs to see them all */
} tri_cache_shape;

/* A parameter that is moved by a statistic instead of a gradient: the bias of a router's selection,
 * by loads. */
typedef struct tri_steered {
    tri_id param, load; /* the row of the table, and the state */
    float rate;
} tri_steered;

typedef struct tri_graph {
    const tri_param_table *params;
    tri_grid grid; /* of the ranks, with this one's place; no factors: there is only one */
    tri_precision precision; /* set before the model is emitted */
    tri_value *values;
    size_t num_values, values_capacity;
    tri_node *nodes;
    size_t num_nodes, nodes_capacity;
    tri_state *states;
    size_t num_states, states_capacity;
    const int *chunk_of; /* pipelines: the chunk of layer l at l + 1; NULL: all are one */
    tri_id *param_state; /* state of each parameter, TRI_NONE when the graph does not use it */
    tri_id *copy_state;  /* 16-bit copy of each parameter, TRI_NONE where there is none */
    tri_id *grad_state;  /* gradient accumulator of each parameter, after autodiff */
    tri_stat stats[TRI_MAX_STATS];
    size_t num_stats;
    tri_loss losses[TRI_MAX_LOSSES]; /* that training lessens together, the main one first */
    size_t num_losses;
    tri_steered *steered;
    size_t num_steered, steered_capacity;
    uint8_t shown[TRI_MAX_SHOWN]; /* of the statistics: what FINISH hands on, in this order */
    size_t num_shown;
    bool experts_apart;   /* experts may be on other ranks than their rows: set before the model is
                             emitted */
    tri_head_config head; /* what training computes of logits: set before the model is emitted */
    float loss_seed;      /* the constant that the backward starts from */
    tri_id sched;         /* the input of the step's numbers; TRI_NONE: there are none */
    tri_step_rows step_rows; /* what is in it */
    bool asynchronous;       /* updates while micro-batches are under way, each of a few of them */
    tri_id scaler;           /* state of the loss scale; TRI_NONE: gradients are not scaled */
    int num_layers;
    tri_cache_shape cache;
    /* where new nodes go */
    const char *scope;
    int layer;
    tri_phase phase;
    bool ends_chain;
    tri_arena arena;
    tr_status status;
    tr_error error;
} tri_graph;

tr_status tri_graph_init(tri_graph *graph, const tri_param_table *params, tr_error *err);
void tri_graph_fini(tri_graph *graph);
tr_status tri_graph_status(const tri_graph *graph, tr_error *err);
void tri_graph_fail(tri_graph *graph, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Nodes emitted from here on belong to this layer; their names begin with the scope. */
void tri_graph_enter(tri_graph *graph, int layer, const char *scope_format, ...)
    __attribute__((format(printf, 3, 4)));
/* "scope.name", in the graph's arena. */
const char *tri_graph_name(tri_graph *graph, const char *name);

tri_id tri_graph_input(tri_graph *graph, const char *name, tri_dtype dtype, tri_shape shape,
                       bool per_microbatch);
/* The first of the rows of the input `sched` that hold these numbers: those that are there already,
 * or new ones. The input is of the step, or of each update where there are several in one. */
uint8_t tri_graph_step_rows(tri_graph *graph, const tri_step_row *rows, size_t num);
/* A new state; its first version is what the step finds. */
tri_id tri_graph_state(tri_graph *graph, tri_state_kind kind, const char *name, tri_dtype dtype,
                       tri_shape shape, tri_id param);
/* The update moves this parameter by rate, down where the state is above its mean. */
void tri_graph_steer(tri_graph *graph, tri_id param, tri_id load, float rate);
/* Newest version of a parameter, and of what the model's operators read of it: the same, or its
 * 16-bit copy. */
tri_id tri_graph_param(tri_graph *graph, tri_id param);
tri_id tri_graph_weight(tri_graph *graph, tri_id param);

/* One node: fills phase, layer, shapes of the outputs (by the operator table) and fresh values.
 * in[] and num_in are given; returns the node. The value names are "name" and "name.1", ... */
tri_id tri_graph_emit(tri_graph *graph, tri_op op, const char *name, const tri_attr *attr,
                      const tri_id *in, int num_in, int num_out);
/* Makes output k of a node a new version of a state instead of a temporary. */
void tri_graph_write_state(tri_graph *graph, tri_id node, int k, tri_id state, tri_write write);

/* The statistic of a row of the table, of graph->stats: the one that is there, or a new one. Its
 * newest version; TRI_NONE: the graph has none. */
uint8_t tri_graph_stat(tri_graph *graph, size_t row);
tri_id tri_graph_stat_value(const tri_graph *graph, size_t row);
/* In which way terms of a state are joined. */
tri_partial_how tri_graph_join_of(const tri_graph *graph, tri_id state);
/* Shows a statistic of graph->stats beside the loss. */
void tri_graph_show(tri_graph *graph, uint8_t stat);
/* One more loss, which shares the count of the first. And the one to whose sum a value belongs, or
 * NULL. */
void tri_graph_add_loss(tri_graph *graph, const tri_loss *loss);
const tri_loss *tri_graph_loss_of(const tri_graph *graph, tri_id value);

/* For rules and passes: */
/* A value as it is given; nothing makes or reads it yet. */
tri_id tri_graph_add_value(tri_graph *graph, tri_value value);
static inline const tri_value *tri_value_at(const tri_graph *graph, tri_id value)
{
    return &graph->values[value];
}

/* The chunk of a pipeline that a node belongs to; those of the update belong to none. */
static inline int tri_node_chunk(const tri_graph *graph, const tri_node *node)
{
    return graph->chunk_of ? graph->chunk_of[node->layer + 1] : 0;
}

/* The highest number of a bucket of temporaries; 0: there is none. */
uint32_t tri_graph_num_buckets(const tri_graph *graph);

/* Checks every invariant stated above, and each node against the operator table. */
tr_status tri_graph_verify(const tri_graph *graph, tr_error *err);

#endif
