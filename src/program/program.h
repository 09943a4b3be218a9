/* The step program: what one rank does in one step.
 *
 * Two levels. A segment is a straight list of instructions for one chunk of layers and one action
 * (forward, backward ...), emitted once. The timeline calls segments for micro-batches. Memory is a
 * handful of spaces, each one allocation; an operand's address is space + instance + offset:
 *
 *   space        instance            holds
 *   param        -                   parameters
 *   copy         -                   16-bit copies of parameters
 *   grad         -                   gradient accumulators
 *   optim        -                   moments of the update rule
 *   cache        -                   keys and values of earlier positions
 *   stat         -                   loss, count, squared norm
 *   output       -                   what the host reads after the step
 *   step         -                   step inputs: step number, learning rate ...
 *   batch        micro-batch         tokens, targets ...
 *   gathered     -                   weights that stay put together from the first micro-batch on
 *   frame X>Y    call.frame[...]     values that segment X makes and segment Y still reads
 *   work         -                   values that live within one segment; where every segment runs
 *                                    once, all that live within the step, gradients among them
 *
 * A space lies at a place: on the device, on the host, or in a scratch file (graph/where.h). The
 * spaces above are the device's. What rests or is copied elsewhere has spaces of the same kinds,
 * named host:optim, file:optim, host:work ... behind them.
 *
 * Executor, checker, printer and simulator all take this. */
#ifndef TRI_PROGRAM_PROGRAM_H
#define TRI_PROGRAM_PROGRAM_H

#include "base/text.h"
#include "graph/graph.h"
#include "graph/op_table.h"
#include "mesh/grid.h"
#include "place/placed_params.h"
#include "program/message.h"
#include "schedule/action.h"

/* Addresses are multiples of this; on the host and in files of the other, so that whole blocks of a
 * file can be read and written. */
enum { TRI_PROGRAM_ALIGN = 64, TRI_BLOCK_BYTES = 4096 };

typedef enum tri_space_kind {
    TRI_SPACE_PARAM,
    TRI_SPACE_COPY,
    TRI_SPACE_GRAD,
    TRI_SPACE_OPTIM,
    TRI_SPACE_CACHE,
    TRI_SPACE_STAT,
    TRI_SPACE_OUTPUT,
    TRI_SPACE_STEP,
    TRI_SPACE_BATCH,
    TRI_SPACE_GATHERED,
    TRI_SPACE_WORK,
    TRI_SPACE_FRAME
} tri_space_kind;

typedef struct tri_space {
    tri_space_kind kind;
    tri_where where;
    char name[40];
    uint64_t bytes; /* of one instance */
    uint32_t num_instances;
    /* Frames: taken when segment `born` runs for a micro-batch, given back after the last of the
     * segments that use it; `dies` is the one that comes last where chunks run in order. */
    uint32_t born, dies;
    bool *users; /* [num_segments] */
} tri_space;

typedef struct tri_operand {
    tri_id value; /* TRI_NONE: absent */
    uint32_t space;
    uint64_t offset;
} tri_operand;

typedef struct tri_instr {
    tri_op op;
    tri_attr attr;
    uint8_t num_in, num_out;
    tri_write write[TRI_MAX_OUT];
    tri_operand in[TRI_MAX_IN];
    tri_operand out[TRI_MAX_OUT];
    tri_id prev[TRI_MAX_OUT];
    int layer;
    bool redone;      /* by recomputation: the same was computed in the forward */
    uint32_t message; /* of program->messages, that it travels in; TRI_NONE: it computes */
    bool border;      /* communication between stages of a pipeline */
    bool last_only;   /* runs only in the last call of its segment */
    bool first_only;  /* runs only in the first; what it makes is there for all micro-batches */
    tri_where where;  /* it computes: on the device, or on the host */
    /* Scratch of its kernel that the memory plan has: a piece of `work`. 0 bytes: none. */
    uint64_t scratch_bytes, scratch_offset;
    tri_cost cost;
} tri_instr;

/* The update belongs to no chunk. It is one segment, or two when an asynchronous pipeline updates
 * several times in a step: the updates, and what is summed up at the end. */
