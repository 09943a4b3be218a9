/* Messages, signals, groups, started calls, counters, repeatability: the API beyond single calls.
 */
#include "comm/comm.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static tr_status wrong(tr_error *err, const tr_comm *comm, const char *what)
{
    return tri_fail(err, TR_ERROR_INTERNAL, "rank %d: %s", tr_comm_rank(comm), what);
}

static bool shares_memory(const tr_comm *comm)
{
    return strcmp(tr_comm_transport(comm), "tcp") != 0;
}

/* Over threads and over processes, and over tcp. */
static void run_both(int num_ranks, tr_rank_fn fn, void *context)
{
    tr_comm_options options = {.deadline_s = 60};
    tr_error err = {0};
    if (tr_comm_run_threads(num_ranks, &options, fn, context, &err) != TR_OK)
        fail_msg("threads: %s", err.message);
    if (tr_comm_spawn(num_ranks, &options, fn, context, &err) != TR_OK)
        fail_msg("processes: %s", err.message);
    options.transport = "tcp";
    if (tr_comm_spawn(num_ranks, &options, fn, context, &err) != TR_OK)
        fail_msg("processes over tcp: %s", err.message);
    if (tr_comm_run_threads(num_ranks, &options, fn, context, &err) != TR_OK)
        fail_msg("threads over tcp: %s", err.message);
}

/* ---- messages */

static void fill(uint8_t *data, size_t n, int from, int number)
{
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(i * 13 + (size_t)from * 5 + (size_t)number);
}

static tr_status check_data(tr_comm *comm, const uint8_t *data, size_t n, int from, int number,
                            tr_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (data[i] != (uint8_t)(i * 13 + (size_t)from * 5 + (size_t)number))
            return wrong(err, comm, "a message arrived changed");
    return TR_OK;
}

/* Sizes around what a chunk holds, from both kinds of memory, around a ring. */
static tr_status messages(tr_comm *comm, void *context, tr_error *err)
{
    static const size_t sizes[] = {0, 1, 4096, 65536, 65537, 700001};
    (void)context;
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    void *shared;
    TRI_TRY(tr_comm_alloc(comm, 700001, &shared, err));
    uint8_t *private = malloc(700001), *into = malloc(700001);
    tr_status status = TR_OK;
    for (int k = 0; status == TR_OK && k < 12; k++) {
        size_t n = sizes[k % 6];
        uint8_t *from = k < 6 ? shared : private;
        fill(from, n, rank, k);
        tr_request *send = NULL, *recv = NULL;
        if (k % 2 == 0) {
            status = tr_recv_start(comm, previous, into, n, &recv, err);
            if (status == TR_OK)
                status = tr_send(comm, next, from, n, err);
            if (status == TR_OK)
                status = tr_request_wait(recv, err);
        } else {
            status = tr_send_start(comm, next, from, n, &send, err);
            if (status == TR_OK)
                status = tr_recv(comm, previous, into, n, err);
            if (status == TR_OK)
                status = tr_request_wait(send, err);
        }
        if (status == TR_OK)
            status = check_data(comm, into, n, previous, k, err);
    }
    free(private);
    free(into);
    tr_comm_free(comm, shared);
    return status;
}

/* Many started at once, in order; more than a channel's ring holds. */
static tr_status many_messages(tr_comm *comm, void *context, tr_error *err)
{
    enum { NUM = 50 };
    (void)context;
    tr_request *requests[NUM];
    uint64_t data[NUM];
    int rank = tr_comm_rank(comm);
    for (int i = 0; i < NUM; i++) {
        data[i] = rank == 0 ? (uint64_t)i * i : 0;
        if (rank == 0)
            TRI_TRY(tr_send_start(comm, 1, &data[i], sizeof data[i], &requests[i], err));
        else
            TRI_TRY(tr_recv_start(comm, 0, &data[i], sizeof data[i], &requests[i], err));
    }
    for (int i = NUM - 1; i >= 0; i--) /* waited for in another order than started */
        TRI_TRY(tr_request_wait(requests[i], err));
    for (int i = 0; i < NUM; i++)
        if (data[i] != (uint64_t)i * (uint64_t)i)
            return wrong(err, comm, "messages changed places");
    return TR_OK;
}

/* A send must not end before its receive is issued, and must end soon after it is, even though the
 * receiver is busy elsewhere. */
