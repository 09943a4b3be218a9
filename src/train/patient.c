/* Work of rank 0 that may take longer than ranks wait for each other. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/ckpt/checkpoint_parts.h"

typedef struct patient_job {
    tri_patient_fn work;
    void *context;
    tr_status status;
    tr_error error;
    atomic_bool done;
} patient_job;

static void *do_work(void *context)
{
    patient_job *j = context;
    j->status = j->work(j->context, &j->error);
    atomic_store(&j->done, true);
    return NULL;
}

static tr_status begin(patient_job *j, pthread_t *thread, tr_error *err)
{
    sigset_t all, before; /* signals are for the rank's own thread */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(thread, NULL, do_work, j);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure == 0
               ? TR_OK
               : tri_fail(err, TR_ERROR_RUNTIME, "cannot start a thread: %s", strerror(failure));
}

/* Until the work is done, or a tenth of a second is over: often it takes a few milliseconds. */
static bool wait_a_little(patient_job *j)
{
    for (int ms = 1; ms < 100 && !atomic_load(&j->done); ms *= 2)
        nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
    return atomic_load(&j->done);
}

tr_status tri_ranks_patiently(tri_ranks *ranks, tri_patient_fn work, void *context, tr_error *err)
{
    if (ranks->size == 1)
        return work(context, err);
    patient_job j = {.work = work, .context = context};
    int64_t *done = calloc((size_t)ranks->size, sizeof *done);
    if (!done)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for %d ranks", ranks->size);
    bool leads = ranks->rank == 0;
    pthread_t thread;
    tr_status met = leads ? begin(&j, &thread, err) : TR_OK;
    bool started = leads && met == TR_OK;
    while (met == TR_OK && !done[0])
        met = tri_checkpoint_gather(ranks, leads ? wait_a_little(&j) : 0, done, err);
    free(done);
    if (started)
        pthread_join(thread, NULL);
    TRI_TRY(met);
    return j.status == TR_OK ? TR_OK : tri_fail(err, j.status, "%s", j.error.message);
}