enum { TRI_UPDATE_ALL = 0, TRI_UPDATE_END = 1 };

/* The action of a segment is of one chunk of a pipeline, over all ranks. */
typedef struct tri_segment {
    tri_action_kind action;
    int chunk;
    uint32_t first, count; /* instructions */
} tri_segment;

typedef struct tri_call {
    uint32_t segment;
    uint32_t microbatch;
    bool first;      /* of its segment: accumulators that it starts are overwritten */
    bool last;       /* of its segment: the step, or the update, has no other call of it */
    uint32_t *frame; /* [num_spaces]: instance of each frame space, and of parameters */
    /* Asynchronous pipelines keep parameters in several instances while micro-batches that began
     * with an old one are under way: this instance is copied to the call's before it runs. */
    uint32_t copy_from; /* TRI_NONE: nothing is */
    bool overlaps;      /* it runs as one with the call behind it */
    uint32_t pair;      /* of program->pairs, from 1, that it is a part of; 0: it runs alone */
    uint32_t nth;       /* of the calls of its pair, which stand side by side */
} tri_call;

/* Instructions of a call that run one after the other. */
typedef struct tri_turn {
    uint32_t call; /* in the timeline; of a pair's list: which of its calls */
    uint32_t first, end;
} tri_turn;

/* Calls that run as one: a forward, and the backward of another micro-batch beside it, which is one
 * call or two (I, W). Their instructions are one list, made so that messages of the one half are
 * under way while the other computes (pairs.c). Each half keeps its order. */
typedef struct tri_pair {
    uint32_t segment[TRI_MOST_PAIRED];
    uint32_t num_calls;
    tri_turn *list;
    uint32_t num_turns;
    uint32_t *place[TRI_MOST_PAIRED]; /* of each instruction of a segment: how many run before it */
} tri_pair;

/* A message that is under way beside the computation: started where it stands in the timeline, and
 * waited for before another instruction, or at the end (wait_call == num_calls). Messages without a
 * flight are waited for where they stand. */
typedef struct tri_flight {
    uint32_t call, instr;           /* where it stands */
    uint32_t from_call, from_instr; /* before which it is started: there, or (receives) earlier */
    uint32_t wait_call, wait_instr;
    uint64_t place, from_place; /* of the first two in the timeline (tri_timeline_place) */
} tri_flight;

typedef struct tri_landing {
    uint32_t call, instr; /* where it is waited for */
    uint32_t flight;
    uint64_t place; /* of that in the timeline (tri_timeline_place) */
} tri_landing;

/* What shares one piece of memory (memory_parts.h). */
typedef struct tri_buffer tri_buffer;

typedef struct tri_program {
    tri_arena arena; /* names */
    tri_grid grid;   /* of the ranks, with the place of the one whose program it is */
    tri_value *values;
    size_t num_values;
    tri_operand *home; /* where each value lies; space TRI_NONE: it was fused away */
    tri_state *states;
    size_t num_states;
    tri_instr *instrs;
    size_t num_instrs;
    tri_segment *segments;
    size_t num_segments;
    tri_call *calls; /* the timeline */
    size_t num_calls;
    uint32_t *frames; /* of all calls */
    tri_pair *pairs;
    size_t num_pairs;
    /* Where `work` of the backward of a pair begins, behind what its forward has there; 0: no pair
     * is interleaved. */
    uint64_t pair_floor;
    tri_space *spaces;
    size_t num_spaces, spaces_capacity;
    tri_message *messages; /* in the order of their instructions */
    size_t num_messages;
    tri_rank_group *groups; /* that take part in them */
    size_t num_groups;
    tri_flight *flights; /* in the order of starting */
    tri_landing *early;  /* those that are started before their place, in the order of places */
    size_t num_early;
    tri_landing *landings; /* the same flights in the order of waiting */
    size_t num_flights;
    uint32_t num_microbatches;
    int num_layers;
    tri_step_rows step_rows; /* of the input `sched` */
    tri_stat stats[TRI_MAX_STATS];
    size_t num_stats;
    tri_loss losses[TRI_MAX_LOSSES];
    size_t num_losses;
    uint8_t shown[TRI_MAX_SHOWN]; /* of them: what stands behind the result, in this order */
    size_t num_shown;
    /* Pipelines: of each parameter, the first rank (by its place on pp) that has it. NULL: all do.
     * What a rank does not have is not among its states. */
    uint32_t *first_home, *last_home;
    uint32_t num_updates; /* in a step, where that is more than the one at its end; 0 */
    int num_chunks;       /* of the pipeline, over all ranks; 1: there is none */
    bool once; /* every segment runs once a step, and `work` has all that lives within the step */
    /* Pieces of memory by which temporaries lie, with the instructions between which they are
     * alive; and of each value its own, or TRI_NONE. NULL: nobody has asked for them. */
    tri_buffer *pieces;
    size_t num_pieces;
    tri_id *piece_of;
    /* Bytes of gradients that lie in `work`, where activations were; 0: they have a space. */
    uint64_t laid_grad_bytes;
} tri_program;

