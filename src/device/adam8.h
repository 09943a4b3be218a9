/* AdamW and Adam with moments of 8 bits, one element at a time: the formula of every kernel of it.
 *
 * What is encoded depends on the last bit of what is computed (the random number does), so nothing
 * is left to the compiler: a product that is added to something is fmaf. All devices then have the
 * same bits. */
#ifndef TRI_DEVICE_ADAM8_H
#define TRI_DEVICE_ADAM8_H

#include <math.h>

#include "base/block8.h"
#include "graph/op.h"
#include "graph/step_rows.h"

typedef struct tri_adam8 {
    float factor, lr, beta1, rest1, beta2, rest2, eps, bias1, bias2;
    float shrink;     /* decay apart from the gradient: what is left of a weight */
    float grad_decay; /* or the decay that is added to it */
    uint32_t key_m, key_v;
} tri_adam8;

TRI_EVERYWHERE tri_adam8 tri_adam8_of(const tri_update_attr *attr, const float *sched,
                                      const float *result)
{
    const float *own = sched + attr->own_rows;
    tri_adam8 k;
    k.factor = result[TRI_RESULT_FACTOR];
    k.lr = sched[TRI_STEP_LR] * attr->lr_scale;
    k.beta1 = attr->beta1;
    k.rest1 = 1.0f - attr->beta1;
    k.beta2 = attr->beta2;
    k.rest2 = 1.0f - attr->beta2;
    k.eps = attr->eps;
    k.bias1 = own[TRI_ADAM_BIAS1];
    k.bias2 = own[TRI_ADAM_BIAS2];
    k.shrink = attr->decoupled ? fmaf(-k.lr, attr->weight_decay, 1.0f) : 1.0f;
    k.grad_decay = attr->decoupled ? 0.0f : attr->weight_decay;
    k.key_m = tri_bits_of(own[TRI_ADAM8_NTH]) * 0x27d4eb2fu;
    k.key_v = ~k.key_m;
    return k;
}

/* m and v as they were decoded become what is to be encoded. */
TRI_EVERYWHERE void tri_adam8_update(const tri_adam8 *k, float g, float *p, float *m, float *v)
{
    float grad = fmaf(k->grad_decay, *p, g * k->factor);
    *m = fmaf(k->beta1, *m, k->rest1 * grad);
    *v = fmaf(k->beta2, *v, k->rest2 * grad * grad);
    float direction = *m * k->bias1 / (sqrtf(*v * k->bias2) + k->eps);
    *p = fmaf(-k->lr, direction, k->shrink * *p);
}

#endif
