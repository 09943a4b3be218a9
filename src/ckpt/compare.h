/* Two checkpoints, element by element, whatever layouts wrote them. */
#ifndef TRI_CKPT_COMPARE_H
#define TRI_CKPT_COMPARE_H

#include "ckpt/checkpoint.h"

typedef enum tri_difference_kind {
    TRI_DIFFERENCE_NUMBER,  /* step, loss scale ...; a NAN where one has none */
    TRI_DIFFERENCE_MISSING, /* a tensor that one has not */
    TRI_DIFFERENCE_SHAPE,
    TRI_DIFFERENCE_ELEMENTS
} tri_difference_kind;

typedef struct tri_difference {
    tri_difference_kind kind;
    const char *name;
    double a, b;       /* numbers; or whether a and b have the tensor */
    int64_t count, of; /* elements whose bits differ, and elements */
    double largest;    /* difference of two elements; NAN when one is none */
    int64_t first;     /* index of the first that differs, in row-major order */
    float first_a, first_b;
} tri_difference;

typedef struct tri_comparison {
    size_t num_tensors, num_different; /* tensors of either; of them not the same */
    int64_t num_elements;
    size_t num_numbers_different;
} tri_comparison;

/* Calls fn for each difference. Both must have been opened. */
tr_status tri_checkpoint_compare(tri_checkpoint *a, tri_checkpoint *b,
                                 void (*fn)(void *context, const tri_difference *difference),
                                 void *context, tri_comparison *result, tr_error *err);

#endif
