/* Lion (Chen et al. 2023), one element at a time: the formula of every kernel of it. */
#ifndef TRI_DEVICE_LION_H
#define TRI_DEVICE_LION_H

#include "base/everywhere.h"

/* Constants of a step, with the factor of the gradient in them. */
typedef struct tri_lion {
    float lr, shrink; /* what decay leaves of a weight */
    float beta1, against, beta2, rest;
} tri_lion;

TRI_EVERYWHERE tri_lion tri_lion_of(float factor, float lr, float decay, float beta1, float beta2)
{
    const tri_lion k = {lr,    1.0f - lr * decay,      beta1, (beta1 - 1.0f) * factor,
                        beta2, (1.0f - beta2) * factor};
    return k;
}

/* The sign of beta1 m + (1 - beta1) g is found by comparing the two products: a comparison is
 * exact, while a sum is rounded as each compiler sees fit. So a weight goes the same way on every
 * device. */
TRI_EVERYWHERE void tri_lion_update(const tri_lion *k, float grad, float *p, float *m)
{
    float old = k->beta1 * *m, against = k->against * grad;
    float step = old > against ? k->lr : old < against ? -k->lr : 0.0f;
    *p = k->shrink * *p - step;
    *m = k->beta2 * *m + k->rest * grad;
}

#endif
