/* The key-value store of the control server, and those who wait for a key that is not there. */
#ifndef TRI_COMM_CONTROL_CONTROL_STORE_H
#define TRI_COMM_CONTROL_CONTROL_STORE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tri_control_entry tri_control_entry;
typedef struct tri_control_waiter tri_control_waiter;

typedef struct tri_control_store {
    tri_control_entry *entries; /* in the order of their keys */
    size_t num_entries, entry_capacity;
    tri_control_waiter *waiters;
    size_t num_waiters, waiter_capacity;
} tri_control_store;

/* How a value reaches the one who asked for it. */
typedef void (*tri_control_answer)(void *context, void *waiter, const char *key, const void *data,
                                   size_t num_bytes);

void tri_control_store_fini(tri_control_store *store);
/* Replaces what was there, and answers those who wait. False when there is no memory. */
bool tri_control_store_put(tri_control_store *store, const char *key, const void *data,
                           size_t num_bytes, tri_control_answer answer, void *context);
/* Answers now or when the key is put. False when there is no memory. */
bool tri_control_store_get(tri_control_store *store, const char *key, void *waiter,
                           tri_control_answer answer, void *context);
/* The waiter is gone. */
void tri_control_store_forget(tri_control_store *store, const void *waiter);

#endif
