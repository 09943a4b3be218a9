/* The GPU as a device: memory, one stream, recordings as CUDA graphs.
 *
 * The CUDA runtime is linked in and opens the driver by itself, so the same binary starts on a
 * machine without a GPU; nothing here touches the driver before `start`, which also keeps the
 * process that forks the ranks free of it. */
#include "device/cuda/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/blas/blas.h"
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/found.h"
#include "device/cuda/lanes.h"
#include "device/cuda/sum.h"
#include "device/device.h"

typedef struct cuda_state {
    tri_cuda shared; /* first: kernels see this part */
    bool started;
    bool float8;   /* its programs have products of 8-bit operands */
    void *reserve; /* scratch of kernels that are lent none */
    size_t reserve_bytes;
    cudaEvent_t *marks;
    uint32_t num_marks;
} cuda_state;

static tr_status fail(tr_error *err, const char *doing, cudaError_t code)
{
    return tri_fail(err, TR_ERROR_RUNTIME, "cuda: %s: %s (%s)", doing, cudaGetErrorString(code),
                    cudaGetErrorName(code));
}

#define TRY(doing, call)                                                                           \
    do {                                                                                           \
        cudaError_t code_ = (call);                                                                \
        if (code_ != cudaSuccess)                                                                  \
            return fail(err, doing, code_);                                                        \
    } while (0)

static cudaStream_t stream_of(const tri_device *device)
{
    return ((const cuda_state *)device->state)->shared.stream;
}

static tr_status open_cuda(tri_device *device, const tri_device_config *config, tr_error *err)
{
    cuda_state *state = calloc(1, sizeof *state);
    if (!state)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the device");
    state->shared.tf32 = config->tf32;
    state->float8 = config->float8;
    state->shared.any_order = config->any_order;
    state->shared.tune = !config->no_tuning;
    state->shared.products = TRI_PRODUCTS_TMA;
    device->state = state;
    device->num_threads = 1;
    snprintf(device->description, sizeof device->description, "cuda");
    return TR_OK;
}

static void close_cuda(tri_device *device)
{
    cuda_state *state = device->state;
    if (state->started) {
        for (uint32_t i = 0; i < state->num_marks; i++)
            cudaEventDestroy(state->marks[i]);
        tri_cuda_lanes_close(state->shared.lanes);
        tri_cuda_dnn_close(state->shared.dnn);
        tri_cuda_blas_close(state->shared.blas);
        cudaFree(state->reserve);
        cudaStreamDestroy(state->shared.stream);
    }
    free(state->marks);
    free(state);
}

/* What a person can do about a machine on which CUDA does not answer. */
static tr_status no_device(cudaError_t code, tr_error *err)
{
    const char *advice = code == cudaErrorNoDevice
                             ? "no GPU is visible to this process (nvidia-smi shows what there is; "
                               "CUDA_VISIBLE_DEVICES may hide it)"
                         : code == cudaErrorInsufficientDriver
                             ? "the NVIDIA driver is missing or older than this build needs "
                               "(580 or newer for CUDA 13); install or update it"
                             : cudaGetErrorString(code);
    return tri_fail(err, TR_ERROR_INPUT,
                    "run.device is cuda, but CUDA cannot be used here: %s; or set run.device to "
                    "cpu",
                    advice);
}