/* What the memory plan has to know of who will run the program. */
typedef struct tri_memory_needs {
    /* Gradients have memory of their own, since other ranks read it in place. */
    bool grads_apart;
    /* Bytes of scratch that the kernel of an instruction is to find in the plan; its operands have
     * no address yet. NULL: none are. */
    uint64_t (*scratch)(const void *context, const tri_program *program, const tri_instr *instr);
    const void *context;
    bool keep_pieces; /* the program will be extended (extend.h) */
} tri_memory_needs;

/* What a program is built of, besides the graph. */
typedef struct tri_build_config {
    const tri_action *schedule; /* of this rank, with messages where there is a pipeline */
    size_t num_actions;
    uint32_t num_microbatches;
    bool delayed;                  /* of asynchronous schedules, as in schedule.h */
    const tri_memory_needs *needs; /* NULL: none */
} tri_build_config;

/* Cuts the graph into the segments that the schedule names, plans the memory and lays out the
 * timeline. The program copies all it needs from the graph and from what is known of its
 * parameters. */
tr_status tri_program_build(const tri_graph *graph, const tri_placed_params *placed,
                            const tri_build_config *config, tri_program *program, tr_error *err);
void tri_program_fini(tri_program *program);
/* Of each node: the gradients of activations depend on it, so that a split backward runs it in I,
 * and the rest of its backward in W. The caller frees it; NULL without memory. */
bool *tri_program_on_chain(const tri_graph *graph);

/* What a segment is of a pair whose halves are interleaved: both are alive together. */
typedef enum tri_half { TRI_HALF_NONE, TRI_HALF_FORWARD, TRI_HALF_BACKWARD } tri_half;

/* Memory plan (memory.c): gives every value a home, and frames to the calls. */
typedef struct tri_node_order {
    const tri_id *node;      /* nodes in the order of segments */
    const uint32_t *segment; /* of each position */
    const uint32_t *instr;   /* its instruction */
    size_t count;
    bool once; /* every segment runs once a step, and they stand in the order of the timeline */
    const tri_half *half; /* of each segment */
} tri_node_order;
tr_status tri_plan_memory(const tri_graph *graph, const tri_placed_params *placed,
                          const tri_node_order *order, const tri_memory_needs *needs,
                          tri_program *program, tr_error *err);

/* The calls of a list of actions, each of which has a segment (timeline.c). */
tr_status tri_lay_calls(tri_program *program, const tri_action *actions, size_t num,
                        bool asynchronous, tr_error *err);
/* What follows from the order of calls (timeline.c), once they have their segments: which is the
 * last, who starts the sums, and instances of frames. */
tr_status tri_settle_calls(tri_program *program, tr_error *err);

/* Versions of the parameters (versions.c): which instance each call of an asynchronous program
 * reads or writes. */
tr_status tri_assign_versions(tri_program *program, bool delayed, tr_error *err);

/* Pairs (pairs.c): how many calls run as one from this one on, 1 or those of a pair; their n-th
 * turn, in the order of running, false past the last; and the place of an instruction in that
 * order, as a number that grows along the timeline. */
