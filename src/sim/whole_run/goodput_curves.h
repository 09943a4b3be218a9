/* A whole run over the interval between saves, and over the size of the cluster. */
#ifndef TRI_SIM_WHOLE_RUN_GOODPUT_CURVES_H
#define TRI_SIM_WHOLE_RUN_GOODPUT_CURVES_H

#include "base/text.h"
#include "sim/whole_run/goodput.h"

enum { TRI_GOODPUT_POINTS = 49, TRI_GOODPUT_MOST_DEVICES = 100000 };

/* Intervals that cannot be, and sizes at which a run would hardly ever end, are left out. Both
 * return the number of points, from small to large. */
int tri_goodput_over_intervals(const tri_goodput_case *c, tri_goodput points[TRI_GOODPUT_POINTS]);
/* The same work on 1, 2, 5, 10, ... devices up to 100,000, or to those of the case where it has
 * more, and on these; each with its own best interval. */
int tri_goodput_over_sizes(const tri_goodput_case *c, tri_goodput points[TRI_GOODPUT_POINTS]);

/* What a picture begins with. */
extern const char tri_goodput_mark[];
/* Both curves as SVG, with the best interval marked, and that of the case where it is another. */
tr_status tri_goodput_draw(const tri_goodput_case *c, tri_text *text, tr_error *err);

#endif
