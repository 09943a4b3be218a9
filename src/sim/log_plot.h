/* Curves over two logarithmic axes as a picture, SVG: time against size, speed against intensity.
 * Panels stand below each other; each has lines with names beside it. */
#ifndef TRI_SIM_LOG_PLOT_H
#define TRI_SIM_LOG_PLOT_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct tri_log_point {
    double x, y; /* above 0; others are left out */
} tri_log_point;

typedef struct tri_log_line {
    const char *name; /* lines of the same name have one colour, mark and place beside the panel */
    const tri_log_point *points;
    size_t num_points;
    bool dashed; /* thin and without marks: what was calculated */
    bool alone;  /* points without a line between them */
} tri_log_line;

typedef struct tri_log_panel {
    char title[120];
    const char *x_title, *y_title; /* x_title may be NULL */
    bool binary;                   /* x are bytes, and powers of 1024 have labels */
    const tri_log_line *lines;
    size_t num_lines;
    const char *note; /* below the names, or NULL */
} tri_log_panel;

void tri_log_plot(const tri_log_panel *panels, size_t num_panels, tri_text *text);

#endif
