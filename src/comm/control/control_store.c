#include "comm/control/control_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct tri_control_entry {
    char *key;
    void *data;
    size_t num_bytes;
};

struct tri_control_waiter {
    char *key;
    void *waiter;
};

void tri_control_store_fini(tri_control_store *store)
{
    for (size_t i = 0; i < store->num_entries; i++) {
        free(store->entries[i].key);
        free(store->entries[i].data);
    }
    for (size_t i = 0; i < store->num_waiters; i++)
        free(store->waiters[i].key);
    free(store->entries);
    free(store->waiters);
    *store = (tri_control_store){0};
}

/* The place of a key, or where it would go. */
static size_t place_of(const tri_control_store *store, const char *key, bool *there)
{
    size_t low = 0, high = store->num_entries;
    *there = false;
    while (low < high && !*there) {
        size_t middle = (low + high) / 2;
        int order = strcmp(store->entries[middle].key, key);
        if (order == 0) {
            *there = true;
            low = middle;
        } else if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A new entry without data at a place, those behind it moved up. */
static bool insert(tri_control_store *store, size_t place, const char *key)
{
    tri_control_entry *entries =
        tri_array_grow(store->entries, store->num_entries, &store->entry_capacity, sizeof *entries);
    if (!entries)
        return false;
    store->entries = entries;
    char *copy = strdup(key);
    if (!copy)
        return false;
    memmove(entries + place + 1, entries + place, (store->num_entries - place) * sizeof *entries);
    entries[place] = (tri_control_entry){.key = copy};
    store->num_entries++;
    return true;
}

bool tri_control_store_put(tri_control_store *store, const char *key, const void *data,
                           size_t num_bytes, tri_control_answer answer, void *context)
{
    bool there;
    size_t place = place_of(store, key, &there);
    void *copy = malloc(num_bytes > 0 ? num_bytes : 1);
    if (!copy || (!there && !insert(store, place, key))) {
        free(copy);
        return false;
    }
    if (num_bytes > 0)
        memcpy(copy, data, num_bytes);
    tri_control_entry *entry = &store->entries[place];
    free(entry->data);
    entry->data = copy;
    entry->num_bytes = num_bytes;
    size_t kept = 0;
    for (size_t i = 0; i < store->num_waiters; i++) {
        tri_control_waiter *w = &store->waiters[i];
        if (strcmp(w->key, key) != 0) {
            store->waiters[kept++] = *w;
            continue;
        }
        answer(context, w->waiter, key, copy, num_bytes);
        free(w->key);
    }
    store->num_waiters = kept;
    return true;
}

bool tri_control_store_get(tri_control_store *store, const char *key, void *waiter,
                           tri_control_answer answer, void *context)
{
    bool there;
    size_t place = place_of(store, key, &there);
    if (there) {
        const tri_control_entry *entry = &store->entries[place];
        answer(context, waiter, key, entry->data, entry->num_bytes);
        return true;
    }
    tri_control_waiter *waiters = tri_array_grow(store->waiters, store->num_waiters,
                                                 &store->waiter_capacity, sizeof *waiters);
    if (!waiters)
        return false;
    store->waiters = waiters;
    char *copy = strdup(key);
    if (!copy)
        return false;
    waiters[store->num_waiters++] = (tri_control_waiter){.key = copy, .waiter = waiter};
    return true;
}

void tri_control_store_forget(tri_control_store *store, const void *waiter)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->num_waiters; i++) {
        if (store->waiters[i].waiter == waiter)
            free(store->waiters[i].key);
        else
            store->waiters[kept++] = store->waiters[i];
    }
    store->num_waiters = kept;
}
