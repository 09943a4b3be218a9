/* Attention of one query after the other.
 *
 *     s_ij = alpha * q_i . k_j          for the keys j that query i sees; capped: c tanh(s_ij / c)
 *     lse_i = log(sum_j exp(s_ij) + exp(sink))
 *     p_ij = exp(s_ij - lse_i)
 *     o_i = sum_j m_ij p_ij v_j         m_ij = 0 or 1/(1-dropout); 1 without dropout
 *
 * and backwards, with the p recomputed from the kept lse:
 *
 *     dv_j = sum_i m_ij p_ij do_i
 *     ds_ij = p_ij (m_ij do_i . v_j - do_i . o_i)       capped: times 1 - (s_ij / c)^2
 *     dq_i = alpha sum_j ds_ij k_j,  dk_j = alpha sum_i ds_ij q_i
 *     dsink = - sum_i exp(sink - lse_i) do_i . o_i
 *
 * where the sums over i are over the queries of all heads that share the key head. */
#include "base/rng.h"
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

/* The operands of attention or of its gradient, packed, apart or cached. */
typedef struct attention_view {
    const tri_attention_attr *attr;
    uint64_t seed;
    const tri_tensor *q;
    int64_t num_batch, num_queries, num_keys, heads, key_heads, group, k_width, v_width;
    int64_t q_step;                 /* from one query to the next */
    int64_t k_step, k_head_step;    /* from one key to the next, from one head to the next... */
    int64_t v_step, v_head_step;    /* ...and of values */
    int64_t num_rows, k_row, v_row; /* of the batch, or of the cache; from one to the next */
    const float *k, *v, *sink;
    const int32_t *rows, *step, *docs, *span, *q_places, *k_places;
    uint64_t global_queries, global_keys;
} attention_view;

/* One head of queries with its keys: q of query i begins at q + i * q_step, and so on. */
typedef struct head {
    const float *q, *k, *v;
    const int32_t *docs, *span, *q_places, *k_places;
    uint64_t first_index; /* global index of the probability of place 0 at place 0 */
} head;

/* One query: its place, and those that it sees. */
typedef struct query_sight {
    int64_t query, place, begin, end;
} query_sight;

/* in: q, k, v of the operator; more: rows and what follows. */
static attention_view view_of(const tri_kernel_args *args, const tri_tensor *in,
                              const tri_tensor *more)
{
    const bool packed = in[0].rank == 5, apart = in[1].count > 0;
    const tri_attention_attr *attr = &args->attr->attention;
    const int rank = in[0].rank, tokens = attr->cached ? 2 : 1;
    attention_view a = {.attr = attr,
                        .seed = args->seed,
                        .q = &in[0],
                        .num_batch = in[0].size[0],
                        .num_queries = in[0].size[1],
                        .num_keys = apart ? in[1].size[tokens] : in[0].size[1],
                        .heads = in[0].size[rank - 2],
                        .key_heads = apart ? in[1].size[3 - tokens] : in[0].size[rank - 2],
                        .k_width = in[0].size[rank - 1],
                        .v_width = apart ? in[2].size[3] : in[0].size[rank - 1],
                        .num_rows = apart ? in[1].size[0] : in[0].size[0],
                        .global_queries = (uint64_t)in[0].global[1],
                        .global_keys = (uint64_t)(apart ? in[1].global[tokens] : in[0].global[1]),
                        .rows = more[0].data,
                        .step = more[1].data,
                        .docs = more[2].data,
                        .span = more[3].data,
                        .q_places = more[4].data,
                        .k_places = more[5].data,
                        .sink = more[6].data};
    a.group = a.heads / a.key_heads;
    a.q_step = (packed ? 3 : 1) * a.heads * a.k_width;
    a.k_head_step = attr->cached ? a.num_keys * a.k_width : a.k_width;
    a.v_head_step = attr->cached ? a.num_keys * a.v_width : a.v_width;
    a.k_step = !apart ? a.q_step : attr->cached ? a.k_width : a.key_heads * a.k_width;
    a.v_step = !apart ? a.q_step : attr->cached ? a.v_width : a.key_heads * a.v_width;
    a.k_row = attr->cached ? a.key_heads * a.k_head_step : a.num_keys * a.k_step;
    a.v_row = attr->cached ? a.key_heads * a.v_head_step : a.num_keys * a.v_step;
    if (in[0].data) { /* not when sizes alone are asked for */
        a.k = apart ? in[1].data : (const float *)in[0].data + a.heads * a.k_width;
        a.v = apart ? in[2].data : a.k + a.heads * a.k_width;
    }
    return a;
}

