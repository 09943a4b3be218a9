/* Routers. */
#include "device/cpu/ref/ref.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Scores of a token, and their sum before they were made parts of one: the log of it. */
static double scores_of(tri_route_score kind, const float *logits, int64_t experts, double *score)
{
    double max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < experts; e++)
        max = fmax(max, logits[e]);
    for (int64_t e = 0; e < experts; e++)
        sum += exp(logits[e] - max);
    for (int64_t e = 0; e < experts; e++)
        score[e] = kind == TRI_ROUTE_SIGMOID ? 1 / (1 + exp(-(double)logits[e]))
                                             : exp(logits[e] - max) / sum;
    return max + log(sum);
}

static int64_t best_of(const double *key, int64_t first, int64_t end)
{
    int64_t best = first;
    for (int64_t e = first + 1; e < end; e++)
        if (key[e] > key[best])
            best = e;
    return best;
}

/* Leaves the keys of all but the best groups at -inf. */
static void limit_groups(const tri_route_attr *attr, double *key, int64_t experts)
{
    int64_t size = experts / attr->groups;
    double worth[TRI_MAX_EXPERTS];
    bool kept[TRI_MAX_EXPERTS] = {false};
    for (int64_t g = 0; g < attr->groups; g++) {
        int64_t first = best_of(key, g * size, (g + 1) * size);
        double top = key[first], second = -INFINITY;
        for (int64_t e = g * size; e < (g + 1) * size; e++)
            if (e != first)
                second = fmax(second, key[e]);
        worth[g] = size > 1 ? top + second : top;
    }
    for (int32_t i = 0; i < attr->group_limit; i++) {
        int64_t best = best_of(worth, 0, attr->groups);
        kept[best] = true;
        worth[best] = -INFINITY;
    }
    for (int64_t e = 0; e < experts; e++)
        if (!kept[e / size])
            key[e] = -INFINITY;
}

/* Whether experts are chosen by their logits: in the order of the scores, without their rounding.
 */
static bool by_logits(const tri_route_attr *attr, const float *bias)
{
    return attr->score == TRI_ROUTE_CHOSEN ||
           (attr->score == TRI_ROUTE_SOFTMAX && !bias && attr->groups <= 1);
}

static void choose(const tri_route_attr *attr, const float *logits, const double *score,
                   const float *bias, int64_t experts, int32_t *choice)
{
    double key[TRI_MAX_EXPERTS];
    for (int64_t e = 0; e < experts; e++)
        key[e] = (by_logits(attr, bias) ? logits[e] : score[e]) + (bias ? (double)bias[e] : 0);
    if (attr->groups > 1)
        limit_groups(attr, key, experts);
    for (int32_t j = 0; j < attr->choices; j++) {
        choice[j] = (int32_t)best_of(key, 0, experts);
        key[choice[j]] = -INFINITY;
    }
}

/* Scores of the choices: softmax over these alone where the router says so. */
static void chosen_scores(const tri_route_attr *attr, const float *logits, const double *score,
                          const int32_t *choice, double *chosen)
{
    float of[TRI_MAX_CHOICES];
    for (int32_t j = 0; j < attr->choices; j++) {
        of[j] = logits[choice[j]];
        chosen[j] = score[choice[j]];
    }
    if (attr->score == TRI_ROUTE_CHOSEN)
        scores_of(TRI_ROUTE_SOFTMAX, of, attr->choices, chosen);
}

static void route(const tri_kernel_args *args)
{
    const tri_route_attr *attr = &args->attr->route;
    int64_t experts = tri_ref_last(&args->in[0]), tokens = args->in[0].count / experts;
    const float *bias = args->in[1].data;
    double score[TRI_MAX_EXPERTS], chosen[TRI_MAX_CHOICES];
    for (int64_t t = 0; t < tokens; t++) {
        const float *logits = (const float *)args->in[0].data + t * experts;
        float *weights = (float *)args->out[0].data + t * attr->choices;
        int32_t *choice = (int32_t *)args->out[1].data + t * attr->choices;
        double sum = 0;
        scores_of(attr->score, logits, experts, score);
        choose(attr, logits, score, bias, experts, choice);
        chosen_scores(attr, logits, score, choice, chosen);
        for (int32_t j = 0; j < attr->choices; j++)
            sum += chosen[j];
        for (int32_t j = 0; j < attr->choices; j++)
            weights[j] = (float)(attr->scale * (attr->renorm ? chosen[j] / sum : chosen[j]));
    }
}

