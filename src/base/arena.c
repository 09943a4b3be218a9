#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

struct tri_arena_block {
    tri_arena_block *next;
    size_t used, size;
    _Alignas(ALIGN) unsigned char bytes[];
};

void tri_arena_init(tri_arena *arena)
{
    *arena = (tri_arena){0};
}

void tri_arena_fini(tri_arena *arena)
{
    tri_arena_block *block = arena->blocks;
    while (block) {
        tri_arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (tri_arena){0};
}

void *tri_arena_alloc(tri_arena *arena, size_t bytes)
{
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    tri_arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block = calloc(1, sizeof *block + size);
        if (!block) {
            arena->failed = true;
            return NULL;
        }
        block->size = size;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *piece = block->bytes + block->used;
    block->used += bytes;
    return piece;
}

const char *tri_arena_text(tri_arena *arena, const char *text)
{
    size_t length = strlen(text);
    char *copy = tri_arena_alloc(arena, length + 1);
    return copy ? memcpy(copy, text, length + 1) : "";
}

const char *tri_arena_dotted(tri_arena *arena, const char *first, const char *second)
{
    size_t a = strlen(first), b = strlen(second);
    char *text = tri_arena_alloc(arena, a + b + 2);
    if (!text)
        return "";
    memcpy(text, first, a);
    text[a] = '.';
    memcpy(text + a + 1, second, b + 1);
    return text;
}

const char *tri_arena_vprintf(tri_arena *arena, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    char small[256]; /* most are: these are written once */
    int length = vsnprintf(small, sizeof small, format, again);
    va_end(again);
    char *text = length < 0 ? NULL : tri_arena_alloc(arena, (size_t)length + 1);
    if (!text)
        return "";
    if ((size_t)length < sizeof small)
        memcpy(text, small, (size_t)length + 1);
    else
        vsnprintf(text, (size_t)length + 1, format, args);
    return text;
}

const char *tri_arena_printf(tri_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *text = tri_arena_vprintf(arena, format, args);
    va_end(args);
    return text;
}

void *tri_array_grow(void *items, size_t count, size_t *capacity, size_t item_bytes)
{
    unsigned char *grown = items;
    if (count >= *capacity) {
        size_t more = *capacity < 4096 ? 4 : 2; /* what is not used is never touched */
        size_t wanted = *capacity ? *capacity * more : 16;
        if (wanted > SIZE_MAX / item_bytes)
            return NULL;
        grown = realloc(items, wanted * item_bytes);
        if (!grown)
            return NULL;
        *capacity = wanted;
    }
    memset(grown + count * item_bytes, 0, item_bytes); /* the rest may never be touched */
    return grown;
}
