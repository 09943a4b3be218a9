/* The thread pool of one rank.
 *
 * Work is cut into tasks by its shape alone, never by the number of threads, and a task's result
 * does not depend on which worker runs it: that is why one thread and eight give the same bits. */
#ifndef TRI_BASE_POOL_H
#define TRI_BASE_POOL_H

#include "base/error.h"

#include <stdbool.h>

typedef struct tri_pool tri_pool;

/* One call per task. worker is in [0, tri_pool_threads): use it for per-worker scratch only. */
typedef void (*tri_task_fn)(void *context, int task, int worker);

/* num_threads counts the caller, which works as worker 0. */
tr_status tri_pool_create(int num_threads, tri_pool **pool, tr_error *err);
void tri_pool_destroy(tri_pool *pool);
int tri_pool_threads(const tri_pool *pool);

/* Runs tasks 0 .. num_tasks-1 and returns when all are done. Not reentrant. pool may be NULL: the
 * tasks then run on the caller alone. Everything written by tasks is visible to the caller. */
void tri_pool_run(tri_pool *pool, int num_tasks, tri_task_fn fn, void *context);

/* For tasks that depend on each other. A task may wait until ready(context) holds, which must come
 * true by what other tasks do that have begun already; these call tri_pool_notify after each change
 * that ready looks at. Such changes and looks are sequentially consistent. pool may be NULL for
 * notify. */
typedef bool (*tri_ready_fn)(void *context);
void tri_pool_wait(tri_pool *pool, tri_ready_fn ready, void *context);
void tri_pool_notify(tri_pool *pool);

#endif
