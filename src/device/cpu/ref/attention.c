/* Attention of one query after the other.
 *
 *     s_ij = alpha * q_i . k_j          for the keys j that query i sees
 *     lse_i = log sum_j exp(s_ij)
 *     p_ij = exp(s_ij - lse_i)
 *     o_i = sum_j m_ij p_ij v_j         m_ij = 0 or 1/(1-dropout); 1 without dropout
 *
 * and backwards, with the p recomputed from the kept lse:
 *
 *     dv_j = sum_i m_ij p_ij do_i
 *     ds_ij = p_ij (m_ij do_i . v_j - do_i . o_i)
 *     dq_i = alpha sum_j ds_ij k_j,  dk_j = alpha sum_i ds_ij q_i
 *
 * where the sums over i are over the queries of all heads that share the key head. */
#include "base/rng.h"
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

/* The operands of attention or of its gradient, packed or apart. */
typedef struct attention_view {
    const tri_kernel_args *args;
    int64_t num_batch, num_pos, heads, key_heads, width;
    int64_t q_step, k_step;   /* from one position to the next */
    int64_t k_start, v_start; /* packed: where they begin within a position */
    const tri_tensor *q;
    const float *k, *v;
    const int32_t *rows, *step, *docs;
} attention_view;

/* One head of queries with its keys: q of position t begins at q + t * q_step, and so on. */
typedef struct head {
    const float *q, *k, *v;
    const int32_t *docs;
    uint64_t first_index; /* global index of the probability of query 0, key 0 */
} head;

/* in: q, k, v of the operator; more: rows, step, docs. */
static attention_view view_of(const tri_kernel_args *args, const tri_tensor *in,
                              const tri_tensor *more)
{
    bool packed = in[0].rank == 5;
    int rank = in[0].rank;
    attention_view a = {.args = args,
                        .num_batch = in[0].size[0],
                        .num_pos = in[0].size[1],
                        .heads = in[0].size[rank - 2],
                        .key_heads = packed ? in[0].size[3] : in[1].size[2],
                        .width = in[0].size[rank - 1],
                        .q = &in[0],
                        .rows = more[0].data,
                        .step = more[1].data,
                        .docs = more[2].data};
    a.q_step = (packed ? 3 : 1) * a.heads * a.width;
    a.k_step = packed ? a.q_step : a.key_heads * a.width;
    a.k_start = packed ? a.heads * a.width : 0;
    a.v_start = packed ? 2 * a.heads * a.width : 0;
    a.k = packed ? in[0].data : in[1].data;
    a.v = packed ? in[0].data : in[2].data;
    return a;
}

static head head_of(const attention_view *a, int64_t b, int64_t h)
{
    int64_t key_head = h / (a->heads / a->key_heads), first_key = b * a->num_pos * a->k_step;
    head one = {.q = (const float *)a->q->data + b * a->num_pos * a->q_step + h * a->width,
                .k = a->k + first_key + a->k_start + key_head * a->width,
                .v = a->v + first_key + a->v_start + key_head * a->width,
                .docs = a->docs ? a->docs + b * a->num_pos : NULL};
    int dim = a->q->rank - 2;
    if (a->args->attr->attention.dropout > 0)
        one.first_index = (uint64_t)(a->rows[b] * a->q->global[dim] + h + a->q->origin[dim]) *
                          (uint64_t)a->num_pos * (uint64_t)a->num_pos;
    return one;
}

static bool sees(const attention_view *a, const head *one, int64_t i, int64_t j)
{
    const tri_attention_attr *attr = &a->args->attr->attention;
    if (attr->causal && (j > i || (attr->window > 0 && j <= i - attr->window)))
        return false;
    return !one->docs || (one->docs[i] >= 0 && one->docs[i] == one->docs[j]);
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* m_ij */
static double mask(const attention_view *a, const head *one, int64_t i, int64_t j)
{
    float p = a->args->attr->attention.dropout;
    if (!(p > 0))
        return 1;
    uint64_t g = one->first_index + (uint64_t)(i * a->num_pos + j);
    uint32_t word =
        tri_random_word(a->args->seed, g, (uint32_t)a->step[0], a->args->attr->attention.stream);
    return word >= tri_dropout_threshold(p) ? 1.0 / (1.0 - p) : 0;
}

static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    attention_view a = view_of(args, args->in, args->in + 3);
    return (size_t)(a.num_pos + a.width) * sizeof(double);
}

