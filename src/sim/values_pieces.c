/* Pieces of arrays, and their products. */
#include "sim/values_parts.h"

#include <stdio.h>
#include <string.h>

int tri_value_coordinate(const tri_calc *calc, int rank, int axis)
{
    for (int a = calc->num_axes - 1; a > axis; a--)
        rank /= calc->axes[a].size;
    return rank % calc->axes[axis].size;
}

void tri_values_device(const tri_calc *calc, int rank, char out[80])
{
    int at = 0;
    out[0] = 0;
    for (int a = 0; a < calc->num_axes && at < 60; a++)
        at += snprintf(out + at, 80 - (size_t)at, "%s%s%d", a ? " " : "", calc->axes[a].name,
                       tri_value_coordinate(calc, rank, a));
}

tri_value_box tri_value_box_of(const tri_calc *calc, const tri_calc_array *array, int rank)
{
    tri_value_box box = {.rank = array->rank};
    for (int d = 0; d < array->rank; d++) {
        int shard = 0;
        for (int i = 0; i < array->dims[d].num_cuts; i++) {
            int axis = array->dims[d].cuts[i];
            shard = shard * calc->axes[axis].size + tri_value_coordinate(calc, rank, axis);
        }
        box.size[d] = tri_calc_piece(calc, &array->dims[d], shard, &box.begin[d]);
    }
    return box;
}

void tri_values_sizes(const tri_calc *calc, const tri_calc_array *array, int rank,
                      int64_t sizes[TRI_CALC_DIMS])
{
    tri_value_box box = tri_value_box_of(calc, array, rank);
    memcpy(sizes, box.size, sizeof box.size);
}

int64_t tri_value_count(const tri_value_box *box)
{
    int64_t count = 1;
    for (int d = 0; d < box->rank; d++)
        count *= box->size[d];
    return count;
}

int64_t tri_value_place(const tri_value_box *piece, const tri_value_box *part, int64_t i)
{
    int64_t place = 0, stride = 1;
    for (int d = piece->rank - 1; d >= 0; d--) {
        place += (part->begin[d] - piece->begin[d] + i % part->size[d]) * stride;
        i /= part->size[d];
        stride *= piece->size[d];
    }
    return place;
}

tri_value_box tri_value_box_all(const tri_calc *calc, const tri_calc_array *array)
{
    tri_value_box all = {.rank = array->rank};
    for (int d = 0; d < array->rank; d++)
        all.size[d] = calc->letters[array->dims[d].letter].size;
    return all;
}

/* Where an element of the result, with the contracted dims counted on, lies in an operand. */
static int64_t place_of(const tri_calc_array *array, const tri_value_box *box,
                        const int64_t at[TRI_CALC_LETTERS])
{
    int64_t place = 0;
    for (int d = 0; d < array->rank; d++)
        place = place * box->size[d] + at[array->dims[d].letter];
    return place;
}

/* at[] runs over the letters of c, then over those of both operands. */
void tri_value_multiply(const tri_calc_array *arrays[3], const tri_value_box boxes[3],
                        const int64_t *a, const int64_t *b, int64_t *c)
{
    int letters[2 * TRI_CALC_DIMS], num = 0;
    int64_t size[2 * TRI_CALC_DIMS], total = 1, at[TRI_CALC_LETTERS] = {0};
    for (int d = 0; d < arrays[2]->rank; d++) {
        letters[num] = arrays[2]->dims[d].letter;
        size[num++] = boxes[2].size[d];
    }
    for (int d = 0; d < arrays[0]->rank; d++)
        if (tri_calc_find_dim(arrays[1], arrays[0]->dims[d].letter) >= 0) {
            letters[num] = arrays[0]->dims[d].letter;
            size[num++] = boxes[0].size[d];
        }
    for (int i = 0; i < num; i++)
        total *= size[i];
    memset(c, 0, (size_t)tri_value_count(&boxes[2]) * sizeof *c);
    for (int64_t n = 0; n < total; n++) {
        int64_t rest = n;
        for (int i = num - 1; i >= 0; i--) {
            at[letters[i]] = rest % size[i];
            rest /= size[i];
        }
        c[place_of(arrays[2], &boxes[2], at)] +=
            a[place_of(arrays[0], &boxes[0], at)] * b[place_of(arrays[1], &boxes[1], at)];
    }
}
