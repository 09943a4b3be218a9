/* How much longer a step takes on the slowest of many devices. Every device needs a little more or
 * less than the mean, some always need more, and a step ends when the last of them is there. */
#ifndef TRI_SIM_WHOLE_RUN_SLOWEST_H
#define TRI_SIM_WHOLE_RUN_SLOWEST_H

#include <stdbool.h>

/* Of the time of a step on one device over its mean. The tail is what counts: in that order the
 * slowest of many is further out. */
typedef enum tri_jitter_law {
    TRI_JITTER_NORMAL,
    TRI_JITTER_LOGNORMAL,
    TRI_JITTER_EXPONENTIAL, /* 1 - d at least, and from there an exponential time of mean d */
    TRI_NUM_JITTER_LAWS
} tri_jitter_law;

typedef struct tri_jitter {
    tri_jitter_law law;
    double deviation;  /* of a step on one device, as a share of its mean; 0 to 0.5 */
    double slow_share; /* of the devices, each by chance, which are slow in every step */
    double slow_by;    /* and take this share longer */
} tri_jitter;

const char *tri_jitter_name(tri_jitter_law law);

/* The mean of the largest of num_devices independent times, where 1 is the mean of one device that
 * is not slow; by integration over the law of the largest, whatever the number. */
double tri_jitter_slowest(const tri_jitter *jitter, double num_devices);

#endif