/* Returns lse of query i; o is the sum of values, in double. */
static double query(const attention_view *a, const head *one, int64_t i, double *score, double *o)
{
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->num_pos; j++) {
        score[j] = sees(a, one, i, j)
                       ? a->args->attr->attention.alpha *
                             dot(one->q + i * a->q_step, one->k + j * a->k_step, a->width)
                       : -INFINITY;
        max = fmax(max, score[j]);
    }
    memset(o, 0, (size_t)a->width * sizeof(double));
    if (max == -INFINITY)
        return max; /* it sees nothing */
    for (int64_t j = 0; j < a->num_pos; j++)
        sum += exp(score[j] - max);
    double lse = max + log(sum);
    for (int64_t j = 0; j < a->num_pos; j++) {
        if (!sees(a, one, i, j))
            continue;
        double p = exp(score[j] - lse) * mask(a, one, i, j);
        for (int64_t k = 0; k < a->width; k++)
            o[k] += p * one->v[j * a->k_step + k];
    }
    return lse;
}

static void attention(const tri_kernel_args *args)
{
    attention_view a = view_of(args, args->in, args->in + 3);
    float *o = args->out[0].data, *lse = args->out[1].data;
    double *score = ((tri_cpu *)args->device)->scratch, *sum = score + a.num_pos;
    for (int64_t b = 0; b < a.num_batch; b++) {
        for (int64_t h = 0; h < a.heads; h++) {
            head one = head_of(&a, b, h);
            for (int64_t i = 0; i < a.num_pos; i++) {
                lse[(b * a.heads + h) * a.num_pos + i] = (float)query(&a, &one, i, score, sum);
                for (int64_t k = 0; k < a.width; k++)
                    o[((b * a.num_pos + i) * a.heads + h) * a.width + k] = (float)sum[k];
            }
        }
    }
}

/* Sums in double for one (batch row, key head): dq of one query, dk and dv of all keys. */
static size_t attention_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    attention_view a = view_of(args, args->in + 1, args->in + 6);
    return (size_t)(a.width * (1 + 2 * a.num_pos)) * sizeof(double);
}

/* The share of query i in the sums. */
static void query_grad(const attention_view *a, const head *one, int64_t i, const float *dout,
                       const float *o, double lse, double *dq, double *dk, double *dv)
{
    double alpha = a->args->attr->attention.alpha;
    const float *q = one->q + i * a->q_step;
    double delta = dot(dout, o, a->width);
    memset(dq, 0, (size_t)a->width * sizeof(double));
    for (int64_t j = 0; j < a->num_pos; j++) {
        if (!sees(a, one, i, j))
            continue;
        const float *k = one->k + j * a->k_step, *v = one->v + j * a->k_step;
        double p = exp(alpha * dot(q, k, a->width) - lse);
        double m = mask(a, one, i, j);
        double ds = p * (m * dot(dout, v, a->width) - delta);
        for (int64_t c = 0; c < a->width; c++) {
            dq[c] += alpha * ds * k[c];
            dk[j * a->width + c] += alpha * ds * q[c];
            dv[j * a->width + c] += m * p * dout[c];
        }
    }
}

/* All the queries of one head. */
static void head_grad(const attention_view *a, int64_t b, int64_t h, double *dq, double *dk,
                      double *dv)
{
    const tri_kernel_args *args = a->args;
    const float *dout = args->in[0].data, *o = args->in[4].data, *lse = args->in[5].data;
    head one = head_of(a, b, h);
    float *to = (float *)args->out[0].data + (one.q - (const float *)a->q->data);
    for (int64_t i = 0; i < a->num_pos; i++) {
        int64_t at = ((b * a->num_pos + i) * a->heads + h) * a->width;
        query_grad(a, &one, i, dout + at, o + at, lse[(b * a->heads + h) * a->num_pos + i], dq, dk,
                   dv);
        for (int64_t c = 0; c < a->width; c++)
            to[i * a->q_step + c] = (float)dq[c];
    }
}

static void attention_grad(const tri_kernel_args *args)
{
    attention_view a = view_of(args, args->in + 1, args->in + 6);
    bool packed = args->num_out == 1;
    float *dk_out = args->out[packed ? 0 : 1].data, *dv_out = args->out[packed ? 0 : 2].data;
    double *dq = ((tri_cpu *)args->device)->scratch;
    double *dk = dq + a.width, *dv = dk + a.num_pos * a.width;
    int64_t group = a.heads / a.key_heads;

    for (int64_t b = 0; b < a.num_batch; b++) {
        for (int64_t g = 0; g < a.key_heads; g++) {
            memset(dk, 0, (size_t)(2 * a.num_pos * a.width) * sizeof(double));
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                head_grad(&a, b, h, dq, dk, dv);
            for (int64_t j = 0; j < a.num_pos; j++) {
                int64_t at = (b * a.num_pos + j) * a.k_step + g * a.width;
                for (int64_t c = 0; c < a.width; c++) {
                    dk_out[at + a.k_start + c] = (float)dk[j * a.width + c];
                    dv_out[at + a.v_start + c] = (float)dv[j * a.width + c];
                }
            }
        }
    }
}

const tri_kernel tri_ref_attention = {.run = attention, .scratch_bytes = attention_scratch};
const tri_kernel tri_ref_attention_grad = {.run = attention_grad,
                                           .scratch_bytes = attention_grad_scratch};
