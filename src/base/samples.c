#include "base/samples.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void tri_samples_sort(double *samples, size_t num)
{
    qsort(samples, num, sizeof *samples, ascending);
}
