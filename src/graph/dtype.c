#include "graph/dtype.h"

#include "graph/code.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[TRI_NUM_DTYPES] = {
    [TRI_F32] = {"f32", 4},     [TRI_BF16] = {"bf16", 2},   [TRI_F16] = {"f16", 2},
    [TRI_I32] = {"i32", 4},     [TRI_I64] = {"i64", 8},     [TRI_U8] = {"u8", 1},
    [TRI_F8E4M3] = {"e4m3", 1}, [TRI_F8E5M2] = {"e5m2", 1}, [TRI_Q8S] = {"q8s", 0},
    [TRI_Q8U] = {"q8u", 0},
};

const char *tri_dtype_name(tri_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t tri_dtype_bytes(tri_dtype dtype)
{
    return dtypes[dtype].bytes;
}

uint64_t tri_dtype_size(tri_dtype dtype, int64_t count)
{
    const tri_code *code = tri_dtype_code(dtype);
    if (!code)
        return (uint64_t)count * dtypes[dtype].bytes;
    return (uint64_t)((count + code->block - 1) / code->block) * code->block_bytes;
}

bool tri_dtype_is_float(tri_dtype dtype)
{
    return dtype == TRI_F32 || dtype == TRI_BF16 || dtype == TRI_F16 || tri_dtype_is_float8(dtype);
}

bool tri_dtype_is_float8(tri_dtype dtype)
{
    return dtype == TRI_F8E4M3 || dtype == TRI_F8E5M2;
}
