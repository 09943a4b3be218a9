#include "sim/whole_run/slowest.h"

#include <math.h>
#include <stdlib.h>

enum { PANELS = 600 }; /* of Simpson's rule, between two of the places where the law changes */

const char *tri_jitter_name(tri_jitter_law law)
{
    static const char *const names[TRI_NUM_JITTER_LAWS] = {"normal", "lognormal", "exponential"};
    return names[law];
}

/* The logarithm's deviation of a lognormal time of mean 1. */
static double log_deviation(double deviation)
{
    return sqrt(log1p(deviation * deviation));
}

/* The chance that a device that is not slow takes longer than x. */
static double longer_than(const tri_jitter *j, double x)
{
    double d = j->deviation, s = log_deviation(d);
    if (j->law == TRI_JITTER_EXPONENTIAL)
        return x <= 1 - d ? 1 : exp(-(x - 1 + d) / d);
    if (j->law == TRI_JITTER_LOGNORMAL)
        return x <= 0 ? 1 : 0.5 * erfc((log(x) / s + 0.5 * s) * M_SQRT1_2);
    return 0.5 * erfc((x - 1) / d * M_SQRT1_2);
}

/* The chance that one of all devices does. */
static double any_longer_than(const tri_jitter *j, double num_devices, double x)
{
    double tail = (1 - j->slow_share) * longer_than(j, x) +
                  j->slow_share * longer_than(j, x / (1 + j->slow_by));
    return tail >= 1 ? 1 : -expm1(num_devices * log1p(-tail));
}

static double integrate(const tri_jitter *j, double num_devices, double from, double to)
{
    double width = (to - from) / PANELS, sum = 0;
    for (int i = 0; i <= 2 * PANELS; i++) {
        double weight = i == 0 || i == 2 * PANELS ? 1 : i % 2 ? 4 : 2;
        sum += weight * any_longer_than(j, num_devices, from + 0.5 * width * i);
    }
    return sum * width / 6;
}

/* Where a device may be, but for one in 10^19 of the devices. */
static void find_range(const tri_jitter *j, double num_devices, double *low, double *high)
{
    double d = j->deviation, s = log_deviation(d), far = log(num_devices) + 44;
    double z = sqrt(2 * far);
    *low = fmax(0, 1 - 9 * d);
    *high = 1 + z * d;
    if (j->law == TRI_JITTER_LOGNORMAL) {
        *low = exp(-9 * s);
        *high = exp(z * s);
    } else if (j->law == TRI_JITTER_EXPONENTIAL) {
        *low = 1 - d;
        *high = 1 - d + far * d;
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of a time is the integral of the chance that it is longer: 1 up to the least, and then
 * what falls off in places that are the ends and middles of both kinds of devices. */
double tri_jitter_slowest(const tri_jitter *j, double num_devices)
{
    double low, high, mean, slow = 1 + j->slow_by;
    if (j->deviation <= 0)
        return 1 - j->slow_by * expm1(num_devices * log1p(-fmin(j->slow_share, 1)));
    find_range(j, num_devices, &low, &high);
    double place[] = {low, 1, high, slow * low, slow, slow * high};
    size_t num = j->slow_share > 0 && j->slow_by > 0 ? 6 : 3;
    qsort(place, num, sizeof *place, ascending);
    mean = place[0];
    for (size_t i = 0; i + 1 < num; i++)
        if (place[i + 1] > place[i])
            mean += integrate(j, num_devices, place[i], place[i + 1]);
    return mean;
}