static inline uint32_t tri_calls_at_once(const tri_program *program, size_t call)
{
    uint32_t pair = program->calls[call].pair;
    return pair ? program->pairs[pair - 1].num_calls : 1;
}
bool tri_timeline_turn(const tri_program *program, size_t call, uint32_t n, tri_turn *turn);
/* Seconds that the calls that run as one take at least by run.pace: of each action, and in
 * TRI_PACE_PAIR of a pair. *num_products: of their products, which share it. */
double tri_calls_pace(const tri_program *program, uint32_t call, const double *pace,
                      uint32_t *num_products);
uint64_t tri_timeline_place(const tri_program *program, uint32_t call, uint32_t instr);
/* Of the first calls of a pair, numbered from 1: their messages, and those that are under way while
 * the other half has a turn (text_pairs.c). */
typedef struct tri_pair_messages {
    uint32_t all, beside;
} tri_pair_messages;
tri_pair_messages tri_pair_count(const tri_program *program, uint32_t pair);
/* Makes the lists of calls that overlap; values have addresses, and there are messages. */
tr_status tri_pair_calls(tri_program *program, tr_error *err);
/* Which segments are halves of pairs that will be interleaved; before there are addresses. */
void tri_pair_halves(const tri_program *program, tri_half *half);

/* Whether an instruction of a call's segment runs in that call. */
static inline bool tri_call_runs(const tri_call *call, const tri_instr *instr)
{
    return (call->last || !instr->last_only) && (call->first || !instr->first_only);
}

/* Whether an instruction is run by itself, or is the first of its message: those behind it in that
 * go with it. */
static inline bool tri_instr_leads(const tri_program *program, uint32_t instr)
{
    uint32_t message = program->instrs[instr].message;
    return message == TRI_NONE || program->messages[message].first == instr;
}

/* What addresses of a place are multiples of. */
static inline uint64_t tri_where_align(tri_where where)
{
    return where == TRI_WHERE_DEVICE ? TRI_PROGRAM_ALIGN : TRI_BLOCK_BYTES;
}
uint64_t tri_space_total(const tri_space *space);
uint64_t tri_value_bytes(const tri_value *value);
/* "F" without a pipeline, "2F" for chunk 2 of one. Returns out. */
char *tri_segment_text(const tri_program *program, const tri_segment *segment, char out[24]);
/* The value that an instruction is about: what it makes, or what it sends. */
tri_id tri_instr_value(const tri_instr *instr);
/* A product of 8-bit operands. */
bool tri_instr_float8(const tri_program *program, const tri_instr *instr);
/* The value of that name (newest version of a state), or TRI_NONE. */
tri_id tri_program_find(const tri_program *program, const char *name);
tri_cost tri_program_cost(const tri_program *program); /* of a whole step */
/* Of that, what recomputation adds: no part of the model's own arithmetic. */
tri_cost tri_program_redone(const tri_program *program);

/* Proves that the program computes what the graph says; the error names the instruction. */
tr_status tri_program_check(const tri_program *program, tr_error *err);

/* Deliberate faults, to show that the checker sees them. */
typedef struct tri_fault {
    const char *name, *meaning;
    bool (*apply)(tri_program *program); /* false: this program has no place for it */
} tri_fault;
const tri_fault *tri_fault_at(size_t i); /* NULL past the end */
/* The same for programs whose states rest elsewhere than on the device, which no setting asks for
 * yet. */
const tri_fault *tri_space_fault_at(size_t i);
/* And for messages with counts that ranks find out while they compute, which no layout has yet. */
const tri_fault *tri_exchange_fault_at(size_t i);

/* Text form. */
typedef struct tri_explain_options {
    bool summary; /* totals only */
    bool all;     /* every instruction: repeated layers are not folded */
} tri_explain_options;
void tri_program_explain(const tri_program *program, const tri_explain_options *options,
                         tri_text *text);
/* A line about what recomputation adds; none when it adds nothing. */
void tri_program_redone_text(const tri_program *program, tri_text *text);

#endif
