/* Sums that the GPU forms of its memory are those of the host. Needs a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "device/device.h"

enum { MOST = 3 << 20 };

static void test_sums_are_those_of_the_host(void **state)
{
    tri_device *gpu = *state;
    const tri_device_queue *queue = gpu->def->queue;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 4096, 65542, MOST - 3, MOST};
    unsigned char *bytes = queue->alloc_host(MOST), *there = gpu->def->alloc(MOST);
    uint64_t *parts = queue->alloc_host(TRI_DEVICE_SUM_PARTS * sizeof *parts);
    tr_error err = {0};
    assert_true(bytes && there && parts && queue->sum);
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    assert_int_equal(queue->upload(gpu, there, bytes, MOST, &err), TR_OK);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t sum = 0;
        assert_int_equal(queue->sum(gpu, there, sizes[i], parts, &err), TR_OK);
        assert_int_equal(queue->finish(gpu, &err), TR_OK);
        for (int k = 0; k < TRI_DEVICE_SUM_PARTS; k++)
            sum += parts[k];
        assert_true(sum == tri_sum_bytes(bytes, sizes[i]));
    }
    gpu->def->free(there, MOST);
    queue->free_host(bytes);
    queue->free_host(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_are_those_of_the_host)};
    tri_device gpu;
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    struct CMUnitTest with_state[1] = {tests[0]};
    with_state[0].initial_state = &gpu;
    int failed = cmocka_run_group_tests(with_state, NULL, NULL);
    tri_device_close(&gpu);
    return failed;
}