static tr_status rendezvous(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    struct timespec pause = {.tv_nsec = 50000000};
    tr_request *request;
    uint32_t x = 7, flag = 0;
    bool done = false;
    if (tr_comm_rank(comm) == 0) {
        TRI_TRY(tr_send_start(comm, 1, &x, sizeof x, &request, err));
        nanosleep(&pause, NULL);
        TRI_TRY(tr_request_test(request, &done, err));
        if (done)
            return wrong(err, comm, "a send ended before its receive was issued");
        TRI_TRY(tr_signal(comm, 1, 0, 1, err));
        TRI_TRY(tr_request_wait(request, err));
        return tr_signal(comm, 1, 0, 2, err);
    }
    TRI_TRY(tr_wait_signal(comm, 0, 0, 1, err));
    TRI_TRY(tr_recv_start(comm, 0, &flag, sizeof flag, &request, err));
    TRI_TRY(tr_wait_signal(comm, 0, 0, 2, err)); /* needs the receive to move on by itself */
    TRI_TRY(tr_request_wait(request, err));
    return flag == 7 ? TR_OK : wrong(err, comm, "wrong number");
}

static void test_messages(void **state)
{
    (void)state;
    run_both(1, messages, NULL);
    run_both(2, messages, NULL);
    run_both(5, messages, NULL);
    run_both(2, many_messages, NULL);
    run_both(2, rendezvous, NULL);
}

/* ---- groups */

static tr_status groups(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    int rank = tr_comm_rank(comm);
    int row[3], column[2];
    for (int i = 0; i < 3; i++)
        row[i] = rank / 3 * 3 + i;
    for (int i = 0; i < 2; i++)
        column[i] = rank % 3 + 3 * (1 - i); /* not in rank order */
    tr_group *rows, *columns, *again;
    TRI_TRY(tr_group_create(comm, "rows", row, 3, &rows, err));
    TRI_TRY(tr_group_create(comm, "columns", column, 2, &columns, err));
    TRI_TRY(tr_group_create(comm, "rows again", row, 3, &again, err));
    int32_t x = rank, sum = 0, list[2] = {-1, -1};
    TRI_TRY(tr_all_reduce(rows, &x, &sum, 1, TR_I32, TR_SUM, err));
    if (sum != row[0] + row[1] + row[2])
        return wrong(err, comm, "sum of a row");
    TRI_TRY(tr_all_gather(columns, &x, list, 1, TR_I32, err));
    if (list[0] != column[0] || list[1] != column[1] || tr_group_rank(columns) != 1 - rank / 3)
        return wrong(err, comm, "members of a column");
    tr_group_destroy(rows);
    TRI_TRY(tr_all_reduce(again, &x, &sum, 1, TR_I32, TR_MAX, err));
    if (sum != row[2])
        return wrong(err, comm, "a second group of the same members");
    tr_group *third;
    TRI_TRY(tr_group_create(comm, "rows, once more", row, 3, &third, err));
    TRI_TRY(tr_barrier(third, err));
    tr_error detail = {0};
    static const int bad[] = {0, 0}, absent[] = {9};
    if (tr_group_create(comm, "bad", bad, 2, &third, &detail) != TR_ERROR_INPUT ||
        tr_group_create(comm, "absent", absent, 1, &third, &detail) != TR_ERROR_INPUT)
        return wrong(err, comm, "a group that cannot be was made");
    return tr_barrier(tr_comm_world(comm), err);
}

static void test_groups(void **state)
{
    (void)state;
    run_both(6, groups, NULL);
}

/* ---- started calls */

/* Several started at once run in order while this rank does something else; a blocking call behind
 * them waits for its turn. */
static tr_status overlap(tr_comm *comm, void *context, tr_error *err)
{
    enum { NUM = 8, COUNT = 50000 };
    (void)context;
    tr_group *world = tr_comm_world(comm);
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    void *memory;
    TRI_TRY(tr_comm_alloc(comm, NUM * COUNT * sizeof(float), &memory, err));
    float *data = memory;
    tr_request *requests[NUM];
    for (int k = 0; k < NUM; k++) {
        for (int i = 0; i < COUNT; i++)
            data[k * COUNT + i] = (float)(rank + k);
        tr_collective call = {.operation = TR_ALL_REDUCE,
                              .dtype = TR_F32,
                              .send = data + k * COUNT,
                              .recv = data + k * COUNT,
                              .count = COUNT};
        TRI_TRY(tr_collective_start(world, &call, &requests[k], err));
    }
    int64_t one = 1, all = 0;
    TRI_TRY(tr_all_reduce(world, &one, &all, 1, TR_I64, TR_SUM, err));
    if (all != size)
        return wrong(err, comm, "a blocking call behind started ones");
    for (int k = 0; k < NUM; k++) {
        bool done = false;
        TRI_TRY(tr_request_test(requests[k], &done, err));
        if (!done) /* the blocking call came after them */
            return wrong(err, comm, "calls ended in another order than they began");
        float want = (float)(size * k + size * (size - 1) / 2);
        for (int i = 0; i < COUNT; i++)
            if (data[k * COUNT + i] != want)
                return wrong(err, comm, "a started all_reduce");
    }
    tr_comm_free(comm, memory);
    return TR_OK;
}

