/* Routers: choices, their weights, and what gradients make of logits.
 *
 * A warp for each token. Lane j holds choice j: there are at most 32 of them. */
#include "device/cuda/experts/route.cuh"

namespace
{

using namespace tri;

static_assert(TRI_MAX_CHOICES <= 32, "a choice for each lane");

struct route_call {
    tri_route_attr attr;
    const float *logits, *bias, *dweights, *dsums, *scaler;
    const int32_t *choices, *targets;
    float *weights, *dlogits;
    int32_t *choice;
    int64_t tokens, tokens_of_row;
    int experts;
};

/* Which token this warp has; tokens and more where there is none. */
__device__ __forceinline__ int64_t token_of_warp()
{
    return (int64_t)blockIdx.x * ROUTE_WARPS + threadIdx.x / 32;
}

/* --- Choices -------------------------------------------------------------------------------- */

/* The largest of all lanes, and of equal ones the first. Every lane gets it. A lane without one has
 * index INT_MAX. */
__device__ __forceinline__ void best_of_warp(double &key, int &index)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        double other = __shfl_xor_sync(WHOLE_WARP, key, offset);
        int at = __shfl_xor_sync(WHOLE_WARP, index, offset);
        if (other > key || (other == key && at < index)) {
            key = other;
            index = at;
        }
    }
}

/* The index of the best of `num` keys, which then becomes -inf; 0 where there are only NaNs. */
template <int SLOTS> __device__ __forceinline__ int take_best(double (&key)[SLOTS], int num)
{
    double best = -INFINITY;
    int index = INT_MAX;
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        if (expert_of(s) < num && (key[s] > best || (key[s] == best && expert_of(s) < index))) {
            best = key[s];
            index = expert_of(s);
        }
    best_of_warp(best, index);
    index = index < num ? index : 0;
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        if (expert_of(s) == index)
            key[s] = -INFINITY;
    return index;
}

/* What a group is worth: its two best together. Read by one lane. */
__device__ __forceinline__ double worth_of(const double *key, int size)
{
    int first = 0;
    for (int e = 1; e < size; e++)
        if (key[e] > key[first])
            first = e;
    double second = -INFINITY;
    for (int e = 0; e < size; e++)
        if (e != first)
            second = fmax(second, key[e]);
    return size > 1 ? key[first] + second : key[first];
}

/* Leaves the keys of all but the best groups at -inf. `shared` has room for all keys of a token. */
template <int SLOTS>
__device__ __forceinline__ void limit_groups(const route_call &c, double (&key)[SLOTS],
                                             double *shared)
{
    int size = c.experts / c.attr.groups;
    double worth[SLOTS];
    unsigned kept = 0; /* a bit for each slot */
    for (int s = 0; s < SLOTS; s++)
        if (expert_of(s) < c.experts)
            shared[expert_of(s)] = key[s];
    __syncwarp();
#pragma unroll
    for (int s = 0; s < SLOTS; s++) /* lane and slot mean a group here */
        worth[s] = expert_of(s) < c.attr.groups ? worth_of(shared + expert_of(s) * size, size) : 0;
    for (int i = 0; i < c.attr.group_limit; i++) {
        int best = take_best(worth, c.attr.groups);
        kept |= best % 32 == lane_of_thread() ? 1u << (best / 32) : 0;
    }
    __syncwarp();
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        if (expert_of(s) < c.attr.groups && !(kept >> s & 1))
            for (int e = 0; e < size; e++)
                shared[expert_of(s) * size + e] = -INFINITY;
    __syncwarp();
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        key[s] = expert_of(s) < c.experts ? shared[expert_of(s)] : -INFINITY;
}

/* The score of this lane's choice; 0 in lanes beyond the last. All lanes take part. */
template <int SLOTS>
__device__ __forceinline__ double chosen_score(const route_call &c,
                                               const token_logits<SLOTS> &logits, float logit)
{
    bool any = lane_of_thread() < c.attr.choices;
    if (c.attr.score != TRI_ROUTE_CHOSEN)
        return any ? logits.score(c.attr.score, logit) : 0;
    double max = warp_max(any ? logit : -INFINITY);
    double part = any ? exp(logit - max) : 0;
    return part / warp_sum(part);
}

