/* The compile arena: memory that is given out piece by piece and freed whole.
 *
 * An allocation that fails returns NULL and is remembered in `failed`, so that code which builds
 * something large may check once at its end. */
#ifndef TRI_BASE_ARENA_H
#define TRI_BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct tri_arena_block tri_arena_block;

typedef struct tri_arena {
    tri_arena_block *blocks;
    bool failed;
} tri_arena;

void tri_arena_init(tri_arena *arena);
void tri_arena_fini(tri_arena *arena);
void *tri_arena_alloc(tri_arena *arena, size_t bytes); /* zeroed, aligned to 16 */
/* Formatted text; "" when memory ran out (and failed is set). */
const char *tri_arena_printf(tri_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The text itself, and two with a dot between them: as "%s" and "%s.%s" would print. */
const char *tri_arena_text(tri_arena *arena, const char *text);
const char *tri_arena_dotted(tri_arena *arena, const char *first, const char *second);
const char *tri_arena_vprintf(tri_arena *arena, const char *format, va_list args);

/* Room for one more item in a heap array: returns the array, moved if need be, or NULL (the old
 * array is then still valid). The item after the last is zeroed. Keep what it returns before
 * anything else is asked: the old address is gone. */
void *tri_array_grow(void *items, size_t count, size_t *capacity, size_t item_bytes);

#endif
