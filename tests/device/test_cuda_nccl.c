/* NCCL on a GPU, through the layer that training uses: every operation against sums formed on the
 * host, at once and recorded, in place and with blocks of different sizes; and what ends a message
 * that the others never come to.
 *
 * One rank, and the library of the system, unless the environment says otherwise: NCCL itself wants
 * a GPU for each rank, so several need its stand-in (tests/helpers/nccl_standin.cu):
 *   TRIREME_NCCL_RANKS=4 TRIREME_NCCL_LIBRARY=build/tests/helpers/libnccl-standin.so ... */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef TRI_CUDA

#include "base/clock.h"
#include "base/half.h"
#include "comm/comm_internal.h"
#include "comm/transport/nccl.h"
#include "device/device.h"

#if __has_include(<nccl.h>)
#include <nccl.h>
/* What comm/transport/nccl.h declares by itself, against the header. */
_Static_assert(sizeof(tri_nccl_id) == sizeof(ncclUniqueId), "unique id");
_Static_assert(offsetof(tri_nccl_config, blocking) == offsetof(ncclConfig_t, blocking), "config");
_Static_assert((int)ncclInProgress == TRI_NCCL_IN_PROGRESS &&
                   (int)ncclSuccess == TRI_NCCL_SUCCESS &&
                   (int)ncclInvalidUsage == TRI_NCCL_INVALID_USAGE,
               "results");
_Static_assert(ncclFloat32 == 7 && ncclBfloat16 == 9 && ncclFloat16 == 6 && ncclInt32 == 2 &&
                   ncclInt64 == 4 && ncclUint8 == 1,
               "types");
_Static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4,
               "operations");
#endif

enum { LANE = 2, BLOCK = 40000, MOST_RANKS = 8, REPLAYS = 3 };
#define MOST ((size_t)MOST_RANKS * BLOCK)

typedef struct rank {
    tri_device device;
    tri_nccl *nccl;
    void *stream;
    int rank, size;
    char *send, *recv; /* on the GPU, MOST floats each */
    float *wide;       /* on the host, likewise */
    char *host;
} rank;

static int num_ranks(void)
{
    const char *text = getenv("TRIREME_NCCL_RANKS");
    return text ? atoi(text) : 1;
}

static const tri_device_queue *queue_of(const rank *r)
{
    return r->device.def->queue;
}

/* deadline_s: of messages, 0: as the communicator has it. */
static tr_status open_rank(rank *r, tr_comm *comm, double deadline_s, tr_error *err)
{
    tri_bootstrap bootstrap = comm->boot;
    bootstrap.deadline_s = deadline_s > 0 ? deadline_s : bootstrap.deadline_s;
    tri_nccl_api api;
    const char *library = getenv("TRIREME_NCCL_LIBRARY");
    int members[MOST_RANKS];
    *r = (rank){.rank = tr_comm_rank(comm), .size = tr_comm_size(comm)};
    for (int i = 0; i < r->size; i++)
        members[i] = i;
    TRI_TRY(tri_device_open(&(tri_device_config){.kind = "cuda"}, &r->device, err));
    TRI_TRY(queue_of(r)->start(&r->device, 0, err));
    TRI_TRY(tri_nccl_open(library ? library : "", &api, err));
    TRI_TRY(tri_nccl_create(&bootstrap, &api, &r->nccl, err));
    TRI_TRY(tri_nccl_join(r->nccl, LANE, "test", members, r->size, err));
    TRI_TRY(queue_of(r)->lanes->open(&r->device, LANE, &r->stream, err));
    r->send = r->device.def->alloc(MOST * sizeof(float));
    r->recv = r->device.def->alloc(MOST * sizeof(float));
    r->wide = malloc(MOST * sizeof(float));
    r->host = malloc(MOST * sizeof(float));
    return r->send && r->recv && r->wide && r->host ? TR_OK
                                                    : tri_fail(err, TR_ERROR_RUNTIME, "memory");
}

static void close_rank(rank *r)
{
    tri_nccl_destroy(r->nccl);
    r->device.def->free(r->send, MOST * sizeof(float));
    r->device.def->free(r->recv, MOST * sizeof(float));
    tri_device_close(&r->device);
    free(r->wide);
    free(r->host);
}

/* What rank `of` has at a place: small whole numbers, whose sums are exact in every type. */
static float value_of(int of, size_t place)
{
    return (float)((place * 7 + (size_t)of * 3) % 11);
}

