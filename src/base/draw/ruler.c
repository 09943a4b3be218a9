#include "base/draw/ruler.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

double tri_ruler_step(double least)
{
    double power = pow(10, floor(log10(least)));
    static const double factor[] = {1, 2, 5, 10};
    for (int i = 0; i < 3; i++)
        if (factor[i] * power >= least * (1 - 1e-9))
            return factor[i] * power;
    return 10 * power;
}

static void add_tick(tri_ruler *axis, double value)
{
    if (axis->num_ticks < (int)(sizeof axis->ticks / sizeof *axis->ticks))
        axis->ticks[axis->num_ticks++] = value;
}

void tri_ruler_fit(tri_ruler *axis, double low, double high, int marks, bool whole)
{
    if (!(high > low)) { /* a single value */
        double around = fabs(low) > 0 ? fabs(low) * 0.1 : 1;
        low -= around;
        high += around;
    }
    double step = tri_ruler_step((high - low) / marks);
    double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);
    *axis = (tri_ruler){.low = whole ? first * step : low, .high = whole ? last * step : high};
    for (double k = first; k <= last; k++)
        if (k * step >= axis->low - step * 1e-6 && k * step <= axis->high + step * 1e-6)
            add_tick(axis, k * step);
}

void tri_ruler_fit_log(tri_ruler *axis, double low, double high, int marks)
{
    double from = floor(log10(low)), to = ceil(log10(high));
    *axis = (tri_ruler){.low = log10(low), .high = log10(high), .log = true};
    if (!(axis->high > axis->low)) {
        axis->low -= 0.1;
        axis->high += 0.1;
    }
    if (high < 20 * low) {
        tri_ruler plain;
        tri_ruler_fit(&plain, low, high, marks, false);
        for (int i = 0; i < plain.num_ticks; i++)
            if (plain.ticks[i] > 0)
                add_tick(axis, plain.ticks[i]);
        return;
    }
    int every = (int)ceil((to - from) / marks);
    static const double factor[] = {1, 2, 5};
    for (double power = from; power <= to; power++)
        for (int i = 0; i < 3; i++) {
            double at = power + log10(factor[i]);
            bool shown = i == 0 ? fmod(power - from, every > 1 ? every : 1) == 0
                                : 3 * (to - from) <= marks + 3;
            if (shown && at >= axis->low - 1e-9 && at <= axis->high + 1e-9)
                add_tick(axis, pow(10, power) * factor[i]);
        }
}

double tri_ruler_place(const tri_ruler *axis, double value)
{
    if (axis->log)
        value = value > 0 ? log10(value) : NAN;
    return (value - axis->low) / (axis->high - axis->low);
}

char *tri_ruler_tick_text(double value, char text[32])
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e4, 1e3, "k"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (fabs(value) >= units[i].from) {
            snprintf(text, 32, "%g%s", value / units[i].unit, units[i].name);
            return text;
        }
    snprintf(text, 32, "%g", fabs(value) < 1e-300 ? 0 : value);
    return text;
}
