/* Routers: a token at a time, whose scores lie in the nearest cache.
 *
 * What is summed over tokens is summed in blocks of them, in double. Choices are found in one walk
 * over the experts, which keeps the best so far in order. */
#include "device/cpu/fast/fast.h"

#include <math.h>

static float sum_row(const float *restrict x, int64_t num)
{
    float lane[SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + SUM_LANES <= num; i += SUM_LANES)
        for (int l = 0; l < SUM_LANES; l++)
            lane[l] += x[i + l];
    for (; i < num; i++)
        lane[i % SUM_LANES] += x[i];
    return sum_of_lanes(lane);
}

/* The softmax of a row. Returns the log of the sum of exponentials. */
static float softmax_row(const float *restrict x, int64_t num, float *restrict y)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < num; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < num; i++)
        y[i] = exp_weight(x[i] - max);
    float sum = sum_row(y, num), inverse = 1.0f / sum;
    for (int64_t i = 0; i < num; i++)
        y[i] *= inverse;
    return max + logf(sum);
}

static void sigmoid_row(const float *restrict x, int64_t num, float *restrict y)
{
    for (int64_t i = 0; i < num; i++)
        y[i] = 1.0f / (1.0f + tri_expf(-x[i]));
}

/* The derivative of the sigmoid, s (1 - s), with 1 - s = e s. */
static inline float sigmoid_slope(float x)
{
    float e = tri_expf(-tri_clampf(x, -80.0f, 80.0f)), s = 1.0f / (1.0f + e);
    return s * (e * s);
}

static void scores_of(tri_route_score kind, const float *logits, int64_t experts, float *score)
{
    if (kind == TRI_ROUTE_SIGMOID)
        sigmoid_row(logits, experts, score);
    else
        softmax_row(logits, experts, score);
}

/* The natural logarithm of a positive number that is not denormal, after Cephes: relative error
 * below 2e-7. */
static inline float log_of(float x)
{
    uint32_t bits = tri_bits_from_float(x);
    float m = tri_float_from_bits((bits & 0x7fffffu) | 0x3f000000u);
    float low = m < 0.70710678f ? 1.0f : 0.0f;
    float n = (float)(int32_t)(bits >> 23) - 126.0f - low;
    m = m + low * m - 1.0f;
    float z = m * m, y = 7.0376836292e-2f;
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z - 2.12194440e-4f * n - 0.5f * z;
    return m + y + 0.693359375f * n;
}

/* ---- choices ---- */

/* The largest keys so far, the largest first; of equal ones the first. */
typedef struct best_keys {
    float key[TRI_MAX_CHOICES];
    int32_t at[TRI_MAX_CHOICES];
    int32_t num, most;
} best_keys;

/* Written so that whatever the keys are (a NaN), as many as there is room for are found. */
static inline void offer(best_keys *best, float key, int32_t at)
{
    if (best->num == best->most && !(key > best->key[best->num - 1]))
        return;
    int32_t i = best->num < best->most ? best->num++ : best->num - 1;
    for (; i > 0 && key > best->key[i - 1]; i--) {
        best->key[i] = best->key[i - 1];
        best->at[i] = best->at[i - 1];
    }
    best->key[i] = key;
    best->at[i] = at;
}

/* The largest of some keys and, where there are more than one, the largest of the others. */
static float worth_of(const float *key, int64_t num)
{
    best_keys best = {.most = num > 1 ? 2 : 1};
    for (int64_t e = 0; e < num; e++)
        offer(&best, key[e], (int32_t)e);
    return num > 1 ? best.key[0] + best.key[1] : best.key[0];
}

/* Leaves the keys of all but the best groups at -inf. */
static void limit_groups(const tri_route_attr *attr, float *key, int64_t experts)
{
    int64_t size = experts / attr->groups;
    float worth[TRI_MAX_EXPERTS];
    bool kept[TRI_MAX_EXPERTS] = {false};
    for (int64_t g = 0; g < attr->groups; g++)
        worth[g] = worth_of(key + g * size, size);
    for (int32_t i = 0; i < attr->group_limit; i++) {
        int64_t best = -1;
        for (int64_t g = 0; g < attr->groups; g++)
            if (!kept[g] && (best < 0 || worth[g] > worth[best]))
                best = g;
        kept[best] = true;
    }
    for (int64_t e = 0; e < experts; e++)
        if (!kept[e / size])
            key[e] = -INFINITY;
}