static tr_status start(tri_device *device, int index, tr_error *err)
{
    cuda_state *state = device->state;
    if (state->started)
        return TR_OK;
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code != cudaSuccess || count == 0)
        return no_device(code == cudaSuccess ? cudaErrorNoDevice : code, err);
    index %= count;
    TRY("choosing the device", cudaSetDevice(index));
    struct cudaDeviceProp properties;
    TRY("asking what the device is", cudaGetDeviceProperties(&properties, index));
    if (properties.major < 8)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.device is cuda, but %s has compute capability %d.%d; this build has "
                        "kernels for 8.0 (A100) and 9.0 (H100, H200). Set run.device to cpu",
                        properties.name, properties.major, properties.minor);
    if (state->float8 && properties.major * 10 + properties.minor < 89)
        return tri_fail(err, TR_ERROR_INPUT,
                        "precision.linear is fp8, but %s has compute capability %d.%d, and 8-bit "
                        "products come with 8.9 (Ada) and 9.0 (Hopper). Set precision.linear to "
                        "same",
                        properties.name, properties.major, properties.minor);
    TRY("making a stream",
        cudaStreamCreateWithFlags((cudaStream_t *)&state->shared.stream, cudaStreamNonBlocking));
    state->shared.num_sms = properties.multiProcessorCount;
    TRI_TRY(tri_cuda_blas_open(&state->shared.blas, err));
    state->shared.dnn = tri_cuda_dnn_open(state->shared.stream, NULL);
    state->started = true;
    snprintf(device->description, sizeof device->description, "cuda, %.120s%s%s", properties.name,
             state->shared.tf32 ? ", tf32" : "", state->shared.dnn ? ", cuDNN" : "");
    if (device->tuning && state->shared.tune)
        TRI_TRY(tri_cuda_blas_read_kept(&state->shared, properties.name, device->tuning, err));
    return TR_OK;
}

static tr_status keep(tri_device *device, tr_error *err)
{
    const cuda_state *state = device->state;
    return device->tuning && state->started && state->shared.tune
               ? tri_cuda_blas_save_kept(&state->shared, device->tuning, err)
               : TR_OK;
}

static uint64_t available(const tri_device *device)
{
    (void)device;
    size_t free_bytes = 0, total_bytes = 0;
    return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? free_bytes : 0;
}

static void *alloc_cuda(size_t bytes)
{
    void *memory = NULL;
    if (cudaMalloc(&memory, tri_device_round(bytes)) != cudaSuccess) {
        cudaGetLastError(); /* it would otherwise be found by the next launch */
        return NULL;
    }
    if (cudaMemset(memory, 0, tri_device_round(bytes)) == cudaSuccess &&
        cudaDeviceSynchronize() == cudaSuccess)
        return memory;
    cudaFree(memory);
    return NULL;
}

static void free_cuda(void *memory, size_t bytes)
{
    (void)bytes;
    cudaFree(memory);
}

static void *alloc_host(size_t bytes)
{
    void *memory = NULL;
    if (cudaMallocHost(&memory, bytes) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

static void free_host(void *memory)
{
    cudaFreeHost(memory);
}

static tr_status upload(tri_device *device, void *to, const void *from, size_t bytes, tr_error *err)
{
    TRY("copying to the device",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(device)));
    return TR_OK;
}

static tr_status download(tri_device *device, void *to, const void *from, size_t bytes,
                          tr_error *err)
{
    TRY("copying from the device",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(device)));
    return TR_OK;
}

static tr_status sum(tri_device *device, const void *from, size_t bytes,
                     uint64_t to[TRI_DEVICE_SUM_PARTS], tr_error *err)
{
    TRY("summing on the device",
        (cudaError_t)tri_cuda_sum(from, bytes, to, TRI_DEVICE_SUM_PARTS, stream_of(device)));
    return TR_OK;
}

static tr_status clear(tri_device *device, void *memory, size_t bytes, tr_error *err)
{
    TRY("clearing memory", (cudaError_t)tri_cuda_clear(memory, bytes, stream_of(device)));
    return TR_OK;
}

static tr_status add_sum(tri_device *device, const void *from, size_t bytes, uint64_t first,
                         uint64_t *to, tr_error *err)
{
    TRY("summing on the device",
        (cudaError_t)tri_cuda_add_sum(from, bytes, first, to, stream_of(device)));
    return TR_OK;
}

static tr_status copy_within(tri_device *device, void *to, const void *from, size_t bytes,
                             tr_error *err)
{
    TRY("copying on the device",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(device)));
    return TR_OK;
}

static tr_status finish(tri_device *device, tr_error *err)
{
    TRY("launching kernels", cudaGetLastError());
    TRY("running kernels", cudaStreamSynchronize(stream_of(device)));
    return TR_OK;
}

static tr_status record(tri_device *device, tr_error *err)
{
    TRY("beginning to record",
        cudaStreamBeginCapture(stream_of(device), cudaStreamCaptureModeThreadLocal));
    return TR_OK;
}

