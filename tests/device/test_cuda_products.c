/* Large products of the GPU: measured, kept in a file, and found again by another run. */
#include "temp_dir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "device/device.h"

#ifdef TRI_CUDA

#include "base/half.h"
#include "device/cuda/blas/blas_plan.h"

enum { M = 4096, N = 1152, K = 512, RESULT_BYTES = M * N * 4 };

typedef struct kind {
    const char *name;
    tri_epilogue epilogue;
    bool trans_a, trans_b;
    tri_dtype out;
} kind;

static const kind kinds[] = {
    {"plain", TRI_EPILOGUE_NONE, true, false, TRI_F32},
    {"bias", TRI_EPILOGUE_BIAS, false, true, TRI_BF16},
    {"bias and GELU", TRI_EPILOGUE_BIAS_GELU, false, true, TRI_BF16},
    {"gradient of GELU", TRI_EPILOGUE_GELU_GRAD, false, false, TRI_BF16},
    {"sum", TRI_EPILOGUE_ADD, false, false, TRI_BF16},
};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

static void must(tr_status status, const tr_error *err)
{
    if (status != TR_OK)
        fail_msg("%s", err->message);
}

/* ---- a device with operands ---- */

typedef struct bench {
    tri_device gpu;
    tri_cuda *cuda;
    unsigned char *operands; /* a, b, bias; then something of the result's shape, aux, the result */
    unsigned char *shaped;
} bench;

static void bench_init(bench *t, const char *tuning)
{
    tr_error err = {0};
    tri_device_config config = {.kind = "cuda", .tuning = tuning};
    *t = (bench){0};
    must(tri_device_open(&config, &t->gpu, &err), &err);
    must(t->gpu.def->queue->start(&t->gpu, 0, &err), &err);
    must(t->gpu.def->reserve_scratch(&t->gpu, TRI_CUDA_BLAS_WORKSPACE, &err), &err);
    t->cuda = t->gpu.state;
    size_t before = 2 * ((size_t)M * K + (size_t)K * N + 1024 + N);
    before = before / 256 * 256;
    t->operands = t->gpu.def->alloc(before + 3 * RESULT_BYTES);
    assert_non_null(t->operands);
    t->shaped = t->operands + before;
    tri_cuda_fill_noise(t->operands, (int64_t)(before / 2), TRI_BF16, t->cuda->stream);
}

static void bench_fini(bench *t)
{
    t->gpu.def->free(t->operands, 0);
    tri_device_close(&t->gpu);
}

static tri_cuda_product product_of(const bench *t, const kind *k)
{
    unsigned char *b = t->operands + 2 * (size_t)M * K;
    return (tri_cuda_product){
        .m = M,
        .n = N,
        .k = K,
        .a = t->operands,
        .b = b,
        .trans_a = k->trans_a,
        .trans_b = k->trans_b,
        .in = TRI_BF16,
        .out = k->out,
        .alpha = 0.05f,
        .epilogue = k->epilogue,
        .bias = b + 2 * (size_t)K * N,
        .c = t->shaped + 2 * RESULT_BYTES,
        .aux = k->epilogue == TRI_EPILOGUE_BIAS_GELU   ? t->shaped + RESULT_BYTES
               : k->epilogue == TRI_EPILOGUE_GELU_GRAD ? t->shaped
                                                       : NULL,
        .add = k->epilogue == TRI_EPILOGUE_ADD ? t->shaped : NULL,
    };
}

/* Runs it as it is done now; false when that is apart from its epilogue. */
static bool result_of(bench *t, const kind *k, unsigned char *result)
{
    tr_error err = {0};
    tri_cuda_product p = product_of(t, k), plain = p;
    plain.epilogue = TRI_EPILOGUE_NONE;
    tri_cuda_fill_noise(t->shaped, (int64_t)M * N, k->out, t->cuda->stream);
    bool whole = tri_cuda_blas_run(t->cuda, &p);
    if (!whole) {
        assert_true(tri_cuda_blas_run(t->cuda, &plain));
        tri_cuda_epilogue(t->cuda, &p);
    }
    size_t bytes = (size_t)M * N * tri_dtype_bytes(k->out);
    must(t->gpu.def->queue->download(&t->gpu, result, p.c, bytes, &err), &err);
    must(t->gpu.def->queue->finish(&t->gpu, &err), &err);
    return whole;
}

static void tune(bench *t, const kind *k)
{
    tri_cuda_product p = product_of(t, k);
    tri_cuda_blas_tune(t->cuda, &p);
    assert_true(tri_cuda_blas_is_tuned(t->cuda, &p));
}

static const tri_blas_plan *plan_of(const bench *t, const kind *k)
{
    tri_cuda_product p = product_of(t, k);
    return tri_cuda_blas_plan(t->cuda, &p);
}

static float element(const unsigned char *data, tri_dtype dtype, size_t i)
{
    return dtype == TRI_F32 ? ((const float *)data)[i]
                            : tri_bf16_to_f32(((const uint16_t *)data)[i]);
}

