#include "device/device.h"
#include "device/cpu/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const tri_device_def *const devices[] = {
    &tri_device_cpu,
#ifdef TRI_CUDA
    &tri_device_cuda,
#endif
    &tri_device_null,
    &tri_device_described,
};

const tri_device_def *tri_device_find(const char *kind)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i]->kind, kind) == 0)
            return devices[i];
    return NULL;
}

const char *tri_device_cuda_state(void)
{
#if defined TRI_CUDA
    return "built with CUDA";
#elif defined TRI_CUDA_LEFT_OUT
    return "built without CUDA, with CUDA=no; build again with `make CUDA=yes` (it needs nvcc, of "
           "the CUDA toolkit 12.8 or newer)";
#else
    return "built without CUDA, for want of nvcc; install the CUDA toolkit (12.8 or newer), put "
           "nvcc on the PATH, and build again with `make clean all`";
#endif
}

tr_status tri_device_check(const char *kind, tr_error *err)
{
    if (tri_device_find(kind))
        return TR_OK;
    if (strcmp(kind, "cuda") == 0)
        return tri_fail(err, TR_ERROR_INPUT,
                        "run.device is cuda, but this trireme was %s; or set run.device to cpu",
                        tri_device_cuda_state());
    return tri_fail(err, TR_ERROR_INPUT, "run.device is \"%s\"; there are cpu, cuda and null",
                    kind);
}

tr_status tri_device_open(const tri_device_config *config, tri_device *device, tr_error *err)
{
    *device = (tri_device){.def = tri_device_find(config->kind)};
    TRI_TRY(tri_device_check(config->kind, err));
    device->tuning = config->tuning;
    device->num_threads = config->num_threads > 0 ? config->num_threads : tri_device_num_cores();
    tr_status status = device->def->open(device, config, err);
    if (status != TR_OK)
        *device = (tri_device){0};
    return status;
}

void tri_device_close(tri_device *device)
{
    if (device->def)
        device->def->close(device);
    *device = (tri_device){0};
}

tri_call_plan tri_device_plan_call(const tri_device *device, tri_op op, const tri_kernel_args *args)
{
    tri_call_plan plan = {.op = op, .kernel = device->def->kernel(device, op)};
    if (!plan.kernel || (device->def->takes && !device->def->takes(op, args))) {
        plan.kernel = tri_cpu_reference(op);
        plan.on_host = true;
    }
    plan.widened = (device->def->f32_only || plan.on_host) && tri_cpu_needs_widening(op, args);
    return plan;
}

size_t tri_device_call_scratch(const tri_device *device, const tri_call_plan *plan,
                               const tri_kernel_args *args)
{
    if (plan->widened)
        return tri_cpu_widened_scratch(plan->op, plan->kernel, args, device->num_threads);
    return plan->kernel->scratch_bytes ? plan->kernel->scratch_bytes(args, device->num_threads) : 0;
}

void tri_device_call(const tri_call_plan *plan, const tri_kernel_args *args)
{
    if (plan->widened)
        tri_cpu_run_widened(plan->op, plan->kernel, args);
    else
        plan->kernel->run(args);
}

size_t tri_device_round(size_t bytes)
{
    const size_t page = 4096, huge = 2 << 20;
    size_t unit = bytes >= huge ? huge : page;
    return (bytes + unit - 1) / unit * unit;
}

bool tri_device_gpu_driver(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/nvidia0", F_OK) == 0 ||
           access("/dev/dxg", F_OK) == 0; /* the last: Windows' subsystem for Linux */
}

int tri_device_num_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}
