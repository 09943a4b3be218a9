/* A device that computes nothing: its kernels return at once and its memory is only reserved, so
 * that programs of any size can be walked through on any machine. */
#include <stdio.h>
#include <sys/mman.h>

#include "device/device.h"

static void run_nothing(const tri_kernel_args *args)
{
    (void)args;
}

static tr_status open_null(tri_device *device, const tri_device_config *config, tr_error *err)
{
    (void)config;
    (void)err;
    snprintf(device->description, sizeof device->description, "null (computes nothing)");
    return TR_OK;
}

static void close_null(tri_device *device)
{
    (void)device;
}

static const tri_kernel *kernel_null(const tri_device *device, tri_op op)
{
    static const tri_kernel nothing = {.run = run_nothing};
    (void)device;
    (void)op;
    return &nothing;
}

static void *alloc_null(size_t bytes)
{
    void *memory = mmap(NULL, tri_device_round(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void free_null(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, tri_device_round(bytes));
}

static tr_status reserve_scratch(tri_device *device, size_t bytes, tr_error *err)
{
    (void)device;
    (void)bytes;
    (void)err;
    return TR_OK;
}

static const tri_fusions fusions = {.bias = true, .bias_gelu = true, .gelu_grad = true};

const tri_device_def tri_device_null = {
    .kind = "null",
    .fusions = &fusions,
    .open = open_null,
    .close = close_null,
    .kernel = kernel_null,
    .alloc = alloc_null,
    .free = free_null,
    .reserve_scratch = reserve_scratch,
};

const tri_fusions tri_gpu_fusions = {.bias = true,
                                     .bias_gelu = true,
                                     .gelu_grad = true,
                                     .add = true,
                                     .residual = true,
                                     .norm_grads = true,
                                     .cross_entropy = true,
                                     .adam_copy = true,
                                     .amax = true,
                                     .expert_act = true,
                                     .expert_grads = true};

const tri_device_def tri_device_described = {
    .kind = "described",
    .fusions = &tri_gpu_fusions,
    .apart = true,
    .open = open_null,
    .close = close_null,
    .kernel = kernel_null,
    .alloc = alloc_null,
    .free = free_null,
    .reserve_scratch = reserve_scratch,
};
