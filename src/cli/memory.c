#include "cli/memory.h"

#include <malloc.h>

#include "train/health/replay.h"

/* Measured: a thread that only waits takes 8 KiB, one that computes up to 18. */
enum { THREAD_BYTES = 24 << 10, FIXED_BYTES = 2 << 20 };

tri_memory_overhead tri_memory_overhead_of(const tri_session *session)
{
    struct mallinfo2 heap = mallinfo2();
    uint64_t later = 0;
    for (int p = 0; p < TRI_NUM_PROGRAMS && !session->started; p++)
        if (tri_session_has(session, p))
            later += tri_executor_table_bytes(&session->programs[p]);
    later += session->started ? 0 : tri_replay_table_bytes(session);
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

void tri_memory_keep_freed(void)
{
    mallopt(M_ARENA_MAX, 1); /* one for each thread would keep the largest program of each */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
}
