/* Attention by places on the GPU against a dense mask in double, which is worked out here and knows
 * nothing of intervals' bounds: random intervals, places, lengths, widths, sinks, caps, dropout, in
 * f32, bf16 and f16; forward, gradients, equal bits in a second run, halves of the keys merged, and
 * cached texts.
 *
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASES=1000 build/tests/test_cuda_attention
 *     TRIREME_RANDOM_SEED=7 TRIREME_RANDOM_CASE=123 build/tests/test_cuda_attention
 *
 * What is wrong is printed with its case, element, what is right and what came. */
#include "gpu_image.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "device/device.h"
#include "graph/op_table.h"

#ifdef TRI_CUDA

#include "device/cuda/cuda.h"

enum { SPAN = 1, Q_PLACES = 2, K_PLACES = 4, SINK = 8, DOCS = 16, CACHED = 32, BORDERS = 64 };

/* Sizes as of the operator; num_slots: a key's place is below it. */
typedef struct attention_case {
    int b, tq, tk, h, g, k, v, rows;
    unsigned with;
    tri_attention_attr attr;
    tri_dtype dtype;
    uint64_t seed;
    char name[200];
} attention_case;

enum { OF_Q, OF_K, OF_V, OF_DO, OF_O, OF_LSE, OF_DQ, OF_DK, OF_DV, OF_SINK, OF_DSINK, NUM_FLOATS };
enum { OF_ROWS, OF_STEP, OF_DOCS, OF_SPAN, OF_Q_PLACES, OF_K_PLACES, NUM_INTS };
static const char *const names[] = {"q",  "k",  "v",  "do",   "o",    "lse",
                                    "dq", "dk", "dv", "sink", "dsink"};

/* Operands on the host: floats rounded to the case's type, in double; and where they lie in the
 * image. Results are the right ones, as far as they are known. */
typedef struct operands {
    double *f[NUM_FLOATS];
    double sink_terms; /* absolute terms of the sinks' gradients, added up */
    int64_t num[NUM_FLOATS];
    tri_dtype dtype[NUM_FLOATS];
    int32_t *i[NUM_INTS];
    int64_t num_i[NUM_INTS];
    size_t at[NUM_FLOATS], at_i[NUM_INTS], scratch;
} operands;

static tri_device gpu;
static gpu_memory memory;
static int num_wrong;

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("wrong: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    num_wrong++;
}

static void must(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s", err->message);
}

static void *must_alloc(size_t bytes)
{
    void *memory_of = calloc(1, bytes ? bytes : 1);
    assert_non_null(memory_of);
    return memory_of;
}

/* --- Numbers -------------------------------------------------------------------------------- */

static double rounded(double value, tri_dtype dtype)
{
    float x = (float)value;
    return dtype == TRI_BF16  ? tri_bf16_to_f32(tri_f32_to_bf16(x))
           : dtype == TRI_F16 ? tri_f16_to_f32(tri_f32_to_f16(x))
                              : x;
}

static double element(const unsigned char *data, tri_dtype dtype, int64_t i)
{
    if (dtype == TRI_F32)
        return ((const float *)data)[i];
    uint16_t bits = ((const uint16_t *)data)[i];
    return dtype == TRI_BF16 ? tri_bf16_to_f32(bits) : tri_f16_to_f32(bits);
}

static void put(unsigned char *data, tri_dtype dtype, int64_t i, double value)
{
    if (dtype == TRI_F32)
        ((float *)data)[i] = (float)value;
    else
        ((uint16_t *)data)[i] =
            dtype == TRI_BF16 ? tri_f32_to_bf16((float)value) : tri_f32_to_f16((float)value);
}

/* A number below n, the same for the same place in the same case. */
static int draw(const attention_case *c, uint32_t purpose, int64_t at, int n)
{
    return (int)(tri_random_word(c->seed, (uint64_t)at, purpose, 1) % (uint32_t)n);
}

/* --- Cases ---------------------------------------------------------------------------------- */

static void name_case(attention_case *c, const char *kind)
{
    snprintf(c->name, sizeof c->name,
             "%s: B %d Tq %d Tk %d H %d G %d K %d V %d%s%s%s%s%s%s%s window %d cap %g dropout %g, "
             "%s",
             kind, c->b, c->tq, c->tk, c->h, c->g, c->k, c->v, c->attr.causal ? " causal" : "",
             c->with & SPAN ? " span" : "", c->with & Q_PLACES ? " q_places" : "",
             c->with & K_PLACES ? " k_places" : "", c->with & SINK ? " sink" : "",
             c->with & DOCS ? " docs" : "", c->with & CACHED ? " cached" : "", (int)c->attr.window,
             (double)c->attr.soft_cap, (double)c->attr.dropout, tri_dtype_name(c->dtype));
}

