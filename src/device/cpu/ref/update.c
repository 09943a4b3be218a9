/* The end of a step: the norm of the gradient, the one factor, the update rules.
 *
 * A rule reads the accumulated gradient times FACTOR and writes nothing when OK is 0. State is
 * updated in place: out k and in k are the same memory. */
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "device/lion.h"

static double sum_squares_of(const tri_tensor *x)
{
    const float *data = x->data;
    double sum = 0;
    for (int64_t i = 0; i < x->count; i++)
        sum += (double)data[i] * data[i];
    return sum;
}

static void sum_squares(const tri_kernel_args *args)
{
    tri_ref_store(args->out[0].data, sum_squares_of(&args->in[0]), args->overwrite);
}

/* Half after a step that overflowed, double after enough good ones in a row. */
static void next_scale(float *scaler, bool ok, float interval)
{
    float scale = scaler[TRI_SCALER_SCALE], good = scaler[TRI_SCALER_GOOD] + 1;
    bool grows = ok && good >= interval && isfinite(2 * scale);
    scaler[TRI_SCALER_SCALE] = scale * (ok ? grows ? 2.0f : 1.0f : 0.5f);
    scaler[TRI_SCALER_GOOD] = ok && good < interval ? good : 0;
}

static void finish(const tri_kernel_args *args)
{
    float loss = *(const float *)args->in[0].data, count = *(const float *)args->in[1].data;
    float sumsq = *(const float *)args->in[2].data;
    float scale = tri_kernel_scale(args, 3);
    float *result = args->out[0].data;
    double counted = fmax(count, 1);
    double divisor = counted * args->attr->finish.alpha * scale;
    double norm = sqrt(sumsq) / divisor;
    double clip = args->attr->finish.clip;
    double whole = (double)loss;
    bool fits = true;
    int limit_row = args->attr->finish.limit_row, num_stats = args->num_in - 4 - (limit_row > 0);
    for (int k = 0; k < num_stats; k++) {
        double stat = *(const float *)args->in[4 + k].data;
        double weight = args->attr->finish.weight[k];
        whole += weight != 0 ? weight * stat : 0;
        fits &= !(args->attr->finish.stops >> k & 1) || stat == 0;
        result[TRI_NUM_RESULT + k] =
            (float)(args->attr->finish.means >> k & 1 ? stat / counted : stat);
    }
    result[TRI_RESULT_LOSS] = (float)(whole / counted);
    if (limit_row > 0)
        fits &= !(result[TRI_RESULT_LOSS] >
                  ((const float *)args->in[args->num_in - 1].data)[limit_row]);
    result[TRI_RESULT_NORM] = (float)norm;
    result[TRI_RESULT_FACTOR] = (float)(1 / divisor * (clip > 0 && norm > clip ? clip / norm : 1));
    result[TRI_RESULT_OK] = isfinite(whole) && isfinite(sumsq) && fits;
    result[TRI_RESULT_COUNT] = count;
    result[TRI_RESULT_SCALE] = scale;
    if (args->num_out > 1 && fits)
        next_scale(args->out[1].data, result[TRI_RESULT_OK] != 0,
                   (float)args->attr->finish.interval);
}

static void fill(const tri_kernel_args *args)
{
    for (int64_t i = 0; i < args->out[0].count; i++)
        ((float *)args->out[0].data)[i] = args->attr->axpby.alpha;
}

static void sgd(const tri_kernel_args *args)
{
    const float *g = args->in[2].data, *sched = args->in[3].data, *result = args->in[4].data;
    float *p = args->out[0].data, *mom = args->out[1].data;
    const tri_update_attr *attr = &args->attr->update;
    double lr = (double)sched[TRI_STEP_LR] * attr->lr_scale;
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t i = 0; i < args->out[0].count; i++) {
        double grad = (double)g[i] * result[TRI_RESULT_FACTOR] + (double)attr->weight_decay * p[i];
        double direction = grad;
        if (mom) {
            double next = (double)attr->beta1 * mom[i] + grad;
            direction = attr->nesterov ? grad + attr->beta1 * next : next;
            mom[i] = (float)next;
        }
        p[i] = (float)(p[i] - lr * direction);
    }
}

