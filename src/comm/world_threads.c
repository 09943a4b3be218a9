/* Ranks as threads of this process. */
#include "comm/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct rank_thread {
    pthread_t thread;
    tri_world *world;
    int rank;
    const char *transport;
    tr_rank_fn fn;
    void *context;
};

static void *rank_main(void *argument)
{
    struct rank_thread *self = argument;
    tri_world_run_rank(self->world, self->rank, self->transport, self->fn, self->context);
    return NULL;
}

tr_status tr_comm_run_threads(int num_ranks, const tr_comm_options *options, tr_rank_fn fn,
                              void *context, tr_error *err)
{
    tri_world *world;
    TRI_TRY(tri_world_create(num_ranks, options, &world, err));
    struct rank_thread *threads = calloc((size_t)num_ranks, sizeof *threads);
    int started = 0;
    for (; threads != NULL && started < num_ranks; started++) {
        threads[started] = (struct rank_thread){
            .world = world,
            .rank = started,
            .transport = options && options->transport ? options->transport : "thread",
            .fn = fn,
            .context = context};
        int failure = pthread_create(&threads[started].thread, NULL, rank_main, &threads[started]);
        if (failure != 0) {
            tri_world_fail(world, started, strerror(failure));
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(threads[i].thread, NULL);
    tr_status status = tri_world_result(world, err);
    if (threads == NULL)
        status = tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d threads", num_ranks);
    free(threads);
    tri_world_destroy(world);
    return status;
}
