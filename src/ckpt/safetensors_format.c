#include "ckpt/safetensors_format.h"

#include <string.h>

static const tri_safetensors_dtype DTYPES[] = {
    {"F32", 32, TRI_F32},
    {"BF16", 16, TRI_BF16},
    {"F16", 16, TRI_F16},
    {"I32", 32, TRI_I32},
    {"I64", 64, TRI_I64},
    {"U8", 8, TRI_U8},
    {"BOOL", 8, TRI_NUM_DTYPES},
    {"I8", 8, TRI_NUM_DTYPES},
    {"I16", 16, TRI_NUM_DTYPES},
    {"U16", 16, TRI_NUM_DTYPES},
    {"U32", 32, TRI_NUM_DTYPES},
    {"U64", 64, TRI_NUM_DTYPES},
    {"F64", 64, TRI_NUM_DTYPES},
    {"C64", 64, TRI_NUM_DTYPES},
    {"F8_E4M3", 8, TRI_NUM_DTYPES},
    {"F8_E5M2", 8, TRI_NUM_DTYPES},
    {"F8_E8M0", 8, TRI_NUM_DTYPES},
    {"F8_E4M3FNUZ", 8, TRI_NUM_DTYPES},
    {"F8_E5M2FNUZ", 8, TRI_NUM_DTYPES},
    {"F6_E2M3", 6, TRI_NUM_DTYPES},
    {"F6_E3M2", 6, TRI_NUM_DTYPES},
    {"F4", 4, TRI_NUM_DTYPES},
};
enum { NUM_DTYPES = sizeof DTYPES / sizeof DTYPES[0] };

const tri_safetensors_dtype *tri_safetensors_dtype_named(const char *text)
{
    for (int i = 0; i < NUM_DTYPES; i++)
        if (strcmp(DTYPES[i].text, text) == 0)
            return &DTYPES[i];
    return NULL;
}

const tri_safetensors_dtype *tri_safetensors_dtype_of(tri_dtype dtype)
{
    for (int i = 0; i < NUM_DTYPES && dtype != TRI_NUM_DTYPES; i++)
        if (DTYPES[i].dtype == dtype)
            return &DTYPES[i];
    return NULL;
}

bool tri_safetensors_bytes(const tri_safetensors_dtype *type, int num_dims, const int64_t *dim,
                           int64_t *bytes)
{
    int64_t count = 1, bits;
    for (int d = 0; d < num_dims; d++)
        if (__builtin_mul_overflow(count, dim[d], &count))
            return false;
    if (__builtin_mul_overflow(count, (int64_t)type->bits, &bits) || bits % 8 != 0)
        return false;
    *bytes = bits / 8;
    return true;
}
