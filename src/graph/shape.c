#include "graph/shape.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const letters[TRI_NUM_DIM_NAMES] = {
    [TRI_DIM_B] = "B", [TRI_DIM_T] = "T",     [TRI_DIM_D] = "D",       [TRI_DIM_H] = "H",
    [TRI_DIM_K] = "K", [TRI_DIM_F] = "F",     [TRI_DIM_V] = "V",       [TRI_DIM_P] = "P",
    [TRI_DIM_G] = "G", [TRI_DIM_QKV] = "qkv", [TRI_DIM_STAT] = "stat", [TRI_DIM_N] = "n",
    [TRI_DIM_E] = "E", [TRI_DIM_C] = "C",
};

const char *tri_dim_letter(tri_dim_name name)
{
    return letters[name];
}

tri_shape tri_shape_of(int rank, ...)
{
    tri_shape shape = {.rank = rank};
    va_list args;
    va_start(args, rank);
    for (int i = 0; i < rank; i++) {
        shape.dim[i].name = (tri_dim_name)va_arg(args, int);
        shape.dim[i].size = va_arg(args, int64_t);
    }
    va_end(args);
    return shape;
}

int64_t tri_shape_span(const tri_shape *shape, int from, int to)
{
    int64_t product = 1;
    for (int i = from; i < to; i++)
        product *= shape->dim[i].size;
    return product;
}

int64_t tri_shape_count(const tri_shape *shape)
{
    return tri_shape_span(shape, 0, shape->rank);
}

bool tri_shape_equal(const tri_shape *a, const tri_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i].name != b->dim[i].name || a->dim[i].size != b->dim[i].size)
            return false;
    return true;
}

char *tri_shape_text(const tri_shape *shape, char *text, size_t text_size)
{
    size_t used = (size_t)snprintf(text, text_size, "[");
    for (int i = 0; i < shape->rank && used < text_size; i++)
        used += (size_t)snprintf(text + used, text_size - used, "%s%s %lld", i ? ", " : "",
                                 letters[shape->dim[i].name], (long long)shape->dim[i].size);
    if (used < text_size)
        snprintf(text + used, text_size - used, "]");
    return text;
}
