/* What MFU is a share of: the datasheet of a device that is known, otherwise what was measured. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/health/mfu.h"

static tri_mfu_base base_of(const char *description, tri_dtype dtype, bool tf32, double measured)
{
    tri_session *session = calloc(1, sizeof *session);
    assert_non_null(session);
    snprintf(session->device.description, sizeof session->device.description, "%s", description);
    session->config.compile.precision.compute = dtype;
    session->config.device.tf32 = tf32;
    tri_mfu_base base = tri_mfu_base_of(session, measured);
    free(session);
    return base;
}

static void known_devices(void **state)
{
    (void)state;
    static const struct {
        const char *description;
        tri_dtype dtype;
        bool tf32;
        double flops;
        const char *words;
    } rows[] = {
        {"cuda, NVIDIA H200, cuDNN", TRI_BF16, false, 989.5e12, "989.5 TFLOP/s (16-bit, dense)"},
        {"cuda, NVIDIA H200, cuDNN", TRI_F16, false, 989.5e12, "NVIDIA H200 SXM"},
        {"cuda, NVIDIA H200, tf32", TRI_F32, true, 494.5e12, "(tf32, dense)"},
        {"cuda, NVIDIA H200", TRI_F32, false, 67e12, "(f32, dense)"},
        {"cuda, NVIDIA A100-SXM4-80GB", TRI_BF16, false, 312e12, "the datasheet of NVIDIA A100"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        /* What was measured changes nothing. */
        tri_mfu_base base = base_of(rows[i].description, rows[i].dtype, rows[i].tf32, 1e12);
        assert_true(base.datasheet && base.flops == rows[i].flops);
        if (!strstr(base.words, rows[i].words))
            fail_msg("\"%s\" does not say \"%s\"", base.words, rows[i].words);
    }
}

static void others(void **state)
{
    (void)state;
    tri_mfu_base base = base_of("cpu, 2 threads, avx512", TRI_F32, false, 215e9);
    assert_true(!base.datasheet && base.flops == 215e9);
    assert_non_null(strstr(base.words, "215.0 GFLOP/s of a large product"));
    base = base_of("cuda, NVIDIA H300", TRI_BF16, false, 0); /* nothing is known */
    assert_true(!base.datasheet && base.flops == 0 && !base.words[0]);
    base = base_of("cuda, Tesla V100-SXM2-32GB", TRI_F32, true, 1e12); /* it has no tf32 */
    assert_true(!base.datasheet && base.flops == 1e12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_devices),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