static tr_status record_end(tri_device *device, void **recording, tr_error *err)
{
    cudaGraph_t graph = NULL;
    TRY("launching kernels", cudaGetLastError());
    TRY("recording a graph", cudaStreamEndCapture(stream_of(device), &graph));
    cudaGraphExec_t ready = NULL;
    cudaError_t code = cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    if (code != cudaSuccess)
        return fail(err, "making a graph ready", code);
    *recording = ready;
    return TR_OK;
}

static tr_status replay(tri_device *device, void *recording, tr_error *err)
{
    TRY("replaying a graph", cudaGraphLaunch(recording, stream_of(device)));
    return TR_OK;
}

static void forget(void *recording)
{
    cudaGraphExecDestroy(recording);
}

static tr_status mark(tri_device *device, uint32_t number, tr_error *err)
{
    cuda_state *state = device->state;
    if (number >= state->num_marks) {
        uint32_t wanted = number + 1024;
        cudaEvent_t *marks = realloc(state->marks, wanted * sizeof *marks);
        if (!marks)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %u marks", wanted);
        state->marks = marks;
        for (; state->num_marks < wanted; state->num_marks++)
            TRY("making an event", cudaEventCreate(&state->marks[state->num_marks]));
    }
    TRY("setting a mark", cudaEventRecord(state->marks[number], stream_of(device)));
    return TR_OK;
}

static tr_status reach(tri_device *device, uint32_t number, tr_error *err)
{
    const cuda_state *state = device->state;
    TRY("running kernels", cudaEventSynchronize(state->marks[number]));
    return TR_OK;
}

static double seconds_between(tri_device *device, uint32_t first, uint32_t second)
{
    const cuda_state *state = device->state;
    float ms = 0;
    if (first >= state->num_marks || second >= state->num_marks ||
        cudaEventElapsedTime(&ms, state->marks[first], state->marks[second]) != cudaSuccess)
        return 0;
    return (double)ms * 1e-3;
}

static const tri_kernel *kernel_cuda(const tri_device *device, tri_op op)
{
    (void)device;
    return tri_cuda_kernel(op);
}

static void lend_scratch(tri_device *device, void *memory, size_t bytes)
{
    cuda_state *state = device->state;
    state->shared.scratch = memory ? memory : state->reserve;
    state->shared.scratch_bytes = memory ? bytes : state->reserve_bytes;
}

static tr_status reserve_scratch(tri_device *device, size_t bytes, tr_error *err)
{
    cuda_state *state = device->state;
    if (bytes <= state->reserve_bytes)
        return TR_OK;
    cudaFree(state->reserve);
    state->reserve = alloc_cuda(bytes);
    state->reserve_bytes = device->scratch_bytes = state->reserve ? bytes : 0;
    lend_scratch(device, NULL, 0);
    if (!state->reserve)
        return tri_fail(err, TR_ERROR_RUNTIME,
                        "no memory for %zu bytes of kernel scratch on the device", bytes);
    return TR_OK;
}

/* Seconds of one call, as a mean over several after a first. */
typedef tr_status (*work_fn)(tri_device *device, void *context, tr_error *err);

static double seconds_of(tri_device *device, work_fn work, void *context, int times)
{
    tr_error err;
    cudaEvent_t begin, end;
    if (cudaEventCreate(&begin) != cudaSuccess || cudaEventCreate(&end) != cudaSuccess)
        return 0;
    float ms = 0;
    bool good = work(device, context, &err) == TR_OK;
    cudaEventRecord(begin, stream_of(device));
    for (int i = 0; good && i < times; i++)
        good = work(device, context, &err) == TR_OK;
    cudaEventRecord(end, stream_of(device));
    good = good && cudaEventSynchronize(end) == cudaSuccess &&
           cudaEventElapsedTime(&ms, begin, end) == cudaSuccess;
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return good ? (double)ms * 1e-3 / times : 0;
}

static tr_status large_product(tri_device *device, void *context, tr_error *err)
{
    tri_cuda *cuda = &((cuda_state *)device->state)->shared;
    tri_cuda_product product = *(tri_cuda_product *)context;
    return tri_cuda_blas_run(cuda, &product) ? TR_OK
                                             : tri_fail(err, TR_ERROR_RUNTIME, "no product");
}