static attention_case random_case(uint64_t seed, int number, tri_dtype dtype)
{
    static const int widths[][2] = {{64, 64}, {64, 64},  {128, 128}, {128, 128},
                                    {5, 9},   {33, 33},  {192, 128}, {256, 256},
                                    {96, 64}, {16, 128}, {128, 128}, {64, 64}};
    attention_case c = {.dtype = dtype, .seed = seed + (uint64_t)number * 1000003};
    int w = draw(&c, 1, 0, 12), group = 1 + draw(&c, 1, 1, 3);
    c.b = 1 + draw(&c, 1, 2, 2);
    c.tq = 1 + draw(&c, 1, 3, draw(&c, 1, 4, 2) ? 290 : 70);
    c.tk = draw(&c, 1, 5, 2) ? c.tq : 1 + draw(&c, 1, 6, 290);
    c.g = 1 + draw(&c, 1, 7, 2);
    c.h = c.g * group;
    c.k = widths[w][0];
    c.v = widths[w][1];
    c.rows = c.b;
    c.with = (unsigned)draw(&c, 1, 8, 16) | (draw(&c, 1, 9, 3) ? SPAN : 0);
    if (c.tq == c.tk && draw(&c, 1, 10, 4) == 0)
        c.with |= DOCS;
    c.attr.alpha = 0.3f / sqrtf((float)c.k) * (float)(1 + draw(&c, 1, 11, 4));
    c.attr.causal = draw(&c, 1, 12, 2);
    c.attr.window = c.attr.causal && draw(&c, 1, 13, 3) == 0 ? 1 + draw(&c, 1, 14, 100) : 0;
    c.attr.soft_cap = draw(&c, 1, 15, 4) == 0 ? 0.5f + (float)draw(&c, 1, 16, 40) / 4 : 0;
    c.attr.dropout = draw(&c, 1, 17, 4) == 0 ? 0.25f : 0;
    c.attr.stream = 11;
    name_case(&c, "random");
    return c;
}

/* --- Operands ------------------------------------------------------------------------------- */

static void count_operands(const attention_case *c, operands *o)
{
    int64_t q = (int64_t)c->b * c->tq * c->h, kv = (int64_t)c->rows * c->tk * c->g;
    const int64_t num[NUM_FLOATS] = {q * c->k, kv * c->k, kv * c->v, q * c->v, q * c->v, q,
                                     q * c->k, kv * c->k, kv * c->v, c->h,     c->h};
    const int64_t num_i[NUM_INTS] = {c->b,
                                     1,
                                     (int64_t)c->b * c->tk,
                                     (int64_t)c->b * c->tq * 2,
                                     (int64_t)c->b * c->tq,
                                     (int64_t)c->b * c->tk};
    for (int i = 0; i < NUM_FLOATS; i++) {
        o->num[i] = num[i];
        o->dtype[i] = i == OF_LSE || i == OF_SINK || i == OF_DSINK ? TRI_F32 : c->dtype;
        o->f[i] = must_alloc((size_t)num[i] * sizeof *o->f[i]);
    }
    for (int i = 0; i < NUM_INTS; i++) {
        o->num_i[i] = num_i[i];
        o->i[i] = must_alloc((size_t)num_i[i] * sizeof *o->i[i]);
    }
}

/* By groups of 32 queries: any interval for each, much the same for neighbours, or one that begins
 * and ends about a border of tiles, for all of them. Some are empty. */
static void fill_span(const attention_case *c, int64_t i, int most, int32_t *span)
{
    int kind = c->with & BORDERS ? 2 : draw(c, 9, i / 32, 3);
    int first = draw(c, 7, i, most + 2) - 2, end = first + draw(c, 8, i, most + 1);
    if (kind == 1) {
        first = (int)(i / 8 % (most / 8 + 1)) * 4;
        end = first + most / 2;
    } else if (kind == 2) {
        first = 32 * draw(c, 7, i / 32, 3) + draw(c, 11, i / 32, 3) - 1;
        end = first + 32 * draw(c, 8, i / 32, 6) + draw(c, 12, i / 32, 3) - 1;
    }
    span[0] = first;
    span[1] = kind != 2 && draw(c, 10, i, 9) == 0 ? first - 1 : end;
}

/* Places in an order of their own, some of them gone. */
static void fill_places(const attention_case *c, operands *o)
{
    int most = c->tq > c->tk ? c->tq : c->tk;
    bool dealt = draw(c, 2, 0, 2); /* otherwise shifted alone, as in a ring */
    for (int64_t i = 0; i < o->num_i[OF_DOCS]; i++)
        o->i[OF_DOCS][i] = draw(c, 3, i, 9) == 0 ? -1 : (int)(i % c->tk) / 40;
    for (int64_t i = 0; i < o->num_i[OF_Q_PLACES]; i++)
        o->i[OF_Q_PLACES][i] = draw(c, 4, i, 17) == 0 ? -1
                               : dealt                ? draw(c, 5, i, most)
                                                      : (int)(i % c->tq) + most / 3;
    for (int64_t i = 0; i < o->num_i[OF_K_PLACES]; i++)
        o->i[OF_K_PLACES][i] = draw(c, 6, i, 23) == 0 ? -1
                               : dealt                ? (int)(i % c->tk * 37 % c->tk)
                                                      : (int)(i % c->tk) + most / 4;
    for (int64_t i = 0; i < o->num_i[OF_SPAN] / 2; i++)
        fill_span(c, i, most, o->i[OF_SPAN] + 2 * i);
}

static void fill_operands(const attention_case *c, operands *o)
{
    for (int i = 0; i < NUM_FLOATS; i++) {
        if (i > OF_DO && i != OF_SINK)
            continue;
        float *numbers = must_alloc((size_t)o->num[i] * sizeof *numbers);
        tri_random_normal(c->seed, 0, (uint64_t)o->num[i], 0, (uint32_t)(50 + i), numbers);
        for (int64_t j = 0; j < o->num[i]; j++)
            o->f[i][j] = rounded(numbers[j], o->dtype[i]);
        free(numbers);
    }
    for (int b = 0; b < c->b; b++)
        o->i[OF_ROWS][b] = 40 + b;
    o->i[OF_STEP][0] = 7;
    fill_places(c, o);
}

