/* The operator table: what each operator means, on any device.
 *
 * A row states shapes, gradient, cost, which outputs update which inputs in place, and the text of
 * `trireme explain --ops`. Kernels are not here: a device has its own table, keyed by tri_op. To
 * add an operator: a value below, a tri_op_def in ops/, a row in op_table.c, a reference kernel. */
#ifndef TRI_GRAPH_OP_H
#define TRI_GRAPH_OP_H

#include "base/error.h"
#include "base/id.h"
#include "graph/dtype.h"
#include "graph/placement.h"
#include "graph/route_attr.h"
#include "graph/shape.h"
#include "graph/stats.h"

typedef enum tri_op {
    /* products */
    TRI_OP_MATMUL,
    /* elementwise */
    TRI_OP_ADD,
    TRI_OP_BIAS_ADD,
    TRI_OP_BIAS_GRAD,
    TRI_OP_ACT,
    TRI_OP_ACT_GRAD,
    TRI_OP_DROPOUT,
    TRI_OP_JITTER,
    TRI_OP_ACCUMULATE,
    TRI_OP_AXPBY,
    TRI_OP_CAST,
    TRI_OP_AMAX,
    TRI_OP_QUANTISE,
    /* pieces of sharded values */
    TRI_OP_SLICE,
    TRI_OP_UNSLICE,
    TRI_OP_BLOCK,
    TRI_OP_UNBLOCK,
    TRI_OP_FIT_ROOMS,
    TRI_OP_SWIGLU,
    TRI_OP_SWIGLU_GRAD,
    TRI_OP_GATE_ROWS,
    TRI_OP_GATE_ROWS_GRAD,
    /* experts */
    TRI_OP_ROUTE,
    TRI_OP_ROUTE_GRAD,
    TRI_OP_ROUTE_SUMS,
    TRI_OP_ROUTE_SUMS_GRAD,
    TRI_OP_ROUTE_LOAD,
    TRI_OP_BALANCE,
    TRI_OP_BALANCE_GRAD,
    TRI_OP_MOVE_BIAS,
    TRI_OP_DROP_ROWS,
    TRI_OP_COUNT_DROPPED,
    TRI_OP_LARGEST,
    TRI_OP_SORT_ROWS,
    TRI_OP_GROUPED,
    TRI_OP_GROUPED_GRAD,
    TRI_OP_GROUPED8,
    TRI_OP_GROUPED8_GRAD,
    TRI_OP_ROOMS,
    TRI_OP_DISPATCH,
    TRI_OP_COLLECT,
    TRI_OP_PACK_ROOMS,
    TRI_OP_MASK_ROWS,
    TRI_OP_SWIGLU_ROWS,
    TRI_OP_SWIGLU_ROWS_GRAD,
    TRI_OP_GROUPED_SWIGLU,
    TRI_OP_GROUPED_SWIGLU_GRAD,
    TRI_OP_GROUPED_SUM,
    /* lookup */
    TRI_OP_EMBED,
    TRI_OP_EMBED_GRAD,
    TRI_OP_SELECT_ROW,
    TRI_OP_SELECT_ROW_GRAD,
    TRI_OP_GATHER_ROWS,
    /* norms */
    TRI_OP_LAYERNORM,
    TRI_OP_ADD_LAYERNORM,
    TRI_OP_LAYERNORM_GRAD,
    TRI_OP_LAYERNORM_PARAM_GRAD,
    TRI_OP_RMSNORM,
    TRI_OP_ADD_RMSNORM,
    TRI_OP_RMSNORM_GRAD,
    TRI_OP_RMSNORM_PARAM_GRAD,
    TRI_OP_LAYERNORM_GRADS,
    TRI_OP_RMSNORM_GRADS,
    /* attention */
    TRI_OP_ROPE,
    TRI_OP_SPLIT_QKV,
    TRI_OP_JOIN_QKV,
    TRI_OP_ATTENTION,
    TRI_OP_ATTENTION_GRAD,
    TRI_OP_ATTENTION_MERGE,
    TRI_OP_CACHE_WRITE,
    /* losses */
    TRI_OP_CE_STATS,
    TRI_OP_CE_COMBINE,
    TRI_OP_CE_LOSS,
    TRI_OP_CE_GRAD,
    TRI_OP_CROSS_ENTROPY,
    TRI_OP_OUT_LOSS,
    TRI_OP_OUT_LOSS_GRAD,
    /* the end of a step */
    TRI_OP_SUM_SQUARES,
    TRI_OP_FILL,
    TRI_OP_FINISH,
    TRI_OP_SGD,
    TRI_OP_ADAM,
    TRI_OP_ADAM8,
    TRI_OP_LION,
    TRI_OP_MOMENTUM,
    TRI_OP_UNIT_NORM,
    TRI_OP_APPLY_UPDATE,
    TRI_OP_NARROW,
    /* communication: run by the rank's communicator, not by its device */
    TRI_OP_ALL_REDUCE,
    TRI_OP_ALL_GATHER,
    TRI_OP_REDUCE_SCATTER,
    TRI_OP_ALL_TO_ALL,
    TRI_OP_ALL_TO_ALL_ROWS,
    TRI_OP_SHIFT,
    TRI_OP_SHARD_SUM,
    TRI_OP_SHARD_GATHER,
    TRI_OP_UNSHARD,
    TRI_OP_BROADCAST,
    TRI_OP_SEND,
    TRI_OP_RECV,
    /* between the places of a rank's own memory */
    TRI_OP_FETCH,
    TRI_OP_STASH,
    TRI_NUM_OPS
} tri_op;