/* Operands are noise: zeros would be faster than anything that is trained with. */
static double product_seconds(tri_device *device, tri_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    bool float8 = tri_dtype_is_float8(dtype);
    tri_dtype out = float8 ? TRI_BF16 : dtype;
    size_t scales = 512, bytes_a = (size_t)(m * k) * tri_dtype_bytes(dtype),
           bytes_b = (size_t)(n * k) * tri_dtype_bytes(dtype);
    bytes_a = (bytes_a + scales - 1) / scales * scales; /* what follows is aligned, too */
    bytes_b = (bytes_b + scales - 1) / scales * scales;
    char *a = alloc_cuda(bytes_a + bytes_b + (size_t)(m * n) * tri_dtype_bytes(out) + scales);
    if (!a)
        return 0;
    tri_cuda_fill_noise(a, (int64_t)scales / 4, TRI_F32, stream_of(device));
    tri_cuda_fill_noise(a + scales, (int64_t)((bytes_a + bytes_b) / tri_dtype_bytes(dtype)), dtype,
                        stream_of(device));
    tri_cuda_product product = {.m = m,
                                .n = n,
                                .k = k,
                                .a = a + scales,
                                .b = a + scales + bytes_a,
                                .c = a + scales + bytes_a + bytes_b,
                                .trans_b = true,
                                .in = dtype,
                                .in_b = dtype,
                                .out = out,
                                .scale_a = float8 ? (float *)a : NULL,
                                .scale_b = float8 ? (float *)(a + scales / 2) : NULL,
                                .fast_sum = float8,
                                .alpha = 1};
    double seconds = seconds_of(device, large_product, &product, dtype == TRI_F32 ? 3 : 10);
    cudaFree(a);
    return seconds;
}

static double peak_flops(tri_device *device, tri_dtype dtype)
{
    enum { N = 8192 };
    double seconds = product_seconds(device, dtype, N, N, N);
    return seconds > 0 ? 2.0 * N * N * N / seconds : 0;
}

enum { COPY_BYTES = 1 << 30 };

static tr_status large_copy(tri_device *device, void *context, tr_error *err)
{
    char *memory = context;
    TRY("copying", cudaMemcpyAsync(memory + COPY_BYTES, memory, COPY_BYTES,
                                   cudaMemcpyDeviceToDevice, stream_of(device)));
    return TR_OK;
}

static double peak_bytes(tri_device *device)
{
    char *memory = alloc_cuda(2 * (size_t)COPY_BYTES);
    if (!memory)
        return 0;
    double seconds = seconds_of(device, large_copy, memory, 10);
    cudaFree(memory);
    return seconds > 0 ? 2.0 * COPY_BYTES / seconds : 0;
}

static const tri_device_queue queue = {
    .start = start,
    .available = available,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .upload = upload,
    .download = download,
    .copy = copy_within,
    .sum = sum,
    .clear = clear,
    .add_sum = add_sum,
    .finish = finish,
    .record = record,
    .record_end = record_end,
    .replay = replay,
    .forget = forget,
    .mark = mark,
    .reach = reach,
    .seconds_between = seconds_between,
    .own_scratch = TRI_CUDA_BLAS_WORKSPACE, /* products are measured before a program runs */
    .lend_scratch = lend_scratch,
    .lanes = &tri_cuda_lane_table,
};

const tri_device_def tri_device_cuda = {
    .kind = "cuda",
    .fusions = &tri_gpu_fusions,
    .apart = true,
    .queue = &queue,
    .open = open_cuda,
    .close = close_cuda,
    .kernel = kernel_cuda,
    .takes = tri_cuda_takes,
    .alloc = alloc_cuda,
    .free = free_cuda,
    .reserve_scratch = reserve_scratch,
    .peak_flops = peak_flops,
    .product_seconds = product_seconds,
    .peak_bytes = peak_bytes,
    .keep = keep,
    .count = tri_cuda_count,
    .found = tri_cuda_found,
};
