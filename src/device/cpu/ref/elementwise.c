/* Operators that look at one element, or one column, at a time. */
#include "base/rng.h"
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

static void add(const tri_kernel_args *args)
{
    const float *a = args->in[0].data, *b = args->in[1].data;
    float *c = args->out[0].data;
    for (int64_t i = 0; i < args->out[0].count; i++)
        c[i] = a[i] + b[i];
}

static void bias_add(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *b = args->in[1].data;
    float *y = args->out[0].data;
    int64_t n = args->in[1].count;
    for (int64_t i = 0; i < args->out[0].count; i++)
        y[i] = x[i] + b[i % n];
}

static void bias_grad(const tri_kernel_args *args)
{
    const float *dy = args->in[0].data;
    float *db = args->out[0].data;
    int64_t n = args->out[0].count, rows = args->in[0].count / n;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += dy[i * n + j];
        tri_ref_store(&db[j], sum, args->overwrite);
    }
}

/* gelu(x) = x/2 * (1 + tanh(u)), u = sqrt(2/pi) * (x + 0.044715 x^3) */
double tri_ref_gelu(double x)
{
    double u = sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + tanh(u));
}

double tri_ref_gelu_grad(double x)
{
    double t = tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x));
    double du = sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * du;
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* The normal distribution up to x. */
static double normal_below(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}

static double act_of(tri_act kind, double x)
{
    switch (kind) {
    case TRI_ACT_GELU:
        return tri_ref_gelu(x);
    case TRI_ACT_RELU:
        return fmax(x, 0);
    case TRI_ACT_GELU_ERF:
        return x * normal_below(x);
    case TRI_ACT_TANH:
        return tanh(x);
    case TRI_ACT_SILU:
        return x * sigmoid(x);
    }
    return x;
}

