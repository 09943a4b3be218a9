/* What a software that trains makes of the same model: what it fuses, how often it passes over
 * memory, what it hides behind arithmetic, what its host takes to start a kernel.
 *
 * A profile is a row of constants; the functions apply them to one operator of a layer at a time,
 * on one rank, so that a program's instructions can be priced as that software would run them.
 * tests/reference/published_model.py is the same in Python. */
#ifndef TRI_SIM_SOFTWARE_H
#define TRI_SIM_SOFTWARE_H

#include "sim/device_profile.h"

typedef struct tri_software {
    const char *name, *title;
    const char *from;   /* what its constants were fitted on */
    bool flash;         /* attention keeps no scores */
    bool portable;      /* by kernels that were not written for the device */
    bool fully_sharded; /* weights are gathered for each layer, gradients scattered */
    bool scatters;      /* a border of the pipeline carries a part from each rank of tp */
    bool never_again;   /* published rows say full recomputation, their times say none */
    double gap_s;       /* from the end of a kernel to the start of the next */
    double host_s;      /* of the host, to start one */
    double host_spread; /* more of that, for each doubling of tp */
    double wait_s;      /* before each sum over tp */
    /* Memory. Bytes an element; passes: a factor on all of them. */
    double passes;
    double softmax, softmax_back;   /* of each score; with dropout */
    double plain_softmax;           /* times, where scores do not fit the fused kernel */
    double residual, residual_back; /* of each element of the stream: sum, bias, dropout */
    double head_moves;              /* of queries: copies to other layouts */
    double weight_gradient;         /* the product of a weight's gradient writes so much */
    double accumulate;              /* and adding it up then takes so much; 0: it does so itself */
    double loss, loss_back;         /* of each logit */
    double cast;                    /* of what 8-bit operands cost to make */
    double update;                  /* of each parameter */
    /* Arithmetic. */
    double attention, attention_back; /* rates of its attention, times those of the profile */
    double odd;        /* heads whose width is 4 more than a multiple of 8 are so much slower */
    double odder;      /* odd widths: odd to this power; 2 more than a multiple of 4: squared */
    double contention; /* messages slow the arithmetic beside them */
    bool stops_early;  /* recomputation leaves out a layer's last product */
    /* Messages. */
    double network;    /* share of the network's bandwidth */
    double crossing;   /* times that, over log2 of the nodes: what sums across switches keep */
    double gradient;   /* bytes of a parameter's gradient in a message */
    double dp_shown;   /* share of the sums of gradients that the backward does not hide */
    double tp_hides;   /* of tp's messages behind products, with sequence parallelism */
    double pipe_shown; /* share of the pipeline's messages that is waited for */
    double shown;      /* of gathering and scattering behind arithmetic, what shows all the same */
    /* Of a step. */
    double step_s;   /* fixed */
    double spread_s; /* more for each doubling of the ranks beyond a node's */
} tri_software;

/* NULL past the end, or when there is none of that name. */
const tri_software *tri_software_at(size_t i);
const tri_software *tri_software_find(const char *name);

/* Seconds on the device, and kernels that the host starts for them. */
typedef struct tri_op_time {
    double seconds, kernels;
} tri_op_time;

/* A weight of `outputs` x `inputs`, for so many tokens. */
typedef struct tri_linear_size {
    double tokens, outputs, inputs;
    tri_rate rate;
    bool bias;
} tri_linear_size;
tri_op_time tri_software_linear(const tri_software *w, const tri_device_profile *p,
                                const tri_linear_size *size, bool backward);

/* The core of attention: heads on this rank, causal. */
typedef struct tri_core_size {
    double rows, tokens, heads, width; /* tokens of a row */
    double ranks;                      /* that share the tokens of a row */
} tri_core_size;
tri_op_time tri_software_attention(const tri_software *w, const tri_device_profile *p,
                                   const tri_core_size *size, bool backward);
/* Copies of queries, keys and values to the layout that attention reads, and back. */
tri_op_time tri_software_head_moves(const tri_software *w, const tri_device_profile *p,
                                    double elements, bool backward);

/* A norm and the sum of the residual stream beside it. plain: no bias and no dropout. */
tri_op_time tri_software_norm(const tri_software *w, const tri_device_profile *p, double elements,
                              bool plain, bool backward);
/* GELU, or SwiGLU (gated), of so many elements of the result. */
tri_op_time tri_software_activation(const tri_software *w, const tri_device_profile *p,
                                    double elements, bool gated, bool backward);
/* The loss of so many logits, without the product of the head. */
tri_op_time tri_software_loss(const tri_software *w, const tri_device_profile *p, double logits,
                              bool backward);
/* Adding up the gradient of so many weights; 0 where their product does. */
tri_op_time tri_software_accumulate(const tri_software *w, const tri_device_profile *p,
                                    double weights);
/* The update of so many parameters. */
tri_op_time tri_software_update(const tri_software *w, const tri_device_profile *p,
                                double parameters);

/* The host starts kernels while the device works; what takes longer counts. */
double tri_software_pace(const tri_software *w, double device_s, double kernels, double tp);

#endif
