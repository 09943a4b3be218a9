/* Times of the same thing, measured several times. */
#ifndef TRI_BASE_SAMPLES_H
#define TRI_BASE_SAMPLES_H

#include <stddef.h>

/* The smallest first. */
void tri_samples_sort(double *samples, size_t num);

#endif
