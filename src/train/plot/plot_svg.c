/* Curves as a picture. Colours follow what the reader prefers, light or dark; a curve is told from
 * others by its colour and, in the legend, by its name. Plain SVG without scripts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void add_style(tri_text *text)
{
    tri_text_add(text,
                 "<style>.bg{fill:#ffffff}.t{fill:#2b313b}.g{stroke:#e1e4e9}.f{stroke:#7c8594;"
                 "fill:none}.c{fill:none;stroke-width:1.6;stroke-linejoin:round}"
                 ".r{opacity:0.3;stroke-width:1}");
    for (int i = 0; i < NUM_COLOURS; i++)
        tri_text_add(text, ".c%d{stroke:%s}", i, light[i]);
    tri_text_add(text, "@media (prefers-color-scheme:dark){.bg{fill:#14171c}.t{fill:#d5d8de}"
                       ".g{stroke:#2b313b}");
    for (int i = 0; i < NUM_COLOURS; i++)
        tri_text_add(text, ".c%d{stroke:%s}", i, dark[i]);
    tri_text_add(text, "}</style>\n");
}

static double x_at(const tri_plot *plot, double x)
{
    return LEFT + tri_plot_place(&plot->axis_x, x) * WIDTH;
}

static double y_at(const tri_plot *plot, double y)
{
    return TOP + (1 - tri_plot_place(&plot->axis_y, y)) * HEIGHT;
}

static void add_axes(const tri_plot *plot, tri_text *text)
{
    char label[32];
    for (int i = 0; i < plot->axis_x.num_ticks; i++) {
        double at = x_at(plot, plot->axis_x.ticks[i]);
        tri_text_add(text,
                     "<line class=\"g\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                     "<text class=\"t\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                     at, TOP, at, TOP + HEIGHT, at, TOP + HEIGHT + 18,
                     tri_plot_tick_text(plot->axis_x.ticks[i], label));
    }
    for (int i = 0; i < plot->axis_y.num_ticks; i++) {
        double at = y_at(plot, plot->axis_y.ticks[i]);
        tri_text_add(text,
                     "<line class=\"g\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                     "<text class=\"t\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                     LEFT, at, LEFT + WIDTH, at, LEFT - 8, at + 4,
                     tri_plot_tick_text(plot->axis_y.ticks[i], label));
    }
    tri_text_add(text,
                 "<rect class=\"f\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n"
                 "<text class=\"t\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                 LEFT, TOP, WIDTH, HEIGHT, LEFT + WIDTH / 2, TOP + HEIGHT + 38,
                 plot->x_title ? plot->x_title : tri_plot_x_title(plot->x));
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
    int width = LEFT + WIDTH + RIGHT, height = TOP + HEIGHT + BOTTOM + LEGEND * plot->num + 8;
    tri_text_add(text,
                 TRI_PLOT_SVG_MARK "\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
                                   "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"Helvetica, "
                                   "Arial, sans-serif\" font-size=\"12\">\n",
                 width, height, width, height);
    add_style(text);
    tri_text_add(text,
                 "<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n"
                 "<text class=\"t\" x=\"%d\" y=\"26\" font-size=\"15\" font-weight=\"bold\">%s",
                 LEFT, tri_plot_y_title(plot->y));
    if (plot->smooth > 1)
        tri_text_add(text, ", mean of %lld points", (long long)plot->smooth);
    tri_text_add(text, "</text>\n");
    add_axes(plot, text);
    for (int i = 0; i < plot->num && plot->smooth > 1; i++)
        add_curve(plot, i, false, true, text);
    for (int i = 0; i < plot->num; i++)
        add_curve(plot, i, plot->smooth > 1, false, text);
    add_legend(plot, text);
    tri_text_add(text, "</svg>\n");
    return text->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture") : TR_OK;
}

tr_status tri_plot_may_save(const char *path, tr_error *err)
{
    char begin[sizeof TRI_PLOT_SVG_MARK] = "";
    TRI_TRY(tri_check_output(path, false, err));
    FILE *file = fopen(path, "re");
    size_t num = file ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file)
        fclose(file);
    if ((!file && !tri_path_exists(path)) ||
        (file && (num == 0 || strcmp(begin, TRI_PLOT_SVG_MARK) == 0)))
        return TR_OK;
    return tri_fail(err, TR_ERROR_INPUT,
                    "%s: there is a file of that name, and it is no picture that trireme plot "
                    "drew; give another name, or move that away",
                    path);
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