static double silu_slope(double x)
{
    double s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

static double act_slope(tri_act kind, double x)
{
    switch (kind) {
    case TRI_ACT_GELU:
        return tri_ref_gelu_grad(x);
    case TRI_ACT_RELU:
        return x > 0;
    case TRI_ACT_GELU_ERF:
        return normal_below(x) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
    case TRI_ACT_TANH:
        return 1 - tanh(x) * tanh(x);
    case TRI_ACT_SILU:
        return silu_slope(x);
    }
    return 1;
}

static void act(const tri_kernel_args *args)
{
    const float *x = args->in[0].data;
    float *y = args->out[0].data;
    for (int64_t i = 0; i < args->out[0].count; i++)
        y[i] = (float)act_of(args->attr->act.kind, x[i]);
    if (args->num_out > 1)
        tri_ref_amax_of(&args->out[0], args->out[1].data);
}

static void act_grad(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *dy = args->in[1].data;
    float *dx = args->out[0].data;
    for (int64_t i = 0; i < args->out[0].count; i++)
        dx[i] = (float)(act_slope(args->attr->act.kind, x[i]) * dy[i]);
    if (args->num_out > 1)
        tri_ref_amax_of(&args->out[0], args->out[1].data);
}

static void swiglu(const tri_kernel_args *args)
{
    const float *gate = args->in[0].data, *up = args->in[1].data;
    float *y = args->out[0].data;
    for (int64_t i = 0; i < args->out[0].count; i++)
        y[i] = (float)(gate[i] * sigmoid(gate[i]) * up[i]);
    if (args->num_out > 1)
        tri_ref_amax_of(&args->out[0], args->out[1].data);
}

static void swiglu_grad(const tri_kernel_args *args)
{
    const float *gate = args->in[0].data, *up = args->in[1].data, *dy = args->in[2].data;
    float *dgate = args->out[0].data, *dup = args->out[1].data;
    for (int64_t i = 0; i < args->out[0].count; i++) {
        double g = gate[i], u = up[i], d = dy[i]; /* first, because the outputs may be these */
        dgate[i] = (float)(d * u * silu_slope(g));
        dup[i] = (float)(d * g * sigmoid(g));
    }
    for (int k = 2; k < args->num_out; k++)
        tri_ref_amax_of(&args->out[k - 2], args->out[k].data);
}

/* The global index of a local element: dim 0 is a sample, known by its id; the others lie at
 * origin within the logical tensor. Where tokens have places (or NULL), dim 1 is known by these. */
static uint64_t global_index(const tri_tensor *x, const int32_t *rows, const int32_t *places,
                             int64_t local)
{
    int64_t at[TRI_MAX_RANK] = {0};
    for (int d = x->rank - 1; d >= 0; d--) {
        at[d] = local % x->size[d];
        local /= x->size[d];
    }
    uint64_t g = (uint64_t)rows[at[0]];
    for (int d = 1; d < x->rank; d++) {
        bool placed = places && d == 1;
        int64_t index = placed ? places[at[0] * x->size[1] + at[1]] : at[d] + x->origin[d];
        g = g * (uint64_t)x->global[d] + (uint64_t)index;
    }
    return g;
}

static void dropout(const tri_kernel_args *args)
{
    const float *x = args->in[0].data;
    const int32_t *rows = args->in[1].data, *step = args->in[2].data;
    float *y = args->out[0].data;
    uint32_t threshold = tri_dropout_threshold(args->attr->dropout.p);
    float scale = 1.0f / (1.0f - args->attr->dropout.p);
    for (int64_t i = 0; i < args->out[0].count; i++) {
        uint64_t g = global_index(&args->in[0], rows, args->in[3].data, i);
        uint32_t word =
            tri_random_word(args->seed, g, (uint32_t)step[0], args->attr->dropout.stream);
        y[i] = word >= threshold ? x[i] * scale : 0;
    }
}

static void jitter(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, p = args->attr->dropout.p;
    const int32_t *rows = args->in[1].data, *step = args->in[2].data;
    float *y = args->out[0].data;
    for (int64_t i = 0; i < args->out[0].count; i++) {
        uint64_t g = global_index(&args->in[0], rows, args->in[3].data, i);
        uint32_t word =
            tri_random_word(args->seed, g, (uint32_t)step[0], args->attr->dropout.stream);
        y[i] = x[i] * tri_jitter_factor(word, p);
    }
}

static void accumulate(const tri_kernel_args *args)
{
    const float *x = args->in[0].data;
    float *acc = args->out[0].data;
    for (int64_t i = 0; i < args->out[0].count; i++)
        tri_ref_store(&acc[i], x[i], args->overwrite);
}

static void axpby(const tri_kernel_args *args)
{
    const float *x = args->in[0].data, *y = args->in[1].data;
    float *z = args->out[0].data;
    double alpha = args->attr->axpby.alpha, beta = args->attr->axpby.beta;
    for (int64_t i = 0; i < args->out[0].count; i++)
        z[i] = (float)(alpha * x[i] + beta * y[i]);
}

/* Both ends are f32 here: a kernel that has 16-bit operands is called through widened copies. */
static void copy(const tri_kernel_args *args)
{
    memcpy(args->out[0].data, args->in[0].data, (size_t)args->out[0].count * sizeof(float));
}

const tri_kernel tri_ref_copy = {.run = copy};
const tri_kernel tri_ref_add = {.run = add};
const tri_kernel tri_ref_bias_add = {.run = bias_add};
const tri_kernel tri_ref_bias_grad = {.run = bias_grad};
const tri_kernel tri_ref_act = {.run = act};
const tri_kernel tri_ref_act_grad = {.run = act_grad};
const tri_kernel tri_ref_dropout = {.run = dropout};
const tri_kernel tri_ref_jitter = {.run = jitter};
const tri_kernel tri_ref_accumulate = {.run = accumulate};
const tri_kernel tri_ref_axpby = {.run = axpby};
const tri_kernel tri_ref_swiglu = {.run = swiglu};
const tri_kernel tri_ref_swiglu_grad = {.run = swiglu_grad};
