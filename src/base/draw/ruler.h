/* Axes of pictures: from where to where, with marks at round numbers. */
#ifndef TRI_BASE_DRAW_RULER_H
#define TRI_BASE_DRAW_RULER_H

#include <stdbool.h>

/* From low to high. With log both are logarithms. */
typedef struct tri_ruler {
    double low, high;
    bool log;
    double ticks[24]; /* values */
    int num_ticks;
} tri_ruler;

/* 1, 2 or 5 times a power of ten: the least that is at least this. */
double tri_ruler_step(double least);
/* With about so many marks. whole: the axis ends at marks. */
void tri_ruler_fit(tri_ruler *axis, double low, double high, int marks, bool whole);
/* Decades where there are several, with 1, 2 and 5 of each where there is room; else the marks of
 * an axis without logarithms. */
void tri_ruler_fit_log(tri_ruler *axis, double low, double high, int marks);
/* Where a value is on an axis, 0 to 1; NAN for one that a logarithm does not have. */
double tri_ruler_place(const tri_ruler *axis, double value);
char *tri_ruler_tick_text(double value, char text[32]); /* "20k", "0.5" */

#endif
