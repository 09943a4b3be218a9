/* Numbers of ranks as grids, for algorithms that work along dims. */
#include "collective/rounds.h"

/* The largest divisor that is not above the square root; 1 for primes. */
static int small_factor(int n)
{
    int best = 1;
    for (int f = 2; f * f <= n; f++)
        if (n % f == 0)
            best = f;
    return best;
}

/* Into three: the middle one decides; the most equal triple wins. */
static bool three_factors(int n, int dim[TRI_COLL_MAX_DIMS])
{
    for (int least = 1; least * least * least <= n; least++) {
        int rest = n / least, other = least > 1 && n % least == 0 ? small_factor(rest) : 1;
        if (other < 2)
            continue;
        /* Of larger `least`, later ones are more equal. */
        dim[0] = rest / other;
        dim[1] = other;
        dim[2] = least;
        if (dim[1] < dim[2]) {
            dim[1] = least;
            dim[2] = other;
        }
    }
    return dim[0] > 1;
}

bool tri_shape_dims(const tri_coll_shape *shape, int num_dims, int dim[TRI_COLL_MAX_DIMS])
{
    for (int d = 0; d < TRI_COLL_MAX_DIMS; d++)
        dim[d] = 1;
    if (shape->num_dims == num_dims) {
        for (int d = 0; d < num_dims; d++)
            dim[d] = shape->dim[d];
        return true;
    }
    if (shape->size == 1)
        return true;
    if (num_dims == 3)
        return three_factors(shape->size, dim);
    dim[1] = small_factor(shape->size);
    dim[0] = shape->size / dim[1];
    return dim[1] > 1;
}
