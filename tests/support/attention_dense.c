#include "attention_dense.h"

#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 71, MOST_TOKENS = 100 };

/* ---- calls at random ---- */

static uint32_t pick(uint32_t number, uint32_t what, uint32_t range)
{
    return tri_random_word(SEED, what, number, 5) % range;
}

op_case dense_random_case(uint32_t number)
{
    static const int64_t widths[] = {1, 5, 16, 33, 64, 72};
    const uint32_t n = number;
    int64_t queries = 1 + pick(n, 0, MOST_TOKENS), keys = 1 + pick(n, 1, 2 * MOST_TOKENS);
    int64_t key_heads = 1 + pick(n, 2, 2), group = 1 + pick(n, 3, 3);
    op_case c = {.name = "random",
                 .op = TRI_OP_ATTENTION_GRAD,
                 .size = {1 + pick(n, 4, 2), queries, key_heads * group, widths[pick(n, 5, 6)],
                          key_heads, keys, widths[pick(n, 6, 6)]},
                 .attr = {.attention = {.alpha = 0.3f}}};
    tri_attention_attr *attr = &c.attr.attention;
    attr->causal = pick(n, 7, 2);
    attr->window = attr->causal && pick(n, 8, 2) ? 1 + (int32_t)pick(n, 9, MOST_TOKENS) : 0;
    attr->soft_cap = pick(n, 10, 3) == 0 ? 1.5f : 0;
    attr->dropout = pick(n, 11, 3) == 0 ? 0.2f : 0;
    attr->stream = 3;
    c.flags |= pick(n, 12, 3) ? CASE_SPAN : 0;
    c.flags |= pick(n, 13, 3) ? CASE_PLACES : 0;
    c.flags |= pick(n, 14, 2) ? CASE_SINK : 0;
    if (pick(n, 15, 5) == 0) { /* within documents there is a key for each query */
        c.flags |= CASE_DOCS;
        c.size[5] = queries;
    }
    return c;
}

/* Places of one row: anywhere, some of them twice or not there; or dealt out in two runs, from both
 * ends of the row. */
static void fill_places(int32_t *to, int32_t num, uint32_t number, uint32_t stream)
{
    const bool dealt = pick(number, 20, 2);
    for (int32_t i = 0; i < num; i++) {
        uint32_t word = tri_random_word(SEED, (uint64_t)i, number, stream);
        if (dealt)
            to[i] = i < num / 2 ? i : i + num;
        else
            to[i] = word % 13 == 0 ? -1 : (int32_t)(word / 16 % (uint32_t)(2 * num));
    }
}

/* Intervals of one row: any, documents, a prefix that all see, or none. */
static void fill_spans(int32_t *to, int32_t num, uint32_t number, uint32_t stream)
{
    const uint32_t kind = pick(number, 21, 7);
    for (int32_t i = 0; i < num; i++) {
        uint32_t word = tri_random_word(SEED, (uint64_t)i, number, stream);
        int32_t begin = (int32_t)(word % (uint32_t)(2 * num)) - 2;
        int32_t end = begin + (int32_t)(word / 256 % (uint32_t)(num + 2));
        if (kind == 1 || kind == 2) {
            begin = i / 23 * 23;
            end = begin + 23;
        } else if (kind == 3 || kind == 4) {
            begin = 0;
            end = i < num / 3 ? num / 3 : i + 1;
        } else if (kind == 5) {
            begin = end = 7;
        }
        to[2 * i] = begin;
        to[2 * i + 1] = end;
    }
}

static void fill_masks(op_run *run, uint32_t number)
{
    enum { FIRST = TRI_ATTENTION_GRAD_ROWS - TRI_ATTENTION_ROWS };
    for (int j = TRI_ATTENTION_SPAN; j <= TRI_ATTENTION_K_PLACES; j++) {
        const tri_tensor *t = &run->args.in[FIRST + j];
        int32_t *data = t->data, num = (int32_t)t->size[1];
        for (int64_t b = 0; t->count > 0 && b < t->size[0]; b++) {
            if (j == TRI_ATTENTION_SPAN)
                fill_spans(data + b * num * 2, num, number, (uint32_t)(40 + b));
            else
                fill_places(data + b * num, num, number, (uint32_t)(50 + 4 * j + b));
        }
    }
}

