/* Rows on their way to the ranks of their experts. They are sorted, so those of a rank lie
 * together: where each rank's begin is found first, and every place then knows its row. */
#include "device/cuda/kernels/common.cuh"

namespace
{

using namespace tri;

constexpr int THREADS = 256;

/* The first row whose expert is no less than e; rows without one come last. */
__device__ int64_t first_row(const int32_t *expert, int64_t num, int32_t e)
{
    int64_t low = 0, high = num;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int32_t own = expert[middle];
        if (own >= 0 && own < e)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct rooms_call {
    const int32_t *expert;
    int64_t num, room;
    int32_t ranks, each;
    int32_t *counts, *from, *to, *ids;
    int32_t *begin; /* scratch: of each rank, and behind the last */
};

__global__ void __launch_bounds__(THREADS) begin_kernel(const __grid_constant__ rooms_call c)
{
    int rank = (int)(blockIdx.x * THREADS + threadIdx.x);
    if (rank > c.ranks)
        return;
    int64_t first = first_row(c.expert, c.num, rank * c.each);
    c.begin[rank] = (int32_t)first;
    if (rank < c.ranks)
        c.counts[rank] = (int32_t)(first_row(c.expert, c.num, (rank + 1) * c.each) - first);
}

__global__ void __launch_bounds__(THREADS) rooms_kernel(const __grid_constant__ rooms_call c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.ranks * c.room)
        return;
    int32_t rank = (int32_t)(i / c.room);
    int64_t row = c.begin[rank] + i % c.room;
    bool there = row < c.begin[rank + 1];
    c.from[i] = there ? (int32_t)row : -1;
    c.ids[i] = there ? c.expert[row] - rank * c.each : -1;
}

__global__ void __launch_bounds__(THREADS) places_kernel(const __grid_constant__ rooms_call c)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= c.num)
        return;
    int32_t e = c.expert[i], rank = e < 0 ? 0 : e / c.each;
    int64_t nth = i - c.begin[rank];
    c.to[i] = e >= 0 && nth < c.room ? (int32_t)(rank * c.room + nth) : -1;
}

void pack_rooms(const tri_kernel_args *args)
{
    const tri_route_attr *attr = &args->attr->route;
    rooms_call c = {};
    c.expert = data_of<int32_t>(args->in[0]);
    c.num = args->in[0].count;
    c.room = attr->room;
    c.ranks = attr->ranks;
    c.each = attr->experts / attr->ranks;
    c.counts = data_of<int32_t>(args->out[0]);
    c.from = data_of<int32_t>(args->out[1]);
    c.to = data_of<int32_t>(args->out[2]);
    c.ids = data_of<int32_t>(args->out[3]);
    c.begin = (int32_t *)device_of(args)->scratch;
    cudaStream_t stream = stream_of(args);
    begin_kernel<<<(unsigned)ceil_div(c.ranks + 1, THREADS), THREADS, 0, stream>>>(c);
    rooms_kernel<<<(unsigned)ceil_div(c.ranks * c.room, THREADS), THREADS, 0, stream>>>(c);
    if (c.num > 0)
        places_kernel<<<(unsigned)ceil_div(c.num, THREADS), THREADS, 0, stream>>>(c);
}

size_t pack_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return ((size_t)args->attr->route.ranks + 1) * sizeof(int32_t);
}

__global__ void __launch_bounds__(THREADS)
    mask_kernel(const int32_t *ids, const int32_t *got, int64_t room, int64_t num, int32_t *masked)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < num)
        masked[i] = i % room < got[i / room] ? ids[i] : -1;
}

void mask_rows(const tri_kernel_args *args)
{
    int64_t num = args->in[0].count;
    if (num > 0)
        mask_kernel<<<(unsigned)ceil_div(num, THREADS), THREADS, 0, stream_of(args)>>>(
            data_of<int32_t>(args->in[0]), data_of<int32_t>(args->in[1]), args->in[0].size[1], num,
            data_of<int32_t>(args->out[0]));
}

} // namespace

const tri_kernel tri_cuda_pack_rooms = {pack_rooms, pack_scratch, nullptr};
const tri_kernel tri_cuda_mask_rows = {mask_rows, nullptr, nullptr};