static void operands_init(operands *o, const attention_case *c)
{
    memset(o, 0, sizeof *o);
    count_operands(c, o);
    fill_operands(c, o);
}

static void operands_fini(operands *o)
{
    for (int i = 0; i < NUM_FLOATS; i++)
        free(o->f[i]);
    for (int i = 0; i < NUM_INTS; i++)
        free(o->i[i]);
}

/* --- What is right -------------------------------------------------------------------------- */

/* Query i sees key j, in the words of the operator. */
static bool sees(const attention_case *c, const operands *o, int b, int i, int j)
{
    int64_t at = (int64_t)b * c->tq + i, key = (int64_t)b * c->tk + j;
    int p = c->with & Q_PLACES ? o->i[OF_Q_PLACES][at] : i;
    int x = c->with & K_PLACES ? o->i[OF_K_PLACES][key] : j;
    if (p < 0 || x < 0)
        return false;
    if (c->attr.causal && x > p)
        return false;
    if (c->attr.window > 0 && x <= p - c->attr.window)
        return false;
    if (c->with & SPAN && (x < o->i[OF_SPAN][2 * at] || x >= o->i[OF_SPAN][2 * at + 1]))
        return false;
    return !(c->with & DOCS) || (o->i[OF_DOCS][at] >= 0 && o->i[OF_DOCS][at] == o->i[OF_DOCS][key]);
}

