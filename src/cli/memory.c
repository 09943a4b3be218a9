#include "cli/memory.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>

/* Measured: a thread that only waits takes 8 KiB, one that computes up to 18. */
enum { THREAD_BYTES = 24 << 10, FIXED_BYTES = 2 << 20 };

tri_memory_overhead tri_memory_overhead_of(const tri_session *session)
{
    struct mallinfo2 heap = mallinfo2();
    uint64_t later = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS && !session->started; p++)
        if (tri_session_has(session, p))
            later += tri_executor_table_bytes(&session->programs[p]);
    const tri_store *store = &session->store;
    uint64_t threads = (uint64_t)session->device.num_threads * (store->needs_cpu ? 2 : 1);
    if (tri_store_bytes_at(store, TRI_WHERE_HOST) + tri_store_bytes_at(store, TRI_WHERE_FILE) > 0)
        threads += TRI_NUM_CARRY_LANES;
    return (tri_memory_overhead){
        .heap = heap.arena + heap.hblkhd + later,
        .threads = threads * THREAD_BYTES,
        .fixed = FIXED_BYTES,
    };
}

uint64_t tri_memory_overhead_total(const tri_memory_overhead *overhead)
{
    return overhead->heap + overhead->threads + overhead->fixed;
}

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

void tri_memory_forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file)
        return;
    fputs("5", file); /* resets VmHWM and nothing else; see proc(5) */
    fclose(file);
}