static void test_overlap(void **state)
{
    (void)state;
    run_both(1, overlap, NULL);
    run_both(4, overlap, NULL);
}

/* ---- counters */

static tr_status counters(tr_comm *comm, void *context, tr_error *err)
{
    enum { COUNT = 1001, MOST = 16 };
    (void)context;
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    float *data = calloc(2 * MOST * COUNT, sizeof *data);
    tri_coll_shape shape = tri_shape_flat(size);
    tr_status status = TR_OK;
    for (size_t a = 0; status == TR_OK && tri_algorithm_at(a); a++) {
        const tri_algorithm *algorithm = tri_algorithm_at(a);
        if (algorithm->needs_shared_memory)
            continue;
        for (int op = 0; status == TR_OK && op < TRI_NUM_COLLS; op++) {
            tri_rounds rounds;
            if (!tri_algorithm_supports(algorithm, (tri_coll)op, &shape))
                continue;
            TRI_TRY(tri_algorithm_rounds(algorithm, (tri_coll)op, &shape, 0, &rounds, err));
            tr_collective call = {.operation = (tr_operation)op,
                                  .send = data,
                                  .recv = data + MOST * COUNT,
                                  .count = op == TR_BARRIER ? 0 : COUNT,
                                  .algorithm = algorithm->name};
            uint64_t all = call.count; /* in elements, as pieces are cut; each has four bytes */
            if (op >= TR_GATHER)
                all *= (uint64_t)(op == TR_ALL_TO_ALL ? size * size : size);
            tri_coll_traffic t = tri_rounds_traffic(&rounds, rank, all);
            tr_comm_counters before = tr_comm_read_counters(comm);
            status = tr_collective_run(tr_comm_world(comm), &call, err);
            tr_comm_counters after = tr_comm_read_counters(comm);
            tri_rounds_free(&rounds);
            if (status == TR_OK &&
                (after.messages_sent - before.messages_sent != t.messages_sent ||
                 after.messages_received - before.messages_received != t.messages_received ||
                 after.bytes_sent - before.bytes_sent != 4 * t.bytes_sent ||
                 after.bytes_received - before.bytes_received != 4 * t.bytes_received))
                status = tri_fail(err, TR_ERROR_INTERNAL, "traffic of %s %s", algorithm->name,
                                  tri_coll_name((tri_coll)op));
        }
    }
    free(data);
    return status;
}

/* The ring's formula itself: 2 S (N - 1) / N bytes each, in 2 (N - 1) messages. And direct moves
 * the same number of bytes, in no messages. */
static tr_status formulas(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    uint64_t size = (uint64_t)tr_comm_size(comm), count = size * 1000;
    float *data = calloc(count, sizeof *data);
    tr_status status = TR_OK;
    int ways = shares_memory(comm) ? 2 : 1;
    for (int direct = 0; status == TR_OK && direct < ways; direct++) {
        tr_collective call = {.operation = TR_ALL_REDUCE,
                              .send = data,
                              .recv = data,
                              .count = count,
                              .algorithm = direct ? "direct" : "ring"};
        tr_comm_counters before = tr_comm_read_counters(comm);
        status = tr_collective_run(tr_comm_world(comm), &call, err);
        tr_comm_counters after = tr_comm_read_counters(comm);
        uint64_t bytes = 2 * (count * 4) * (size - 1) / size;
        uint64_t messages = direct ? 0 : 2 * (size - 1);
        if (status == TR_OK && (after.bytes_sent - before.bytes_sent != bytes ||
                                after.bytes_received - before.bytes_received != bytes ||
                                after.messages_sent - before.messages_sent != messages))
            status = wrong(err, comm, "bytes of an all_reduce");
    }
    free(data);
    return status;
}