/* By logits where their order is that of the scores, which have been rounded. */
static void choose(const tri_route_attr *attr, const float *logits, const float *score,
                   const float *bias, int64_t experts, int32_t *choice)
{
    bool by_logits = attr->score == TRI_ROUTE_CHOSEN ||
                     (attr->score == TRI_ROUTE_SOFTMAX && !bias && attr->groups <= 1);
    const float *from = by_logits ? logits : score;
    float key[TRI_MAX_EXPERTS];
    for (int64_t e = 0; e < experts; e++)
        key[e] = bias ? from[e] + bias[e] : from[e];
    if (attr->groups > 1)
        limit_groups(attr, key, experts);
    best_keys best = {.most = attr->choices};
    for (int64_t e = 0; e < experts; e++)
        offer(&best, key[e], (int32_t)e);
    memcpy(choice, best.at, (size_t)attr->choices * sizeof *choice);
}

/* Scores of the choices: softmax over these alone where the router says so. */
static void chosen_scores(const tri_route_attr *attr, const float *logits, const float *score,
                          const int32_t *choice, float *chosen)
{
    float of[TRI_MAX_CHOICES] = {0};
    for (int32_t j = 0; j < attr->choices; j++) {
        of[j] = logits[choice[j]];
        chosen[j] = score[choice[j]];
    }
    if (attr->score == TRI_ROUTE_CHOSEN)
        softmax_row(of, attr->choices, chosen);
}

/* ---- tokens ---- */

typedef struct token_job {
    const tri_kernel_args *args;
    int64_t experts, num_tokens, per_task;
} token_job;

/* A token costs some exponentials for each expert. */
static void run_tokens(const tri_kernel_args *args, tri_task_fn fn)
{
    int64_t experts = last_dim(&args->in[0]), count = args->in[0].count;
    token_job job = {args, experts, count / experts, rows_per_task(4 * experts)};
    run_tasks(args, 4 * count, ceil_div(job.num_tokens, job.per_task), fn, &job);
}

static int64_t tokens_of(const token_job *job, int task, int64_t *end)
{
    int64_t first = task * job->per_task;
    *end = min_i64(job->num_tokens, first + job->per_task);
    return first;
}

static void route_token(const tri_route_attr *attr, const float *logits, const float *bias,
                        int64_t experts, float *weights, int32_t *choice)
{
    float score[TRI_MAX_EXPERTS], chosen[TRI_MAX_CHOICES], sum = 0;
    scores_of(attr->score, logits, experts, score);
    choose(attr, logits, score, bias, experts, choice);
    chosen_scores(attr, logits, score, choice, chosen);
    for (int32_t j = 0; j < attr->choices; j++)
        sum += chosen[j];
    for (int32_t j = 0; j < attr->choices; j++)
        weights[j] = attr->scale * (attr->renorm ? chosen[j] / sum : chosen[j]);
}

static void route_task(void *context, int task, int worker)
{
    (void)worker;
    const token_job *job = context;
    const tri_kernel_args *args = job->args;
    const tri_route_attr *attr = &args->attr->route;
    int64_t end, experts = job->experts;
    for (int64_t t = tokens_of(job, task, &end); t < end; t++)
        route_token(attr, (const float *)args->in[0].data + t * experts, args->in[1].data, experts,
                    (float *)args->out[0].data + t * attr->choices,
                    (int32_t *)args->out[1].data + t * attr->choices);
}

static void route(const tri_kernel_args *args)
{
    run_tokens(args, route_task);
}

static void route_token_grad(const tri_route_attr *attr, const float *logits, const int32_t *choice,
                             const float *dweights, int64_t experts, float *dlogits)
{
    float score[TRI_MAX_EXPERTS], chosen[TRI_MAX_CHOICES], d[TRI_MAX_CHOICES];
    float sum = 0, mean = 0, dot = 0;
    scores_of(attr->score, logits, experts, score);
    chosen_scores(attr, logits, score, choice, chosen);
    for (int32_t j = 0; j < attr->choices; j++)
        sum += chosen[j];
    for (int32_t j = 0; j < attr->choices; j++) /* of one choice that is dweights, to the bit */
        mean += dweights[j] * (chosen[j] / sum);
    for (int32_t j = 0; j < attr->choices; j++) { /* of the scores of the choices */
        d[j] = attr->scale * (attr->renorm ? (dweights[j] - mean) / sum : dweights[j]);
        dot += d[j] * chosen[j];
    }
    float others = attr->score == TRI_ROUTE_SOFTMAX ? -dot : 0;
    for (int64_t e = 0; e < experts; e++)
        dlogits[e] = others * score[e];
    for (int32_t j = 0; j < attr->choices; j++)
        dlogits[choice[j]] = attr->score == TRI_ROUTE_SIGMOID
                                 ? d[j] * sigmoid_slope(logits[choice[j]])
                                 : chosen[j] * (d[j] - dot);
}

