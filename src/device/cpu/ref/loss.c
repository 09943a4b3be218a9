/* Losses. Sums, not means: FINISH divides by the count of the global batch. */
#include "device/cpu/ref/ref.h"

#include <math.h>

/* Of each row: the maximum, the sum of exp(logit - maximum), the logit of the target. On a shard of
 * the vocabulary these are the three numbers that combine across ranks. */
static void ce_stats(const tri_kernel_args *args)
{
    const tri_tensor *logits = &args->in[0];
    const int32_t *targets = args->in[1].data;
    float *stats = args->out[0].data;
    int64_t vocab = tri_ref_last(logits), origin = logits->origin[logits->rank - 1];
    for (int64_t i = 0; i < args->in[1].count; i++) {
        const float *row = (const float *)logits->data + i * vocab;
        double max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < vocab; v++)
            max = fmax(max, row[v]);
        for (int64_t v = 0; v < vocab; v++)
            sum += exp(row[v] - max);
        int64_t target = targets[i] - origin;
        stats[i * 3] = (float)max;
        stats[i * 3 + 1] = (float)sum;
        stats[i * 3 + 2] = target >= 0 && target < vocab ? row[target] : 0;
    }
}

static const tri_row_stat *head_stat(const tri_kernel_args *args, int k)
{
    return &tri_stat_at(args->attr->loss.stat[k])->row;
}

tri_head_stats tri_cpu_head_begin(const tri_kernel_args *args)
{
    tri_head_stats stats = {{0}};
    for (int k = 0; k + 3 < args->num_out; k++)
        stats.joined[k] = args->overwrite ? tri_join_start(head_stat(args, k)->join)
                                          : (double)*(const float *)args->out[3 + k].data;
    return stats;
}

void tri_cpu_head_row(const tri_kernel_args *args, tri_head_stats *stats, const float *row,
                      double lse)
{
    for (int k = 0; k + 3 < args->num_out; k++) {
        const tri_row_stat *stat = head_stat(args, k);
        double value = tri_row_stat_of(stat, (double)row[0], lse, (double)row[2]);
        stats->joined[k] = tri_join(stat->join, stats->joined[k], value);
    }
}

void tri_cpu_head_end(const tri_kernel_args *args, const tri_head_stats *stats)
{
    for (int k = 0; k + 3 < args->num_out; k++)
        *(float *)args->out[3 + k].data = (float)stats->joined[k];
}

static void ce_loss(const tri_kernel_args *args)
{
    const float *stats = args->in[0].data;
    const int32_t *targets = args->in[1].data;
    float *loss = args->out[0].data, *count = args->out[1].data, *lse = args->out[2].data;
    double sum = 0;
    int64_t num = 0;
    tri_head_stats head = tri_cpu_head_begin(args);
    for (int64_t i = 0; i < args->in[1].count; i++) {
        double row_lse = stats[i * 3] + log(stats[i * 3 + 1]);
        lse[i] = (float)row_lse;
        if (targets[i] >= 0) {
            sum += row_lse - stats[i * 3 + 2];
            num++;
            tri_cpu_head_row(args, &head, &stats[i * 3], row_lse);
        }
    }
    tri_ref_store(loss, sum, args->overwrite);
    tri_ref_store(count, (double)num, args->overwrite);
    tri_cpu_head_end(args, &head);
}

static void ce_grad(const tri_kernel_args *args)
{
    const tri_tensor *logits = &args->in[0];
    const int32_t *targets = args->in[1].data;
    const float *lse = args->in[2].data;
    int64_t vocab = tri_ref_last(logits), origin = logits->origin[logits->rank - 1];
    double alpha = (double)args->attr->loss.alpha * tri_kernel_scale(args, 3);
    double z = args->attr->loss.z;
    for (int64_t i = 0; i < args->in[1].count; i++) {
        const float *row = (const float *)logits->data + i * vocab;
        float *drow = (float *)args->out[0].data + i * vocab;
        for (int64_t v = 0; v < vocab; v++) {
            double p = exp((double)row[v] - lse[i]);
            p *= z != 0 ? 1 + 2 * z * lse[i] : 1;
            double onehot = v == targets[i] - origin;
            drow[v] = targets[i] < 0 ? 0 : (float)(alpha * (p - onehot));
        }
    }
}

static void out_loss(const tri_kernel_args *args)
{
    const float *out = args->in[0].data, *target = args->in[1].data;
    float *loss = args->out[0].data, *count = args->out[1].data;
    int64_t num = args->in[0].count;
    tri_out_loss kind = args->attr->loss.kind;
    double sum = 0;
    for (int64_t i = 0; i < num; i++) {
        double diff = kind == TRI_LOSS_MEAN ? 0 : (double)out[i] - target[i];
        switch (kind) {
        case TRI_LOSS_SSE:
            sum += 0.5 * diff * diff;
            break;
        case TRI_LOSS_MSE:
            sum += diff * diff;
            break;
        case TRI_LOSS_MEAN:
            sum += out[i];
            break;
        }
    }
    tri_ref_store(loss, sum, args->overwrite);
    /* A plain sum counts nothing, however many parts it comes from: see finish. */
    tri_ref_store(count, kind == TRI_LOSS_SSE ? 0 : (double)num, args->overwrite);
}

static void out_loss_grad(const tri_kernel_args *args)
{
    const float *out = args->in[0].data, *target = args->in[1].data;
    float *dout = args->out[0].data;
    double alpha = (double)args->attr->loss.alpha * tri_kernel_scale(args, 2);
    for (int64_t i = 0; i < args->out[0].count; i++) {
        switch (args->attr->loss.kind) {
        case TRI_LOSS_SSE:
            dout[i] = (float)(alpha * ((double)out[i] - target[i]));
            break;
        case TRI_LOSS_MSE:
            dout[i] = (float)(alpha * 2 * ((double)out[i] - target[i]));
            break;
        case TRI_LOSS_MEAN:
            dout[i] = (float)alpha;
            break;
        }
    }
}

const tri_kernel tri_ref_ce_stats = {.run = ce_stats};
const tri_kernel tri_ref_ce_loss = {.run = ce_loss};
const tri_kernel tri_ref_ce_grad = {.run = ce_grad};
const tri_kernel tri_ref_out_loss = {.run = out_loss};
const tri_kernel tri_ref_out_loss_grad = {.run = out_loss_grad};