/* False where there is none: a row that the cache does not have. */
static bool head_of(const attention_view *a, int64_t b, int64_t h, head *one)
{
    const int64_t row = a->attr->cached ? a->rows[b] : b;
    if (row < 0 || row >= a->num_rows)
        return false;
    *one = (head){.q = (const float *)a->q->data + b * a->num_queries * a->q_step + h * a->k_width,
                  .k = a->k + row * a->k_row + h / a->group * a->k_head_step,
                  .v = a->v + row * a->v_row + h / a->group * a->v_head_step,
                  .docs = a->docs ? a->docs + b * a->num_queries : NULL,
                  .span = a->span ? a->span + b * a->num_queries * 2 : NULL,
                  .q_places = a->q_places ? a->q_places + b * a->num_queries : NULL,
                  .k_places = a->k_places ? a->k_places + b * a->num_keys : NULL};
    const int dim = a->q->rank - 2;
    if (a->attr->dropout > 0)
        one->first_index = (uint64_t)(a->rows[b] * a->q->global[dim] + h + a->q->origin[dim]) *
                           a->global_queries * a->global_keys;
    return true;
}

static query_sight sight_of(const attention_view *a, const head *one, int64_t i)
{
    const tri_attention_attr *attr = a->attr;
    query_sight s = {.query = i, .place = one->q_places ? one->q_places[i] : i, .end = INT64_MAX};
    if (s.place < 0)
        return (query_sight){.query = i, .place = s.place};
    if (attr->causal)
        s.end = s.place + 1;
    if (attr->window > 0)
        s.begin = s.place + 1 - attr->window;
    if (one->span && one->span[2 * i] > s.begin)
        s.begin = one->span[2 * i];
    if (one->span && one->span[2 * i + 1] < s.end)
        s.end = one->span[2 * i + 1];
    if (attr->cached && s.end - a->num_keys > s.begin)
        s.begin = s.end - a->num_keys;
    s.begin = s.begin > 0 ? s.begin : 0;
    return s;
}

/* Keys are counted as they lie, or in a cache as their places follow each other from the first one
 * that is seen. */
static int64_t count_keys(const attention_view *a, const query_sight *s)
{
    if (!a->attr->cached)
        return a->num_keys;
    return s->end > s->begin ? s->end - s->begin : 0;
}

static int64_t key_at(const attention_view *a, const query_sight *s, int64_t n)
{
    return a->attr->cached ? (s->begin + n) % a->num_keys : n;
}

static int64_t place_at(const attention_view *a, const head *one, const query_sight *s, int64_t n)
{
    return a->attr->cached ? s->begin + n : one->k_places ? one->k_places[n] : n;
}

static bool sees(const attention_view *a, const head *one, const query_sight *s, int64_t n)
{
    const int64_t place = place_at(a, one, s, n), i = s->query;
    if (place < s->begin || place >= s->end)
        return false;
    return !one->docs || (one->docs[i] >= 0 && one->docs[i] == one->docs[n]);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static double score_of(const attention_view *a, const head *one, const query_sight *s, int64_t n)
{
    const double cap = a->attr->soft_cap;
    double score = a->attr->alpha * dot(one->q + s->query * a->q_step,
                                        one->k + key_at(a, s, n) * a->k_step, a->k_width);
    return cap > 0 ? cap * tanh(score / cap) : score;
}

/* m_ij */
static double mask(const attention_view *a, const head *one, const query_sight *s, int64_t n)
{
    float p = a->attr->dropout;
    if (!(p > 0))
        return 1;
    uint64_t g =
        one->first_index + (uint64_t)s->place * a->global_keys + (uint64_t)place_at(a, one, s, n);
    uint32_t word = tri_random_word(a->seed, g, (uint32_t)a->step[0], a->attr->stream);
    return word >= tri_dropout_threshold(p) ? 1.0 / (1.0 - p) : 0;
}

static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    attention_view a = view_of(args, args->in, args->in + TRI_ATTENTION_ROWS);
    return (size_t)(a.num_keys + a.v_width) * sizeof(double);
}

