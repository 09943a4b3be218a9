/* What the messages of a recording read and write, so that a fake GPU can tell whether a kernel
 * comes near one that may still be under way. */
#ifndef TRI_TESTS_FAKE_GPU_USES_H
#define TRI_TESTS_FAKE_GPU_USES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct fake_use {
    const char *begin, *end;
    int stream;
    uint64_t number; /* of the task that uses it, on its stream */
} fake_use;

typedef struct fake_uses {
    fake_use *use;
    size_t num, capacity;
} fake_uses;

static inline void fake_uses_add(fake_uses *uses, const void *memory, size_t bytes, int stream,
                                 uint64_t number)
{
    if (uses->num == uses->capacity) {
        uses->capacity = uses->capacity ? 2 * uses->capacity : 64;
        uses->use = realloc(uses->use, uses->capacity * sizeof *uses->use);
    }
    uses->use[uses->num++] =
        (fake_use){memory, (const char *)memory + (memory ? bytes : 0), stream, number};
}

/* Whether one of them may be under way for somebody who comes after so much of each stream. */
static inline bool fake_uses_meet(const fake_uses *uses, const void *memory, size_t bytes,
                                  const uint64_t *reached)
{
    const char *begin = memory, *end = begin + bytes;
    for (size_t i = 0; i < uses->num; i++) {
        const fake_use *u = &uses->use[i];
        if (u->begin < end && begin < u->end && reached[u->stream] < u->number)
            return true;
    }
    return false;
}

#endif
