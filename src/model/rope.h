/* Rotary positions as a model's configuration has them, and the frequencies that follow. */
#ifndef TRI_MODEL_ROPE_H
#define TRI_MODEL_ROPE_H

#include "base/error.h"
#include "graph/op.h"

typedef enum tri_rope_kind {
    TRI_ROPE_AS_LLAMA3,   /* low frequencies are divided by the factor */
    TRI_ROPE_AS_LINEAR,   /* all are (position interpolation) */
    TRI_ROPE_AS_DYNAMIC,  /* theta grows with the length (NTK) */
    TRI_ROPE_AS_YARN,     /* a ramp over the pairs, and a magnitude */
    TRI_ROPE_AS_LONGROPE, /* two lists of factors, for texts up to the original length and above */
} tri_rope_kind;

typedef struct tri_rope_setting {
    tri_rope_kind kind;
    double theta;
    double factor;                      /* 0: no scaling */
    double low, high;                   /* llama3: turns within the original length */
    double slow, fast;                  /* yarn: likewise */
    bool truncate;                      /* yarn: the ramp begins and ends at whole pairs */
    int64_t original;                   /* length that the model was first trained on */
    double magnitude;                   /* of queries and keys once turned; 0: what the kind says */
    double part;                        /* of a head that turns */
    const char *short_list, *long_list; /* longrope: numbers, a pair each */
} tri_rope_setting;

/* The frequencies of heads of this width, for texts of at most this length: dynamic and longrope
 * depend on it. */
tr_status tri_rope_resolve(const tri_rope_setting *rope, int64_t head_dim, int64_t length,
                           tri_rope_config *config, tr_error *err);

#endif
