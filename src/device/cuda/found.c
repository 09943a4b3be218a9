/* What of CUDA there is on this machine, for people who ask. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "device/cuda/blas/blas.h"
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/found.h"

static void gpu(tri_device_found *found)
{
    int count = 0;
    struct cudaDeviceProp properties;
    cudaError_t code = cudaGetDeviceCount(&count);
    found->name = "GPU";
    found->there =
        code == cudaSuccess && count > 0 && cudaGetDeviceProperties(&properties, 0) == cudaSuccess;
    if (found->there)
        snprintf(found->detail, sizeof found->detail, "%d x %.120s, %.0f GiB", count,
                 properties.name, (double)properties.totalGlobalMem / (double)(1 << 30));
    else
        snprintf(found->detail, sizeof found->detail, "none that CUDA can use (%s)",
                 code == cudaSuccess ? "no device" : cudaGetErrorString(code));
}

static void driver(tri_device_found *found)
{
    int version = 0;
    found->name = "CUDA driver";
    found->there = cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
    if (found->there)
        snprintf(found->detail, sizeof found->detail, "for CUDA %d.%d", version / 1000,
                 version % 1000 / 10);
    else
        snprintf(found->detail, sizeof found->detail, "not found; run.device=cuda needs NVIDIA's");
}

static void library(tri_device_found *found, const char *name, size_t version, size_t major,
                    size_t minor, const char *without)
{
    found->name = name;
    found->there = version > 0;
    if (found->there)
        snprintf(found->detail, sizeof found->detail, "%zu.%zu.%zu", version / major,
                 version % major / minor, version % minor);
    else
        snprintf(found->detail, sizeof found->detail, "not found; %s", without);
}

int tri_cuda_found(tri_device_found *found)
{
    gpu(&found[0]);
    driver(&found[1]);
    library(&found[2], "cuBLASLt", tri_cuda_blas_version(), 10000, 100,
            "run.device=cuda needs it (libcublas-13-0 from NVIDIA's repository)");
    library(&found[3], "cuDNN", tri_cuda_dnn_version(), 10000, 100,
            "attention on a GPU is slower without (libcudnn9-cuda-13, 9.10 or newer)");
    return 4;
}

int tri_cuda_count(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || tri_cuda_blas_version() == 0)
        return 0;
    for (int i = 0; i < count; i++) { /* ranks take them in turn, so all must do */
        int major = 0;
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) != cudaSuccess ||
            major < 8)
            return 0;
    }
    return count;
}