static void route_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const token_job *job = context;
    const tri_kernel_args *args = job->args;
    const tri_route_attr *attr = &args->attr->route;
    int64_t end, experts = job->experts;
    for (int64_t t = tokens_of(job, task, &end); t < end; t++)
        route_token_grad(attr, (const float *)args->in[0].data + t * experts,
                         (const int32_t *)args->in[1].data + t * attr->choices,
                         (const float *)args->in[2].data + t * attr->choices, experts,
                         (float *)args->out[0].data + t * experts);
}

static void route_grad(const tri_kernel_args *args)
{
    run_tokens(args, route_grad_task);
}

/* ---- sums over tokens ---- */

/* Sums of a block of tokens, in doubles: chose [E], mass [E], and these. */
enum { OF_TOKENS, OF_Z, OF_ENTROPY, NUM_OTHERS };

/* A row of the batch, or all of it, in blocks of tokens. */
typedef struct sums_job {
    const tri_kernel_args *args;
    int64_t experts, num_rows, row_tokens;
    int64_t block, row_blocks; /* tokens of a block, blocks of a row */
} sums_job;

static sums_job sums_of(const tri_kernel_args *args)
{
    const tri_tensor *logits = &args->in[0];
    bool whole = args->attr->route.whole;
    int64_t rows = whole ? 1 : logits->size[0];
    int64_t tokens = whole ? logits->size[0] * logits->size[1] : logits->size[1];
    sums_job job = {args, last_dim(logits), rows, tokens, MIN_BLOCK_ROWS, 0};
    if (rows > 0 && tokens > 0) {
        int64_t block = ceil_div(tokens, ceil_div(MAX_ROW_BLOCKS, rows));
        job.block = block < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : block;
        job.row_blocks = ceil_div(tokens, job.block);
    }
    return job;
}

static double *block_sums(const sums_job *job, int64_t block)
{
    return (double *)cpu_of(job->args)->scratch + block * (2 * job->experts + NUM_OTHERS);
}

static void add_token(const sums_job *job, int64_t t, double *sums)
{
    const tri_kernel_args *args = job->args;
    const tri_route_attr *attr = &args->attr->route;
    const float *logits = (const float *)args->in[0].data + t * job->experts;
    const int32_t *choice = (const int32_t *)args->in[1].data + t * attr->choices;
    double *chose = sums, *mass = sums + job->experts, *others = mass + job->experts;
    float part[TRI_MAX_EXPERTS], terms[TRI_MAX_EXPERTS], inverse = 1;
    double lse = (double)softmax_row(logits, job->experts, part);
    if (attr->score == TRI_ROUTE_SIGMOID) {
        sigmoid_row(logits, job->experts, part);
        inverse = 1.0f / sum_row(part, job->experts);
    }
    for (int64_t e = 0; e < job->experts; e++) {
        float p = part[e] * inverse;
        mass[e] += (double)p;
        terms[e] = p > 0 ? -p * log_of(p) : 0;
    }
    others[OF_TOKENS]++;
    others[OF_Z] += lse * lse;
    others[OF_ENTROPY] += (double)sum_row(terms, job->experts);
    for (int32_t j = 0; j < attr->choices; j++)
        chose[choice[j]]++;
}

static void sums_task(void *context, int task, int worker)
{
    (void)worker;
    const sums_job *job = context;
    const int32_t *targets = job->args->in[2].data;
    int64_t row = task / job->row_blocks, first = task % job->row_blocks * job->block;
    double *sums = block_sums(job, task);
    memset(sums, 0, (size_t)(2 * job->experts + NUM_OTHERS) * sizeof *sums);
    for (int64_t i = first; i < min_i64(job->row_tokens, first + job->block); i++)
        if (targets[row * job->row_tokens + i] >= 0)
            add_token(job, row * job->row_tokens + i, sums);
}

static void store(float *out, double value, bool overwrite)
{
    *out = (float)(overwrite ? value : (double)*out + value);
}