enum { TRI_MAX_IN = 15, TRI_MAX_OUT = 6 };

/* Results of amax: part p has runs p, p + TRI_AMAX_PARTS, ... of TRI_AMAX_RUN elements each, so
 * that those who find them side by side sweep through memory together. And what the sides of
 * matrices that are quantised must be multiples of. */
enum { TRI_AMAX_PARTS = 256, TRI_AMAX_RUN = 4096, TRI_QUANTISE_UNIT = 16 };

typedef enum tri_act {
    TRI_ACT_GELU, /* the tanh form, which alone is fused into products */
    TRI_ACT_RELU,
    TRI_ACT_GELU_ERF, /* the exact form */
    TRI_ACT_TANH,
    TRI_ACT_SILU, /* x / (1 + exp(-x)) */
} tri_act;

typedef enum tri_out_loss {
    TRI_LOSS_SSE,  /* half the sum of squared differences over the batch: its gradient is out -
                    * target
                    */
    TRI_LOSS_MSE,  /* mean of squared differences */
    TRI_LOSS_MEAN, /* mean of the outputs; the target is not looked at */
} tri_out_loss;

/* What a product does to a finished tile. Chosen by the fusion pass, never by a model. */
typedef enum tri_epilogue {
    TRI_EPILOGUE_NONE,
    TRI_EPILOGUE_BIAS,      /* + bias */
    TRI_EPILOGUE_BIAS_GELU, /* + bias, kept; then GELU */
    TRI_EPILOGUE_GELU_GRAD, /* times the slope of GELU at the kept value */
    TRI_EPILOGUE_ADD,       /* + another value of the result's shape */
} tri_epilogue;

/* How a factor stretches the frequencies of rotary positions. */
typedef enum tri_rope_scaling {
    TRI_ROPE_LLAMA3, /* low frequencies are divided by it, middle ones in part: those that turn less
                        than low, or between low and high, times within original_max_position */
    TRI_ROPE_LINEAR, /* all are divided by it */
    TRI_ROPE_RAMP,   /* pairs below low stay, those above high are divided by it (YaRN) */
    TRI_ROPE_LISTED, /* pair i is divided by stretch[i]; the factor says only that it is so */
} tri_rope_scaling;

/* Rotary positions: pair i of a head of width K turns by position * f_i, f_i = theta^(-2i/K). */
typedef struct tri_rope_config {
    float theta;
    float factor; /* 0: none of the scaling */
    float low_freq_factor, high_freq_factor;
    float original_max_position;
    tri_rope_scaling scaling;
    int32_t turned;       /* first elements of a head that turn, its K above; 0: all of them */
    float magnitude;      /* of what has turned; 0: as it is */
    const float *stretch; /* interned (model/intern.h): attributes are copied as bytes */
} tri_rope_config;

/* A tensor divided over ranks without regard to its dims (ZeRO). The tensors of a bucket lie one
 * after the other, each at a multiple of a unit; the bucket is cut into equal parts
 * of whole units, or where tensors begin. */