/* What dropout makes of a probability. */
static double mask(const attention_case *c, const operands *o, int b, int h, int i, int j)
{
    if (!(c->attr.dropout > 0))
        return 1;
    uint64_t p = (uint64_t)(c->with & Q_PLACES ? o->i[OF_Q_PLACES][(int64_t)b * c->tq + i] : i);
    uint64_t x = (uint64_t)(c->with & K_PLACES ? o->i[OF_K_PLACES][(int64_t)b * c->tk + j] : j);
    uint64_t row = (uint64_t)(o->i[OF_ROWS][b] * c->h + h);
    uint64_t g = (row * (uint64_t)c->tq + p) * (uint64_t)c->tk + x;
    uint32_t word = tri_random_word(c->seed, g, (uint32_t)o->i[OF_STEP][0], c->attr.stream);
    return word >= tri_dropout_threshold(c->attr.dropout) ? 1 / (1 - (double)c->attr.dropout) : 0;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* A query's row of scores, -inf where nothing is seen; returns its lse. */
static double scores(const attention_case *c, const operands *o, int b, int h, int i, double *s)
{
    const double *q = o->f[OF_Q] + (((int64_t)b * c->tq + i) * c->h + h) * c->k;
    double cap = c->attr.soft_cap, top = c->with & SINK ? o->f[OF_SINK][h] : -INFINITY;
    for (int j = 0; j < c->tk; j++) {
        const double *k = o->f[OF_K] + (((int64_t)b * c->tk + j) * c->g + h / (c->h / c->g)) * c->k;
        s[j] = sees(c, o, b, i, j) ? (double)c->attr.alpha * dot(q, k, c->k) : -INFINITY;
        if (cap > 0 && s[j] != -INFINITY)
            s[j] = cap * tanh(s[j] / cap);
        top = fmax(top, s[j]);
    }
    if (top == -INFINITY)
        return top;
    double sum = c->with & SINK ? exp(o->f[OF_SINK][h] - top) : 0;
    for (int j = 0; j < c->tk; j++)
        sum += exp(s[j] - top);
    return top + log(sum);
}

/* The share of a query in a sink's gradient. Its terms may cancel each other. */
static void add_sink(const attention_case *c, operands *o, int h, double lse, const double *out,
                     const double *dout)
{
    double share = exp(o->f[OF_SINK][h] - lse), terms = 0;
    for (int d = 0; d < c->v; d++) {
        o->f[OF_DSINK][h] -= share * out[d] * dout[d];
        terms += share * fabs(out[d] * dout[d]);
    }
    o->sink_terms += terms;
}

/* One query: its output, then its shares of the gradients. */
static void right_query(const attention_case *c, operands *o, int b, int h, int i, double *s)
{
    int64_t at = ((int64_t)b * c->tq + i) * c->h + h;
    double lse = scores(c, o, b, h, i, s), cap = c->attr.soft_cap;
    double *out = o->f[OF_O] + at * c->v, *dout = o->f[OF_DO] + at * c->v;
    o->f[OF_LSE][((int64_t)b * c->h + h) * c->tq + i] = lse;
    for (int j = 0; j < c->tk; j++) {
        int64_t key = ((int64_t)b * c->tk + j) * c->g + h / (c->h / c->g);
        if (s[j] == -INFINITY)
            continue;
        double p = exp(s[j] - lse) * mask(c, o, b, h, i, j);
        for (int d = 0; d < c->v; d++)
            out[d] += p * o->f[OF_V][key * c->v + d];
    }
    double delta = dot(out, dout, c->v);
    if (c->with & SINK)
        add_sink(c, o, h, lse, out, dout);
    for (int j = 0; j < c->tk; j++) {
        int64_t key = ((int64_t)b * c->tk + j) * c->g + h / (c->h / c->g);
        if (s[j] == -INFINITY)
            continue;
        double p = exp(s[j] - lse), m = mask(c, o, b, h, i, j);
        double ds = p * (m * dot(dout, o->f[OF_V] + key * c->v, c->v) - delta) *
                    (double)c->attr.alpha * (cap > 0 ? 1 - s[j] * s[j] / (cap * cap) : 1);
        for (int d = 0; d < c->k; d++) {
            o->f[OF_DQ][at * c->k + d] += ds * o->f[OF_K][key * c->k + d];
            o->f[OF_DK][key * c->k + d] += ds * o->f[OF_Q][at * c->k + d];
        }
        for (int d = 0; d < c->v; d++)
            o->f[OF_DV][key * c->v + d] += p * m * dout[d];
    }
}

static void make_right(const attention_case *c, operands *o)
{
    double *s = must_alloc((size_t)c->tk * sizeof *s);
    for (int b = 0; b < c->b; b++)
        for (int h = 0; h < c->h; h++)
            for (int i = 0; i < c->tq; i++)
                right_query(c, o, b, h, i, s);
    free(s);
}

/* --- Calls ---------------------------------------------------------------------------------- */

static tri_tensor tensor_of(tri_dtype dtype, int rank, const int64_t *size)
{
    tri_tensor t = {.dtype = dtype, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        t.size[d] = t.global[d] = size[d];
        t.count *= size[d];
    }
    return t;
}

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

static tri_tensor float_of(const attention_case *c, const operands *o, int which)
{
    const int64_t q[] = {c->b, c->tq, c->h, c->k}, out[] = {c->b, c->tq, c->h, c->v};
    const int64_t k[] = {c->b, c->tk, c->g, c->k}, v[] = {c->b, c->tk, c->g, c->v};
    const int64_t *const sizes[NUM_FLOATS] = {
        q, k, v, out, out, SIZES(c->b, c->h, c->tq), q, k, v, SIZES(c->h), SIZES(c->h)};
    int rank = which >= OF_SINK ? 1 : which == OF_LSE ? 3 : 4;
    bool cached = c->with & CACHED && (which == OF_K || which == OF_V);
    const int64_t cache[] = {c->rows, c->g, c->tk, which == OF_K ? c->k : c->v};
    tri_tensor t = tensor_of(o->dtype[which], rank, cached ? cache : sizes[which]);
    t.data = memory.data + o->at[which];
    return t;
}

/* An input of places, or an absent one. */
static tri_tensor ints_of(const attention_case *c, const operands *o, int which)
{
    const unsigned needs[NUM_INTS] = {0, 0, DOCS, SPAN, Q_PLACES, K_PLACES};
    const int64_t *const sizes[NUM_INTS] = {SIZES(c->b),        SIZES(1),
                                            SIZES(c->b, c->tk), SIZES(c->b, c->tq, 2),
                                            SIZES(c->b, c->tq), SIZES(c->b, c->tk)};
    const int rank[NUM_INTS] = {1, 1, 2, 3, 2, 2};
    if ((c->with & needs[which]) != needs[which])
        return (tri_tensor){0};
    tri_tensor t = tensor_of(TRI_I32, rank[which], sizes[which]);
    t.data = memory.data + o->at_i[which];
    return t;
}

static tri_kernel_args args_of(const attention_case *c, const operands *o, const tri_attr *attr,
                               tri_op op)
{
    tri_kernel_args args = {.attr = attr, .seed = c->seed, .device = gpu.state, .overwrite = true};
    bool grad = op == TRI_OP_ATTENTION_GRAD;
    int n = 0;
    if (grad)
        args.in[n++] = float_of(c, o, OF_DO);
    for (int i = OF_Q; i <= OF_V; i++)
        args.in[n++] = float_of(c, o, i);
    for (int i = OF_O; grad && i <= OF_LSE; i++)
        args.in[n++] = float_of(c, o, i);
    for (int i = 0; i < NUM_INTS; i++)
        args.in[n++] = ints_of(c, o, i);
    if (c->with & SINK)
        args.in[n++] = float_of(c, o, OF_SINK);
    args.num_in = n;
    for (int i = grad ? OF_DQ : OF_O; i <= (grad ? OF_DV : OF_LSE); i++)
        args.out[args.num_out++] = float_of(c, o, i);
    if (grad && c->with & SINK)
        args.out[args.num_out++] = float_of(c, o, OF_DSINK);
    return args;
}

static size_t scratch_of(tri_op op, tri_kernel_args sizes)
{
    for (int i = 0; i < TRI_MAX_IN; i++)
        sizes.in[i].data = NULL;
    for (int i = 0; i < TRI_MAX_OUT; i++)
        sizes.out[i].data = NULL;
    const tri_kernel *kernel = tri_cuda_kernel(op);
    return kernel->scratch_bytes ? kernel->scratch_bytes(&sizes, 1) : 0;
}

static void run(tri_op op, const tri_kernel_args *args, size_t scratch)
{
    tri_cuda *cuda = gpu.state;
    void *before = cuda->scratch;
    size_t bytes = cuda->scratch_bytes;
    cuda->scratch = memory.data + scratch;
    cuda->scratch_bytes = scratch_of(op, *args);
    tri_cuda_kernel(op)->run(args);
    cuda->scratch = before;
    cuda->scratch_bytes = bytes;
}

/* Inputs into the image; results are all ones until they are written. */
static void place(const attention_case *c, operands *o, gpu_image *im)
{
    const tri_attr attr = {.attention = c->attr};
    for (int i = 0; i < NUM_FLOATS; i++) {
        bool result = i >= OF_O && i != OF_SINK;
        o->at[i] = gpu_image_place(im, (size_t)o->num[i] * tri_dtype_bytes(o->dtype[i]), result);
        for (int64_t j = 0; !result && j < o->num[i]; j++)
            put(im->sent + o->at[i], o->dtype[i], j, o->f[i][j]);
    }
    for (int i = 0; i < NUM_INTS; i++) {
        o->at_i[i] = gpu_image_place(im, (size_t)o->num_i[i] * 4, false);
        memcpy(im->sent + o->at_i[i], o->i[i], (size_t)o->num_i[i] * 4);
    }
    tri_kernel_args forward = args_of(c, o, &attr, TRI_OP_ATTENTION);
    tri_kernel_args back = args_of(c, o, &attr, TRI_OP_ATTENTION_GRAD);
    size_t bytes = scratch_of(TRI_OP_ATTENTION, forward);
    size_t grad = c->with & CACHED ? 0 : scratch_of(TRI_OP_ATTENTION_GRAD, back);
    o->scratch = gpu_image_place(im, bytes > grad ? bytes : grad, true);
}

/* Forward and gradient, from an image to an image. */
static void run_case(const attention_case *c, const operands *o, gpu_image *im)
{
    const tri_attr attr = {.attention = c->attr};
    tr_error err = {0};
    must(gpu_image_upload(im, &memory, &gpu, &err), &err);
    tri_kernel_args args = args_of(c, o, &attr, TRI_OP_ATTENTION);
    run(TRI_OP_ATTENTION, &args, o->scratch);
    args = args_of(c, o, &attr, TRI_OP_ATTENTION_GRAD);
    if (!(c->with & CACHED))
        run(TRI_OP_ATTENTION_GRAD, &args, o->scratch);
    must(gpu_image_download(im, &memory, &gpu, &err), &err);
    if (!gpu_image_kept(im))
        wrong("%s: wrote outside of its results", c->name);
}

/* --- Comparisons ---------------------------------------------------------------------------- */

/* Of the largest element. Sums run in f32, and results round; gradients read rounded outputs. */
static double tolerance_of(int which, tri_dtype dtype)
{
    double unit = dtype == TRI_BF16 ? 0x1p-8 : dtype == TRI_F16 ? 0x1p-11 : 5e-6;
    if (which == OF_LSE)
        return dtype == TRI_F32 ? 2e-6 : 2e-5;
    return which == OF_O ? unit * 2 : unit * 4;
}

static double largest_of(const double *from, int64_t num)
{
    double largest = 0;
    for (int64_t i = 0; i < num; i++)
        if (isfinite(from[i]))
            largest = fmax(largest, fabs(from[i]));
    return largest;
}

/* A result of which: where in the tensor, for whoever mends it. */
static void expect_close(const char *name, const char *what, const double *want,
                         const unsigned char *got, tri_dtype dtype, int64_t num, int row,
                         double limit)
{
    int num_bad = 0;
    for (int64_t i = 0; i < num; i++) {
        double x = element(got, dtype, i);
        if (x == want[i] || fabs(x - want[i]) <= limit)
            continue;
        if (num_bad++ < 4)
            wrong("%s: %s[%ld] (row %ld, column %ld) is %.9g, not %.9g (limit %.3g)", name, what,
                  (long)i, (long)(i / row), (long)(i % row), x, want[i], limit);
    }
    if (num_bad > 4)
        wrong("%s: %s: %d of %ld elements", name, what, num_bad, (long)num);
}

static void expect_right(const attention_case *c, const operands *o, const gpu_image *im)
{
    const int row[NUM_FLOATS] = {c->h * c->k,
                                 c->g * c->k,
                                 c->g * c->v,
                                 c->h * c->v,
                                 c->h * c->v,
                                 c->tq,
                                 c->h * c->k,
                                 c->g * c->k,
                                 c->g * c->v,
                                 1,
                                 1};
    for (int i = OF_O; i <= OF_DSINK; i++) {
        if (i == OF_SINK || (i == OF_DSINK && !(c->with & SINK)) ||
            (i > OF_LSE && c->with & CACHED))
            continue;
        /* A query that sees one key passes nothing on: its terms, of this size, cancel */
        double terms = i == OF_DQ || i == OF_DK ? (double)c->attr.alpha * sqrt(c->v) : 1e-3;
        double limit = tolerance_of(i, c->dtype) * fmax(largest_of(o->f[i], o->num[i]), terms);
        if (i == OF_DSINK)
            limit = tolerance_of(i, c->dtype) * o->sink_terms / c->h;
        expect_close(c->name, names[i], o->f[i], im->got + o->at[i], o->dtype[i], o->num[i], row[i],
                     limit);
    }
}

/* A query without keys: exactly nothing, and no gradient. */
static void expect_nothing(const attention_case *c, const operands *o, const gpu_image *im)
{
    for (int64_t at = 0; at < (int64_t)c->b * c->tq * c->h; at++) {
        int64_t b = at / c->h / c->tq, i = at / c->h % c->tq, h = at % c->h;
        bool any = false;
        for (int j = 0; j < c->tk; j++)
            any |= sees(c, o, (int)b, (int)i, j);
        if (any)
            continue;
        double lse = element(im->got + o->at[OF_LSE], TRI_F32, (b * c->h + h) * c->tq + i);
        if (!(c->with & SINK) && lse != -INFINITY)
            wrong("%s: query %ld sees nothing and has lse %g", c->name, (long)at, lse);
        for (int d = 0; d < c->v; d++)
            if (element(im->got + o->at[OF_O], c->dtype, at * c->v + d) != 0)
                wrong("%s: query %ld sees nothing and has an output", c->name, (long)at);
        for (int d = 0; d < c->k; d++)
            if (element(im->got + o->at[OF_DQ], c->dtype, at * c->k + d) != 0)
                wrong("%s: query %ld sees nothing and has a gradient", c->name, (long)at);
    }
}

static void expect_same_bits(const attention_case *c, const operands *o, const gpu_image *a,
                             const gpu_image *b)
{
    for (int i = OF_O; i <= OF_DSINK; i++)
        if (memcmp(a->got + o->at[i], b->got + o->at[i],
                   (size_t)o->num[i] * tri_dtype_bytes(o->dtype[i])))
            wrong("%s: %s has other bits in a second run", c->name, names[i]);
}

static void check_case(const attention_case *c)
{
    operands o;
    gpu_image im, again;
    gpu_image_init(&im);
    gpu_image_init(&again);
    operands_init(&o, c);
    make_right(c, &o);
    place(c, &o, &im);
    place(c, &o, &again);
    run_case(c, &o, &im);
    run_case(c, &o, &again);
    expect_right(c, &o, &im);
    expect_nothing(c, &o, &im);
    expect_same_bits(c, &o, &im, &again);
    operands_fini(&o);
    gpu_image_fini(&im);
    gpu_image_fini(&again);
}

/* --- Tests ---------------------------------------------------------------------------------- */

static const tri_dtype dtypes[] = {TRI_F32, TRI_BF16, TRI_F16};

static long setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : otherwise;
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = (uint64_t)setting("TRIREME_RANDOM_SEED", 1);
    long num = setting("TRIREME_RANDOM_CASES", 48), one = setting("TRIREME_RANDOM_CASE", -1);
    num_wrong = 0;
    for (long i = one >= 0 ? one : 0; i < (one >= 0 ? one + 1 : num); i++)
        for (int t = 0; t < 3; t++) {
            attention_case c = random_case(seed, (int)i, dtypes[t]);
            int before = num_wrong;
            check_case(&c);
            if (num_wrong > before)
                printf("that was TRIREME_RANDOM_SEED=%lu TRIREME_RANDOM_CASE=%ld\n",
                       (unsigned long)seed, i);
        }
    assert_int_equal(num_wrong, 0);
}