static void route_grad(const tri_kernel_args *args)
{
    const tri_route_attr *attr = &args->attr->route;
    int64_t experts = tri_ref_last(&args->in[0]), tokens = args->in[0].count / experts;
    double score[TRI_MAX_EXPERTS], chosen[TRI_MAX_CHOICES], d[TRI_MAX_CHOICES];
    for (int64_t t = 0; t < tokens; t++) {
        const float *logits = (const float *)args->in[0].data + t * experts;
        const int32_t *choice = (const int32_t *)args->in[1].data + t * attr->choices;
        const float *dweights = (const float *)args->in[2].data + t * attr->choices;
        float *dlogits = (float *)args->out[0].data + t * experts;
        double sum = 0, mean = 0, dot = 0;
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
        for (int64_t e = 0; e < experts; e++)
            dlogits[e] = (float)(attr->score == TRI_ROUTE_SOFTMAX ? -dot * score[e] : 0);
        for (int32_t j = 0; j < attr->choices; j++) {
            double s = chosen[j];
            double own = attr->score == TRI_ROUTE_SIGMOID ? d[j] * s * (1 - s) : s * (d[j] - dot);
            dlogits[choice[j]] = (float)own;
        }
    }
}

/* Parts of one: scores of sigmoids are divided by their sum. Returns that sum. */
static double parts_of(tri_route_score kind, const double *score, int64_t experts, double *part)
{
    double sum = 0;
    for (int64_t e = 0; e < experts; e++)
        sum += score[e];
    for (int64_t e = 0; e < experts; e++)
        part[e] = kind == TRI_ROUTE_SIGMOID ? score[e] / sum : score[e];
    return sum;
}

/* One row of the batch, or the whole: sums[e][...] of all its tokens. */
typedef struct row_sums {
    double chose[TRI_MAX_EXPERTS], mass[TRI_MAX_EXPERTS], tokens;
} row_sums;

static void add_token(const tri_kernel_args *args, int64_t t, row_sums *sums, double *z,
                      double *entropy)
{
    const tri_route_attr *attr = &args->attr->route;
    int64_t experts = tri_ref_last(&args->in[0]);
    double score[TRI_MAX_EXPERTS], part[TRI_MAX_EXPERTS];
    const int32_t *choice = (const int32_t *)args->in[1].data + t * attr->choices;
    double lse =
        scores_of(attr->score, (const float *)args->in[0].data + t * experts, experts, score);
    parts_of(attr->score, score, experts, part);
    *z += lse * lse;
    sums->tokens++;
    for (int64_t e = 0; e < experts; e++) {
        sums->mass[e] += part[e];
        *entropy -= part[e] > 0 ? part[e] * log(part[e]) : 0;
    }
    for (int32_t j = 0; j < attr->choices; j++)
        sums->chose[choice[j]]++;
}

static void route_sums(const tri_kernel_args *args)
{
    int64_t rows = args->in[0].size[0], tokens = args->in[0].size[1];
    int64_t experts = tri_ref_last(&args->in[0]);
    const int32_t *targets = args->in[2].data;
    bool whole = args->attr->route.whole;
    float *out = args->out[0].data;
    double z = 0, entropy = 0;
    row_sums sums;
    memset(&sums, 0, sizeof sums);
    for (int64_t b = 0; b < rows; b++) {
        for (int64_t t = b * tokens; t < (b + 1) * tokens; t++)
            if (targets[t] >= 0)
                add_token(args, t, &sums, &z, &entropy);
        if (whole && b + 1 < rows)
            continue;
        for (int64_t e = 0; e < experts; e++, out += TRI_NUM_ROUTE_SUMS) {
            out[TRI_ROUTE_CHOSE] = (float)sums.chose[e];
            out[TRI_ROUTE_MASS] = (float)sums.mass[e];
            out[TRI_ROUTE_TOKENS] = (float)sums.tokens;
        }
        memset(&sums, 0, sizeof sums);
    }
    if (whole && rows == 0)
        memset(out, 0, (size_t)args->out[0].count * sizeof *out);
    const double mean = args->attr->route.alpha;
    tri_ref_store(args->out[1].data, mean * z, args->overwrite);
    tri_ref_store(args->out[2].data, mean * entropy, args->overwrite);
}