enum { TRI_FLAT_UNIT = 32 };
typedef struct tri_flat {
    int parts;      /* ranks; 0: not divided */
    int part;       /* of this rank */
    int owner;      /* of whole tensors */
    bool whole;     /* tensors are not divided: `owner` has this one */
    int64_t offset; /* of the tensor in its bucket */
    int64_t count;  /* its elements */
    int64_t total;  /* elements of the bucket, a multiple of the unit */
    int32_t block;  /* the unit where a state rests in a code; 0: TRI_FLAT_UNIT */
} tri_flat;

static inline int64_t tri_flat_unit(const tri_flat *flat)
{
    return flat->block > 0 ? flat->block : TRI_FLAT_UNIT;
}

/* A number of elements, and what is free behind it. */
static inline int64_t tri_flat_padded(const tri_flat *flat, int64_t count)
{
    int64_t unit = tri_flat_unit(flat);
    return (count + unit - 1) / unit * unit;
}

/* Where a part of the bucket begins; not for whole tensors. */
static inline int64_t tri_flat_begin(const tri_flat *flat, int part)
{
    int64_t unit = tri_flat_unit(flat);
    return tri_block_begin(flat->total / unit, flat->parts, part) * unit;
}

/* What a part has of the tensor: elements [*first, *first + return value). */
static inline int64_t tri_flat_slice(const tri_flat *flat, int part, int64_t *first)
{
    *first = 0;
    if (flat->whole)
        return flat->owner == part ? flat->count : 0;
    int64_t begin = tri_flat_begin(flat, part) - flat->offset;
    int64_t end = tri_flat_begin(flat, part + 1) - flat->offset;
    begin = begin > 0 ? begin : 0;
    end = end < flat->count ? end : flat->count;
    *first = begin;
    return end > begin ? end - begin : 0;
}

/* Ranks of a pipeline that hold the same parameter, at most: two routes, first and last chunk. */
enum { TRI_MAX_HOMES = 4 };

/* Constants of one node: what all operators may have, and those of its family. An operator reads
 * the members of its own family alone; its row in the table names it (tri_op_def.family). */
typedef enum tri_attr_family {
    TRI_ATTR_NONE, /* it has none of its own */
    TRI_ATTR_MATMUL,
    TRI_ATTR_BIAS_GRAD,
    TRI_ATTR_ACT,
    TRI_ATTR_DROPOUT,
    TRI_ATTR_AXPBY,
    TRI_ATTR_CAST,
    TRI_ATTR_QUANTISE,
    TRI_ATTR_LOOKUP,
    TRI_ATTR_GATHER,
    TRI_ATTR_NORM,
    TRI_ATTR_ROPE,
    TRI_ATTR_ATTENTION,
    TRI_ATTR_ROUTE,
    TRI_ATTR_GROUPED,
    TRI_ATTR_LOSS,
    TRI_ATTR_FINISH,
    TRI_ATTR_UPDATE,
    TRI_ATTR_MESSAGE,
    TRI_NUM_ATTR_FAMILIES
} tri_attr_family;

typedef struct tri_matmul_attr {
    float alpha;              /* factor of the product */
    uint8_t split_a, split_b; /* dims before the split are the rows of the 2-d view */
    bool trans_a, trans_b;    /* use the transpose of the 2-d view */
    bool fast_sum;            /* 8-bit operands: sums may be kept in fewer bits */
    tri_epilogue epilogue;
    tri_dtype dtype; /* 8-bit operands: of the result */
} tri_matmul_attr;

typedef struct tri_quantise_attr {
    tri_dtype dtype;       /* what it becomes */
    uint8_t split, lead;   /* dims that are rows of the 2-d view; of x, by an index of its rows */
    bool straight, turned; /* as it lies, and as the transpose of that view */
} tri_quantise_attr;

/* Where ranks that have different tokens get the keys of the others from. */
typedef enum tri_attention_keys {
    TRI_KEYS_GATHERED, /* all of them have all keys */
    TRI_KEYS_RING,     /* they pass from rank to rank: place/expand_ring.c */
    TRI_KEYS_SEEN,     /* those that a query of a rank sees go to it: place/expand_seen.c */
} tri_attention_keys;

