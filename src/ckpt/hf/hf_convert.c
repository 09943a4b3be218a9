/* Elements of files to fp32. Tensors lie at any address, so they are read with memcpy. */
#include <string.h>

#include "base/half.h"

#include "ckpt/hf/hf_parts.h"

bool tri_hf_can_widen(tri_dtype dtype)
{
    return dtype == TRI_F32 || dtype == TRI_F16 || dtype == TRI_BF16;
}

static float element(tri_dtype dtype, const unsigned char *from, size_t i)
{
    float value;
    uint16_t half;
    if (dtype == TRI_F32) {
        memcpy(&value, from + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, from + i * sizeof half, sizeof half);
    return dtype == TRI_F16 ? tri_f16_to_f32(half) : tri_bf16_to_f32(half);
}

void tri_hf_widen(tri_dtype dtype, const void *from, float *to, size_t count)
{
    if (dtype == TRI_F32 && count > 0)
        memcpy(to, from, count * sizeof *to);
    for (size_t i = 0; dtype != TRI_F32 && i < count; i++)
        to[i] = element(dtype, from, i);
}

void tri_hf_widen_transposed(tri_dtype dtype, const void *from, float *to, size_t rows, size_t cols)
{
    enum { BLOCK = 64 }; /* rows whose lines stay in the cache while they are filled */
    for (size_t first = 0; first < rows; first += BLOCK) {
        size_t end = first + BLOCK < rows ? first + BLOCK : rows;
        for (size_t c = 0; c < cols; c++)
            for (size_t r = first; r < end; r++)
                to[r * cols + c] = element(dtype, from, c * rows + r);
    }
}

void tri_hf_widen_lines(tri_dtype dtype, const void *from, int64_t rows, const tri_hf_line *lines,
                        int num)
{
    int64_t begin = INT64_MAX, end = 0;
    for (int i = 0; i < num; i++) {
        begin = lines[i].begin < begin ? lines[i].begin : begin;
        end = lines[i].end > end ? lines[i].end : end;
    }
    for (int64_t c = begin; c < end; c++)
        for (int i = 0; i < num; i++)
            if (c >= lines[i].begin && c < lines[i].end)
                lines[i].to[c - lines[i].begin] =
                    element(dtype, from, (size_t)(c * rows + lines[i].row));
}