static void test_counters(void **state)
{
    (void)state;
    for (int size = 1; size <= 9; size++)
        run_both(size, counters, NULL);
    run_both(4, formulas, NULL);
}

/* ---- the same bits on every rank, every time */

static uint64_t hash_bytes(const void *data, size_t n)
{
    const uint8_t *bytes = data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static tr_status same_bits(tr_comm *comm, void *context, tr_error *err)
{
    static const uint64_t counts[] = {100, 9999, 150001};
    (void)context;
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    tri_coll_shape shape = tri_shape_flat(size);
    for (int k = 0; tri_algorithm_at((size_t)k / 3); k++) {
        const tri_algorithm *algorithm = tri_algorithm_at((size_t)k / 3);
        if (!tri_algorithm_supports(algorithm, TRI_COLL_ALL_REDUCE, &shape) ||
            (algorithm->needs_shared_memory && !shares_memory(comm)))
            continue;
        uint64_t count = counts[k % 3];
        bool shared = k % 2 == 0;
        void *in = NULL, *out = NULL;
        if (shared) {
            TRI_TRY(tr_comm_alloc(comm, count * 4, &in, err));
            TRI_TRY(tr_comm_alloc(comm, count * 4, &out, err));
        } else {
            in = malloc(count * 4);
            out = malloc(count * 4);
        }
        uint64_t first = 0, hashes[16];
        uint32_t seed = (uint32_t)rank * 977u + 1;
        for (uint64_t i = 0; i < count; i++)
            ((float *)in)[i] = (float)(seed = seed * 1664525u + 1013904223u) * 1e-7f - 200;
        tr_collective call = {.operation = TR_ALL_REDUCE,
                              .send = in,
                              .recv = out,
                              .count = count,
                              .algorithm = algorithm->name};
        for (int again = 0; again < 3; again++) {
            TRI_TRY(tr_collective_run(tr_comm_world(comm), &call, err));
            uint64_t hash = hash_bytes(out, count * 4);
            first = again == 0 ? hash : first;
            TRI_TRY(tr_all_gather(tr_comm_world(comm), &hash, hashes, 1, TR_I64, err));
            for (int r = 0; r < size; r++)
                if (hashes[r] != first)
                    return wrong(err, comm, "results differ in their bits");
        }
        if (shared) {
            tr_comm_free(comm, in);
            tr_comm_free(comm, out);
        } else {
            free(in);
            free(out);
        }
    }
    return TR_OK;
}

static void test_same_bits(void **state)
{
    (void)state;
    run_both(3, same_bits, NULL);
    run_both(4, same_bits, NULL);
}

/* ---- exchanges of changing sizes, one right after the other: what one call has published must not
 * be overwritten by the next while a slow member still reads it */

static uint64_t exchange_count(int call, int from, int to)
{
    return (uint64_t)((from * 7 + to * 3 + call * 5) % 11) * (call % 7 == 0 ? 20000 : 300);
}

static tr_status exchanges(tr_comm *comm, void *context, tr_error *err)
{
    enum { CALLS = 200, MOST = 4 * 10 * 20000 };
    (void)context;
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    uint8_t *send = calloc(2, MOST), *recv = send + MOST;
    tr_status status = TR_OK;
    for (int k = 0; status == TR_OK && k < CALLS; k++) {
        uint64_t send_counts[4], recv_counts[4];
        uint8_t *at = send;
        for (int i = 0; i < size; i++) {
            send_counts[i] = exchange_count(k, rank, i);
            recv_counts[i] = exchange_count(k, i, rank);
            memset(at, rank * 16 + i + k, send_counts[i]);
            at += send_counts[i];
        }
        tr_collective call = {.operation = TR_ALL_TO_ALL,
                              .dtype = TR_U8,
                              .send = send,
                              .recv = recv,
                              .send_counts = send_counts,
                              .recv_counts = recv_counts};
        status = tr_collective_run(tr_comm_world(comm), &call, err);
        at = recv;
        for (int i = 0; status == TR_OK && i < size; at += recv_counts[i++])
            for (uint64_t j = 0; status == TR_OK && j < recv_counts[i]; j++)
                if (at[j] != (uint8_t)(i * 16 + rank + k))
                    status = wrong(err, comm, "an exchange brought something else");
    }
    free(send);
    return status;
}

/* By every distance, in both directions, in blocks of different sizes, of which some are empty; and
 * one message each at most, of just these bytes. */
static tr_status shifts(tr_comm *comm, void *context, tr_error *err)
{
    enum { MOST = 5000 };
    (void)context;
    int rank = tr_comm_rank(comm), size = tr_comm_size(comm);
    int32_t send[MOST], recv[MOST + 1];
    for (int d = -size; d <= size; d++) {
        int from = ((rank - d) % size + size) % size;
        uint64_t sent = (uint64_t)(rank * 1700 % MOST), got = (uint64_t)(from * 1700 % MOST);
        for (uint64_t i = 0; i < sent; i++)
            send[i] = rank * MOST + (int32_t)i;
        recv[got] = -1;
        tr_comm_counters before = tr_comm_read_counters(comm);
        TRI_TRY(tr_shift(tr_comm_world(comm), send, sent, recv, got, TR_I32, d, err));
        tr_comm_counters after = tr_comm_read_counters(comm);
        for (uint64_t i = 0; i < got; i++)
            if (recv[i] != from * MOST + (int32_t)i)
                return wrong(err, comm, "a shift brought something else");
        uint64_t moved = from == rank ? 0 : 4 * sent;
        if (recv[got] != -1 || after.bytes_sent - before.bytes_sent != moved ||
            after.messages_sent - before.messages_sent > (moved > 0))
            return wrong(err, comm, "a shift moved something else");
    }
    return TR_OK;
}

static void test_shifts(void **state)
{
    (void)state;
    const tr_comm_options tcp = {.transport = "tcp"};
    tr_error err = {0};
    for (int size = 1; size <= 5; size += 2) {
        run_both(size, shifts, NULL);
        if (tr_comm_spawn(size, &tcp, shifts, NULL, &err) != TR_OK)
            fail_msg("%s", err.message);
    }
}

static void test_exchanges(void **state)
{
    (void)state;
    run_both(2, exchanges, NULL);
    run_both(4, exchanges, NULL);
}

/* ---- wrong use */

static tr_status wrong_use(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    tr_group *world = tr_comm_world(comm);
    float x = 0;
    tr_error detail = {0};
    if (tr_broadcast(world, &x, 1, TR_F32, 5, &detail) != TR_ERROR_INPUT ||
        tr_all_reduce(world, &x, &x, 4, TR_U8, TR_SUM, &detail) != TR_ERROR_INPUT ||
        tr_all_reduce(world, NULL, &x, 1, TR_F32, TR_SUM, &detail) != TR_ERROR_INPUT ||
        tr_send(comm, 2, &x, 4, &detail) != TR_ERROR_INPUT ||
        tr_signal(comm, 0, 8, 1, &detail) != TR_ERROR_INPUT)
        return wrong(err, comm, "wrong use was accepted");
    tr_collective call = {.operation = TR_BARRIER, .algorithm = "carrier pigeon"};
    if (tr_collective_run(world, &call, &detail) != TR_ERROR_INPUT)
        return wrong(err, comm, "an unknown algorithm was accepted");
    call = (tr_collective){.operation = TR_ALL_TO_ALL,
                           .send = &x,
                           .recv = &x,
                           .send_counts = (uint64_t[2]){1, 2},
                           .recv_counts = (uint64_t[2]){1, 1},
                           .room = 1};
    if (tr_collective_run(world, &call, &detail) != TR_ERROR_INPUT ||
        !strstr(detail.message, "room of 1"))
        return wrong(err, comm, "a block that is larger than its room was accepted");
    return tr_all_reduce(world, &x, &x, 1, TR_F32, TR_SUM, err); /* and all still works */
}

static void test_wrong_use(void **state)
{
    (void)state;
    run_both(2, wrong_use, NULL);
    tr_error err = {0};
    assert_int_equal(tr_comm_spawn(0, NULL, wrong_use, NULL, &err), TR_ERROR_INPUT);
}

static tr_status first_all_reduce(tr_comm *comm, void *context, tr_error *err)
{
    (void)context;
    float x = 1;
    TRI_TRY(tr_all_reduce(tr_comm_world(comm), &x, &x, 1, TR_F32, TR_SUM, err));
    return x == 4 ? TR_OK : wrong(err, comm, "wrong sum");
}

/* Ranks that start, talk at once and end, again and again. */
static void test_start_up(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        tr_error err = {0};
        if (tr_comm_spawn(4, NULL, first_all_reduce, NULL, &err) != TR_OK)
            fail_msg("%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),  cmocka_unit_test(test_groups),
        cmocka_unit_test(test_overlap),   cmocka_unit_test(test_counters),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_shifts),    cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_start_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
