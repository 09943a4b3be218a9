#include "train/plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tri_plot_x_title(tri_plot_x x)
{
    static const char *const titles[] = {"steps", "tokens", "hours of steps"};
    return titles[x];
}

const char *tri_plot_y_title(tri_plot_y y)
{
    static const char *const titles[] = {"loss", "held-out loss", "learning rate", "gradient norm",
                                         "tokens/s"};
    return titles[y];
}

/* ---- points ---- */

static double y_of(const tri_metrics_line *line, tri_plot_y y)
{
    switch (y) {
    case TRI_PLOT_LOSS:
        return line->loss;
    case TRI_PLOT_EVAL_LOSS:
        return line->eval_loss;
    case TRI_PLOT_LR:
        return line->lr;
    case TRI_PLOT_GRAD_NORM:
        return line->grad_norm;
    case TRI_PLOT_SPEED:
        return line->tokens_per_s;
    }
    return NAN;
}

/* The mean of a point and up to smooth - 1 before it, of those that there are. */
static void add_means(tri_plot_curve *c, int64_t smooth)
{
    for (size_t i = 0, first = 0, num = 0; i < c->num; i++) {
        static const size_t again = 4096; /* so that rounding does not add up */
        double sum = i > 0 && i % again ? c->means[i - 1] * (double)num : 0;
        if (i - first == (size_t)smooth) {
            bool goes = isfinite(c->points[first].y);
            sum -= i % again && goes ? c->points[first].y : 0;
            num -= goes;
            first++;
        }
        if (i % again == 0)
            for (size_t k = first; k < i; k++)
                sum += isfinite(c->points[k].y) ? c->points[k].y : 0;
        if (isfinite(c->points[i].y)) {
            sum += c->points[i].y;
            num++;
        }
        c->means[i] = num > 0 ? sum / (double)num : 0;
    }
    for (size_t i = 0; i < c->num; i++)
        if (!isfinite(c->points[i].y))
            c->means[i] = NAN;
}

/* With room for so many points; NULL: there is no memory. */
static tri_plot_curve *new_curve(tri_plot *plot, const char *name, size_t num)
{
    tri_plot_curve *curves = realloc(plot->curves, ((size_t)plot->num + 1) * sizeof *curves);
    if (!curves)
        return NULL;
    plot->curves = curves;
    tri_plot_curve *c = &curves[plot->num++];
    *c = (tri_plot_curve){.name = name, .points = calloc(num + 1, sizeof *c->points)};
    if (plot->smooth > 1)
        c->means = calloc(num + 1, sizeof *c->means);
    return c->points && (plot->smooth <= 1 || c->means) ? c : NULL;
}

tr_status tri_plot_add(tri_plot *plot, const char *name, tri_plot_y what, const tri_run_curve *run,
                       tr_error *err)
{
    tri_plot_curve *c = new_curve(plot, name, run->num);
    if (!c)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a curve");
    double hours = 0;
    bool any = false;
    for (size_t i = 0; i < run->num; i++) {
        const tri_metrics_line *line = &run->lines[i];
        hours += line->step_ms > 0 ? line->step_ms / 3.6e6 : 0;
        double y = y_of(line, what);
        if ((plot->x == TRI_PLOT_TOKENS && line->tokens < 0) ||
            (what == TRI_PLOT_EVAL_LOSS && isnan(y)))
            continue;
        y = plot->log && !(y > 0) ? NAN : y;
        any |= isfinite(y);
        c->points[c->num++] = (tri_plot_point){plot->x == TRI_PLOT_STEPS    ? (double)line->step
                                               : plot->x == TRI_PLOT_TOKENS ? (double)line->tokens
                                                                            : hours,
                                               isfinite(y) ? y : NAN};
    }
    if (!any)
        return tri_fail(err, TR_ERROR_INPUT, "%s: its metrics.jsonl has no %s over %s to draw%s",
                        name, tri_plot_y_title(what), tri_plot_x_title(plot->x),
                        what == TRI_PLOT_EVAL_LOSS ? "; train.eval_every asks for evaluations"
                                                   : "");
    if (c->means)
        add_means(c, plot->smooth);
    return TR_OK;
}

