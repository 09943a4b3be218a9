#include "search/parallel.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST_THREADS = 64 };

typedef struct many_items {
    tri_item_fn fn;
    void *context;
    size_t num;
    atomic_size_t next;
} many_items;

static void *work(void *arg)
{
    many_items *c = arg;
    for (size_t i; (i = atomic_fetch_add(&c->next, 1)) < c->num;)
        c->fn(c->context, i);
    return NULL;
}

void tri_parallel_each(int threads, size_t num, tri_item_fn fn, void *context)
{
    many_items c = {.fn = fn, .context = context, .num = num};
    pthread_t others[MOST_THREADS];
    int started = 0;
    threads = threads > MOST_THREADS ? MOST_THREADS : threads;
    while (started + 1 < threads && (size_t)started + 1 < num &&
           pthread_create(&others[started], NULL, work, &c) == 0)
        started++;
    work(&c);
    for (int t = 0; t < started; t++)
        pthread_join(others[t], NULL);
}