/* Returns lse of query i; o is the sum of values, in double. */
static double query(const attention_view *a, const head *one, int64_t i, double sink, double *score,
                    double *o)
{
    const query_sight s = sight_of(a, one, i);
    const int64_t num = count_keys(a, &s);
    double max = sink, sum = 0;
    for (int64_t n = 0; n < num; n++) {
        score[n] = sees(a, one, &s, n) ? score_of(a, one, &s, n) : -INFINITY;
        max = fmax(max, score[n]);
    }
    if (max == -INFINITY)
        return max; /* it sees nothing */
    for (int64_t n = 0; n < num; n++)
        sum += exp(score[n] - max);
    double lse = max + log(sum + exp(sink - max));
    for (int64_t n = 0; n < num; n++) {
        if (score[n] == -INFINITY)
            continue;
        double p = exp(score[n] - lse) * mask(a, one, &s, n);
        for (int64_t c = 0; c < a->v_width; c++)
            o[c] += p * one->v[key_at(a, &s, n) * a->v_step + c];
    }
    return lse;
}

static void attention(const tri_kernel_args *args)
{
    attention_view a = view_of(args, args->in, args->in + TRI_ATTENTION_ROWS);
    float *o = args->out[0].data, *lse = args->out[1].data;
    double *score = ((tri_cpu *)args->device)->scratch, *sum = score + a.num_keys;
    for (int64_t b = 0; b < a.num_batch; b++) {
        for (int64_t h = 0; h < a.heads; h++) {
            const double sink = a.sink ? a.sink[h] : -INFINITY;
            head one;
            bool there = head_of(&a, b, h, &one);
            for (int64_t i = 0; i < a.num_queries; i++) {
                memset(sum, 0, (size_t)a.v_width * sizeof *sum);
                lse[(b * a.heads + h) * a.num_queries + i] =
                    (float)(there ? query(&a, &one, i, sink, score, sum) : sink);
                for (int64_t c = 0; c < a.v_width; c++)
                    o[((b * a.num_queries + i) * a.heads + h) * a.v_width + c] = (float)sum[c];
            }
        }
    }
}

/* Sums in double for one (batch row, key head): dq of one query, dk and dv of all keys. */
typedef struct grad_sums {
    double *dq, *dk, *dv;
} grad_sums;

static int64_t sums_count(const attention_view *a)
{
    return a->num_keys * (a->k_width + a->v_width);
}

static size_t attention_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    attention_view a =
        view_of(args, args->in + TRI_ATTENTION_GRAD_Q, args->in + TRI_ATTENTION_GRAD_ROWS);
    return (size_t)(a.heads + a.k_width + sums_count(&a)) * sizeof(double);
}

/* The share of a query in the sums. */
static void query_grad(const attention_view *a, const head *one, const query_sight *s,
                       const float *dout, double delta, double lse, const grad_sums *to)
{
    const double alpha = a->attr->alpha, cap = a->attr->soft_cap;
    const float *q = one->q + s->query * a->q_step;
    for (int64_t j = 0; j < a->num_keys; j++) {
        if (!sees(a, one, s, j))
            continue;
        const float *k = one->k + j * a->k_step, *v = one->v + j * a->v_step;
        double score = score_of(a, one, s, j), p = exp(score - lse), m = mask(a, one, s, j);
        double ds = p * (m * dot(dout, v, a->v_width) - delta);
        if (cap > 0)
            ds *= 1 - score / cap * (score / cap);
        for (int64_t c = 0; c < a->k_width; c++) {
            to->dq[c] += alpha * ds * k[c];
            to->dk[j * a->k_width + c] += alpha * ds * q[c];
        }
        for (int64_t c = 0; c < a->v_width; c++)
            to->dv[j * a->v_width + c] += m * p * dout[c];
    }
}