/* What each of the kernels has to do alone: none of it may hide behind something else. */
static void test_one_at_a_time(void **state)
{
    (void)state;
    static const struct {
        unsigned with;
        tri_attention_attr attr;
        int tq, tk;
    } table[] = {{0, {.causal = true}, 200, 130},
                 {0, {.causal = true, .window = 20}, 200, 130},
                 {0, {.causal = false}, 70, 200},
                 {SPAN, {.causal = false}, 200, 200},
                 {SPAN, {.causal = true}, 257, 257},
                 {SPAN | BORDERS, {.causal = false}, 288, 200},
                 {Q_PLACES | K_PLACES, {.causal = true}, 190, 150},
                 {K_PLACES, {.causal = true, .window = 40}, 150, 150},
                 {SINK, {.causal = true}, 130, 130},
                 {DOCS, {.causal = true}, 260, 260},
                 {0, {.soft_cap = 1.5f}, 130, 130},
                 {0, {.dropout = 0.3f}, 132, 132},
                 {0, {.dropout = 0.3f}, 131, 133},
                 {K_PLACES, {.dropout = 0.3f}, 132, 132}};
    static const int widths[][2] = {{64, 64}, {128, 128}, {192, 128}};
    num_wrong = 0;
    for (size_t n = 0; n < sizeof table / sizeof *table * 9; n++) {
        size_t i = n / 9, w = n / 3 % 3;
        attention_case c = {.b = 1,
                            .tq = table[i].tq,
                            .tk = table[i].tk,
                            .h = 2,
                            .g = 1,
                            .k = widths[w][0],
                            .v = widths[w][1],
                            .rows = 1,
                            .with = table[i].with,
                            .attr = table[i].attr,
                            .dtype = dtypes[n % 3],
                            .seed = 77 + n};
        c.attr.alpha = 1 / sqrtf((float)c.k);
        c.attr.stream = 5;
        name_case(&c, "alone");
        check_case(&c);
    }
    assert_int_equal(num_wrong, 0);
}

