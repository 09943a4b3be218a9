/* Who sees whom, prepared once a call: the interval of places of every query, and the bounds of
 * groups of queries and keys.
 *
 * Where a place is given it counts, otherwise the position does. An interval of a cache is in
 * slots, place x being at slot x mod P: it begins within the ring, and ends behind it where it
 * wraps. */
#include "device/cuda/kernels/attention.cuh"
#include "device/cuda/kernels/common.cuh"

using namespace tri;

enum { WARPS = 8, THREADS = 32 * WARPS };
static_assert(TRI_GROUP == 32, "a warp does a group");

/* A negative place, a negative document, a row outside the cache: nothing is seen. */
static __device__ int2 interval_of(const tri_attention_call &a, int b, int i)
{
    int64_t at = (int64_t)b * a.num_queries + i;
    int place = tri_query_place(a, b, i);
    if (place < 0 || (a.docs && a.docs[at] < 0))
        return make_int2(0, 0);
    if (a.ring > 0 && (uint32_t)a.rows[b] >= (uint32_t)a.cache_rows)
        return make_int2(0, 0);
    int first = a.span ? max(0, a.span[2 * at]) : 0;
    int end = a.span ? a.span[2 * at + 1] : INT32_MAX;
    if (a.window > 0)
        first = max(first, place - a.window + 1);
    if (a.causal && place < INT32_MAX)
        end = min(end, place + 1);
    if (!a.k_places && a.ring == 0)
        end = min(end, a.num_keys);
    if (first >= end)
        return make_int2(0, 0);
    if (a.ring > 0) {
        first = max(first, end - a.ring);
        int shift = first - first % a.ring;
        return make_int2(first - shift, end - shift);
    }
    return make_int2(first, end);
}

static __device__ void queries(const tri_attention_call &a, int b, int group)
{
    int i = group * TRI_GROUP + (int)threadIdx.x % 32;
    int2 own = make_int2(0, 0);
    if (i < a.num_queries) {
        own = interval_of(a, b, i);
        a.intervals[(int64_t)b * a.num_queries + i] = own;
    }
    bool there = i < a.num_queries, sees = own.x < own.y;
    bool wraps = a.ring > 0 && own.y > a.ring;
    int least = __reduce_min_sync(WHOLE_WARP, sees ? (wraps ? 0 : own.x) : INT32_MAX);
    int end = __reduce_max_sync(WHOLE_WARP, sees ? own.y : INT32_MIN);
    /* What all of them see; nothing, where one sees nothing: its end is 0 */
    int first = __reduce_max_sync(WHOLE_WARP, there ? own.x : INT32_MIN);
    int least_end = __reduce_min_sync(WHOLE_WARP, there ? own.y : INT32_MAX);
    if (threadIdx.x % 32 == 0)
        a.query_bounds[(int64_t)b * a.q_groups + group] = make_int4(least, end, first, least_end);
}

/* A key that is not there has the place INT32_MAX, which nobody sees: no interval ends behind it.
 */
static __device__ void keys(const tri_attention_call &a, int b, int group)
{
    int j = group * TRI_GROUP + (int)threadIdx.x % 32;
    int place = j < a.num_keys ? tri_key_place(a, b, j) : INT32_MAX;
    int doc = a.docs && j < a.num_keys ? a.docs[(int64_t)b * a.num_keys + j] : -1;
    int low = __reduce_min_sync(WHOLE_WARP, place), high = __reduce_max_sync(WHOLE_WARP, place);
    int first = __reduce_min_sync(WHOLE_WARP, doc < 0 ? INT32_MAX : doc);
    int last = __reduce_max_sync(WHOLE_WARP, doc);
    if (threadIdx.x % 32 != 0)
        return;
    int64_t at = (int64_t)b * a.k_groups + group;
    a.key_bounds[at] = make_int2(low, high);
    if (a.doc_bounds)
        a.doc_bounds[at] = make_int2(first, last);
}

static __global__ void __launch_bounds__(THREADS)
    prepare(const __grid_constant__ tri_attention_call a)
{
    int64_t at = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    int all = a.q_groups + a.k_groups, b = (int)(at / all), group = (int)(at % all);
    if (b >= a.num_batch)
        return;
    if (group < a.q_groups)
        queries(a, b, group);
    else
        keys(a, b, group - a.q_groups);
}

void tri_attention_places(const tri_attention_call *a, cudaStream_t stream)
{
    int64_t warps = (int64_t)a->num_batch * (a->q_groups + a->k_groups);
    tri_attention_launch(prepare, ceil_div(warps, WARPS), THREADS, 0, stream, a);
}