template <int SLOTS>
__global__ void __launch_bounds__(ROUTE_THREADS) route_kernel(const __grid_constant__ route_call c)
{
    extern __shared__ double shared_keys[]; /* with groups: the keys of each warp's token */
    int64_t token = token_of_warp();
    if (token >= c.tokens)
        return;
    const float *from = c.logits + token * c.experts;
    token_logits<SLOTS> logits;
    logits.load(from, c.experts);
    /* By logits: in the order of the scores, without their rounding. */
    bool by_logits = c.attr.score == TRI_ROUTE_CHOSEN ||
                     (c.attr.score == TRI_ROUTE_SOFTMAX && !c.bias && c.attr.groups <= 1);
    double key[SLOTS];
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        bool any = expert_of(s) < c.experts;
        key[s] = by_logits ? (double)logits.at[s] : logits.score(c.attr.score, logits.at[s]);
        key[s] = any ? key[s] + (c.bias ? (double)c.bias[expert_of(s)] : 0) : -INFINITY;
    }
    if (c.attr.groups > 1)
        limit_groups(c, key, shared_keys + threadIdx.x / 32 * c.experts);
    int lane = lane_of_thread(), own = 0;
    for (int j = 0; j < c.attr.choices; j++) {
        int best = take_best(key, c.experts);
        own = j == lane ? best : own;
    }
    double score = chosen_score(c, logits, from[own]);
    double sum = warp_sum(score);
    if (lane >= c.attr.choices)
        return;
    c.choice[token * c.attr.choices + lane] = own;
    c.weights[token * c.attr.choices + lane] =
        (float)(c.attr.scale * (c.attr.renorm ? score / sum : score));
}

/* --- Gradients ------------------------------------------------------------------------------ */

template <int SLOTS>
__global__ void __launch_bounds__(ROUTE_THREADS)
    route_grad_kernel(const __grid_constant__ route_call c)
{
    int64_t token = token_of_warp();
    if (token >= c.tokens)
        return;
    const float *from = c.logits + token * c.experts;
    float *to = c.dlogits + token * c.experts;
    int lane = lane_of_thread(), own = 0;
    bool any = lane < c.attr.choices;
    double dweight = 0;
    if (any) {
        own = c.choices[token * c.attr.choices + lane];
        dweight = c.dweights[token * c.attr.choices + lane];
    }
    token_logits<SLOTS> logits;
    logits.load(from, c.experts);
    double score = chosen_score(c, logits, from[own]);
    double sum = warp_sum(score), mean = warp_sum(dweight * (score / sum));
    double d = c.attr.scale * (c.attr.renorm ? (dweight - mean) / sum : dweight);
    double dot = warp_sum(any ? d * score : 0); /* d of the scores of the choices */
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        if (expert_of(s) < c.experts)
            to[expert_of(s)] = c.attr.score == TRI_ROUTE_SOFTMAX
                                   ? (float)(-dot * logits.score(TRI_ROUTE_SOFTMAX, logits.at[s]))
                                   : 0.0f;
    __syncwarp(); /* what follows comes after */
    if (any)
        to[own] = (float)(c.attr.score == TRI_ROUTE_SIGMOID ? d * score * (1 - score)
                                                            : score * (d - dot));
}

