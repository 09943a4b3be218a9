/* Pictures of a sweep. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "cli/sweep/sweep.h"
#include "train/plot/plot.h"

static tr_status save(const tri_sweep *s, tri_plot *plot, const char *name, FILE *progress,
                      tr_error *err)
{
    char *path = tri_path_join(s->dir, name);
    tr_status status = path ? tri_plot_save(plot, path, err)
                            : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a path");
    if (status == TR_OK)
        tri_text_print(progress, "written to %s\n", path);
    free(path);
    return status;
}

/* Noisy losses are smoothed over a twentieth of the steps. */
static tr_status draw_curves(const tri_sweep *s, const int *order, FILE *progress, tr_error *err)
{
    tri_plot plot = {.y = TRI_PLOT_LOSS, .smooth = s->steps >= 40 ? s->steps / 20 : 1};
    tr_status status = TR_OK;
    for (int i = 0; i < s->num_runs && status == TR_OK; i++) {
        const tri_sweep_run *run = &s->runs[order[i]];
        tri_run_curve curve;
        tr_error why = {0};
        status = tri_run_curve_read(&curve, run->dir, &why);
        if (status == TR_OK) {
            status = tri_plot_add(&plot, run->name, plot.y, &curve, &why);
            tri_run_curve_free(&curve);
            if (status == TR_ERROR_INPUT) /* not one of its losses is finite */
                tri_plot_drop_last(&plot);
        }
        if (status == TR_ERROR_INPUT)
            status = TR_OK;
        else if (status != TR_OK)
            tri_fail(err, status, "%s", why.message);
    }
    if (status == TR_OK && plot.num > 0)
        status = save(s, &plot, "sweep.svg", progress, err);
    tri_plot_free(&plot);
    return status;
}

/* The one number that varies, seeds left out; -1: there is none, or several. */
static int swept_number(const tri_sweep *s)
{
    int found = -1;
    for (int k = 0; k < s->num_keys; k++) {
        if (strstr(s->keys[k].shown, "seed") || s->keys[k].num_values == 1)
            continue;
        if (found >= 0 || !s->keys[k].numeric)
            return -1;
        found = k;
    }
    return found;
}

static int by_x(const void *left, const void *right)
{
    const tri_plot_point *a = left, *b = right;
    return a->x < b->x ? -1 : a->x > b->x;
}

/* The mean of those with equal x; points are in order. Returns how many there are. */
static size_t join_equal(const tri_plot_point *points, size_t num, tri_plot_point *means)
{
    size_t num_means = 0;
    for (size_t i = 0, end; i < num; i = end) {
        double sum = 0;
        for (end = i; end < num && points[end].x == points[i].x; end++)
            sum += points[end].y;
        means[num_means++] = (tri_plot_point){points[i].x, sum / (double)(end - i)};
    }
    return num_means;
}

static tr_status draw_number(const tri_sweep *s, int key, const tri_sweep_result *results,
                             FILE *progress, tr_error *err)
{
    bool held_out = true;
    size_t num = 0;
    tri_plot_point *points = calloc((size_t)s->num_runs + 1, 2 * sizeof *points);
    if (!points)
        return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a picture");
    for (int i = 0; i < s->num_runs; i++)
        held_out &= !results[i].done || results[i].best_step > 0;
    for (int i = 0; i < s->num_runs; i++) {
        double y = held_out ? results[i].best_loss : results[i].loss;
        if (results[i].done && isfinite(y))
            points[num++] = (tri_plot_point){strtod(s->runs[i].value[key], NULL), y};
    }
    qsort(points, num, sizeof *points, by_x);
    tri_plot_point *means = points + s->num_runs + 1;
    size_t num_means = join_equal(points, num, means);
    tri_plot plot = {.y = held_out ? TRI_PLOT_EVAL_LOSS : TRI_PLOT_LOSS,
                     .smooth = 1,
                     .x_title = s->keys[key].name,
                     .log_x = num > 0 && points[0].x > 0 && points[num - 1].x > 5 * points[0].x};
    tr_status status = num_means < 2 ? TR_OK
                                     : tri_plot_add_points(&plot, num_means < num ? "mean" : "runs",
                                                           means, num_means, false, err);
    if (status == TR_OK && num_means >= 2 && num_means < num)
        status = tri_plot_add_points(&plot, "single runs", points, num, true, err);
    if (status == TR_OK && plot.num > 0)
        status = save(s, &plot, "sweep-values.svg", progress, err);
    tri_plot_free(&plot);
    free(points);
    return status;
}

tr_status tri_sweep_draw(const tri_sweep *s, FILE *progress, tr_error *err)
{
    tri_sweep_result *results = calloc((size_t)s->num_runs + 1, sizeof *results);
    int *order = NULL, key = swept_number(s);
    tr_status status = results ? tri_sweep_order(s, results, &order, err)
                               : tri_fail(err, TR_ERROR_RUNTIME, "no memory for a picture");
    if (status == TR_OK)
        status = draw_curves(s, order, progress, err);
    if (status == TR_OK && key >= 0)
        status = draw_number(s, key, results, progress, err);
    free(results);
    free(order);
    return status;
}
