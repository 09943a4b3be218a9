/* Arrays of narrow elements: with every instruction set each element is what the function for one
 * element says, at any length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/float8.h"
#include "base/rng.h"
#include "device/cpu/convert.h"

#include <stdlib.h>

enum { NUM = 1 << 16, EXTRA = 37 };

static uint32_t widened(tri_dtype dtype, uint32_t narrow)
{
    float wide = dtype == TRI_BF16     ? tri_bf16_to_f32((uint16_t)narrow)
                 : dtype == TRI_F16    ? tri_f16_to_f32((uint16_t)narrow)
                 : dtype == TRI_F8E4M3 ? tri_e4m3_to_f32((uint8_t)narrow)
                                       : tri_e5m2_to_f32((uint8_t)narrow);
    return tri_bits_of(wide);
}

static uint32_t narrowed(tri_dtype dtype, float wide)
{
    return dtype == TRI_BF16     ? tri_f32_to_bf16(wide)
           : dtype == TRI_F16    ? tri_f32_to_f16(wide)
           : dtype == TRI_F8E4M3 ? tri_f32_to_e4m3(wide)
                                 : tri_f32_to_e5m2(wide);
}

static uint32_t element(tri_dtype dtype, const void *array, int64_t i)
{
    return tri_dtype_bytes(dtype) == 1 ? ((const uint8_t *)array)[i] : ((const uint16_t *)array)[i];
}

static void check(const tri_cpu_convert *convert, tri_dtype dtype, float *wide, uint16_t *narrow)
{
    int64_t num = tri_dtype_bytes(dtype) == 1 ? 256 : NUM;
    for (int64_t i = 0; i < num; i++)
        if (tri_dtype_bytes(dtype) == 1)
            ((uint8_t *)narrow)[i] = (uint8_t)i;
        else
            narrow[i] = (uint16_t)i;
    for (int64_t count = num; count > 0; count -= count > EXTRA ? count - EXTRA : 1) {
        wide[count] = 1.0f;
        convert->widen(dtype, narrow, wide, count);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(tri_bits_of(wide[i]), widened(dtype, (uint32_t)i));
        assert_true(wide[count] == 1.0f);
    }
    /* any bits, and then what lies where things happen: halfway between two narrow numbers */
    for (int64_t i = 0; i < NUM; i++)
        wide[i] = tri_f32_of(i % 2 ? tri_random_word(1, (uint64_t)i, 0, 0)
                                   : widened(dtype, (uint32_t)i % (uint32_t)num) +
                                         (tri_random_word(2, (uint64_t)i, 0, 0) & 0x108000u));
    convert->narrow(dtype, wide, narrow, NUM);
    for (int64_t i = 0; i < NUM; i++)
        assert_int_equal(element(dtype, narrow, i), narrowed(dtype, wide[i]));
    if (tri_dtype_bytes(dtype) == 1)
        return;
    convert->copy(dtype, wide, narrow, NUM);
    for (int64_t i = 0; i < NUM; i++)
        assert_int_equal(narrow[i], dtype == TRI_BF16 ? tri_weight_to_bf16(wide[i])
                                                      : narrowed(dtype, wide[i]));
}

static void every_element_is_converted_alike(void **state)
{
    (void)state;
    static const tri_dtype types[] = {TRI_BF16, TRI_F16, TRI_F8E4M3, TRI_F8E5M2};
    float *wide = malloc((NUM + 1) * sizeof *wide);
    uint16_t *narrow = malloc(NUM * sizeof *narrow);
    assert_true(wide && narrow);
    for (int isa = 0; isa <= (int)tri_isa_detect(); isa++)
        for (int t = 0; t < 4; t++)
            check(tri_cpu_convert_for((tri_isa)isa), types[t], wide, narrow);
    free(wide);
    free(narrow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_element_is_converted_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