template <int SLOTS>
__global__ void __launch_bounds__(ROUTE_THREADS)
    sums_grad_kernel(const __grid_constant__ route_call c)
{
    int64_t token = token_of_warp();
    if (token >= c.tokens)
        return;
    float *to = c.dlogits + token * c.experts;
    if (c.targets[token] < 0) {
        for (int e = lane_of_thread(); e < c.experts; e += 32)
            to[e] = 0;
        return;
    }
    token_logits<SLOTS> logits;
    logits.load(c.logits + token * c.experts, c.experts);
    int64_t row = c.attr.whole ? 0 : quotient(token, c.tokens_of_row);
    const float *d = c.dsums ? c.dsums + row * c.experts * TRI_NUM_ROUTE_SUMS : nullptr;
    double sum = 1, dot = 0, part = 0, own[SLOTS]; /* what the sums of an expert's score give */
    bool sigmoid = c.attr.score == TRI_ROUTE_SIGMOID;
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        bool any = expert_of(s) < c.experts;
        double score = any ? logits.score(c.attr.score, logits.at[s]) : 0;
        own[s] = any && d ? d[expert_of(s) * TRI_NUM_ROUTE_SUMS + TRI_ROUTE_MASS] : 0;
        part += score;
        dot += score * own[s];
    }
    sum = sigmoid ? warp_sum(part) : 1;
    dot = warp_sum(dot) / sum;
    double lse = logits.lse();
    double z = 2.0 * c.attr.z * (c.scaler ? c.scaler[TRI_SCALER_SCALE] : 1.0f) * lse;
#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        if (expert_of(s) < c.experts) {
            double score = logits.score(c.attr.score, logits.at[s]);
            double grad = d ? own[s] - dot : 0;
            grad *= sigmoid ? score * (1 - score) / sum : score;
            to[expert_of(s)] = (float)(grad + z * exp(logits.at[s] - lse));
        }
}

/* --- Calls ---------------------------------------------------------------------------------- */

route_call call_of(const tri_kernel_args *args)
{
    route_call c = {};
    c.attr = args->attr->route;
    c.logits = data_of<float>(args->in[0]);
    c.experts = (int)last_of(args->in[0]);
    c.tokens = args->in[0].count / c.experts;
    c.tokens_of_row = args->in[0].size[1];
    return c;
}

unsigned blocks_of(const route_call &c)
{
    return (unsigned)ceil_div(c.tokens, ROUTE_WARPS);
}

void route(const tri_kernel_args *args)
{
    route_call c = call_of(args);
    c.bias = data_of<float>(args->in[1]);
    c.weights = data_of<float>(args->out[0]);
    c.choice = data_of<int32_t>(args->out[1]);
    size_t shared = c.attr.groups > 1 ? (size_t)ROUTE_WARPS * c.experts * sizeof(double) : 0;
    if (c.tokens == 0)
        return;
    by_slots(c.experts, [&](auto slots) {
        route_kernel<decltype(slots)::value>
            <<<blocks_of(c), ROUTE_THREADS, shared, stream_of(args)>>>(c);
    });
}

void route_grad(const tri_kernel_args *args)
{
    route_call c = call_of(args);
    c.choices = data_of<int32_t>(args->in[1]);
    c.dweights = data_of<float>(args->in[2]);
    c.dlogits = data_of<float>(args->out[0]);
    if (c.tokens == 0)
        return;
    by_slots(c.experts, [&](auto slots) {
        route_grad_kernel<decltype(slots)::value>
            <<<blocks_of(c), ROUTE_THREADS, 0, stream_of(args)>>>(c);
    });
}

void route_sums_grad(const tri_kernel_args *args)
{
    route_call c = call_of(args);
    c.targets = data_of<int32_t>(args->in[1]);
    c.dsums = data_of<float>(args->in[2]);
    c.scaler = args->num_in > 3 ? data_of<float>(args->in[3]) : nullptr;
    c.dlogits = data_of<float>(args->out[0]);
    if (c.tokens == 0)
        return;
    by_slots(c.experts, [&](auto slots) {
        sums_grad_kernel<decltype(slots)::value>
            <<<blocks_of(c), ROUTE_THREADS, 0, stream_of(args)>>>(c);
    });
}

} // namespace

const tri_kernel tri_cuda_route = {route, nullptr, nullptr};
const tri_kernel tri_cuda_route_grad = {route_grad, nullptr, nullptr};
const tri_kernel tri_cuda_route_sums_grad = {route_sums_grad, nullptr, nullptr};