tr_status tri_plot_add_points(tri_plot *plot, const char *name, const tri_plot_point *points,
                              size_t num, bool dots, tr_error *err)
{
    tri_plot_curve *c = new_curve(plot, name, num);
    if (!c)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a curve");
    memcpy(c->points, points, num * sizeof *points);
    c->num = num;
    c->dots = dots;
    return TR_OK;
}

void tri_plot_drop_last(tri_plot *plot)
{
    const tri_plot_curve *c = &plot->curves[--plot->num];
    free(c->points);
    free(c->means);
}

void tri_plot_free(tri_plot *plot)
{
    while (plot->num > 0)
        tri_plot_drop_last(plot);
    free(plot->curves);
    plot->curves = NULL;
}

/* ---- axes ---- */

tr_status tri_plot_fit(tri_plot *plot, int marks_x, int marks_y, tr_error *err)
{
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < plot->num; i++)
        for (size_t k = 0; k < plot->curves[i].num; k++) {
            const tri_plot_point *p = &plot->curves[i].points[k];
            if (isnan(p->y))
                continue;
            low[0] = fmin(low[0], p->x);
            high[0] = fmax(high[0], p->x);
            low[1] = fmin(low[1], p->y);
            high[1] = fmax(high[1], p->y);
        }
    if (!isfinite(high[0] - low[0]) || !isfinite(high[1] - low[1]))
        return tri_fail(err, TR_ERROR_INPUT, "the numbers are too large to be drawn; try --log");
    if (plot->log_x)
        tri_ruler_fit_log(&plot->axis_x, low[0], high[0], marks_x);
    else
        tri_ruler_fit(&plot->axis_x, low[0] < high[0] / 4 ? 0 : low[0], high[0], marks_x, false);
    if (plot->log)
        tri_ruler_fit_log(&plot->axis_y, low[1], high[1], marks_y);
    else
        tri_ruler_fit(&plot->axis_y, low[1], high[1], marks_y, true);
    return TR_OK;
}

/* ---- fewer points ---- */

static size_t put_two(tri_plot_point *out, const tri_plot_point *least,
                      const tri_plot_point *greatest)
{
    bool falls = greatest->x < least->x;
    out[0] = falls ? *greatest : *least;
    out[1] = falls ? *least : *greatest;
    return out[0].x == out[1].x && out[0].y == out[1].y ? 1 : 2;
}

size_t tri_plot_reduce(const tri_plot *plot, const tri_plot_curve *curve, bool means, int buckets,
                       tri_plot_point *out)
{
    size_t num = 0;
    bool gap = false;
    for (size_t i = 0; i < curve->num;) {
        double place = tri_ruler_place(&plot->axis_x, curve->points[i].x) * buckets;
        int bucket = place < buckets - 1 ? (int)place : buckets - 1;
        tri_plot_point least = {0, NAN}, greatest = {0, NAN};
        for (; i < curve->num; i++) {
            double x = curve->points[i].x;
            place = tri_ruler_place(&plot->axis_x, x) * buckets;
            if ((place < buckets - 1 ? (int)place : buckets - 1) != bucket)
                break;
            tri_plot_point p = {x, means ? curve->means[i] : curve->points[i].y};
            if (isnan(p.y))
                continue;
            if (!(least.y <= p.y))
                least = p;
            if (!(greatest.y >= p.y))
                greatest = p;
        }
        if (!isnan(least.y))
            num += put_two(out + num, &least, &greatest);
        else if (num > 0 && !gap) /* all of it is missing */
            out[num++] = least;
        gap = isnan(least.y);
    }
    return num;
}
