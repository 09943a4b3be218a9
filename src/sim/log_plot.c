#include "sim/log_plot.h"

#include <math.h>
#include <string.h>

enum {
    PLOT_WIDTH = 560,
    PLOT_HEIGHT = 250,
    LEFT = 70,
    TOP = 46,
    LEGEND = 170,
    PANEL = PLOT_HEIGHT + 100,
    NUM_COLOURS = 10
};

/* Told apart by people who see colours otherwise, too, and on paper by their marks. */
static const char *const colours[NUM_COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#8a6d00", "#56b4e9", "#000000", "#7a3ea1",
                                                 "#b22222", "#5f7f2f"};

typedef struct axis_scale {
    double low, high; /* of the logarithm */
    double from, to;  /* in the picture */
} axis_scale;

static double place(const axis_scale *s, double value)
{
    return s->from + (log10(value) - s->low) / (s->high - s->low) * (s->to - s->from);
}

/* Sizes as they are, values to whole decades. */
static void fit(const tri_log_panel *panel, axis_scale *x, axis_scale *y)
{
    double least = 1e300, most = 0, first = 1e300, last = 0;
    for (size_t l = 0; l < panel->num_lines; l++)
        for (size_t i = 0; i < panel->lines[l].num_points; i++) {
            const tri_log_point *p = &panel->lines[l].points[i];
            if (!(p->x > 0 && p->y > 0))
                continue;
            least = fmin(least, p->y);
            most = fmax(most, p->y);
            first = fmin(first, p->x);
            last = fmax(last, p->x);
        }
    if (most <= 0)
        least = most = first = last = 1;
    *x = (axis_scale){log10(first), log10(last), LEFT, LEFT + PLOT_WIDTH};
    if (x->high <= x->low) {
        x->low -= 0.5;
        x->high += 0.5;
    }
    *y = (axis_scale){floor(log10(least)), ceil(log10(most)), TOP + PLOT_HEIGHT, TOP};
    if (y->high <= y->low)
        y->high = y->low + 1;
}

static void draw_label(tri_text *out, const axis_scale *x, double value, const char *label)
{
    tri_text_add(out,
                 "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#eee\"/>\n"
                 "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                 place(x, value), TOP, place(x, value), TOP + PLOT_HEIGHT, place(x, value),
                 TOP + PLOT_HEIGHT + 18, label);
}

static void draw_bytes(tri_text *out, const axis_scale *x)
{
    static const char *const units[] = {"", " KiB", " MiB", " GiB"};
    int step = x->high - x->low > 5 ? 4 : 2; /* powers of two between labels */
    for (int power = 0; power < 40; power++) {
        char label[24];
        double at = log10(2) * power;
        if (at < x->low - 1e-9 || at > x->high + 1e-9 || power % step != 0)
            continue;
        snprintf(label, sizeof label, "%d%s", 1 << power % 10, units[power / 10]);
        draw_label(out, x, pow(2, power), label);
    }
}

static void draw_decades(tri_text *out, const axis_scale *x)
{
    for (double d = ceil(x->low - 1e-9); d <= x->high + 1e-9; d++) {
        char count[16];
        draw_label(out, x, pow(10, d), tri_text_count(pow(10, d), count));
    }
}

static void draw_axes(tri_text *out, const tri_log_panel *panel, const axis_scale *x,
                      const axis_scale *y)
{
    for (double d = y->low; d <= y->high + 0.01; d++) {
        double at = place(y, pow(10, d));
        tri_text_add(out,
                     "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                     "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                     LEFT, at, LEFT + PLOT_WIDTH, at, LEFT - 8, at + 4, pow(10, d));
    }
    if (panel->binary)
        draw_bytes(out, x);
    else
        draw_decades(out, x);
    tri_text_add(out,
                 "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
                 "stroke=\"#888\"/>\n"
                 "<text x=\"16\" y=\"%d\" transform=\"rotate(-90 16 %d)\" "
                 "text-anchor=\"middle\">%s</text>\n",
                 LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT, TOP + PLOT_HEIGHT / 2, TOP + PLOT_HEIGHT / 2,
                 panel->y_title);
    if (panel->x_title)
        tri_text_add(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                     LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 36, panel->x_title);
}

