/* Curves as a picture. Colours follow what the reader prefers, light or dark; a curve is told from
 * others by its colour and, in the legend, by its name. Plain SVG without scripts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/draw/svg.h"
#include "base/fs.h"
#include "train/plot/plot.h"

enum {
    WIDTH = 720,
    HEIGHT = 360,
    LEFT = 74,
    TOP = 44,
    RIGHT = 24,
    BOTTOM = 52,
    LEGEND = 20,
    BUCKETS = 200,
    NUM_COLOURS = 8
};

static const char *const light[NUM_COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#b5488a",
                                               "#8a6d00", "#3a8fc7", "#7a3ea1", "#b22222"};
static const char *const dark[NUM_COLOURS] = {"#56b4e9", "#ff9b54", "#3ddbae", "#f09bd0",
                                              "#e0c040", "#9cd3f5", "#c79be8", "#ff7b7b"};

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};

static void add_style(tri_text *text)
{
    tri_text_add(text, "<style>.c{fill:none;stroke-width:1.6;stroke-linejoin:round}"
                       ".r{opacity:0.3;stroke-width:1}");
    for (int i = 0; i < NUM_COLOURS; i++)
        tri_text_add(text, ".c%d{stroke:%s}", i, light[i]);
    tri_text_add(text, "@media (prefers-color-scheme:dark){");
    for (int i = 0; i < NUM_COLOURS; i++)
        tri_text_add(text, ".c%d{stroke:%s}", i, dark[i]);
    tri_text_add(text, "}</style>\n");
}

static double x_at(const tri_plot *plot, double x)
{
    return tri_svg_x(&field, &plot->axis_x, x);
}

static double y_at(const tri_plot *plot, double y)
{
    return tri_svg_y(&field, &plot->axis_y, y);
}

/* When there are more curves than colours. */
static const char *dashes(int which)
{
    static const char *const ways[] = {"", "stroke-dasharray=\"7 3\" ",
                                       "stroke-dasharray=\"2 3\" "};
    return ways[which / NUM_COLOURS % 3];
}

static void add_dots(const tri_plot *plot, const tri_plot_curve *c, tri_text *text)
{
    for (size_t i = 0; i < c->num; i++)
        if (!isnan(c->points[i].y))
            tri_text_add(text, "M%.1f %.1fh0.1", x_at(plot, c->points[i].x),
                         y_at(plot, c->points[i].y));
}

static void add_line(const tri_plot *plot, const tri_plot_curve *c, bool means, tri_text *text)
{
    tri_plot_point points[2 * BUCKETS];
    size_t num = tri_plot_reduce(plot, c, means, BUCKETS, points);
    bool pen = false;
    for (size_t i = 0; i < num; i++) {
        bool drawn = !isnan(points[i].y);
        if (drawn)
            tri_text_add(text, "%s%.1f %.1f", pen ? "L" : "M", x_at(plot, points[i].x),
                         y_at(plot, points[i].y));
        if (drawn && !pen && (i + 1 == num || isnan(points[i + 1].y)))
            tri_text_add(text, "h0.1"); /* one point alone is a dot */
        pen = drawn;
    }
}

static void add_curve(const tri_plot *plot, int which, bool means, bool behind, tri_text *text)
{
    const tri_plot_curve *c = &plot->curves[which];
    tri_text_add(text, "<path class=\"c c%d%s\" %sd=\"", which % NUM_COLOURS, behind ? " r" : "",
                 c->dots ? "style=\"stroke-width:6\" " : dashes(which));
    if (c->dots)
        add_dots(plot, c, text);
    else
        add_line(plot, c, means, text);
    tri_text_add(text, "\" stroke-linecap=\"round\"/>\n");
}

static void add_legend(const tri_plot *plot, tri_text *text)
{
    for (int i = 0; i < plot->num; i++) {
        int y = TOP + HEIGHT + BOTTOM + LEGEND * i + 8;
        tri_text_add(text,
                     "<path class=\"c c%d\" %sd=\"M%d %dh24\" style=\"stroke-width:3\"/>"
                     "<text class=\"t\" x=\"%d\" y=\"%d\">",
                     i % NUM_COLOURS, dashes(i), LEFT, y, LEFT + 32, y + 4);
        tri_text_add_svg(text, plot->curves[i].name);
        tri_text_add(text, "</text>\n");
    }
}

static tr_status draw(const tri_plot *plot, tri_text *text, tr_error *err)
{
    char title[64] = "", means[64] = "";
    if (plot->smooth > 1)
        snprintf(means, sizeof means, ", mean of %lld points", (long long)plot->smooth);
    snprintf(title, sizeof title, "%s%s", tri_plot_y_title(plot->y), means);
    tri_svg_begin(text, TRI_PLOT_SVG_MARK, LEFT + WIDTH + RIGHT,
                  TOP + HEIGHT + BOTTOM + LEGEND * plot->num + 8);
    add_style(text);
    tri_svg_heading(text, LEFT, title);
    tri_svg_axes(text, &field, &plot->axis_x,
                 plot->x_title ? plot->x_title : tri_plot_x_title(plot->x), &plot->axis_y, NULL);
    for (int i = 0; i < plot->num && plot->smooth > 1; i++)
        add_curve(plot, i, false, true, text);
    for (int i = 0; i < plot->num; i++)
        add_curve(plot, i, plot->smooth > 1, false, text);
    add_legend(plot, text);
    tri_svg_end(text);
    return text->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture") : TR_OK;
}

tr_status tri_plot_may_save(const char *path, tr_error *err)
{
    return tri_svg_may_replace(path, TRI_PLOT_SVG_MARK, "trireme plot", err);
}

tr_status tri_plot_save(tri_plot *plot, const char *path, tr_error *err)
{
    tri_text text;
    TRI_TRY(tri_plot_may_save(path, err));
    TRI_TRY(tri_plot_fit(plot, 8, 7, err));
    tri_text_init(&text);
    tr_status status = draw(plot, &text, err);
    if (status == TR_OK)
        status = tri_file_replace(path, text.chars, text.length, err);
    tri_text_fini(&text);
    return status;
}