typedef struct tri_attention_attr {
    float alpha;     /* factor of the scores */
    float dropout;   /* probability that a weight becomes zero */
    uint32_t stream; /* of the random numbers for it, as of dropout */
    float soft_cap;  /* c > 0: scores s become c tanh(s / c) */
    int32_t window;  /* causal only: a query sees this many places, its own the last; 0: all */
    bool causal;     /* a query sees places up to its own */
    bool cached;     /* keys and values are rows of a cache, place x at x mod its length */
    uint8_t keys;    /* tri_attention_keys, until the node is expanded */
    float share;     /* with places: of all pairs, what is looked at on average; 0: all of them */
} tri_attention_attr;

/* Of all pairs of a query and a key in so many tokens, those that are looked at. */
double tri_attention_share(bool causal, int32_t window, int64_t tokens);

/* Inputs of attention: the first six are always given (some as absent), as of a plain batch. Those
 * of its gradient begin with the result's gradient, and have the results before the rest. */
enum {
    TRI_ATTENTION_Q,
    TRI_ATTENTION_K,
    TRI_ATTENTION_V,
    TRI_ATTENTION_ROWS,
    TRI_ATTENTION_STEP,
    TRI_ATTENTION_DOCS,
    TRI_ATTENTION_SPAN,
    TRI_ATTENTION_Q_PLACES,
    TRI_ATTENTION_K_PLACES,
    TRI_ATTENTION_SINK,
    TRI_NUM_ATTENTION_IN
};
enum {
    TRI_ATTENTION_GRAD_DO,
    TRI_ATTENTION_GRAD_Q,
    TRI_ATTENTION_GRAD_K,
    TRI_ATTENTION_GRAD_V,
    TRI_ATTENTION_GRAD_O,
    TRI_ATTENTION_GRAD_LSE,
    TRI_ATTENTION_GRAD_ROWS, /* and so on, as of attention */
    TRI_NUM_ATTENTION_GRAD_IN = TRI_NUM_ATTENTION_IN + 3
};

/* Update rules. */
typedef struct tri_update_attr {
    float lr_scale; /* of the parameter's group */
    float weight_decay;
    float beta1, beta2; /* moments' decay */
    float eps;
    float alpha; /* apply_update: factor of the update */
    bool nesterov;
    bool decoupled;   /* adam: weight decay apart from the gradient (AdamW) */
    uint8_t own_rows; /* the first row of `sched` that the rule has added (graph/step_rows.h) */
} tri_update_attr;

/* Families share their memory. Built apart (make asan), what reads a member of another family finds
 * zeros, and what sets one is told by name. */
#ifdef TRI_ATTR_APART
#define TRI_ATTR_UNION struct
enum { TRI_ATTR_SHARED = false };
#else
#define TRI_ATTR_UNION union
enum { TRI_ATTR_SHARED = true };
#endif

/* Communication, and the reordering that goes with it. */
typedef struct tri_message_attr {
    uint8_t how;  /* all_reduce: in which way terms are joined (tri_partial_how) */
    uint8_t axis; /* the mesh axis (tri_axis) whose group takes part */
    /* send, recv: the other rank's place on the axis; broadcast: the root's; shift: so many places
     * on, around the ring */
    uint32_t peer;
    TRI_ATTR_UNION
    {
        struct { /* all_reduce over `home`: the ranks, by their place on pp */
            uint32_t num, place[TRI_MAX_HOMES];
        } homes;
        struct { /* all_gather, reduce_scatter, all_to_all, shift, slice, unslice, block, unblock */
            tri_cut cut;     /* how a dim is divided, and which piece is meant (shift: had) */
            tri_cut scatter; /* all_to_all: the dim that is divided; `cut` is put together */
        };
        struct { /* fit_rooms: rows that a pair of ranks has room for */
            int64_t rows;
        } room;
        struct { /* unshard, broadcast, recv: what it makes */
            tri_shape shape;
            tri_dtype dtype;
        } made;
    };
} tri_message_attr;

/* Shift: the piece that comes in the place of the one that a rank has. */
static inline int32_t tri_shifted_piece(const tri_message_attr *attr)
{
    int32_t parts = attr->cut.parts;
    return (attr->cut.part + parts - (int32_t)(attr->peer % (uint32_t)parts)) % parts;
}