static void route_load(const tri_kernel_args *args)
{
    const float *sums = args->in[0].data;
    int64_t experts = args->out[0].count;
    for (int64_t e = 0; e < experts; e++) {
        double load = 0;
        for (int64_t i = e * TRI_NUM_ROUTE_SUMS; i < args->in[0].count;
             i += experts * TRI_NUM_ROUTE_SUMS)
            load += sums[i + TRI_ROUTE_CHOSE];
        tri_ref_store((float *)args->out[0].data + e, load, args->overwrite);
    }
}

static void route_sums_grad(const tri_kernel_args *args)
{
    const tri_route_attr *attr = &args->attr->route;
    int64_t experts = tri_ref_last(&args->in[0]), tokens = args->in[0].size[1];
    const int32_t *targets = args->in[1].data;
    const float *dsums = args->in[2].data;
    double score[TRI_MAX_EXPERTS], part[TRI_MAX_EXPERTS];
    double scale = tri_kernel_scale(args, 3);
    for (int64_t t = 0; t < args->in[0].count / experts; t++) {
        const float *logits = (const float *)args->in[0].data + t * experts;
        float *dlogits = (float *)args->out[0].data + t * experts;
        const float *d =
            dsums && !attr->whole ? dsums + t / tokens * experts * TRI_NUM_ROUTE_SUMS : dsums;
        double lse = scores_of(attr->score, logits, experts, score), dot = 0;
        double sum = parts_of(attr->score, score, experts, part);
        for (int64_t e = 0; d && e < experts; e++)
            dot += part[e] * d[e * TRI_NUM_ROUTE_SUMS + TRI_ROUTE_MASS];
        for (int64_t e = 0; e < experts; e++) {
            double own = d ? d[e * TRI_NUM_ROUTE_SUMS + TRI_ROUTE_MASS] - dot : 0;
            own *= attr->score == TRI_ROUTE_SIGMOID ? score[e] * (1 - score[e]) / sum : part[e];
            own += 2 * attr->z * scale * lse * exp(logits[e] - lse);
            dlogits[e] = targets[t] >= 0 ? (float)own : 0;
        }
    }
}

static void balance(const tri_kernel_args *args)
{
    const float *sums = args->in[0].data;
    double loss = 0;
    for (int64_t i = 0; i < args->in[0].count; i += TRI_NUM_ROUTE_SUMS)
        if (sums[i + TRI_ROUTE_TOKENS] > 0)
            loss += (double)sums[i + TRI_ROUTE_CHOSE] * sums[i + TRI_ROUTE_MASS] /
                    sums[i + TRI_ROUTE_TOKENS];
    tri_ref_store(args->out[0].data, args->attr->route.alpha * loss, args->overwrite);
}

static void balance_grad(const tri_kernel_args *args)
{
    const float *sums = args->in[0].data;
    float *d = args->out[0].data;
    double alpha = (double)args->attr->route.alpha * tri_kernel_scale(args, 1);
    for (int64_t i = 0; i < args->in[0].count; i += TRI_NUM_ROUTE_SUMS) {
        float tokens = sums[i + TRI_ROUTE_TOKENS];
        d[i + TRI_ROUTE_MASS] =
            (float)(tokens > 0 ? alpha * sums[i + TRI_ROUTE_CHOSE] / tokens : 0);
        d[i + TRI_ROUTE_CHOSE] = d[i + TRI_ROUTE_TOKENS] = 0;
    }
}

static void move_bias(const tri_kernel_args *args)
{
    const float *old = args->in[0].data, *load = args->in[1].data, *result = args->in[2].data;
    float *bias = args->out[0].data;
    double mean = 0;
    if (result[TRI_RESULT_OK] == 0)
        return;
    for (int64_t e = 0; e < args->in[1].count; e++)
        mean += load[e];
    mean /= (double)args->in[1].count;
    for (int64_t e = 0; e < args->in[1].count; e++)
        bias[e] = old[e] + args->attr->route.alpha * (float)((load[e] < mean) - (load[e] > mean));
}

const tri_kernel tri_ref_route = {.run = route};
const tri_kernel tri_ref_route_grad = {.run = route_grad};
const tri_kernel tri_ref_route_sums = {.run = route_sums};
const tri_kernel tri_ref_route_sums_grad = {.run = route_sums_grad};
const tri_kernel tri_ref_route_load = {.run = route_load};
const tri_kernel tri_ref_balance = {.run = balance};
const tri_kernel tri_ref_balance_grad = {.run = balance_grad};
const tri_kernel tri_ref_move_bias = {.run = move_bias};