static size_t width_of(tr_dtype dtype)
{
    return dtype == TR_F32 ? 4 : 2;
}

static void narrow(char *to, size_t place, float value, tr_dtype dtype)
{
    uint16_t half = dtype == TR_BF16 ? tri_f32_to_bf16(value) : tri_f32_to_f16(value);
    if (dtype == TR_F32)
        memcpy(to + 4 * place, &value, 4);
    else
        memcpy(to + 2 * place, &half, 2);
}

static float widen(const char *from, size_t place, tr_dtype dtype)
{
    float value;
    uint16_t half;
    memcpy(&value, from + width_of(dtype) * place, dtype == TR_F32 ? 4 : 0);
    memcpy(&half, from + width_of(dtype) * place, 2);
    return dtype == TR_F32    ? value
           : dtype == TR_BF16 ? tri_bf16_to_f32(half)
                              : tri_f16_to_f32(half);
}

/* A case: the operation and how its vectors lie. */
typedef struct message {
    tr_operation operation;
    bool in_place, uneven;
    tr_dtype dtype;
    uint64_t counts[MOST_RANKS]; /* of the blocks; the first is the vector's for all_reduce */
    size_t begin[MOST_RANKS + 1];
} message;

static void lay_out(message *m, const rank *r)
{
    for (int i = 0; i < r->size; i++) {
        m->counts[i] = m->uneven ? (uint64_t)(BLOCK - 1000 * i) * (i != 1) : BLOCK;
        m->begin[i + 1] = m->begin[i] + m->counts[i];
    }
}

static bool sums(const message *m)
{
    return m->operation == TR_ALL_REDUCE || m->operation == TR_REDUCE_SCATTER ||
           m->operation == TR_REDUCE;
}

/* Whether the operand `send` has all blocks (or the whole vector), or the own one only. */
static bool sends_all(const message *m)
{
    return m->operation != TR_ALL_GATHER;
}

static bool receives_all(const message *m)
{
    return m->operation != TR_REDUCE_SCATTER;
}

static tr_collective call_of(const message *m, const rank *r)
{
    size_t own = m->begin[r->rank] * width_of(m->dtype);
    char *send = r->send, *recv = m->in_place ? r->send : r->recv;
    if (m->in_place && !sends_all(m))
        send += own;
    if (m->in_place && !receives_all(m))
        recv += own;
    bool vector =
        m->operation == TR_ALL_REDUCE || m->operation == TR_REDUCE || m->operation == TR_BROADCAST;
    return (tr_collective){.operation = m->operation,
                           .reduction = TR_SUM,
                           .dtype = m->dtype,
                           .root = r->size - 1,
                           .send = send,
                           .recv = recv,
                           .count = vector ? m->begin[r->size] : BLOCK,
                           .send_counts = m->uneven && sends_all(m) ? m->counts : NULL,
                           .recv_counts = m->uneven && !sends_all(m) ? m->counts : NULL};
}

/* Fills what is sent; in place, the rest of the vector is poisoned. */
static tr_status fill(const message *m, rank *r, tr_error *err)
{
    size_t all = m->begin[r->size], own = m->begin[r->rank];
    size_t count = sends_all(m) ? all : m->counts[r->rank], skip = m->in_place ? own : 0;
    memset(r->host, 0x7b, MOST * sizeof(float));
    for (size_t i = 0; i < count; i++)
        narrow(r->host, i + (sends_all(m) ? 0 : skip),
               value_of(r->rank, sends_all(m) ? i : own + i), m->dtype);
    TRI_TRY(queue_of(r)->upload(&r->device, r->send, r->host, MOST * sizeof(float), err));
    TRI_TRY(queue_of(r)->finish(&r->device, err));
    memset(r->host, 0x6a, MOST * sizeof(float));
    TRI_TRY(queue_of(r)->upload(&r->device, r->recv, r->host, MOST * sizeof(float), err));
    return queue_of(r)->finish(&r->device, err);
}

static float expected(const message *m, const rank *r, size_t place)
{
    float sum = 0;
    if (m->operation == TR_BROADCAST)
        return value_of(r->size - 1, place);
    if (m->operation == TR_ALL_TO_ALL) /* block i is what rank i had for this one */
        return value_of((int)(place / BLOCK), (size_t)r->rank * BLOCK + place % BLOCK);
    int owner = 0;
    while (!sums(m) && place >= m->begin[owner + 1])
        owner++;
    if (!sums(m))
        return value_of(owner, place);
    for (int i = 0; i < r->size; i++)
        sum += value_of(i, place);
    return sum;
}

