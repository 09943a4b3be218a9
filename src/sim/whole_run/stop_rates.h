/* How often devices stop runs, as published. */
#ifndef TRI_SIM_WHOLE_RUN_STOP_RATES_H
#define TRI_SIM_WHOLE_RUN_STOP_RATES_H

#include <stddef.h>

typedef struct tri_stop_rate {
    const char *name, *source;
    double num_stops, days, num_devices; /* so many in so many days on so many */
} tri_stop_rate;

/* The first is what to take where nothing is known. NULL behind the last, and for other names. */
const tri_stop_rate *tri_stop_rate_at(size_t i);
const tri_stop_rate *tri_stop_rate_find(const char *name);

/* Seconds from a stop that one device causes to the next. */
double tri_stop_rate_mtbf(const tri_stop_rate *rate);

#endif