/* The keys from `first` on, of a case whose keys have places: what a rank of a ring has. */
static void half_of(const attention_case *c, const operands *o, int first, int num,
                    attention_case *half, operands *of)
{
    *half = *c;
    half->tk = num;
    operands_init(of, half);
    memcpy(of->f[OF_Q], o->f[OF_Q], (size_t)o->num[OF_Q] * sizeof(double));
    memcpy(of->f[OF_DO], o->f[OF_DO], (size_t)o->num[OF_DO] * sizeof(double));
    memcpy(of->i[OF_SPAN], o->i[OF_SPAN], (size_t)o->num_i[OF_SPAN] * 4);
    memcpy(of->i[OF_Q_PLACES], o->i[OF_Q_PLACES], (size_t)o->num_i[OF_Q_PLACES] * 4);
    for (int b = 0; b < c->b; b++) {
        int64_t k = (int64_t)c->g * c->k, v = (int64_t)c->g * c->v;
        int64_t from = (int64_t)b * c->tk + first, to = (int64_t)b * num;
        memcpy(of->f[OF_K] + to * k, o->f[OF_K] + from * k, (size_t)(num * k) * sizeof(double));
        memcpy(of->f[OF_V] + to * v, o->f[OF_V] + from * v, (size_t)(num * v) * sizeof(double));
        memcpy(of->i[OF_K_PLACES] + to, o->i[OF_K_PLACES] + from, (size_t)num * 4);
    }
}