tri_kernel_args dense_forward_args(const op_run *run, float *o, float *lse)
{
    tri_kernel_args f = run->args;
    const tri_tensor *in = run->args.in;
    memset(f.in, 0, sizeof f.in);
    memset(f.out, 0, sizeof f.out);
    memcpy(f.in, in + TRI_ATTENTION_GRAD_Q, 3 * sizeof *in);
    memcpy(f.in + TRI_ATTENTION_ROWS, in + TRI_ATTENTION_GRAD_ROWS,
           (TRI_NUM_ATTENTION_IN - TRI_ATTENTION_ROWS) * sizeof *in);
    f.num_in = run->args.num_in - 3;
    f.num_out = 2;
    f.out[0] = in[TRI_ATTENTION_GRAD_O];
    f.out[1] = in[TRI_ATTENTION_GRAD_LSE];
    f.out[0].data = o;
    f.out[1].data = lse;
    return f;
}

/* ---- the definition ---- */

/* One head of one row. */
typedef struct dense_head {
    const tri_kernel_args *f; /* of the forward */
    int64_t b, h, g, tq, tk, heads, key_heads, k, v;
    double *p, *m;  /* [tq][tk]: probabilities; what dropout multiplies them by */
    double *slope;  /* of the soft cap */
    double *p_sink; /* [tq] */
} dense_head;

static const int32_t *row_of(const dense_head *d, int input, int64_t each)
{
    const int32_t *data = d->f->in[input].data;
    return data ? data + d->b * each : NULL;
}

static bool seen(const dense_head *d, int64_t i, int64_t j)
{
    const tri_attention_attr *attr = &d->f->attr->attention;
    const int32_t *docs = row_of(d, TRI_ATTENTION_DOCS, d->tq);
    const int32_t *span = row_of(d, TRI_ATTENTION_SPAN, 2 * d->tq);
    const int32_t *q_places = row_of(d, TRI_ATTENTION_Q_PLACES, d->tq);
    const int32_t *k_places = row_of(d, TRI_ATTENTION_K_PLACES, d->tk);
    int64_t x = q_places ? q_places[i] : i, y = k_places ? k_places[j] : j;
    bool yes = x >= 0 && y >= 0;
    yes &= !attr->causal || y <= x;
    yes &= attr->window == 0 || x - y < attr->window;
    yes &= !span || (y >= span[2 * i] && y < span[2 * i + 1]);
    return yes && (!docs || (docs[i] >= 0 && docs[i] == docs[j]));
}

static double kept(const dense_head *d, int64_t i, int64_t j)
{
    const tri_attention_attr *attr = &d->f->attr->attention;
    const int32_t *q_places = row_of(d, TRI_ATTENTION_Q_PLACES, d->tq);
    const int32_t *k_places = row_of(d, TRI_ATTENTION_K_PLACES, d->tk);
    const tri_tensor *q = &d->f->in[TRI_ATTENTION_Q], *k = &d->f->in[TRI_ATTENTION_K];
    if (!(attr->dropout > 0))
        return 1;
    uint64_t row = (uint64_t)(row_of(d, TRI_ATTENTION_ROWS, 1)[0] * q->global[2] + d->h);
    uint64_t g = (row * (uint64_t)q->global[1] + (uint64_t)(q_places ? q_places[i] : i)) *
                     (uint64_t)k->global[1] +
                 (uint64_t)(k_places ? k_places[j] : j);
    const int32_t *step = d->f->in[TRI_ATTENTION_STEP].data;
    uint32_t word = tri_random_word(d->f->seed, g, (uint32_t)step[0], attr->stream);
    return word >= tri_dropout_threshold(attr->dropout) ? 1 / (1 - (double)attr->dropout) : 0;
}

static const float *at(const tri_tensor *t, int64_t b, int64_t i, int64_t h)
{
    return (const float *)t->data + ((b * t->size[1] + i) * t->size[2] + h) * t->size[3];
}

static void scores_of(const dense_head *d, int64_t i, double *lse)
{
    const tri_attention_attr *attr = &d->f->attr->attention;
    const float *sink = d->f->in[TRI_ATTENTION_SINK].data;
    const float *q = at(&d->f->in[TRI_ATTENTION_Q], d->b, i, d->h);
    double max = sink ? sink[d->h] : -INFINITY, sum = 0, *p = d->p + i * d->tk;
    for (int64_t j = 0; j < d->tk; j++) {
        const float *k = at(&d->f->in[TRI_ATTENTION_K], d->b, j, d->g);
        double s = 0, cap = attr->soft_cap;
        for (int64_t c = 0; c < d->k; c++)
            s += (double)q[c] * k[c];
        s *= attr->alpha;
        d->slope[i * d->tk + j] = cap > 0 ? 1 - pow(tanh(s / cap), 2) : 1;
        s = cap > 0 ? cap * tanh(s / cap) : s;
        bool yes = seen(d, i, j);
        p[j] = yes ? s : -INFINITY;
        d->m[i * d->tk + j] = yes ? kept(d, i, j) : 0;
        max = fmax(max, p[j]);
    }
    double base = max == -INFINITY ? 0 : max;
    sum = sink ? exp(sink[d->h] - base) : 0;
    for (int64_t j = 0; j < d->tk; j++)
        sum += exp(p[j] - base);
    for (int64_t j = 0; j < d->tk; j++)
        p[j] = sum > 0 ? exp(p[j] - base) / sum : 0;
    d->p_sink[i] = sink ? exp(sink[d->h] - base) / sum : 0;
    lse[(d->b * d->heads + d->h) * d->tq + i] = sum > 0 ? base + log(sum) : -INFINITY;
}

