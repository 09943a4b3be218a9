/* Arrays of 16 and 8 bits made wide and narrow. The loops are apart, one for each type, with
 * nothing in them that a store could change: so they vectorise. */
#include "device/cpu/convert.h"
#include "base/float8.h"
#include "device/cpu/fast/fast.h"

#define CONVERSION(name, from_type, to_type, function)                                             \
    static void name(const from_type *restrict from, to_type *restrict to, int64_t count)          \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++)                                                        \
            to[i] = function(from[i]);                                                             \
    }
CONVERSION(widen_bf16, uint16_t, float, tri_bf16_to_f32)
CONVERSION(widen_f16, uint16_t, float, tri_f16_to_f32)
CONVERSION(widen_e4m3, uint8_t, float, tri_e4m3_to_f32)
CONVERSION(widen_e5m2, uint8_t, float, tri_e5m2_to_f32)
CONVERSION(narrow_bf16, float, uint16_t, tri_f32_to_bf16)
CONVERSION(copy_bf16, float, uint16_t, tri_weight_to_bf16)
CONVERSION(narrow_f16, float, uint16_t, tri_f32_to_f16)
CONVERSION(narrow_e4m3, float, uint8_t, tri_f32_to_e4m3)
CONVERSION(narrow_e5m2, float, uint8_t, tri_f32_to_e5m2)

static void widen(tri_dtype dtype, const void *narrow, float *wide, int64_t count)
{
    if (dtype == TRI_BF16)
        widen_bf16(narrow, wide, count);
    else if (dtype == TRI_F16)
        widen_f16(narrow, wide, count);
    else if (dtype == TRI_F8E4M3)
        widen_e4m3(narrow, wide, count);
    else
        widen_e5m2(narrow, wide, count);
}

static void narrow(tri_dtype dtype, const float *wide, void *narrow, int64_t count)
{
    if (dtype == TRI_BF16)
        narrow_bf16(wide, narrow, count);
    else if (dtype == TRI_F16)
        narrow_f16(wide, narrow, count);
    else if (dtype == TRI_F8E4M3)
        narrow_e4m3(wide, narrow, count);
    else
        narrow_e5m2(wide, narrow, count);
}

static void copy(tri_dtype dtype, const float *wide, void *narrow, int64_t count)
{
    if (dtype == TRI_BF16)
        copy_bf16(wide, narrow, count);
    else
        narrow_f16(wide, narrow, count);
}

const tri_cpu_convert TRI_ISA_NAME(tri_cpu_convert) = {widen, narrow, copy};