/* The results of two halves, merged on the GPU, into the first half's image. */
static void merge(const attention_case *c, const operands *left, const operands *right,
                  const gpu_image *of_right, gpu_image *im)
{
    tr_error err = {0};
    operands both = *left;
    gpu_image all;
    gpu_image_init(&all);
    for (int i = OF_O; i <= OF_LSE; i++) {
        size_t bytes = (size_t)left->num[i] * tri_dtype_bytes(left->dtype[i]);
        both.at[i] = gpu_image_place(&all, bytes, false);
        memcpy(all.sent + both.at[i], im->got + left->at[i], bytes);
        both.at[i + 2] = gpu_image_place(&all, bytes, false); /* of the right half */
        memcpy(all.sent + both.at[i + 2], of_right->got + right->at[i], bytes);
        both.at[i + 4] = gpu_image_place(&all, bytes, true); /* of both */
    }
    must(gpu_image_upload(&all, &memory, &gpu, &err), &err);
    tri_tensor o = float_of(c, &both, OF_O), lse = float_of(c, &both, OF_LSE);
    tri_kernel_args args = {.device = gpu.state, .num_in = 4, .num_out = 2, .overwrite = true};
    for (int i = 0; i < 6; i++) {
        tri_tensor *to = i < 4 ? &args.in[i] : &args.out[i - 4];
        *to = i % 2 ? lse : o;
        to->data = memory.data + both.at[(i % 2 ? OF_LSE : OF_O) + i / 2 * 2];
    }
    tri_cuda_kernel(TRI_OP_ATTENTION_MERGE)->run(&args);
    must(gpu_image_download(&all, &memory, &gpu, &err), &err);
    if (!gpu_image_kept(&all))
        wrong("%s: the merge wrote outside of its results", c->name);
    for (int i = OF_O; i <= OF_LSE; i++)
        memcpy(im->got + left->at[i], all.got + both.at[i + 4],
               (size_t)left->num[i] * tri_dtype_bytes(left->dtype[i]));
    gpu_image_fini(&all);
}

/* Gradients of a half, from the results of the whole, as in the backward of a ring. */
static void half_grad(const attention_case *c, const operands *o, gpu_image *im,
                      const operands *whole, const gpu_image *of_whole)
{
    const tri_attr attr = {.attention = c->attr};
    tr_error err = {0};
    for (int i = OF_O; i <= OF_LSE; i++)
        memcpy(im->sent + o->at[i], of_whole->got + whole->at[i],
               (size_t)o->num[i] * tri_dtype_bytes(o->dtype[i]));
    must(gpu_image_upload(im, &memory, &gpu, &err), &err);
    tri_kernel_args args = args_of(c, o, &attr, TRI_OP_ATTENTION_GRAD);
    run(TRI_OP_ATTENTION_GRAD, &args, o->scratch);
    must(gpu_image_download(im, &memory, &gpu, &err), &err);
}

/* dq is the sum over the halves; the whole's are of all keys. */
static void expect_sum(const attention_case *c, const operands *whole, const gpu_image *of_whole,
                       const operands *o, gpu_image *const im[2])
{
    double *want = must_alloc((size_t)whole->num[OF_DQ] * sizeof *want);
    float *sum = must_alloc((size_t)whole->num[OF_DQ] * sizeof *sum);
    for (int64_t i = 0; i < whole->num[OF_DQ]; i++) {
        want[i] = element(of_whole->got + whole->at[OF_DQ], c->dtype, i);
        for (int n = 0; n < 2; n++)
            sum[i] += (float)element(im[n]->got + o[n].at[OF_DQ], c->dtype, i);
    }
    expect_close(c->name, "dq of two halves", want, (const unsigned char *)sum, TRI_F32,
                 whole->num[OF_DQ], c->h * c->k,
                 tolerance_of(OF_DQ, c->dtype) *
                     fmax(largest_of(want, whole->num[OF_DQ]), (double)c->attr.alpha * sqrt(c->v)));
    free(want);
    free(sum);
}