static void expect_close(const kind *k, const unsigned char *x, const unsigned char *y)
{
    float largest = 0, apart = 0;
    for (size_t i = 0; i < (size_t)M * N; i++) {
        float a = element(x, k->out, i), b = element(y, k->out, i);
        largest = fmaxf(largest, fabsf(a));
        apart = isnan(b) ? INFINITY : fmaxf(apart, fabsf(a - b));
    }
    if (!(apart <= (k->out == TRI_F32 ? 2e-5f : 0x1p-7f) * largest) || largest == 0)
        fail_msg("%s: a measured product is off by %g (largest %g)", k->name, (double)apart,
                 (double)largest);
}

/* ---- tests ---- */

static void measured_products_are_right(void **state)
{
    (void)state;
    bench t;
    bench_init(&t, NULL);
    unsigned char *before = malloc(RESULT_BYTES), *after = malloc(RESULT_BYTES);
    for (int i = 0; i < NUM_KINDS; i++) {
        assert_true(result_of(&t, &kinds[i], before));
        tune(&t, &kinds[i]);
        result_of(&t, &kinds[i], after);
        expect_close(&kinds[i], before, after);
    }
    free(before);
    free(after);
    bench_fini(&t);
}

static size_t num_new(const bench *t)
{
    size_t num = 0;
    for (size_t i = 0; i < t->cuda->blas->kept.num; i++)
        num += t->cuda->blas->kept.all[i].is_new;
    return num;
}

static void another_run_does_as_the_first(void **state)
{
    const char *path = temp_file(*state, "tuning.json");
    tr_error err = {0};
    bench t, u;
    unsigned char *first = malloc((size_t)NUM_KINDS * RESULT_BYTES), *again = malloc(RESULT_BYTES);
    bench_init(&t, path);
    double begin = tri_now_s();
    for (int i = 0; i < NUM_KINDS; i++) {
        tune(&t, &kinds[i]);
        result_of(&t, &kinds[i], first + (size_t)i * RESULT_BYTES);
    }
    double measuring = tri_now_s() - begin;
    assert_true(num_new(&t) >= NUM_KINDS);
    must(t.gpu.def->keep(&t.gpu, &err), &err);

    bench_init(&u, path);
    assert_int_equal(u.cuda->blas->kept.num, t.cuda->blas->kept.num);
    begin = tri_now_s();
    for (int i = 0; i < NUM_KINDS; i++) {
        tune(&u, &kinds[i]);
        const tri_blas_plan *then = plan_of(&t, &kinds[i]), *now = plan_of(&u, &kinds[i]);
        assert_int_equal(then->usable, now->usable);
        if (then->usable)
            assert_memory_equal(&then->algo, &now->algo, sizeof now->algo);
        result_of(&u, &kinds[i], again);
        assert_memory_equal(first + (size_t)i * RESULT_BYTES, again,
                            (size_t)M * N * tri_dtype_bytes(kinds[i].out));
    }
    printf("measured in %.3f s, found again in %.3f s\n", measuring, tri_now_s() - begin);
    assert_int_equal(num_new(&u), 0);
    bench_fini(&u);
    bench_fini(&t);
    free(first);
    free(again);
}

/* Numbers that the library does not know: measured again, and the file is mended. */
static void what_is_of_no_use_is_measured_again(void **state)
{
    const char *path = temp_file(*state, "damaged.json");
    tr_error err = {0};
    bench t;
    bench_init(&t, path);
    for (int i = 0; i < NUM_KINDS; i++)
        tune(&t, &kinds[i]);
    size_t num = t.cuda->blas->kept.num;
    for (size_t i = 0; i < num; i++)
        for (int n = 1; n < TRI_PRODUCT_NUMBERS; n++)
            t.cuda->blas->kept.all[i].number[n] = 60000 + (int64_t)i;
    must(t.gpu.def->keep(&t.gpu, &err), &err);
    bench_fini(&t);

    bench_init(&t, path);
    assert_int_equal(num_new(&t), 0);
    for (int i = 0; i < NUM_KINDS; i++)
        tune(&t, &kinds[i]);
    assert_true(num_new(&t) >= 3); /* those apart from their epilogue have no numbers */
    must(t.gpu.def->keep(&t.gpu, &err), &err);
    bench_fini(&t);

    bench_init(&t, path);
    assert_int_equal(t.cuda->blas->kept.num, num);
    for (int i = 0; i < NUM_KINDS; i++)
        tune(&t, &kinds[i]);
    assert_int_equal(num_new(&t), 0);
    bench_fini(&t);
}

int main(void)
{
    tr_error err = {0};
    tri_device gpu;
    tri_device_config config = {.kind = "cuda"};
    if (tri_device_open(&config, &gpu, &err) != TR_OK ||
        gpu.def->queue->start(&gpu, 0, &err) != TR_OK) {
        printf("skipped: %s\n", err.message);
        return 77;
    }
    tri_device_close(&gpu);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_products_are_right),
        cmocka_unit_test(another_run_does_as_the_first),
        cmocka_unit_test(what_is_of_no_use_is_measured_again),
    };
    return cmocka_run_group_tests(tests, temp_dir_setup, temp_dir_teardown);
}

#else

int main(void)
{
    printf("skipped: this build has no CUDA (make CUDA=yes needs nvcc)\n");
    return 77;
}

#endif