/* The copy of a weight, in its type. */
static void write_copy(const tri_tensor *copy, const float *p)
{
    uint16_t *half = copy->data;
    if (copy->dtype == TRI_F32 && copy->count > 0)
        memcpy(copy->data, p, (size_t)copy->count * sizeof *p);
    for (int64_t i = 0; copy->dtype == TRI_BF16 && i < copy->count; i++)
        half[i] = tri_weight_to_bf16(p[i]);
    for (int64_t i = 0; copy->dtype == TRI_F16 && i < copy->count; i++)
        half[i] = tri_f32_to_f16(p[i]);
}

static void adam(const tri_kernel_args *args)
{
    const float *g = args->in[3].data, *sched = args->in[4].data, *result = args->in[5].data;
    float *p = args->out[0].data, *m = args->out[1].data, *v = args->out[2].data;
    const tri_update_attr *attr = &args->attr->update;
    double lr = (double)sched[TRI_STEP_LR] * attr->lr_scale;
    double beta1 = attr->beta1, beta2 = attr->beta2, decay = attr->weight_decay;
    const float *own = sched + attr->own_rows;
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t i = 0; i < args->out[0].count; i++) {
        double grad = (double)g[i] * result[TRI_RESULT_FACTOR];
        double param = p[i];
        if (attr->decoupled)
            param -= lr * decay * param;
        else
            grad += decay * param;
        double mean = beta1 * m[i] + (1 - beta1) * grad;
        double square = beta2 * v[i] + (1 - beta2) * grad * grad;
        double direction =
            mean * own[TRI_ADAM_BIAS1] / (sqrt(square * own[TRI_ADAM_BIAS2]) + attr->eps);
        m[i] = (float)mean;
        v[i] = (float)square;
        p[i] = (float)(param - lr * direction);
    }
    if (args->num_out > 3)
        write_copy(&args->out[3], p);
}

static void narrow(const tri_kernel_args *args)
{
    write_copy(&args->out[0], args->in[0].data);
}

static void lion(const tri_kernel_args *args)
{
    const float *g = args->in[2].data, *sched = args->in[3].data, *result = args->in[4].data;
    float *p = args->out[0].data, *m = args->out[1].data;
    const tri_update_attr *attr = &args->attr->update;
    const tri_lion k = tri_lion_of(result[TRI_RESULT_FACTOR], sched[TRI_STEP_LR] * attr->lr_scale,
                                   attr->weight_decay, attr->beta1, attr->beta2);
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t i = 0; i < args->out[0].count; i++)
        tri_lion_update(&k, g[i], &p[i], &m[i]);
}

static void momentum(const tri_kernel_args *args)
{
    const float *g = args->in[1].data, *result = args->in[2].data;
    float *mom = args->out[0].data, *update = args->out[1].data;
    double beta1 = args->attr->update.beta1;
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t i = 0; i < args->out[0].count; i++) {
        double grad = (double)g[i] * result[TRI_RESULT_FACTOR];
        double next = beta1 * mom[i] + grad;
        mom[i] = (float)next;
        update[i] = (float)(args->attr->update.nesterov ? grad + beta1 * next : next);
    }
}

static void unit_norm(const tri_kernel_args *args)
{
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    double norm = sqrt(sum_squares_of(&args->in[0])) + args->attr->update.eps;
    for (int64_t i = 0; i < args->out[0].count; i++)
        y[i] = (float)(x[i] / norm);
}

static void apply_update(const tri_kernel_args *args)
{
    const float *update = args->in[1].data, *sched = args->in[2].data, *result = args->in[3].data;
    float *p = args->out[0].data;
    const tri_update_attr *attr = &args->attr->update;
    double lr = (double)sched[TRI_STEP_LR] * attr->lr_scale;
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t i = 0; i < args->out[0].count; i++)
        p[i] = (float)(p[i] - lr * attr->weight_decay * p[i] - lr * attr->alpha * update[i]);
}

const tri_kernel tri_ref_sum_squares = {.run = sum_squares};
const tri_kernel tri_ref_fill = {.run = fill};
const tri_kernel tri_ref_finish = {.run = finish};
const tri_kernel tri_ref_sgd = {.run = sgd};
const tri_kernel tri_ref_adam = {.run = adam};
const tri_kernel tri_ref_narrow = {.run = narrow};
const tri_kernel tri_ref_lion = {.run = lion};
const tri_kernel tri_ref_momentum = {.run = momentum};
const tri_kernel tri_ref_unit_norm = {.run = unit_norm};
const tri_kernel tri_ref_apply_update = {.run = apply_update};
