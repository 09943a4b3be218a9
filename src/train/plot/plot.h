/* Curves of runs: what is drawn, whatever it is drawn on. */
#ifndef TRI_TRAIN_PLOT_PLOT_H
#define TRI_TRAIN_PLOT_PLOT_H

#include "base/draw/ruler.h"
#include "base/text.h"
#include "train/log/run_curve.h"

typedef enum tri_plot_x { TRI_PLOT_STEPS, TRI_PLOT_TOKENS, TRI_PLOT_HOURS } tri_plot_x;
typedef enum tri_plot_y {
    TRI_PLOT_LOSS,
    TRI_PLOT_EVAL_LOSS,
    TRI_PLOT_LR,
    TRI_PLOT_GRAD_NORM,
    TRI_PLOT_SPEED
} tri_plot_y;

/* A point without y is a gap. */
typedef struct tri_plot_point {
    double x, y;
} tri_plot_point;

typedef struct tri_plot_curve {
    const char *name;       /* the caller's */
    tri_plot_point *points; /* by x */
    double *means;          /* of each point and those before it; NULL without smoothing */
    size_t num;
    bool dots; /* no line joins its points */
} tri_plot_curve;

typedef struct tri_plot {
    tri_plot_curve *curves;
    int num;
    tri_plot_x x;
    const char *x_title; /* of the caller's own points; NULL: that of x */
    bool log_x;
    tri_plot_y y;   /* of the axis; curves may have others on the same scale */
    int64_t smooth; /* points in a mean; 1: none */
    bool log;
    tri_ruler axis_x, axis_y;
} tri_plot;

/* Adds the lines of a run that have what is drawn: a line without it is left out of eval_loss, and
 * a gap otherwise. Wrong input when there is nothing to draw. */
tr_status tri_plot_add(tri_plot *plot, const char *name, tri_plot_y y, const tri_run_curve *run,
                       tr_error *err);
/* The same with points of the caller's own, by x; they are copied. */
tr_status tri_plot_add_points(tri_plot *plot, const char *name, const tri_plot_point *points,
                              size_t num, bool dots, tr_error *err);
/* Takes back a curve that had nothing to draw. */
void tri_plot_drop_last(tri_plot *plot);
/* When all are there: the axes, with about so many marks each. */
tr_status tri_plot_fit(tri_plot *plot, int marks_x, int marks_y, tr_error *err);
void tri_plot_free(tri_plot *plot);

/* At most two points for each of `buckets` stretches of the x axis, the least and the greatest of
 * it in their order, so that no peak is lost; out has room for 2 * buckets. Returns how many. */
size_t tri_plot_reduce(const tri_plot *plot, const tri_plot_curve *curve, bool means, int buckets,
                       tri_plot_point *out);

const char *tri_plot_x_title(tri_plot_x x);
const char *tri_plot_y_title(tri_plot_y y);

/* plot_svg.c: a picture; its first bytes say that it is one of ours. */
#define TRI_PLOT_SVG_MARK "<!-- drawn by trireme plot -->"
/* A picture replaces an older picture, and nothing else: wrong input otherwise. */
tr_status tri_plot_may_save(const char *path, tr_error *err);
/* Fits and draws it into a file, as far as it may. */
tr_status tri_plot_save(tri_plot *plot, const char *path, tr_error *err);
/* plot_dots.c: a curve of dots in a terminal, so many lines high, in colours or one below the
 * other.
 */
enum { TRI_PLOT_LINES = 15 }; /* at most */
tr_status tri_plot_dots(const tri_plot *plot, int width, int lines, bool colour, tri_text *text,
                        tr_error *err);

#endif
