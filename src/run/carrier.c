#include "run/carrier.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

typedef struct carry_request {
    tri_carry carry;
    bool done;
    tr_status status;
    tr_error error;
    uint64_t begin_ns, end_ns;
    struct carry_request *next;
} carry_request;

typedef struct carrier_lane {
    tri_carrier *carrier;
    tri_carry_lane number;
    pthread_t thread;
    bool running;
    carry_request *first, *last;
} carrier_lane;

struct tri_carrier {
    const tri_scratch_file *file;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    carrier_lane lanes[TRI_NUM_CARRY_LANES];
    bool ends;
    void (*delay)(void *context, tri_carry_lane lane);
    void *delay_context;
};

static tr_status carry_out(const tri_carrier *carrier, const tri_carry *carry, tr_error *err)
{
    switch (carry->kind) {
    case TRI_CARRY_READ:
        return tri_scratch_file_read(carrier->file, carry->offset, carry->to, carry->bytes, err);
    case TRI_CARRY_WRITE:
        return tri_scratch_file_write(carrier->file, carry->offset, carry->from, carry->bytes, err);
    case TRI_CARRY_COPY:
        memcpy(carry->to, carry->from, carry->bytes);
    }
    return TR_OK;
}

static void *work(void *argument)
{
    carrier_lane *l = argument;
    tri_carrier *carrier = l->carrier;
    pthread_mutex_lock(&carrier->mutex);
    for (;;) {
        while (!l->first && !carrier->ends)
            pthread_cond_wait(&carrier->changed, &carrier->mutex);
        carry_request *r = l->first;
        if (!r)
            break;
        l->first = r->next;
        pthread_mutex_unlock(&carrier->mutex);
        if (carrier->delay)
            carrier->delay(carrier->delay_context, l->number);
        r->begin_ns = tri_now_ns();
        r->status = carry_out(carrier, &r->carry, &r->error);
        r->end_ns = tri_now_ns();
        pthread_mutex_lock(&carrier->mutex);
        r->done = true;
        pthread_cond_broadcast(&carrier->changed);
    }
    pthread_mutex_unlock(&carrier->mutex);
    return NULL;
}

tr_status tri_carrier_create(const tri_scratch_file *file, tri_carrier **carrier, tr_error *err)
{
    tri_carrier *c = *carrier = calloc(1, sizeof *c);
    if (!c)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for the lanes of fetch and stash");
    c->file = file;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    for (int i = 0; i < TRI_NUM_CARRY_LANES; i++) {
        c->lanes[i].carrier = c;
        c->lanes[i].number = (tri_carry_lane)i;
    }
    return TR_OK;
}

void tri_carrier_destroy(tri_carrier *carrier)
{
    if (!carrier)
        return;
    pthread_mutex_lock(&carrier->mutex);
    carrier->ends = true;
    pthread_cond_broadcast(&carrier->changed);
    pthread_mutex_unlock(&carrier->mutex);
    for (int i = 0; i < TRI_NUM_CARRY_LANES; i++)
        if (carrier->lanes[i].running)
            pthread_join(carrier->lanes[i].thread, NULL);
    pthread_cond_destroy(&carrier->changed);
    pthread_mutex_destroy(&carrier->mutex);
    free(carrier);
}

void tri_carrier_delay(tri_carrier *carrier, void (*delay)(void *context, tri_carry_lane lane),
                       void *context)
{
    carrier->delay = delay;
    carrier->delay_context = context;
}

tr_status tri_carrier_start(tri_carrier *carrier, tri_carry_lane number, const tri_carry *carry,
                            void **out, tr_error *err)
{
    carrier_lane *l = &carrier->lanes[number];
    carry_request *r = calloc(1, sizeof *r);
    if (!r)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory to carry %zu bytes", carry->bytes);
    r->carry = *carry;
    if (!l->running)
        l->running = pthread_create(&l->thread, NULL, work, l) == 0;
    if (!l->running) {
        free(r);
        return tri_fail(err, TR_ERROR_RUNTIME, "no thread for a lane of fetch and stash");
    }
    pthread_mutex_lock(&carrier->mutex);
    if (l->first)
        l->last->next = r;
    else
        l->first = r;
    l->last = r;
    pthread_cond_broadcast(&carrier->changed);
    pthread_mutex_unlock(&carrier->mutex);
    *out = r;
    return TR_OK;
}

tr_status tri_carrier_wait(tri_carrier *carrier, void *pending, uint64_t *begin_ns,
                           uint64_t *end_ns, tr_error *err)
{
    carry_request *r = pending;
    pthread_mutex_lock(&carrier->mutex);
    while (!r->done)
        pthread_cond_wait(&carrier->changed, &carrier->mutex);
    pthread_mutex_unlock(&carrier->mutex);
    *begin_ns = r->begin_ns;
    *end_ns = r->end_ns;
    tr_status status = r->status;
    if (status != TR_OK && err)
        *err = r->error;
    free(r);
    return status;
}
