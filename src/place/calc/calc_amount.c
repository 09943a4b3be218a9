/* Amounts: a number, or a number times letters whose sizes were not given. */
#include "place/calc/calc.h"

int tri_calc_devices(const tri_calc *calc, unsigned axes)
{
    int devices = 1;
    for (int a = 0; a < calc->num_axes; a++)
        if (axes & 1u << a)
            devices *= calc->axes[a].size;
    return devices;
}

int tri_calc_num_axes(unsigned axes)
{
    return __builtin_popcount(axes);
}

unsigned tri_calc_cut_axes(const tri_calc_array *array)
{
    unsigned axes = 0;
    for (int d = 0; d < array->rank; d++)
        for (int i = 0; i < array->dims[d].num_cuts; i++)
            axes |= 1u << array->dims[d].cuts[i];
    return axes;
}

int tri_calc_shards(const tri_calc *calc, const tri_calc_dim *dim)
{
    int shards = 1;
    for (int i = 0; i < dim->num_cuts; i++)
        shards *= calc->axes[dim->cuts[i]].size;
    return shards;
}

int64_t tri_calc_piece(const tri_calc *calc, const tri_calc_dim *dim, int shard, int64_t *begin)
{
    tri_grid grid = {.num_factors = calc->num_axes};
    tri_entries entries = {.num = (uint8_t)dim->num_cuts};
    int32_t coordinate[TRI_CALC_AXES] = {0};
    for (int i = dim->num_cuts - 1; i >= 0; i--) {
        int axis = dim->cuts[i], size = calc->axes[axis].size;
        grid.factor[axis].size = size;
        entries.set[i] = tri_factor_bit(axis);
        coordinate[axis] = shard % size;
        shard /= size;
    }
    tri_dim whole = {TRI_DIM_N, calc->letters[dim->letter].size};
    return tri_placement_piece(&grid, &entries, whole, coordinate, begin);
}

int64_t tri_calc_largest(const tri_calc *calc, const tri_calc_dim *dim)
{
    int64_t begin;
    return tri_calc_piece(calc, dim, 0, &begin); /* the first ones get one more */
}

tri_amount tri_amount_of(double num)
{
    return (tri_amount){.num = num, .den = 1};
}

tri_amount tri_amount_scaled(tri_amount amount, double num, double den)
{
    amount.num *= num;
    amount.den *= den;
    return amount;
}

bool tri_amount_known(const tri_amount *amount, double *value)
{
    for (int l = 0; l < TRI_CALC_LETTERS; l++)
        if (amount->power[l])
            return false;
    *value = amount->num / amount->den;
    return true;
}

bool tri_amount_alike(const tri_amount *a, const tri_amount *b)
{
    for (int l = 0; l < TRI_CALC_LETTERS; l++)
        if (a->power[l] != b->power[l])
            return false;
    return true;
}

tri_amount tri_calc_times_dim(const tri_calc *calc, tri_amount amount, const tri_calc_dim *dim)
{
    if (calc->letters[dim->letter].size > 0)
        return tri_amount_scaled(amount, (double)tri_calc_largest(calc, dim), 1);
    amount.power[dim->letter]++;
    return tri_amount_scaled(amount, 1, tri_calc_shards(calc, dim));
}

tri_amount tri_calc_elements(const tri_calc *calc, const tri_calc_array *array, bool whole)
{
    tri_amount amount = tri_amount_of(1);
    for (int d = 0; d < array->rank; d++) {
        tri_calc_dim dim = array->dims[d];
        if (whole)
            dim.num_cuts = 0;
        amount = tri_calc_times_dim(calc, amount, &dim);
    }
    return amount;
}

tri_amount tri_calc_bytes(const tri_calc *calc, const tri_calc_array *array, bool whole)
{
    return tri_amount_scaled(tri_calc_elements(calc, array, whole), calc->element_bytes, 1);
}