static void check_halves(const attention_case *c)
{
    operands whole, o[2];
    attention_case half[2];
    gpu_image of_whole, im[2];
    int middle = c->tk / 2;
    operands_init(&whole, c);
    gpu_image_init(&of_whole);
    place(c, &whole, &of_whole);
    run_case(c, &whole, &of_whole);
    for (int n = 0; n < 2; n++) {
        half_of(c, &whole, n * middle, n ? c->tk - middle : middle, &half[n], &o[n]);
        gpu_image_init(&im[n]);
        place(&half[n], &o[n], &im[n]);
        run_case(&half[n], &o[n], &im[n]);
    }
    merge(c, &o[0], &o[1], &im[1], &im[0]);
    for (int i = OF_O; i <= OF_LSE; i++) {
        for (int64_t j = 0; j < whole.num[i]; j++)
            whole.f[i][j] = element(of_whole.got + whole.at[i], whole.dtype[i], j);
        double unit = c->dtype == TRI_F32 || i == OF_LSE ? 1e-6 : tolerance_of(i, c->dtype);
        expect_close(c->name, i == OF_O ? "o of two halves" : "lse of two halves", whole.f[i],
                     im[0].got + o[0].at[i], whole.dtype[i], whole.num[i],
                     i == OF_O ? c->h * c->v : c->tq,
                     unit * fmax(largest_of(whole.f[i], whole.num[i]), 1));
    }
    for (int n = 0; n < 2; n++)
        half_grad(&half[n], &o[n], &im[n], &whole, &of_whole);
    expect_sum(c, &whole, &of_whole, o, (gpu_image *[]){&im[0], &im[1]});
    operands_fini(&whole);
    gpu_image_fini(&of_whole);
    for (int n = 0; n < 2; n++) {
        operands_fini(&o[n]);
        gpu_image_fini(&im[n]);
    }
}

static void test_halves(void **state)
{
    (void)state;
    num_wrong = 0;
    for (int i = 0; i < 12; i++) {
        attention_case c = random_case(99, i, dtypes[i % 3]);
        c.tk += 2;
        c.with = (c.with & SPAN) | K_PLACES | Q_PLACES;
        c.attr.dropout = 0;
        name_case(&c, "halves");
        check_halves(&c);
    }
    assert_int_equal(num_wrong, 0);
}

/* A text in a cache, whose places go round: as over the keys in their order, where they are all
 * there; each query sees the last of them. */
static void check_cache(const attention_case *c)
{
    operands o;
    gpu_image im;
    operands_init(&o, c);
    gpu_image_init(&im);
    o.i[OF_ROWS][0] = 1;
    o.i[OF_ROWS][c->b - 1] = c->b > 1 ? 9 : 1; /* there is no such row */
    int end = c->tk + c->tk / 3;               /* places that have been written */
    for (int b = 0; b < c->b; b++)
        for (int i = 0; i < c->tq; i++)
            o.i[OF_Q_PLACES][b * c->tq + i] = i == 2 ? -1 : end - c->tq + i;
    double *s = must_alloc((size_t)c->tk * sizeof *s);
    for (int64_t at = 0; at < (int64_t)c->b * c->tq * c->h; at++) {
        int b = (int)(at / c->h / c->tq), i = (int)(at / c->h % c->tq), h = (int)(at % c->h);
        int p = o.i[OF_Q_PLACES][b * c->tq + i], row = o.i[OF_ROWS][b], head = h / (c->h / c->g);
        int num = c->attr.window > 0 ? c->attr.window : c->tk;
        double top = -INFINITY, sum = 0, *lse = &o.f[OF_LSE][(b * c->h + h) * c->tq + i];
        int64_t first = ((int64_t)row * c->g + head) * c->tk;
        for (int n = 0; n < num && p >= 0 && row < c->rows; n++) {
            s[n] = (double)c->attr.alpha *
                   dot(o.f[OF_Q] + at * c->k, o.f[OF_K] + (first + (p - n) % c->tk) * c->k, c->k);
            top = fmax(top, s[n]);
        }
        for (int n = 0; n < num && top != -INFINITY; n++)
            sum += exp(s[n] - top);
        *lse = top == -INFINITY ? top : top + log(sum);
        for (int n = 0; n < num && top != -INFINITY; n++)
            for (int d = 0; d < c->v; d++)
                o.f[OF_O][at * c->v + d] +=
                    exp(s[n] - *lse) * o.f[OF_V][(first + (p - n) % c->tk) * c->v + d];
    }
    place(c, &o, &im);
    run_case(c, &o, &im);
    expect_right(c, &o, &im);
    free(s);
    operands_fini(&o);
    gpu_image_fini(&im);
}

static void test_cache(void **state)
{
    (void)state;
    static const int widths[] = {64, 128, 40, 200};
    num_wrong = 0;
    for (int n = 0; n < 24; n++) {
        attention_case c = {.b = 1 + n % 2,
                            .tq = n % 3 ? 1 : 20,
                            .tk = 90,
                            .h = 4,
                            .g = 2,
                            .k = widths[n / 3 % 4],
                            .v = widths[n / 3 % 4],
                            .rows = 3,
                            .with = CACHED | Q_PLACES,
                            .dtype = dtypes[n % 3],
                            .seed = 500 + (uint64_t)n};
        /* without a window a query sees the whole ring: so does the last one alone */
        c.attr = (tri_attention_attr){
            .alpha = 0.1f, .causal = true, .cached = true, .window = c.tq > 1 || n % 4 ? 70 : 0};
        name_case(&c, "cache");
        check_cache(&c);
    }
    assert_int_equal(num_wrong, 0);
}

int main(int argc, char **argv)
{
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_cache),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gpu_memory_free(&memory, &gpu);
    tri_device_close(&gpu);
    return failed;
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA (make CUDA=yes needs nvcc)\n");
    return 77;
}

#endif
