/* Products of experts with what stands beside them, in one kernel on Hopper; elsewhere, and for
 * operands that it is not made for, by their parts. */
#include "device/cuda/experts/grouped_tma.cuh"

namespace
{

using namespace tri;

/* Whether the operands of a product are for warpgroups, and those of its like at `others`. */
bool takes_tma(const tri_kernel_args *args, const grouped_call &call, grouped_kind kind,
               const void *const (&others)[2])
{
    return call.type != TRI_F32 && device_of(args)->products <= TRI_PRODUCTS_TMA &&
           takes_wgmma(call, kind) && aligned16(others[0]) && aligned16(others[1]);
}

bool map_rows(CUtensorMap *map, const grouped_call &call, const void *data, int64_t width)
{
    const int64_t size[] = {width, call.rows};
    return tma_map(map, call.type, data, 2, size, tma_plan::M);
}

bool map_experts(CUtensorMap *map, const grouped_call &call, const void *data)
{
    const int64_t size[] = {call.ldb, call.of_expert / call.ldb, call.experts};
    return tma_map(map, call.type, data, 3, size, 64);
}

template <class job>
bool launch(const tri_kernel_args *args, const grouped_call &call, const grouped_more &more,
            const tma_maps &maps)
{
    int num_sms = device_of(args)->num_sms;
    cudaStream_t stream = stream_of(args);
    if (call.type == TRI_BF16)
        return tma_launch<job, __nv_bfloat16, __nv_bfloat16>(call, more, maps, num_sms, stream);
    return tma_launch<job, __half, __half>(call, more, maps, num_sms, stream);
}

/* --- Gate, up and the activation ------------------------------------------------------------ */

bool swiglu_in_one(const tri_kernel_args *args, const grouped_call &call)
{
    tma_maps maps = {};
    grouped_more more = {};
    more.w = data_of<float>(args->in[4]);
    more.gate = args->out[1].data;
    more.up = args->out[2].data;
    return takes_tma(args, call, GROUPED_FORWARD, {more.gate, more.up}) &&
           aligned16(args->in[3].data) && map_rows(&maps.a, call, call.a, call.lda) &&
           map_experts(&maps.b, call, call.b) &&
           map_experts(&maps.more_b, call, args->in[3].data) &&
           launch<tma_job<GROUPED_FORWARD, END_SWIGLU, false>>(args, call, more, maps);
}

void grouped_swiglu(const tri_kernel_args *args)
{
    if (args->out[0].count == 0)
        return;
    grouped_call call = grouped_begin(args, false);
    if (swiglu_in_one(args, call))
        return;
    call.c = args->out[1].data;
    grouped_run(args, call, GROUPED_FORWARD);
    call.b = args->in[3].data;
    call.c = args->out[2].data;
    grouped_run(args, call, GROUPED_FORWARD);
    tri_kernel_args act = *args;
    act.num_in = 3;
    act.num_out = 1; /* more would be its largest elements */
    act.in[0] = args->out[1];
    act.in[1] = args->out[2];
    act.in[2] = args->in[4];
    tri_cuda_swiglu_rows.run(&act);
}

size_t swiglu_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return grouped_bytes(args);
}

/* --- The gradient of the activation --------------------------------------------------------- */

constexpr int THREADS = 256;

/* What tiles have found of dw, in the order of columns. */
__global__ void __launch_bounds__(THREADS)
    add_parts(const float *part, int num_parts, int64_t rows, float *dw)
{
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0;
    for (int i = 0; i < num_parts; i++)
        sum += part[row * num_parts + i];
    dw[row] = sum;
}

size_t bytes_before_parts(const tri_kernel_args *args)
{
    return (grouped_bytes(args) + 15) / 16 * 16;
}

int parts_of(const tri_kernel_args *args)
{
    return (int)ceil_div(last_of(args->out[0]), (int64_t)tma_plan::N);
}

bool swiglu_grad_in_one(const tri_kernel_args *args, const grouped_call &call)
{
    tma_maps maps = {};
    grouped_more more = {};
    more.w = data_of<float>(args->in[5]);
    more.up = args->out[1].data;
    more.part = (float *)((char *)device_of(args)->scratch + bytes_before_parts(args));
    more.num_parts = parts_of(args);
    const void *gate = args->in[3].data, *up = args->in[4].data;
    if (!takes_tma(args, call, GROUPED_BACK, {gate, up}) || !aligned16(more.up) ||
        !map_rows(&maps.a, call, call.a, call.lda) || !map_experts(&maps.b, call, call.b) ||
        !map_rows(&maps.more_a, call, gate, call.n) || !map_rows(&maps.more_b, call, up, call.n) ||
        !launch<tma_job<GROUPED_BACK, END_SWIGLU_GRAD, false>>(args, call, more, maps))
        return false;
    add_parts<<<(unsigned)ceil_div(call.rows, THREADS), THREADS, 0, stream_of(args)>>>(
        more.part, more.num_parts, call.rows, data_of<float>(args->out[2]));
    return true;
}

void grouped_swiglu_grad(const tri_kernel_args *args)
{
    if (args->out[0].count == 0)
        return;
    grouped_call call = grouped_begin(args, true);
    if (swiglu_grad_in_one(args, call))
        return;
    grouped_run(args, call, GROUPED_BACK); /* dy, where dgate goes */
    tri_kernel_args act = *args;
    act.num_in = 4;
    act.in[0] = args->in[3];
    act.in[1] = args->in[4];
    act.in[2] = args->out[0];
    act.in[3] = args->in[5];
    tri_cuda_swiglu_rows_grad.run(&act);
}

size_t swiglu_grad_scratch(const tri_kernel_args *args, int num_threads)
{
    (void)num_threads;
    return bytes_before_parts(args) +
           (size_t)args->in[2].count * (size_t)parts_of(args) * sizeof(float);
}

/* --- The sum of two products ---------------------------------------------------------------- */

bool sum_in_one(const tri_kernel_args *args, const grouped_call &call)
{
    tma_maps maps = {};
    const void *x2 = args->in[3].data, *w2 = args->in[4].data;
    return takes_tma(args, call, GROUPED_BACK, {x2, w2}) &&
           map_rows(&maps.a, call, call.a, call.lda) && map_experts(&maps.b, call, call.b) &&
           map_rows(&maps.more_a, call, x2, call.lda) && map_experts(&maps.more_b, call, w2) &&
           launch<tma_job<GROUPED_BACK, END_STORE, true>>(args, call, grouped_more{}, maps);
}

void grouped_sum(const tri_kernel_args *args)
{
    if (args->out[0].count == 0)
        return;
    grouped_call call = grouped_begin(args, true);
    if (sum_in_one(args, call))
        return;
    grouped_run(args, call, GROUPED_BACK);
    call.a = args->in[3].data;
    call.b = args->in[4].data;
    call.overwrite = false;
    grouped_run(args, call, GROUPED_BACK);
}

} // namespace

const tri_kernel tri_cuda_grouped_swiglu = {grouped_swiglu, swiglu_scratch, nullptr};
const tri_kernel tri_cuda_grouped_swiglu_grad = {grouped_swiglu_grad, swiglu_grad_scratch, nullptr};
const tri_kernel tri_cuda_grouped_sum = {grouped_sum, swiglu_scratch, nullptr};
