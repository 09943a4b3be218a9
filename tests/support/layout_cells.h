/* Cells of the matrix of layouts: a small model, the settings it trains with, and how the work is
 * divided. A cell runs with its ranks as threads of this process and comes back as numbers. */
#ifndef TRI_TESTS_LAYOUT_CELLS_H
#define TRI_TESTS_LAYOUT_CELLS_H

#include <stdbool.h>
#include <stddef.h>

#include "trireme/status.h"

typedef enum cell_factor {
    CELL_MODEL,
    CELL_PRECISION,
    CELL_OPTIM,
    CELL_DP,
    CELL_TP,
    CELL_SP,
    CELL_ZERO,
    CELL_GROUP, /* layout.shard_group; 0: all of dp x cp */
    CELL_MICRO,
    CELL_SPLIT,
    CELL_PP, /* 0 and 1: no pipeline, and the next three mean nothing */
    CELL_SCHEDULE,
    CELL_CHUNKS, /* layout.chunks; 0: what the schedule has by default */
    CELL_LAYERS, /* model.num_layers; 0: the model's own */
    CELL_KEEP,   /* layout.keep_gathered; with zero 3 only */
    CELL_TILE,   /* model.loss_tile; of models with logits for each token */
    CELL_CP,     /* layout.cp; 0 and 1: none, and the next two mean nothing */
    CELL_CP_KIND,
    CELL_CP_DEAL,
    CELL_ROWS,      /* what rows are like, and how long */
    CELL_ROUTER,    /* what experts there are; 0: none, and the next two mean nothing */
    CELL_EP,        /* layout.ep; 0 and 1: none */
    CELL_ETP,       /* layout.etp; 0: as tp, 1: experts are whole */
    CELL_RECOMPUTE, /* 0: layout.recompute=none, 1: full */
    CELL_SEED,      /* run.seed; 0: its own */
    NUM_FACTORS
} cell_factor;

enum {
    MODEL_GPT2,
    MODEL_LLAMA,
    MODEL_TIED,
    MODEL_ONE_KEY,
    MODEL_MLM,
    MODEL_CLASSIFY,
    MODEL_MLP,
    NUM_MODELS
};
enum { FP32, BF16, BF16_GRAD, FP16, NUM_PRECISIONS };
enum { ADAMW, SGD, MUON, SGD_LONG, NUM_OPTIMS }; /* LONG: a few steps go far beyond rounding */
enum { NUM_SCHEDULES = 13 };                     /* those with one update a step */
enum { RING, GATHER, ULYSSES, RING_HEADS, GATHER_HEADS, NUM_CP_KINDS }; /* HEADS: cp_heads=2 */
enum { PLAIN, ZIGZAG, BALANCED, NUM_DEALS };
/* Of the data source, 24 tokens; the same with 23; documents of odd lengths with padding between
 * them, 29 tokens; 23 tokens that see a window (llama). */
enum { ROWS_EVEN, ROWS_ODD, ROWS_PACKED, ROWS_WINDOW, NUM_ROWS };

/* Ways to route, with all that differs between published ones. The last two compare loads of a
 * whole micro-batch, of which there may be one alone; JOINT those of all layers. */
enum {
    NO_EXPERTS,
    SOFTMAX, /* weights as they are, with a z-loss */
    RENORM,  /* weights that sum to one, of 4 experts */
    SIGMOID, /* with groups, a bias that is moved, and a shared expert */
    CHOSEN,  /* with a shared expert that has a gate */
    SOME,    /* the last layer alone has experts, three of which are chosen */
    BIASED,  /* softmax, by a bias and without a loss */
    CAPPED,  /* rows are dropped, and the router's input is jittered */
    MICROBATCH,
    JOINT,
    NUM_ROUTERS
};

/* One value for each factor: an index for models, precisions, update rules, schedules, kinds of
 * context parallelism, deals, rows and routers, the setting itself for the others. */
typedef struct cell {
    int is[NUM_FACTORS];
} cell;

extern const char *const cell_models[NUM_MODELS];
extern const char *const cell_precisions[NUM_PRECISIONS];
extern const char *const cell_optims[NUM_OPTIMS];
extern const char *const cell_schedules[NUM_SCHEDULES];
extern const char *const cell_cp_kinds[NUM_CP_KINDS];
extern const char *const cell_deals[NUM_DEALS];
extern const char *const cell_rows[NUM_ROWS];
extern const char *const cell_routers[NUM_ROUTERS];

enum { CELL_MAX_STEPS = 20, CELL_MAX_RANKS = 8 };

typedef struct cell_numbers {
    double loss[CELL_MAX_STEPS], norm[CELL_MAX_STEPS];
    double balance[CELL_MAX_STEPS]; /* the statistic balance_loss; 0 without experts */
    double eval_loss, eval_accuracy;
} cell_numbers;

/* What a run of a cell came to. */
typedef struct cell_run {
    int steps;
    cell_numbers ranks[CELL_MAX_RANKS];
    size_t num_params;
    size_t *sizes;           /* [num_params]: elements */
    bool *counted;           /* [num_params]: moved by counts alone, as the biases of routers are */
    float *before, *weights; /* all parameters, one after the other: at the start, at the end */
} cell_run;

/* "section.key=value" words of a cell into words[], which has room for CELL_MAX_WORDS. */
enum { CELL_MAX_WORDS = 64, CELL_WORD = 64, CELL_NAME = 320 };
int cell_words(const cell *c, char words[CELL_MAX_WORDS][CELL_WORD]);
void cell_name(const cell *c, char *text, size_t size);
int cell_world(const cell *c);
/* Whether its settings can be and none of them is without effect. */
bool cell_valid(const cell *c);
/* The same model, precision and update rule on one rank. */
cell cell_alone(const cell *c);

tr_status cell_run_do(cell_run *run, const cell *c, int steps, tr_error *err);
/* With more settings, separated by blanks. */
tr_status cell_run_with(cell_run *run, const cell *c, const char *more, int steps, tr_error *err);
void cell_run_fini(cell_run *run);
/* Equal losses, norms and weights, to the last bit. */
bool cell_same_bits(const cell_run *a, const cell_run *b);

/* How far two runs are apart: the largest relative differences. Distances of weights are relative
 * to the way that the weights of `one` went from their initial values, all together and for the
 * worst single tensor. */
typedef struct cell_distance {
    double loss, norm, balance, eval, accuracy, weights, tensor;
    size_t worst_tensor;
    bool ranks_agree; /* in every number, to the bit */
    bool same_start;  /* equal initial weights */
    bool same_biases; /* of routers, in the end */
    bool again;       /* found with another seed (check_cell) */
} cell_distance;
cell_distance cell_compare(const cell_run *one, const cell_run *many, int num_ranks);

#endif
