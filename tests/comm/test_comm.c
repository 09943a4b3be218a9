/* Every operation, by every algorithm, type, reduction, size and kind of memory, over threads and
 * over processes, which share memory or talk over tcp. A seeded part of the product; a quarter of
 * it with TRIREME_TEST_FULL=1, the whole with =whole. */
#include "comm_cases.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Nothing, one, odd, not divisible, beyond the small path, beyond a slot. */
static const uint64_t counts[] = {0, 1, 7, 1000, 20011, 300007};

#define NUM_COUNTS (sizeof counts / sizeof *counts)

struct plan {
    uint32_t one_in; /* how many of the cases are run */
    uint64_t largest;
    const char *transport; /* NULL: shared memory */
};

static uint32_t hash32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* Case number n of the product; false when the number is past the end. */
static bool case_at(uint32_t n, int size, comm_case *c)
{
    c->operation = (tr_operation)(n % TRI_NUM_COLLS), n /= TRI_NUM_COLLS;
    c->reduction = (tr_reduction)(n % TRI_NUM_REDUCTIONS), n /= TRI_NUM_REDUCTIONS;
    c->dtype = (tr_dtype)(n % (TR_U8 + 1)), n /= TR_U8 + 1; /* those that travel */
    uint32_t num_algorithms = 0;
    while (tri_algorithm_at(num_algorithms) != NULL)
        num_algorithms++;
    c->algorithm = tri_algorithm_at(n % num_algorithms)->name, n /= num_algorithms;
    c->count = counts[n % NUM_COUNTS], n /= NUM_COUNTS;
    c->memory = (comm_memory)(n % NUM_MEMORIES), n /= NUM_MEMORIES;
    c->in_place = n % 2, n /= 2;
    c->varying = n % 2, n /= 2;
    c->root = (int)(hash32(n + (uint32_t)c->count) % (uint32_t)size);
    c->rooms = c->varying && c->operation == TR_ALL_TO_ALL && c->in_place;
    c->in_place &= !c->rooms; /* which an all_to_all never is */
    c->started = (c->count + c->dtype) % 3 == 0;
    return n == 0;
}

static tr_status run_plan(tr_comm *comm, void *context, tr_error *err)
{
    const struct plan *plan = context;
    tr_group *world = tr_comm_world(comm);
    int size = tr_comm_size(comm);
    comm_buffers buffers;
    TRI_TRY(comm_buffers_init(&buffers, comm, (plan->largest + 64) * 2 * 8, err));
    tr_status status = TR_OK;
    comm_case c;
    for (uint32_t n = 0; status == TR_OK && case_at(n, size, &c); n++) {
        if (c.count > plan->largest || hash32(n * 31 + (uint32_t)size) % plan->one_in != 0)
            continue;
        if (c.count > 100000 && hash32(n) % 12 != 0)
            continue; /* one of these takes as long as all smaller ones */
        if (plan->transport != NULL && tri_algorithm_find(c.algorithm)->needs_shared_memory)
            c.algorithm = "auto";
        if (comm_case_valid(&c, size))
            status = comm_case_run(&buffers, world, &c, err);
    }
    comm_buffers_fini(&buffers);
    return status;
}

/* Of how many cases one is run. */
static uint32_t one_in(int size)
{
    const char *level = getenv("TRIREME_TEST_FULL");
    if (level != NULL)
        return strcmp(level, "whole") == 0 ? 1 : 4;
    return size <= 4 ? 80 : 320;
}

static void check(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s", err->message);
}

static void product(bool processes, const char *transport)
{
    for (int size = 1; size <= 9; size++) {
        struct plan plan = {
            .one_in = one_in(size), .largest = counts[NUM_COUNTS - 1], .transport = transport};
        tr_comm_options options = {.transport = transport};
        tr_error err = {0};
        tr_status status = processes ? tr_comm_spawn(size, &options, run_plan, &plan, &err)
                                     : tr_comm_run_threads(size, &options, run_plan, &plan, &err);
        check(status, &err);
    }
}

static void test_threads(void **state)
{
    (void)state;
    product(false, NULL);
}

static void test_processes(void **state)
{
    (void)state;
    product(true, NULL);
}

static void test_tcp(void **state)
{
    (void)state;
    product(true, "tcp");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