static void draw_mark(tri_text *out, double x, double y, int which, const char *colour)
{
    if (which % 3 == 0)
        tri_text_add(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y,
                     colour);
    else if (which % 3 == 1)
        tri_text_add(out,
                     "<rect x=\"%.1f\" y=\"%.1f\" width=\"6.4\" height=\"6.4\" fill=\"%s\"/>\n",
                     x - 3.2, y - 3.2, colour);
    else
        tri_text_add(out, "<path d=\"M%.1f %.1fl4 7h-8z\" fill=\"%s\"/>\n", x, y - 4.2, colour);
}

static void draw_line(tri_text *out, const tri_log_line *line, const axis_scale *x,
                      const axis_scale *y, const char *colour)
{
    bool first = true;
    for (size_t i = 0; i < line->num_points && !line->alone; i++) {
        const tri_log_point *p = &line->points[i];
        if (!(p->x > 0 && p->y > 0))
            continue;
        tri_text_add(out, "%s%.1f %.1f", first ? "<path d=\"M" : "L", place(x, p->x),
                     place(y, p->y));
        first = false;
    }
    if (!first)
        tri_text_add(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n", colour,
                     line->dashed ? "1.2" : "1.8", line->dashed ? " stroke-dasharray=\"5 4\"" : "");
}

/* All lines of a name, and the name. */
static void draw_name(tri_text *out, const tri_log_panel *panel, const char *name, int which,
                      const axis_scale *x, const axis_scale *y)
{
    const char *colour = colours[which % NUM_COLOURS];
    double at = TOP + 14 + 20.0 * which, left = LEFT + PLOT_WIDTH + 16;
    bool marks = false;
    for (size_t l = 0; l < panel->num_lines; l++) {
        const tri_log_line *line = &panel->lines[l];
        if (strcmp(line->name, name) != 0)
            continue;
        draw_line(out, line, x, y, colour);
        for (size_t i = 0; i < line->num_points && !line->dashed; i++)
            if (line->points[i].x > 0 && line->points[i].y > 0)
                draw_mark(out, place(x, line->points[i].x), place(y, line->points[i].y), which,
                          colour);
        marks |= !line->dashed;
    }
    tri_text_add(out,
                 "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                 "stroke-width=\"1.8\"/>\n",
                 left, at - 4, left + 26, at - 4, colour);
    if (marks)
        draw_mark(out, left + 13, at - 4, which, colour);
    tri_text_add(out, "<text x=\"%.1f\" y=\"%.1f\">", left + 34, at);
    tri_text_add_svg(out, name);
    tri_text_add(out, "</text>\n");
}

static void draw_panel(tri_text *out, const tri_log_panel *panel, size_t number)
{
    axis_scale x, y;
    int which = 0;
    fit(panel, &x, &y);
    tri_text_add(out, "<g transform=\"translate(0 %zu)\">\n", number * PANEL);
    tri_text_add(out, "<text x=\"%d\" y=\"28\" font-size=\"15\" font-weight=\"bold\">", LEFT);
    tri_text_add_svg(out, panel->title);
    tri_text_add(out, "</text>\n");
    draw_axes(out, panel, &x, &y);
    for (size_t l = 0; l < panel->num_lines; l++) {
        bool seen = false;
        for (size_t k = 0; k < l; k++)
            seen |= strcmp(panel->lines[k].name, panel->lines[l].name) == 0;
        if (!seen)
            draw_name(out, panel, panel->lines[l].name, which++, &x, &y);
    }
    if (panel->note)
        tri_text_add(out, "<text x=\"%d\" y=\"%.1f\" fill=\"#555\">%s</text>\n",
                     LEFT + PLOT_WIDTH + 16, TOP + 14 + 20.0 * which + 8, panel->note);
    tri_text_add(out, "</g>\n");
}

void tri_log_plot(const tri_log_panel *panels, size_t num_panels, tri_text *text)
{
    tri_text_add(text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%zu\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                 LEFT + PLOT_WIDTH + LEGEND, num_panels * PANEL + 8);
    for (size_t i = 0; i < num_panels; i++)
        draw_panel(text, &panels[i], i);
    tri_text_add(text, "</svg>\n");
}