/* All the queries of one head. */
static void head_grad(const tri_kernel_args *args, const attention_view *a, int64_t b, int64_t h,
                      const grad_sums *sums, double *dsink)
{
    const float *dout = args->in[TRI_ATTENTION_GRAD_DO].data;
    const float *o = args->in[TRI_ATTENTION_GRAD_O].data;
    const float *lses = args->in[TRI_ATTENTION_GRAD_LSE].data;
    head one;
    head_of(a, b, h, &one);
    float *to = (float *)args->out[0].data + (one.q - (const float *)a->q->data);
    for (int64_t i = 0; i < a->num_queries; i++) {
        const int64_t at = ((b * a->num_queries + i) * a->heads + h) * a->v_width;
        const double lse = lses[(b * a->heads + h) * a->num_queries + i];
        const double delta = dot(dout + at, o + at, a->v_width);
        const query_sight s = sight_of(a, &one, i);
        memset(sums->dq, 0, (size_t)a->k_width * sizeof *sums->dq);
        if (lse != -INFINITY) { /* otherwise it sees nothing */
            query_grad(a, &one, &s, dout + at, delta, lse, sums);
            dsink[h] -= a->sink ? exp(a->sink[h] - lse) * delta : 0;
        }
        for (int64_t c = 0; c < a->k_width; c++)
            to[i * a->q_step + c] = (float)sums->dq[c];
    }
}

static void write_keys(const attention_view *a, const grad_sums *sums, int64_t b, int64_t g,
                       float *dk, float *dv)
{
    dk += b * a->k_row + g * a->k_width;
    dv += b * a->v_row + g * a->v_width;
    for (int64_t j = 0; j < a->num_keys; j++) {
        for (int64_t c = 0; c < a->k_width; c++)
            dk[j * a->k_step + c] = (float)sums->dk[j * a->k_width + c];
        for (int64_t c = 0; c < a->v_width; c++)
            dv[j * a->v_step + c] = (float)sums->dv[j * a->v_width + c];
    }
}

static void attention_grad(const tri_kernel_args *args)
{
    attention_view a =
        view_of(args, args->in + TRI_ATTENTION_GRAD_Q, args->in + TRI_ATTENTION_GRAD_ROWS);
    const bool packed = args->in[TRI_ATTENTION_GRAD_K].count == 0;
    float *dk = packed ? (float *)args->out[0].data + a.heads * a.k_width : args->out[1].data;
    float *dv = packed ? dk + a.heads * a.k_width : args->out[2].data;
    double *dsink = ((tri_cpu *)args->device)->scratch;
    grad_sums sums = {.dq = dsink + a.heads, .dk = dsink + a.heads + a.k_width};
    sums.dv = sums.dk + a.num_keys * a.k_width;
    memset(dsink, 0, (size_t)a.heads * sizeof *dsink);
    for (int64_t b = 0; b < a.num_batch; b++) {
        for (int64_t g = 0; g < a.key_heads; g++) {
            memset(sums.dk, 0, (size_t)sums_count(&a) * sizeof *sums.dk);
            for (int64_t h = g * a.group; h < (g + 1) * a.group; h++)
                head_grad(args, &a, b, h, &sums, dsink);
            write_keys(&a, &sums, b, g, dk, dv);
        }
    }
    for (int64_t h = 0; a.sink && h < a.heads; h++)
        ((float *)args->out[args->num_out - 1].data)[h] = (float)dsink[h];
}

/* One query of one head: both results become one. In fp32, as everywhere: what is merged is. */
static void merge(const tri_kernel_args *args)
{
    const float *o1 = args->in[0].data, *lse1 = args->in[1].data;
    const float *o2 = args->in[2].data, *lse2 = args->in[3].data;
    float *o = args->out[0].data, *lse = args->out[1].data;
    const int64_t *size = args->in[0].size, num = size[1], heads = size[2], width = size[3];
    for (int64_t at = 0; at < args->in[1].count; at++) { /* [B, H, T] */
        const int64_t b = at / num / heads, h = at / num % heads, t = at % num;
        const int64_t first = ((b * num + t) * heads + h) * width;
        const double max = fmax(lse1[at], lse2[at]);
        const double sum = exp(lse1[at] - max) + exp(lse2[at] - max);
        const double a = max == -INFINITY ? 0 : exp(lse1[at] - max) / sum;
        const double c = max == -INFINITY ? 0 : exp(lse2[at] - max) / sum;
        lse[at] = (float)(max == -INFINITY ? max : max + log(sum));
        for (int64_t i = first; i < first + width; i++)
            o[i] = (float)(a * o1[i] + c * o2[i]);
    }
}

const tri_kernel tri_ref_attention = {.run = attention, .scratch_bytes = attention_scratch};
const tri_kernel tri_ref_attention_grad = {.run = attention_grad,
                                           .scratch_bytes = attention_grad_scratch};
const tri_kernel tri_ref_attention_merge = {.run = merge};
