/* What is decided about calls on a GPU before there is one: which operands its kernels take, and
 * how much scratch attention by cuDNN may use. Needs no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "device/device.h"

#ifdef TRI_CUDA

#include "device/cuda/dnn/dnn.h"

static tri_tensor tensor(tri_dtype dtype, int rank, const int64_t *size)
{
    tri_tensor t = {.dtype = dtype, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        t.size[d] = t.global[d] = size[d];
        t.count *= size[d];
    }
    return t;
}

static tri_call_plan plan_of(tri_op op, int64_t width)
{
    tri_device device;
    tr_error err;
    tri_device_config config = {.kind = "cuda"};
    assert_int_equal(tri_device_open(&config, &device, &err), TR_OK);
    tri_attr attr = {.attention = {.alpha = 0.1f, .causal = true}};
    tri_kernel_args args = {.attr = &attr, .num_in = 10, .num_out = 1, .device = device.state};
    args.in[op == TRI_OP_ATTENTION_GRAD] = tensor(TRI_BF16, 5, (int64_t[]){2, 64, 3, 2, width});
    tri_call_plan plan = tri_device_plan_call(&device, op, &args);
    tri_device_close(&device);
    return plan;
}

static void test_wide_heads_run_on_the_host(void **state)
{
    (void)state;
    for (tri_op op = TRI_OP_ATTENTION; op <= TRI_OP_ATTENTION_GRAD; op++) {
        assert_false(plan_of(op, 64).on_host);
        assert_false(plan_of(op, 256).on_host);
        assert_true(plan_of(op, 257).on_host);
        assert_true(plan_of(op, 320).widened);
    }
}

static tri_cuda_sdpa gpt2(void)
{
    return (tri_cuda_sdpa){.causal = true,
                           .dtype = TRI_BF16,
                           .num_batch = 64,
                           .num_pos = 1024,
                           .heads = 12,
                           .key_heads = 12,
                           .width = 64,
                           .q_step = 3 * 768,
                           .k_step = 3 * 768,
                           .o_step = 768,
                           .alpha = 0.125f};
}

/* cuDNN 9.14 and 9.19 ask for these bytes on an H200, beside delta (and dq in f32). */
static void test_scratch_has_room_for_cudnn(void **state)
{
    (void)state;
    tri_cuda_sdpa c = gpt2();
    size_t delta = (size_t)64 * 12 * 1024 * 4;
    assert_true(tri_cuda_dnn_scratch(&c) >= 256);
    c.grad = true;
    assert_true(tri_cuda_dnn_scratch(&c) >= delta + 1610612992u);
    c.any_order = true;
    assert_true(tri_cuda_dnn_scratch(&c) >= delta * 65 + 256);
    assert_true(tri_cuda_dnn_scratch(&c) < 256u << 20);
    tri_cuda_sdpa shared = c;
    shared.any_order = false;
    shared.num_batch = 4;
    shared.num_pos = 2048;
    shared.heads = 32;
    shared.key_heads = 8;
    shared.width = 128;
    assert_true(tri_cuda_dnn_scratch(&shared) >= (size_t)4 * 32 * 2048 * 4 + 1207959808u);
}

static void test_what_cudnn_is_not_asked_for(void **state)
{
    (void)state;
    tri_cuda_sdpa c = gpt2();
    c.dtype = TRI_F32;
    assert_int_equal(tri_cuda_dnn_scratch(&c), 0);
    c = gpt2();
    c.width = 60;
    assert_int_equal(tri_cuda_dnn_scratch(&c), 0);
    c = gpt2();
    c.num_pos = 32;
    assert_int_equal(tri_cuda_dnn_scratch(&c), 0);
    c = gpt2();
    c.alpha = 0;
    assert_int_equal(tri_cuda_dnn_scratch(&c), 0);
    c = gpt2();
    c.grad = true;
    c.num_pos = 8192; /* dS alone would take 96 GiB */
    assert_int_equal(tri_cuda_dnn_scratch(&c), 0);
    c.any_order = true;
    assert_true(tri_cuda_dnn_scratch(&c) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_heads_run_on_the_host),
        cmocka_unit_test(test_scratch_has_room_for_cudnn),
        cmocka_unit_test(test_what_cudnn_is_not_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0;
}

#endif