static tr_status compare(const message *m, rank *r, const char *how, tr_error *err)
{
    tr_collective c = call_of(m, r);
    size_t first = receives_all(m) ? 0 : m->begin[r->rank];
    size_t count = receives_all(m) ? m->begin[r->size] : m->counts[r->rank];
    if (m->operation == TR_REDUCE && r->rank != r->size - 1)
        return TR_OK;
    if (count == 0)
        return TR_OK;
    TRI_TRY(queue_of(r)->download(&r->device, r->host, c.recv, count * width_of(m->dtype), err));
    TRI_TRY(queue_of(r)->finish(&r->device, err));
    for (size_t i = 0; i < count; i++) {
        float got = widen(r->host, i, m->dtype), wanted = expected(m, r, first + i);
        if (got != wanted)
            return tri_fail(err, TR_ERROR_RUNTIME,
                            "operation %d, type %d%s%s, %s: place %zu of %zu is %g, not %g",
                            m->operation, m->dtype, m->in_place ? ", in place" : "",
                            m->uneven ? ", uneven" : "", how, i, count, (double)got,
                            (double)wanted);
    }
    return TR_OK;
}

/* On the lane, between points, with a note before and after. */
static tr_status enqueue(const message *m, rank *r, tr_error *err)
{
    const tri_device_lanes *lanes = queue_of(r)->lanes;
    tr_collective call = call_of(m, r);
    TRI_TRY(lanes->set(&r->device, TRI_DEVICE_QUEUE, 0, err));
    TRI_TRY(lanes->await(&r->device, LANE, 0, err));
    TRI_TRY(lanes->note(&r->device, LANE, 100 + 2 * (uint64_t)m->operation, err));
    TRI_TRY(tri_nccl_run(r->nccl, LANE, &call, r->stream, err));
    TRI_TRY(lanes->note(&r->device, LANE, 101 + 2 * (uint64_t)m->operation, err));
    TRI_TRY(lanes->set(&r->device, LANE, 1, err));
    return lanes->await(&r->device, TRI_DEVICE_QUEUE, 1, err);
}

static tr_status check(message m, rank *r, tr_error *err)
{
    lay_out(&m, r);
    TRI_TRY(fill(&m, r, err));
    TRI_TRY(enqueue(&m, r, err));
    TRI_TRY(queue_of(r)->finish(&r->device, err));
    TRI_TRY(compare(&m, r, "at once", err));
    if (queue_of(r)->lanes->noted(&r->device, LANE) != 101 + 2 * (uint64_t)m.operation)
        return tri_fail(err, TR_ERROR_RUNTIME, "the lane noted %llu",
                        (unsigned long long)queue_of(r)->lanes->noted(&r->device, LANE));
    void *recording;
    TRI_TRY(queue_of(r)->record(&r->device, err));
    TRI_TRY(enqueue(&m, r, err));
    TRI_TRY(queue_of(r)->record_end(&r->device, &recording, err));
    for (int i = 0; i < REPLAYS; i++) {
        TRI_TRY(fill(&m, r, err));
        TRI_TRY(queue_of(r)->replay(&r->device, recording, err));
        TRI_TRY(queue_of(r)->finish(&r->device, err));
        TRI_TRY(compare(&m, r, "recorded", err));
    }
    queue_of(r)->forget(recording);
    return TR_OK;
}

static tr_status all_operations(tr_comm *comm, void *context, tr_error *err)
{
    static const tr_operation operations[] = {TR_ALL_REDUCE, TR_ALL_GATHER, TR_REDUCE_SCATTER,
                                              TR_BROADCAST,  TR_REDUCE,     TR_ALL_TO_ALL};
    (void)context;
    rank r;
    tr_status status = open_rank(&r, comm, 0, err);
    for (size_t o = 0; status == TR_OK && o < sizeof operations / sizeof *operations; o++)
        for (int dtype = TR_F32; status == TR_OK && dtype <= TR_F16; dtype++)
            for (int kind = 0; status == TR_OK && kind < 4; kind++) {
                message m = {.operation = operations[o],
                             .dtype = (tr_dtype)dtype,
                             .in_place = kind & 1,
                             .uneven = kind & 2};
                bool gathers = m.operation == TR_ALL_GATHER || m.operation == TR_REDUCE_SCATTER;
                if ((m.uneven && !gathers) || (m.in_place && m.operation == TR_ALL_TO_ALL))
                    continue;
                status = check(m, &r, err);
            }
    if (status == TR_OK)
        close_rank(&r);
    return status;
}