/* One query's part in everything. */
static void query_of(const dense_head *d, int64_t i, const float *dout, dense_results *r)
{
    const double alpha = d->f->attr->attention.alpha;
    const int64_t o_at = ((d->b * d->tq + i) * d->heads + d->h) * d->v;
    const int64_t q_at = ((d->b * d->tq + i) * d->heads + d->h) * d->k;
    const float *q = at(&d->f->in[TRI_ATTENTION_Q], d->b, i, d->h);
    double delta = 0;
    for (int64_t pass = 0; pass < 2; pass++) /* first delta, then what needs it */
        for (int64_t j = 0; j < d->tk; j++) {
            const float *k = at(&d->f->in[TRI_ATTENTION_K], d->b, j, d->g);
            const float *v = at(&d->f->in[TRI_ATTENTION_V], d->b, j, d->g);
            const int64_t kv = (d->b * d->tk + j) * d->key_heads + d->g;
            const double p = d->p[i * d->tk + j], m = d->m[i * d->tk + j];
            double dp = 0;
            for (int64_t c = 0; c < d->v; c++)
                dp += (double)dout[o_at + c] * v[c];
            delta += pass == 0 ? p * m * dp : 0;
            double ds = p * (m * dp - delta) * d->slope[i * d->tk + j] * alpha;
            for (int64_t c = 0; pass && c < d->v; c++) {
                r->o[o_at + c] += p * m * v[c];
                r->d[2][kv * d->v + c] += p * m * dout[o_at + c];
            }
            for (int64_t c = 0; pass && c < d->k; c++) {
                r->d[0][q_at + c] += ds * k[c];
                r->d[1][kv * d->k + c] += ds * q[c];
            }
        }
    if (r->d[3])
        r->d[3][d->h] -= d->p_sink[i] * delta;
}

static double *zeros(int64_t count)
{
    double *data = calloc((size_t)count, sizeof *data);
    assert(data);
    return data;
}

static void dense_attention(const op_run *run, dense_results *r)
{
    const tri_kernel_args f = dense_forward_args(run, NULL, NULL);
    const tri_tensor *q = &f.in[0], *k = &f.in[1], *v = &f.in[2];
    dense_head d = {.f = &f,
                    .tq = q->size[1],
                    .tk = k->size[1],
                    .heads = q->size[2],
                    .key_heads = k->size[2],
                    .k = q->size[3],
                    .v = v->size[3]};
    d.p = zeros(3 * d.tq * d.tk + d.tq);
    d.m = d.p + d.tq * d.tk;
    d.slope = d.m + d.tq * d.tk;
    d.p_sink = d.slope + d.tq * d.tk;
    *r = (dense_results){.o = zeros(f.out[0].count), .lse = zeros(f.out[1].count)};
    for (int i = 0; i < run->args.num_out; i++)
        r->d[i] = zeros(run->args.out[i].count);
    for (d.b = 0; d.b < q->size[0]; d.b++)
        for (d.h = 0; d.h < d.heads; d.h++) {
            d.g = d.h / (d.heads / d.key_heads);
            for (int64_t i = 0; i < d.tq; i++)
                scores_of(&d, i, r->lse);
            for (int64_t i = 0; i < d.tq; i++)
                query_of(&d, i, run->args.in[TRI_ATTENTION_GRAD_DO].data, r);
        }
    free(d.p);
}

void dense_prepare(op_run *run, uint32_t number, dense_results *right)
{
    fill_masks(run, number);
    dense_attention(run, right);
    const tri_tensor *o = &run->args.in[TRI_ATTENTION_GRAD_O];
    const tri_tensor *lse = &run->args.in[TRI_ATTENTION_GRAD_LSE];
    for (int64_t i = 0; i < o->count; i++)
        ((float *)o->data)[i] = (float)right->o[i];
    for (int64_t i = 0; i < lse->count; i++)
        ((float *)lse->data)[i] = (float)right->lse[i];
}

void dense_results_fini(dense_results *right)
{
    free(right->o);
    free(right->lse);
    for (int i = 0; i < 4; i++)
        free(right->d[i]);
}
