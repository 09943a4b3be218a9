/* What the files of the memory plan share (memory.c says how it goes). */
#ifndef TRI_PROGRAM_MEMORY_PARTS_H
#define TRI_PROGRAM_MEMORY_PARTS_H

#include "program/program.h"

/* What shares one piece of memory. */
struct tri_buffer {
    uint64_t bytes, offset;
    uint32_t made;       /* position of the node that makes it */
    uint32_t born, dies; /* between which it is alive, inclusive */
    uint32_t space;
    tri_where where;
    bool stays; /* from its birth to the end of the step, for all micro-batches */
};

/* Buffers that have a space and lifetimes, and get addresses in `work`. */
typedef struct tri_work_order {
    tri_program *program; /* its spaces are as large as what is placed in them */
    tri_buffer *buffers;
    size_t num_buffers;
    bool once;               /* as in tri_node_order */
    const uint32_t *segment; /* of each position */
    const tri_half *half;    /* of each segment */
} tri_work_order;
tr_status tri_place_work(const tri_work_order *order, tr_error *err); /* memory_work.c */

typedef struct tri_planner {
    const tri_graph *graph;
    const tri_placed_params *placed;
    const tri_node_order *order;
    tri_program *program;
    bool lays_grads;       /* gradients are buffers of the step, not states with a space */
    bool *sent;            /* of each value: a message to another stage reads it, whenever it may */
    uint32_t *last_use;    /* position of the last reader of each value, or of its maker */
    tri_id *buffer_of;     /* buffer of each temporary, or TRI_NONE */
    tri_id *bucket_buffer; /* buffer of each bucket of temporaries, or TRI_NONE */
    tri_id *scratch_of;    /* buffer of the scratch at each position, or TRI_NONE */
    tri_id *grad_group;    /* of each state: the one that leads its group, or itself */
    uint64_t *group_bytes; /* of each leader: the whole tensors of its group */
    tri_id *grad_buffer;   /* of each state: the buffer of its group, or TRI_NONE */
    uint64_t *grad_offset; /* of each state, in that buffer */
    tri_buffer *buffers;
    size_t num_buffers;
    tr_error *err;
} tri_planner;

static inline uint64_t tri_planner_align_at(uint64_t bytes, tri_where where)
{
    uint64_t unit = tri_where_align(where);
    return (bytes + unit - 1) / unit * unit;
}

static inline uint64_t tri_planner_align(uint64_t bytes)
{
    return tri_planner_align_at(bytes, TRI_WHERE_DEVICE);
}

/* memory.c: the space of a kind at a place, which is made when it is first asked for. */
uint32_t tri_planner_space(tri_planner *p, tri_space_kind kind, tri_where where);

/* memory_states.c: what keeps its place for the run. */
tr_status tri_planner_place_states(tri_planner *p);
void tri_planner_place_inputs_and_outputs(tri_planner *p);

/* memory_grads.c: gradients as buffers of the step. */
/* Which of them lie together; before states are placed. */
void tri_planner_group_grads(tri_planner *p);
/* The next piece of its group's buffer is this state's. */
void tri_planner_add_grad(tri_planner *p, tri_id state, uint64_t bytes);
/* From when on each group is alive. */
void tri_planner_date_grads(tri_planner *p);
/* When all buffers have their address. */
void tri_planner_settle_grads(tri_planner *p);

#endif
