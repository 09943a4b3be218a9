#include "train/log/log_ring.h"

#include <stdlib.h>
#include <string.h>

bool tri_log_ring_init(tri_log_ring *ring, size_t num)
{
    *ring = (tri_log_ring){.slots = malloc(num * sizeof *ring->slots), .num = num};
    if (ring->slots) /* pages that the loop would otherwise be the first to touch */
        memset(ring->slots, 0, num * sizeof *ring->slots);
    return ring->slots != NULL;
}

void tri_log_ring_fini(tri_log_ring *ring)
{
    free(ring->slots);
    ring->slots = NULL;
}

size_t tri_log_ring_put(tri_log_ring *ring, const tri_metrics_row *row)
{
    uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    uint64_t held = put - atomic_load_explicit(&ring->taken, memory_order_acquire);
    if (held >= ring->num) {
        uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
        atomic_store_explicit(&ring->dropped, dropped + 1, memory_order_relaxed);
        return 0;
    }
    tri_log_slot *slot = &ring->slots[put % ring->num];
    slot->row = *row;
    if (slot->row.num_stats > TRI_MAX_STEP_SHOWN)
        slot->row.num_stats = TRI_MAX_STEP_SHOWN;
    for (size_t i = 0; i < slot->row.num_stats; i++)
        slot->stats[i] = row->stats[i];
    slot->row.stats = slot->stats;
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
    return (size_t)held + 1;
}

const tri_metrics_row *tri_log_ring_look(tri_log_ring *ring)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    if (taken == atomic_load_explicit(&ring->put, memory_order_acquire))
        return NULL;
    return &ring->slots[taken % ring->num].row;
}

void tri_log_ring_taken(tri_log_ring *ring)
{
    uint64_t taken = atomic_load_explicit(&ring->taken, memory_order_relaxed);
    atomic_store_explicit(&ring->taken, taken + 1, memory_order_release);
}
