#include "train/health/spike.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The spread is at least this share of the median: a loss that hardly moves is not a ruler. */
#define LEAST_SPREAD 0.01
/* Of normal noise, the deviation is so many times the median distance from the median. */
#define DEVIATION 1.4826

static int by_size(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double numbers[TRI_SPIKE_WINDOW])
{
    qsort(numbers, TRI_SPIKE_WINDOW, sizeof *numbers, by_size);
    return (numbers[TRI_SPIKE_WINDOW / 2 - 1] + numbers[TRI_SPIKE_WINDOW / 2]) / 2;
}

float tri_spikes_limit(const tri_spikes *s, double multiple)
{
    double numbers[TRI_SPIKE_WINDOW];
    if (multiple <= 0 || s->num < TRI_SPIKE_WINDOW)
        return INFINITY;
    for (int i = 0; i < TRI_SPIKE_WINDOW; i++)
        numbers[i] = (double)s->last[i];
    double middle = median(numbers);
    for (int i = 0; i < TRI_SPIKE_WINDOW; i++)
        numbers[i] = fabs((double)s->last[i] - middle);
    double spread = fmax(DEVIATION * median(numbers), LEAST_SPREAD * fabs(middle));
    double limit = middle + multiple * spread;
    return limit < (double)FLT_MAX ? (float)limit : INFINITY;
}

void tri_spikes_add(tri_spikes *s, float loss)
{
    if (s->num == TRI_SPIKE_WINDOW)
        memmove(s->last, s->last + 1, sizeof s->last - sizeof *s->last);
    else
        s->num++;
    s->last[s->num - 1] = loss;
}
