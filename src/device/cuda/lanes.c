/* Lanes of a GPU. A lane is a stream of its own, of the highest priority, since the other GPUs wait
 * for what is on it; a point is an event. Streams and events are made before anything is recorded.
 * Events and kernels on them can be captured: a lane joins a capture when it waits for an event
 * that was recorded in it. */
#include "device/cuda/lanes.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

struct tri_cuda_lanes {
    cudaStream_t streams[TRI_DEVICE_NUM_LANES]; /* NULL: not opened */
    cudaEvent_t points[TRI_DEVICE_NUM_POINTS];
    uint64_t *page; /* of the host, mapped: the number that each lane has noted last */
};

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

static tri_cuda *cuda_of(const tri_device *device)
{
    return device->state;
}

static cudaStream_t stream_of(const tri_device *device, int lane)
{
    const tri_cuda *cuda = cuda_of(device);
    return lane == TRI_DEVICE_QUEUE ? cuda->stream : cuda->lanes->streams[lane];
}

void tri_cuda_lanes_close(tri_cuda_lanes *lanes)
{
    if (!lanes)
        return;
    for (int i = 0; i < TRI_DEVICE_NUM_LANES; i++)
        if (lanes->streams[i])
            cudaStreamDestroy(lanes->streams[i]);
    for (int i = 0; i < TRI_DEVICE_NUM_POINTS; i++)
        if (lanes->points[i])
            cudaEventDestroy(lanes->points[i]);
    if (lanes->page)
        cudaFreeHost(lanes->page);
    free(lanes);
}

static tr_status make_shared(tri_cuda_lanes *lanes, tr_error *err)
{
    TRY("reserving a page for lanes",
        cudaHostAlloc((void **)&lanes->page, TRI_DEVICE_NUM_LANES * sizeof *lanes->page,
                      cudaHostAllocMapped));
    for (int i = 0; i < TRI_DEVICE_NUM_LANES; i++)
        lanes->page[i] = 0;
    for (int i = 0; i < TRI_DEVICE_NUM_POINTS; i++)
        TRY("making an event", cudaEventCreateWithFlags(&lanes->points[i], cudaEventDisableTiming));
    return TR_OK;
}

static tr_status open_lane(tri_device *device, int lane, void **handle, tr_error *err)
{
    tri_cuda *cuda = cuda_of(device);
    if (!cuda->lanes) {
        tri_cuda_lanes *lanes = calloc(1, sizeof *lanes);
        if (!lanes)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the lanes of the device");
        tr_status status = make_shared(lanes, err);
        if (status != TR_OK) {
            tri_cuda_lanes_close(lanes);
            return status;
        }
        cuda->lanes = lanes;
    }
    int least, greatest;
    cudaStream_t *stream = &cuda->lanes->streams[lane];
    TRY("asking for priorities", cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (!*stream)
        TRY("making a stream",
            cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest));
    *handle = *stream;
    return TR_OK;
}

static tr_status set(tri_device *device, int lane, int point, tr_error *err)
{
    TRY("setting a point",
        cudaEventRecord(cuda_of(device)->lanes->points[point], stream_of(device, lane)));
    return TR_OK;
}

static tr_status await(tri_device *device, int lane, int point, tr_error *err)
{
    TRY("awaiting a point",
        cudaStreamWaitEvent(stream_of(device, lane), cuda_of(device)->lanes->points[point], 0));
    return TR_OK;
}

static tr_status copy(tri_device *device, int lane, void *to, const void *from, size_t bytes,
                      tr_error *err)
{
    TRY("copying on a lane",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(device, lane)));
    return TR_OK;
}

static tr_status note(tri_device *device, int lane, uint64_t number, tr_error *err)
{
    TRY("noting where a lane is",
        tri_cuda_note(cuda_of(device)->lanes->page + lane, number, stream_of(device, lane)));
    return TR_OK;
}

static uint64_t noted(const tri_device *device, int lane)
{
    return ((volatile const uint64_t *)cuda_of(device)->lanes->page)[lane];
}

static tr_status idle(tri_device *device, bool *is_idle, tr_error *err)
{
    cudaError_t code = cudaStreamQuery(stream_of(device, TRI_DEVICE_QUEUE));
    *is_idle = code == cudaSuccess;
    if (code == cudaErrorNotReady)
        cudaGetLastError(); /* no error, but kept like one */
    else if (code != cudaSuccess)
        return fail(err, "running kernels", code);
    return TR_OK;
}

static tr_status identity(tri_device *device, char *text, size_t size, tr_error *err)
{
    (void)device;
    int index;
    struct cudaDeviceProp properties;
    TRY("asking which device is used", cudaGetDevice(&index));
    TRY("asking what the device is", cudaGetDeviceProperties(&properties, index));
    size_t used = (size_t)snprintf(text, size, "GPU-");
    for (size_t i = 0; i < sizeof properties.uuid.bytes && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%02x",
                                 (unsigned char)properties.uuid.bytes[i]);
    return TR_OK;
}

const tri_device_lanes tri_cuda_lane_table = {
    .open = open_lane,
    .set = set,
    .await = await,
    .copy = copy,
    .note = note,
    .noted = noted,
    .idle = idle,
    .identity = identity,
};
