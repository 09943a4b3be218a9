/* Lion (Chen et al. 2023), one element at a time: the formula of every kernel of it. */
#ifndef TRI_DEVICE_LION_H
#define TRI_DEVICE_LION_H

#include "base/everywhere.h"

typedef struct tri_lion {
    float factor; /* of the gradient */
    float lr, decay, beta1, beta2;
} tri_lion;

/* The sign of beta1 m + (1 - beta1) g is found by comparing the two products: a comparison is
 * exact, while a sum is rounded as each compiler sees fit. So a weight goes the same way on every
 * device. */
TRI_EVERYWHERE void tri_lion_update(const tri_lion *k, float grad, float *p, float *m)
{
    float g = k->factor * grad, old = k->beta1 * *m, against = (k->beta1 - 1) * g;
    float step = old > against ? k->lr : old < against ? -k->lr : 0.0f;
    *p = (1 - k->lr * k->decay) * *p - step;
    *m = k->beta2 * *m + (1 - k->beta2) * g;
}

#endif
