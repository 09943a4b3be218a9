/* Bandwidth against size as a picture: a panel for each operation, a line for each algorithm, and,
 * dashed, what the formulas say at measured prices. SVG, so that it can be looked at anywhere; both
 * axes are logarithmic (sim/log_plot.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "cli/bench/bench_comm.h"
#include "sim/log_plot.h"

static double bandwidth(const tri_comm_point *p, double seconds)
{
    return (double)p->bytes / seconds * 1e-9 * tri_comm_bus_factor(p->coll, p->num_ranks);
}

/* What the panels of a picture point into. */
typedef struct comm_picture {
    const tri_comm_plot *plot;
    tri_log_panel panels[TRI_NUM_COLLS];
    tri_log_line *lines; /* two for each row at most: measured, and by the formula */
    tri_log_point *points;
    size_t num_panels, num_lines, num_points;
} comm_picture;

/* The rows of an operation and algorithm. */
static bool add_line(comm_picture *p, tri_coll coll, const char *algorithm, bool predicted)
{
    tri_log_line line = {
        .name = algorithm, .points = &p->points[p->num_points], .dashed = predicted};
    for (size_t i = 0; i < p->plot->num; i++) {
        const tri_comm_point *row = &p->plot->points[i];
        double seconds = predicted ? row->predicted : row->seconds;
        if (row->coll != coll || strcmp(row->algorithm, algorithm) != 0 || seconds <= 0)
            continue;
        p->points[p->num_points++] = (tri_log_point){(double)row->bytes, bandwidth(row, seconds)};
        line.num_points++;
    }
    if (line.num_points > 0)
        p->lines[p->num_lines++] = line;
    return line.num_points > 0;
}

static void add_panel(comm_picture *p, tri_coll coll)
{
    tri_log_panel *panel = &p->panels[p->num_panels++];
    const tri_comm_plot *plot = p->plot;
    bool predicts = false;
    *panel = (tri_log_panel){
        .y_title = "bus bandwidth, GB/s", .binary = true, .lines = &p->lines[p->num_lines]};
    snprintf(panel->title, sizeof panel->title, "%s, %d ranks over %s", tri_coll_name(coll),
             plot->points[0].num_ranks, plot->transport);
    size_t first = p->num_lines;
    for (size_t i = 0; i < plot->num; i++) {
        bool seen = plot->points[i].coll != coll;
        for (size_t j = 0; j < i; j++)
            seen |= plot->points[j].coll == coll &&
                    strcmp(plot->points[j].algorithm, plot->points[i].algorithm) == 0;
        if (seen)
            continue;
        predicts |= add_line(p, coll, plot->points[i].algorithm, true);
        add_line(p, coll, plot->points[i].algorithm, false);
    }
    panel->num_lines = p->num_lines - first;
    panel->note = predicts ? "dashed: the formula" : NULL;
}

static bool has_panel(const tri_comm_plot *plot, tri_coll coll)
{
    for (size_t i = 0; i < plot->num; i++)
        if (plot->points[i].coll == coll && plot->points[i].bytes > 0)
            return true;
    return false; /* a barrier has no bandwidth */
}

tr_status tri_comm_plot_write(const tri_comm_plot *plot, const char *path, tr_error *err)
{
    comm_picture p = {.plot = plot};
    p.lines = calloc(2 * plot->num + 1, sizeof *p.lines);
    p.points = calloc(2 * plot->num + 1, sizeof *p.points);
    tri_text text;
    tri_text_init(&text);
    bool ready = p.lines && p.points;
    for (size_t i = 0; ready && i < plot->num; i++) {
        bool seen = !has_panel(plot, plot->points[i].coll);
        for (size_t j = 0; j < i; j++)
            seen |= plot->points[j].coll == plot->points[i].coll;
        if (!seen)
            add_panel(&p, plot->points[i].coll);
    }
    tr_status status = TR_OK;
    if (ready && p.num_panels == 0)
        status = tri_fail(err, TR_ERROR_INPUT, "%s: there is nothing to draw", path);
    else if (ready)
        tri_log_plot(p.panels, p.num_panels, &text);
    if (status == TR_OK)
        status = ready && !text.failed
                     ? tri_file_replace(path, text.chars, text.length, err)
                     : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture %s", path);
    tri_text_fini(&text);
    free(p.lines);
    free(p.points);
    return status;
}

tr_status tri_comm_plot_add(tri_comm_plot *plot, const tri_comm_point *point, tr_error *err)
{
    if (plot->num == plot->capacity) {
        size_t capacity = plot->capacity ? 2 * plot->capacity : 64;
        tri_comm_point *points = realloc(plot->points, capacity * sizeof *points);
        if (!points)
            return tri_fail(err, TR_ERROR_RUNTIME, "no memory for a picture");
        plot->points = points;
        plot->capacity = capacity;
    }
    plot->points[plot->num++] = *point;
    return TR_OK;
}
