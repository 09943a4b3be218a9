/* Which ranks are off, by figures that are given; and that ranks as threads measure something. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "fake_gpu.h"
#include "train/health/validate.h"
#include "trireme/comm.h"

enum { NUM = 6 };

/* Three ranks on each of two machines, a few percent apart. */
static void make_even(tri_validated all[NUM])
{
    for (int r = 0; r < NUM; r++) {
        double vary = 1 + 0.02 * (r % 3);
        all[r] = (tri_validated){.next = (r + 1) % NUM, .crosses = r % 3 == 2};
        all[r].figure[TRI_FIGURE_PRODUCT] = 5e10 * vary;
        all[r].figure[TRI_FIGURE_COPY] = 1e10 * vary;
        all[r].figure[TRI_FIGURE_TO_DEVICE] = 5e10 * vary;
        all[r].figure[TRI_FIGURE_TO_HOST] = 4e10 * vary;
        all[r].figure[TRI_FIGURE_LATENCY] = (all[r].crosses ? 2e-5 : 1e-6) * vary;
        all[r].figure[TRI_FIGURE_BANDWIDTH] = (all[r].crosses ? 1e9 : 8e9) * vary;
    }
}

static void even_ranks_are_fine(void **state)
{
    (void)state;
    tri_validated all[NUM];
    make_even(all);
    assert_int_equal(tri_validate_judge(all, NUM), 0);
    for (int num = 1; num < NUM; num++)
        assert_int_equal(tri_validate_judge(all, num), 0);
}

static void the_one_that_is_off_is_found(void **state)
{
    (void)state;
    for (int f = 0; f < TRI_NUM_FIGURES; f++)
        for (int r = 0; r < NUM; r++) {
            tri_validated all[NUM];
            make_even(all);
            all[r].figure[f] *= f == TRI_FIGURE_LATENCY ? 3 : 0.6;
            assert_int_equal(tri_validate_judge(all, NUM), 1);
            assert_int_equal(all[r].off, 1 << f);
        }
}

/* Of two, only the slower one: the other has nothing to be ashamed of. */
static void of_two_the_slower(void **state)
{
    (void)state;
    tri_validated all[NUM];
    make_even(all);
    all[1].figure[TRI_FIGURE_PRODUCT] *= 0.8;
    assert_int_equal(tri_validate_judge(all, 2), 1);
    assert_int_equal(all[0].off, 0);
    assert_int_equal(all[1].off, 1 << TRI_FIGURE_PRODUCT);
}

/* A device says which figures it has. Copies between host and device are measured where it has
 * memory of its own, and only there. */
static bool is_measured(const tri_device_def *def, int figure)
{
    switch (figure) {
    case TRI_FIGURE_PRODUCT:
        return def->peak_flops;
    case TRI_FIGURE_COPY:
        return def->peak_bytes;
    case TRI_FIGURE_TO_DEVICE:
    case TRI_FIGURE_TO_HOST:
        return def->queue;
    default:
        return true;
    }
}

/* context: whether the device has a queue. */
static tr_status measure(tr_comm *comm, void *context, tr_error *err)
{
    tri_validated all[3];
    tri_device device;
    tri_device_config config = {.kind = "cpu", .num_threads = 1, .isa = "auto"};
    fake_gpu *gpu = NULL;
    TRI_TRY(tri_device_open(&config, &device, err));
    const tri_device_def *opened = device.def;
    if (*(const bool *)context) {
        gpu = fake_gpu_create();
        device.def = &fake_gpu_def;
    }
    tr_status status = tri_validate(comm, &device, all, err);
    for (int r = 0; r < 3 && status == TR_OK; r++)
        for (int f = 0; f < TRI_NUM_FIGURES; f++)
            if ((all[r].figure[f] > 0) != is_measured(device.def, f) ||
                all[r].next != (r + 1) % 3 || all[r].crosses)
                status = tri_fail(err, TR_ERROR_RUNTIME, "rank %d: figure %d is %g", r, f,
                                  all[r].figure[f]);
    if (gpu)
        fake_gpu_destroy(gpu);
    device.def = opened;
    tri_device_close(&device);
    return status;
}

static void ranks_measure(void **state)
{
    (void)state;
    tr_error err = {0};
    tr_comm_options options = {.deadline_s = 300};
    for (int queue = 0; queue < 2; queue++) {
        bool has_queue = queue;
        if (tr_comm_run_threads(3, &options, measure, &has_queue, &err) != TR_OK)
            fail_msg("%s", err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_ranks_are_fine),
        cmocka_unit_test(the_one_that_is_off_is_found),
        cmocka_unit_test(of_two_the_slower),
        cmocka_unit_test(ranks_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
