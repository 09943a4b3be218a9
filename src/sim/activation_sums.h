/* Activations that a transformer layer keeps for its backward, by the published formulas
 * (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models"): a GPT
 * layer whose feed-forward is four times as wide, with dropout and with scores that are stored. Of
 * real programs program/ledger.h counts what is kept. */
#ifndef TRI_SIM_ACTIVATION_SUMS_H
#define TRI_SIM_ACTIVATION_SUMS_H

#include <stdbool.h>

typedef struct tri_layer_sizes {
    double tokens;        /* s b: of all rows together */
    double seq_len;       /* s, of a row */
    double width, heads;  /* h, a */
    double element_bytes; /* e; masks of dropout take one */
    double tp;            /* t: ranks of tensor parallelism */
    bool sp;              /* what lies between the blocks of tp is divided over them, too */
} tri_layer_sizes;

typedef enum tri_kept_kind {
    TRI_KEPT_ALL,       /* s b h ((4e+2) + 12e/t) + (2e+1) a b s^2 / t */
    TRI_KEPT_SELECTIVE, /* attention's scores are made again: without the second term */
    TRI_KEPT_INPUT,     /* full recomputation: e s b h */
    TRI_NUM_KEPT
} tri_kept_kind;

/* Bytes of a layer on one rank. */
double tri_activation_bytes(const tri_layer_sizes *layer, tri_kept_kind kept);

#endif
