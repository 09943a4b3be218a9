/* Addresses in `work`, where memory is used again: see memory.c. */
#include <stdlib.h>
#include <string.h>

#include "program/memory_parts.h"

static int larger_first(const void *a, const void *b)
{
    const tri_buffer *x = *(tri_buffer *const *)a, *y = *(tri_buffer *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y; /* the order of making: results must not depend on qsort */
}

/* A buffer that has its place. These are looked at very often, one after the other: so they lie
 * side by side. */
typedef struct placed {
    uint64_t begin, end;
    uint32_t born, dies;
} placed;

/* Lowest address from `at` on at which the piece meets no other of an overlapping lifetime; they
 * are sorted by address. */
static uint64_t find_room(const placed *others, size_t count, const tri_buffer *piece, uint64_t at)
{
    for (size_t i = 0; i < count; i++) {
        const placed *other = &others[i];
        if (other->born > piece->dies || other->dies < piece->born)
            continue;
        if (other->begin >= at + piece->bytes)
            break;
        if (other->end > at)
            at = other->end;
    }
    return at;
}

/* The first that begins behind an address. */
static size_t first_behind(const placed *others, size_t count, uint64_t at)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (others[middle].begin <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Places the first `waiting` of the queue in a space that has nothing else during their lives, from
 * an address on. Returns where they end. */
static uint64_t place_together(uint64_t from, tri_buffer **queue, size_t waiting, placed *others)
{
    uint64_t last = from;
    qsort(queue, waiting, sizeof *queue, larger_first);
    for (size_t i = 0; i < waiting; i++) {
        tri_buffer *piece = queue[i];
        piece->offset = find_room(others, i, piece, from);
        size_t position = first_behind(others, i, piece->offset);
        memmove(others + position + 1, others + position, (i - position) * sizeof *others);
        uint64_t end = piece->offset + piece->bytes;
        others[position] = (placed){piece->offset, end, piece->born, piece->dies};
        last = end > last ? end : last;
    }
    return last;
}

/* Both halves of a pair are alive together: its backward lies behind what any forward of a pair
 * has. Forwards come first among the segments. */
static void place_segment(const tri_work_order *p, uint32_t space, uint32_t segment,
                          tri_buffer **queue, placed *others, uint64_t *floor)
{
    tri_space *work = &p->program->spaces[space];
    tri_half half = p->once ? TRI_HALF_NONE : p->half[segment];
    size_t waiting = 0;
    for (size_t b = 0; b < p->num_buffers; b++)
        if (p->buffers[b].space == space && (p->once || p->segment[p->buffers[b].born] == segment))
            queue[waiting++] = &p->buffers[b];
    uint64_t from = half == TRI_HALF_BACKWARD ? *floor : 0;
    uint64_t end = place_together(from, queue, waiting, others);
    if (half == TRI_HALF_FORWARD && end > *floor)
        *floor = end;
    if (half == TRI_HALF_BACKWARD && space == TRI_SPACE_WORK)
        p->program->pair_floor = *floor;
    if (waiting > 0 && end > work->bytes)
        work->bytes = end;
}

tr_status tri_place_work(const tri_work_order *p, tr_error *err)
{
    tri_buffer **queue = malloc((p->num_buffers + 1) * sizeof(tri_buffer *));
    placed *others = malloc((p->num_buffers + 1) * sizeof *others);
    size_t num = p->once ? 1 : p->program->num_segments;
    for (uint32_t space = 0; queue && others && space < p->program->num_spaces; space++) {
        uint64_t floor = 0;
        for (uint32_t segment = 0;
             segment < num && p->program->spaces[space].kind == TRI_SPACE_WORK; segment++)
            place_segment(p, space, segment, queue, others, &floor);
    }
    bool done = queue && others;
    free(queue);
    free(others);
    return done ? TR_OK : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the memory plan");
}
