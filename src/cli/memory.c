#include "cli/memory.h"

#include <stdio.h>
#include <string.h>

static uint64_t status_kib(const char *key)
{
    FILE *file = fopen("/proc/self/status", "r");
    if (!file)
        return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), "%llu", &kib);
    fclose(file);
    return kib;
}

uint64_t tri_memory_anonymous(void)
{
    return status_kib("RssAnon:") * 1024;
}

uint64_t tri_memory_peak(void)
{
    return status_kib("VmHWM:") * 1024;
}
