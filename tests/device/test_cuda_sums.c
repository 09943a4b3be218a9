/* Sums that the GPU forms of its memory are those of the host, wherever they begin; and what it
 * clears is zeros, and no byte beside it. Needs a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static uint64_t sum_from(uint64_t first, const unsigned char *bytes, size_t num)
{
    unsigned char last[8] = {0};
    memcpy(last, bytes + num / 8 * 8, num % 8);
    return tri_sum_words(first, bytes, num / 8) + tri_sum_words(first + num / 8, last, num % 8 > 0);
}

static void test_sums_and_zeros_anywhere(void **state)
{
    tri_device *gpu = *state;
    const tri_device_queue *queue = gpu->def->queue;
    static const size_t sizes[] = {0, 1, 7, 8, 9, 15, 17, 4098, 65542, 1 << 20, MOST - 31};
    unsigned char *bytes = queue->alloc_host(MOST), *there = gpu->def->alloc(MOST),
                  *back = queue->alloc_host(MOST);
    uint64_t *word = gpu->def->alloc(sizeof *word), *sum = queue->alloc_host(sizeof *sum);
    tr_error err = {0};
    assert_true(bytes && there && back && word && sum && queue->add_sum && queue->clear);
    for (size_t i = 0; i < MOST; i++)
        bytes[i] = (unsigned char)((i * 2654435761u >> 13) | 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t begin = 0; begin < 17; begin++) {
            size_t size = sizes[i];
            uint64_t first = (uint64_t)begin << 44;
            assert_int_equal(queue->upload(gpu, there, bytes, MOST, &err), TR_OK);
            assert_int_equal(queue->clear(gpu, word, sizeof *word, &err), TR_OK);
            assert_int_equal(queue->add_sum(gpu, there + begin, size, first, word, &err), TR_OK);
            assert_int_equal(queue->add_sum(gpu, there, 24, 0, word, &err), TR_OK);
            assert_int_equal(queue->download(gpu, sum, word, sizeof *sum, &err), TR_OK);
            assert_int_equal(queue->clear(gpu, there + begin, size, &err), TR_OK);
            assert_int_equal(queue->download(gpu, back, there, MOST, &err), TR_OK);
            assert_int_equal(queue->finish(gpu, &err), TR_OK);
            assert_true(*sum == sum_from(first, bytes + begin, size) + tri_sum_bytes(bytes, 24));
            for (size_t k = 0; k < MOST; k++)
                if (back[k] != (k >= begin && k < begin + size ? 0 : bytes[k]))
                    fail_msg("%zu bytes from %zu: byte %zu is %u", size, begin, k, back[k]);
        }
    gpu->def->free(there, MOST);
    gpu->def->free(word, sizeof *word);
    queue->free_host(bytes);
    queue->free_host(back);
    queue->free_host(sum);
}

int main(void)
{
    struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_are_those_of_the_host),
                                 cmocka_unit_test(test_sums_and_zeros_anywhere)};
    tri_device gpu;
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tests[i].initial_state = &gpu;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tri_device_close(&gpu);
    return failed;
}
