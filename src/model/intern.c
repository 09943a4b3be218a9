#include "model/intern.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct interned {
    struct interned *next;
    size_t count;
    _Alignas(16) char bytes[];
} interned;

static interned *all;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

const void *tri_intern(const void *bytes, size_t count)
{
    pthread_mutex_lock(&mutex);
    interned *it = all;
    while (it && !(it->count == count && memcmp(it->bytes, bytes, count) == 0))
        it = it->next;
    if (!it && (it = malloc(sizeof *it + count))) {
        it->next = all;
        it->count = count;
        memcpy(it->bytes, bytes, count);
        all = it;
    }
    pthread_mutex_unlock(&mutex);
    return it ? it->bytes : NULL;
}