/* The sums of one row or of all, from those of its blocks; of all rows but the sums by row, too. */
static void gather_sums(const sums_job *job, double *total)
{
    int64_t experts = job->experts;
    float *out = job->args->out[0].data;
    double row[2 * TRI_MAX_EXPERTS + NUM_OTHERS];
    for (int64_t r = 0; r < job->num_rows; r++) {
        memset(row, 0, sizeof row);
        for (int64_t b = 0; b < job->row_blocks; b++) {
            const double *sums = block_sums(job, r * job->row_blocks + b);
            for (int64_t i = 0; i < 2 * experts + NUM_OTHERS; i++)
                row[i] += sums[i];
        }
        for (int64_t e = 0; e < experts; e++, out += TRI_NUM_ROUTE_SUMS) {
            out[TRI_ROUTE_CHOSE] = (float)row[e];
            out[TRI_ROUTE_MASS] = (float)row[experts + e];
            out[TRI_ROUTE_TOKENS] = (float)row[2 * experts + OF_TOKENS];
        }
        for (int64_t i = 0; i < 2 * experts + NUM_OTHERS; i++)
            total[i] += row[i];
    }
}

static void route_sums(const tri_kernel_args *args)
{
    sums_job job = sums_of(args);
    double total[2 * TRI_MAX_EXPERTS + NUM_OTHERS] = {0};
    const double *others = total + 2 * job.experts, mean = (double)args->attr->route.alpha;
    run_tasks(args, 4 * args->in[0].count, job.num_rows * job.row_blocks, sums_task, &job);
    gather_sums(&job, total);
    store(args->out[1].data, mean * others[OF_Z], args->overwrite);
    store(args->out[2].data, mean * others[OF_ENTROPY], args->overwrite);
}

static size_t sums_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    sums_job job = sums_of(args);
    return (size_t)(job.num_rows * job.row_blocks * (2 * job.experts + NUM_OTHERS)) *
           sizeof(double);
}

/* dsums: of the token's row, or NULL. */
static void sums_token_grad(const tri_route_attr *attr, const float *logits, const float *dsums,
                            float dz, int64_t experts, float *restrict dlogits)
{
    float part[TRI_MAX_EXPERTS], scores[TRI_MAX_EXPERTS], d[TRI_MAX_EXPERTS];
    float lse = softmax_row(logits, experts, part), dot = 0, inverse = 1;
    for (int64_t e = 0; e < experts; e++)
        dlogits[e] = 2.0f * dz * lse * part[e];
    if (!dsums)
        return;
    if (attr->score == TRI_ROUTE_SIGMOID) {
        sigmoid_row(logits, experts, scores);
        inverse = 1.0f / sum_row(scores, experts);
        for (int64_t e = 0; e < experts; e++)
            part[e] = sigmoid_slope(logits[e]);
    } else {
        memcpy(scores, part, (size_t)experts * sizeof *scores);
    }
    for (int64_t e = 0; e < experts; e++) {
        d[e] = dsums[e * TRI_NUM_ROUTE_SUMS + TRI_ROUTE_MASS];
        scores[e] *= d[e];
    }
    dot = sum_row(scores, experts) * inverse;
    for (int64_t e = 0; e < experts; e++)
        dlogits[e] += (d[e] - dot) * (part[e] * inverse);
}

static void sums_grad_task(void *context, int task, int worker)
{
    (void)worker;
    const token_job *job = context;
    const tri_kernel_args *args = job->args;
    const tri_route_attr *attr = &args->attr->route;
    const int32_t *targets = args->in[1].data;
    int64_t end, experts = job->experts, row_tokens = args->in[0].size[1];
    float dz = attr->z * tri_kernel_scale(args, 3);
    for (int64_t t = tokens_of(job, task, &end); t < end; t++) {
        const float *dsums = args->in[2].data;
        float *dlogits = (float *)args->out[0].data + t * experts;
        if (dsums && !attr->whole)
            dsums += t / row_tokens * experts * TRI_NUM_ROUTE_SUMS;
        if (targets[t] >= 0)
            sums_token_grad(attr, (const float *)args->in[0].data + t * experts, dsums, dz, experts,
                            dlogits);
        else
            memset(dlogits, 0, (size_t)experts * sizeof *dlogits);
    }
}

static void route_sums_grad(const tri_kernel_args *args)
{
    run_tokens(args, sums_grad_task);
}

const tri_kernel TRI_ISA_NAME(tri_fast_route) = {.run = route};
const tri_kernel TRI_ISA_NAME(tri_fast_route_grad) = {.run = route_grad};
const tri_kernel TRI_ISA_NAME(tri_fast_route_sums) = {.run = route_sums,
                                                      .scratch_bytes = sums_scratch};
const tri_kernel TRI_ISA_NAME(tri_fast_route_sums_grad) = {.run = route_sums_grad};