/* A ring of messages: everyone sends to the next and receives from the one before, large enough for
 * more than one piece. */
static tr_status point_to_point(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    rank r;
    TRI_TRY(open_rank(&r, comm, 0, err));
    message m = {.operation = TR_BROADCAST, .dtype = TR_F32};
    lay_out(&m, &r);
    int next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
    TRI_TRY(fill(&m, &r, err));
    for (int odd = 0; odd < 2 && r.size > 1; odd++) { /* even ranks send first */
        if ((r.rank & 1) == odd)
            TRI_TRY(tri_nccl_send(r.nccl, LANE, next, r.send, MOST * 4, r.stream, err));
        else
            TRI_TRY(tri_nccl_recv(r.nccl, LANE, before, r.recv, MOST * 4, r.stream, err));
    }
    TRI_TRY(queue_of(&r)->lanes->set(&r.device, LANE, 1, err));
    TRI_TRY(queue_of(&r)->lanes->await(&r.device, TRI_DEVICE_QUEUE, 1, err));
    TRI_TRY(queue_of(&r)->download(&r.device, r.host, r.recv, MOST * 4, err));
    TRI_TRY(queue_of(&r)->finish(&r.device, err));
    for (size_t i = 0; i < m.begin[r.size] && r.size > 1; i++)
        if (widen(r.host, i, TR_F32) != value_of(before, i))
            return tri_fail(err, TR_ERROR_RUNTIME, "place %zu from rank %d is wrong", i, before);
    close_rank(&r);
    return TR_OK;
}

/* Rank 0 does not come. The others find that out by the deadline, and their GPU is free again; the
 * barrier of the host, where rank 0 waits for them, has a longer one. */
static tr_status one_stays_away(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    rank r;
    TRI_TRY(open_rank(&r, comm, 5, err));
    message m = {.operation = TR_ALL_REDUCE, .dtype = TR_F32};
    lay_out(&m, &r);
    TRI_TRY(fill(&m, &r, err));
    if (r.rank != 0) {
        bool idle = false;
        uint64_t start = tri_now_ns();
        tr_error why = {0};
        TRI_TRY(enqueue(&m, &r, err));
        while (tri_nccl_look(r.nccl, (double)(tri_now_ns() - start) * 1e-9, &why) == TR_OK)
            TRI_TRY(queue_of(&r)->lanes->idle(&r.device, &idle, err));
        /* Of several that wait one is the first to end it, and the others see that. */
        if (idle || (!strstr(why.message, "did not come within") &&
                     !strstr(why.message, "remote process exited")))
            return tri_fail(err, TR_ERROR_RUNTIME, "idle %d, %s", idle, why.message);
        if (queue_of(&r)->lanes->noted(&r.device, LANE) < 100)
            return tri_fail(err, TR_ERROR_RUNTIME, "the lane noted nothing");
        if (tri_nccl_run(r.nccl, LANE, &(tr_collective){.operation = TR_ALL_REDUCE}, r.stream,
                         &why) == TR_OK)
            return tri_fail(err, TR_ERROR_RUNTIME, "an ended communicator takes calls");
        TRI_TRY(queue_of(&r)->finish(&r.device, err)); /* hangs when the message was not ended */
    }
    tr_status status = tr_barrier(tr_comm_world(comm), err);
    if (r.rank == 0)
        tri_nccl_abort(r.nccl);
    return status;
}

static void run(tr_rank_fn fn, double deadline_s)
{
    tr_error err = {0};
    tr_comm_options options = {.deadline_s = deadline_s};
    if (tr_comm_spawn(num_ranks(), &options, fn, NULL, &err) == TR_OK)
        return;
    if (strstr(err.message, "cannot be used here") || strstr(err.message, "cannot be opened")) {
        printf("skipped: %s\n", err.message);
        exit(77);
    }
    fail_msg("%s", err.message);
}

static void test_operations(void **state)
{
    (void)state;
    run(all_operations, 60);
}

static void test_messages(void **state)
{
    (void)state;
    if (num_ranks() % 2 == 0)
        run(point_to_point, 60);
}

static void test_deadline(void **state)
{
    (void)state;
    if (num_ranks() > 1)
        run(one_stays_away, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("skipped: built without CUDA\n");
    return 77;
}

#endif
