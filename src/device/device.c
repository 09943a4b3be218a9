#include "device/device.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static const tri_device_def *const devices[] = {&tri_device_cpu, &tri_device_null};

const tri_device_def *tri_device_find(const char *kind)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strcmp(devices[i]->kind, kind) == 0)
            return devices[i];
    return NULL;
}

tr_status tri_device_open(const tri_device_config *config, tri_device *device, tr_error *err)
{
    *device = (tri_device){.def = tri_device_find(config->kind)};
    if (!device->def)
        return tri_fail(err, TR_ERROR_INPUT, "run.device is \"%s\"; this build has cpu and null",
                        config->kind);
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

size_t tri_device_round(size_t bytes)
{
    const size_t page = 4096, huge = 2 << 20;
    size_t unit = bytes >= huge ? huge : page;
    return (bytes + unit - 1) / unit * unit;
}

int tri_device_num_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
}

/* One number from a file such as /proc/meminfo or a control group's limit. */
static bool read_number(const char *path, const char *key, uint64_t *number)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    char line[256];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        unsigned long long value;
        size_t skip = strlen(key);
        if (strncmp(line, key, skip) == 0 && sscanf(line + skip, "%llu", &value) == 1) {
            *number = value;
            found = true;
        }
    }
    fclose(file);
    return found;
}

uint64_t tri_device_memory_available(void)
{
    uint64_t available, limit, used;
    if (!read_number("/proc/meminfo", "MemAvailable:", &available))
        return 0;
    available *= 1024;
    if (read_number("/sys/fs/cgroup/memory.max", "", &limit) &&
        read_number("/sys/fs/cgroup/memory.current", "", &used) && limit > used &&
        limit - used < available)
        available = limit - used;
    return available;
}
