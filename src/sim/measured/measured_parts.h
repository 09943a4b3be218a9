/* What the files of measured profiles share; see measured.h. */
#ifndef TRI_SIM_MEASURED_PARTS_H
#define TRI_SIM_MEASURED_PARTS_H

#include "sim/measured/measured.h"

/* Seconds of work by the fit of its row alone. */
double tri_measured_fit_of(const tri_measured_row *row, double flops, double bytes);
/* Seconds by the rates of large products and copies; the kind begins with the operands' type. */
double tri_measured_roof(const tri_measured *profile, const char *kind, double flops, double bytes);

#endif