typedef struct tri_attr {
    /* Bit k: output k is f32 although operands are 16-bit: a gradient that is to be summed. Only of
     * outputs that may accumulate, whose kernels write f32 anyway. */
    uint8_t wide_out;
    tri_flat flat; /* the operator works on this rank's slice of its whole operands */
    TRI_ATTR_UNION
    {
        tri_matmul_attr matmul;
        struct {
            uint8_t leading; /* dims that are summed over: the first ones */
        } bias_grad;
        struct {
            tri_act kind;
        } act;
        struct {
            float p; /* probability that an element becomes zero; jitter: how far from one */
            uint32_t stream; /* of random numbers: hash of the canonical name */
        } dropout;
        struct {
            float alpha, beta; /* fill: alpha alone... */
            int32_t count;     /* ...for so many; 0: one */
        } axpby;
        struct {
            tri_dtype dtype; /* what it becomes */
        } cast;
        tri_quantise_attr quantise;
        struct {
            tri_shape table; /* embed_grad without a table: the shape of one */
        } lookup;
        struct {
            uint8_t lead; /* first dims of x that count its rows; the rest are a row's */
            bool each;    /* one term for each: the index has no last dim */
        } gather;
        tri_route_attr route;
        struct {
            bool back;       /* by the transpose of each expert's matrix */
            bool fast_sum;   /* 8-bit operands: sums may be kept in fewer bits */
            tri_dtype dtype; /* 8-bit operands: of the result */
            int64_t rows;    /* that have an expert, on average, for costs; 0: all of them */
            tri_shape table; /* grouped_grad without experts: the shape of them */
        } grouped;
        struct {
            float eps;
            uint8_t dims; /* of an RMS norm: a row is so many of the last dims; 0: one */
        } norm;
        struct {
            tri_rope_config config;
            bool inverse; /* turn back (the gradient) */
        } rope;
        tri_attention_attr attention;
        struct {
            tri_out_loss kind; /* out_loss and its gradient */
            float alpha;       /* gradients: what the backward starts from */
            float z;           /* cross-entropy: weight of the squared lse in the loss */
            uint8_t
                stat[TRI_MAX_HEAD_STATS]; /* cross-entropy: rows of the table, of outputs 3 on */
        } loss;
        struct {
            float alpha;      /* what the backward started from */
            float clip;       /* largest global norm, 0 = none */
            int32_t interval; /* good steps in a row after which the loss scale doubles */
            float weight[TRI_MAX_SHOWN]; /* of statistics that are losses, in the whole one */
            uint8_t means;               /* bit k: statistic k is shown divided by the count */
            uint8_t stops;               /* bit k: a step in which statistic k is not 0 is not ok */
            uint8_t limit_row;           /* of `sched`, the last input: a step with a larger loss is
                                            not ok; 0: any loss is, and there is no such input */
        } finish;
        tri_update_attr update;
        tri_message_attr message;
    };
} tri_attr;

/* Rows of its own that adam adds to the input `sched`, from attr.update.own_rows on. */
enum { TRI_ADAM_BIAS1, TRI_ADAM_BIAS2, TRI_NUM_ADAM_ROWS };
/* Those of adam8: the same, and which update this is, for random numbers. */
enum { TRI_ADAM8_NTH = TRI_NUM_ADAM_ROWS, TRI_NUM_ADAM8_ROWS };

/* The state `scaler` of a program with f16 activations: the factor that gradients carry so that
 * small ones do not vanish, and the good steps since it changed. f32 [TRI_NUM_SCALER]. */
enum { TRI_SCALER_SCALE, TRI_SCALER_GOOD, TRI_NUM_SCALER };

/* What FINISH computes for the update and for the host: f32 [TRI_NUM_RESULT]. FACTOR turns an
 * accumulated gradient into the one to apply: normalisation, clipping and loss scale in one. OK is
 * 1 when loss and norm are finite; an update with OK 0 writes nothing. SCALE is the loss scale
 * that this step's gradients carry: 1 without a scaler. Behind these: statistics that are shown. */
enum {
    TRI_RESULT_LOSS,
    TRI_RESULT_NORM,
    TRI_RESULT_FACTOR,
    TRI_RESULT_OK,
    TRI_RESULT_COUNT,
    TRI_RESULT_SCALE,
    TRI_NUM_RESULT
};

#endif
