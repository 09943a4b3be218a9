/* The one kernel that lanes have: where a lane is, written where the host can read it while the
 * stream runs. A kernel, and not a call back to the host, so that it costs the stream microseconds
 * and survives being recorded in a graph. */
#include "device/cuda/lanes.h"

static __global__ void note(volatile unsigned long long *page, unsigned long long number)
{
    *page = number;
    __threadfence_system();
}

extern "C" int tri_cuda_note(uint64_t *page, uint64_t number, void *stream)
{
    note<<<1, 1, 0, (cudaStream_t)stream>>>((volatile unsigned long long *)page, number);
    return cudaGetLastError();
}
