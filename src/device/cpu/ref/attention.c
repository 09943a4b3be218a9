/* Attention of one query after the other.
 *
 *     s_ij = alpha * q_i . k_j          (j <= i when causal)
 *     lse_i = log sum_j exp(s_ij)
 *     p_ij = exp(s_ij - lse_i)
 *     o_i = sum_j m_ij p_ij v_j         m_ij = 0 or 1/(1-dropout); 1 without dropout
 *
 * and backwards, with the p recomputed from the kept lse:
 *
 *     dv_j = sum_i m_ij p_ij do_i
 *     ds_ij = p_ij (m_ij do_i . v_j - do_i . o_i)
 *     dq_i = alpha sum_j ds_ij k_j,  dk_j = alpha sum_i ds_ij q_i */
#include "base/rng.h"
#include "device/cpu/ref/ref.h"

#include <math.h>
#include <string.h>

/* One (batch row, head) of qkv [B,T,3,H,K]: q, k and v of position t begin at t * step. */
typedef struct head {
    const float *q, *k, *v;
    int64_t step;
    int64_t num_pos, width;
    uint64_t first_index; /* global index of the probability of query 0, key 0 */
} head;

static head head_of(const tri_kernel_args *args, const tri_tensor *qkv, const int32_t *rows,
                    int64_t b, int64_t h)
{
    int64_t num_pos = qkv->size[1], heads = qkv->size[3], width = qkv->size[4];
    const float *data = qkv->data;
    head one = {.step = 3 * heads * width, .num_pos = num_pos, .width = width};
    one.q = data + b * num_pos * one.step + h * width;
    one.k = one.q + heads * width;
    one.v = one.k + heads * width;
    if (args->attr->dropout > 0)
        one.first_index = (uint64_t)(rows[b] * qkv->global[3] + h + qkv->origin[3]) *
                          (uint64_t)num_pos * (uint64_t)num_pos;
    return one;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

/* m_ij */
static double mask(const tri_kernel_args *args, const head *one, const int32_t *step, int64_t i,
                   int64_t j)
{
    float p = args->attr->dropout;
    if (!(p > 0))
        return 1;
    uint64_t g = one->first_index + (uint64_t)(i * one->num_pos + j);
    uint32_t word = tri_random_word(args->seed, g, (uint32_t)step[0], args->attr->stream);
    return word >= tri_dropout_threshold(p) ? 1.0 / (1.0 - p) : 0;
}

static size_t attention_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return (size_t)(args->in[0].size[1] + args->in[0].size[4]) * sizeof(double);
}

static void attention(const tri_kernel_args *args)
{
    const tri_tensor *qkv = &args->in[0];
    const int32_t *rows = args->in[1].data, *step = args->in[2].data;
    float *o = args->out[0].data, *lse = args->out[1].data;
    int64_t num_pos = qkv->size[1], heads = qkv->size[3], width = qkv->size[4];
    double *score = ((tri_cpu *)args->device)->scratch;
    double *sum_v = score + num_pos;

    for (int64_t b = 0; b < qkv->size[0]; b++) {
        for (int64_t h = 0; h < heads; h++) {
            head one = head_of(args, qkv, rows, b, h);
            for (int64_t i = 0; i < num_pos; i++) {
                int64_t num_keys = args->attr->causal ? i + 1 : num_pos;
                double max = -INFINITY, sum = 0;
                for (int64_t j = 0; j < num_keys; j++) {
                    score[j] =
                        args->attr->alpha * dot(one.q + i * one.step, one.k + j * one.step, width);
                    max = fmax(max, score[j]);
                }
                for (int64_t j = 0; j < num_keys; j++)
                    sum += exp(score[j] - max);
                double row_lse = max + log(sum);
                memset(sum_v, 0, (size_t)width * sizeof(double));
                for (int64_t j = 0; j < num_keys; j++) {
                    double p = exp(score[j] - row_lse) * mask(args, &one, step, i, j);
                    for (int64_t k = 0; k < width; k++)
                        sum_v[k] += p * one.v[j * one.step + k];
                }
                for (int64_t k = 0; k < width; k++)
                    o[((b * num_pos + i) * heads + h) * width + k] = (float)sum_v[k];
                lse[(b * heads + h) * num_pos + i] = (float)row_lse;
            }
        }
    }
}

/* Sums in double for one (batch row, head): dq of one query, dk and dv of all keys. */
static size_t attention_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    const tri_tensor *qkv = &args->in[1];
    return (size_t)(qkv->size[4] * (1 + 2 * qkv->size[1])) * sizeof(double);
}

/* The share of query i in the sums. */
static void query_grad(const tri_kernel_args *args, const head *one, int64_t i, const float *dout,
                       const float *o, double lse, double *dq, double *dk, double *dv)
{
    double alpha = args->attr->alpha;
    int64_t width = one->width, num_keys = args->attr->causal ? i + 1 : one->num_pos;
    const float *q = one->q + i * one->step;
    double delta = dot(dout, o, width);
    memset(dq, 0, (size_t)width * sizeof(double));
    for (int64_t j = 0; j < num_keys; j++) {
        const float *k = one->k + j * one->step, *v = one->v + j * one->step;
        double p = exp(alpha * dot(q, k, width) - lse);
        double m = mask(args, one, args->in[5].data, i, j);
        double ds = p * (m * dot(dout, v, width) - delta);
        for (int64_t c = 0; c < width; c++) {
            dq[c] += alpha * ds * k[c];
            dk[j * width + c] += alpha * ds * q[c];
            dv[j * width + c] += m * p * dout[c];
        }
    }
}

static void attention_grad(const tri_kernel_args *args)
{
    const float *dout = args->in[0].data, *o = args->in[2].data, *lse = args->in[3].data;
    const tri_tensor *qkv = &args->in[1];
    float *dqkv = args->out[0].data;
    int64_t num_pos = qkv->size[1], heads = qkv->size[3], width = qkv->size[4];
    double *dq = ((tri_cpu *)args->device)->scratch;
    double *dk = dq + width, *dv = dk + num_pos * width;

    for (int64_t b = 0; b < qkv->size[0]; b++) {
        for (int64_t h = 0; h < heads; h++) {
            head one = head_of(args, qkv, args->in[4].data, b, h);
            float *to = dqkv + (one.q - (const float *)qkv->data); /* laid out like qkv */
            memset(dk, 0, (size_t)(2 * num_pos * width) * sizeof(double));
            for (int64_t i = 0; i < num_pos; i++) {
                int64_t at = ((b * num_pos + i) * heads + h) * width;
                query_grad(args, &one, i, dout + at, o + at, lse[(b * heads + h) * num_pos + i], dq,
                           dk, dv);
                for (int64_t c = 0; c < width; c++)
                    to[i * one.step + c] = (float)dq[c];
            }
            for (int64_t j = 0; j < num_pos; j++) {
                for (int64_t c = 0; c < width; c++) {
                    to[j * one.step + heads * width + c] = (float)dk[j * width + c];
                    to[j * one.step + 2 * heads * width + c] = (float)dv[j * width + c];
                }
            }
        }
    }
}

const tri_kernel tri_ref_attention = {attention, attention_scratch};
const tri_kernel tri_ref_attention_grad = {attention_grad, attention_grad_scratch};
