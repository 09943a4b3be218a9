/* Bandwidth against size as a picture: a panel for each operation, a line for each algorithm, and,
 * dashed, what the formulas say at measured prices. SVG, so that it can be looked at anywhere; both
 * axes are logarithmic. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/text.h"
#include "cli/bench/bench_comm.h"

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

typedef struct scale {
    double low, high; /* of the logarithm */
    double from, to;  /* in the picture */
} scale;

static double place(const scale *s, double value)
{
    return s->from + (log10(value) - s->low) / (s->high - s->low) * (s->to - s->from);
}

static double bandwidth(const tri_comm_point *p, double seconds)
{
    return (double)p->bytes / seconds * 1e-9 * tri_comm_bus_factor(p->coll, p->num_ranks);
}

/* Whole decades around all values of a panel. */
static void fit(const tri_comm_plot *plot, tri_coll coll, scale *x, scale *y)
{
    double least = 1e300, most = 0, first = 1e300, last = 0;
    for (size_t i = 0; i < plot->num; i++) {
        const tri_comm_point *p = &plot->points[i];
        if (p->coll != coll)
            continue;
        double values[2] = {bandwidth(p, p->seconds),
                            p->predicted > 0 ? bandwidth(p, p->predicted) : 0};
        for (int k = 0; k < 2; k++) {
            least = values[k] > 0 && values[k] < least ? values[k] : least;
            most = values[k] > most ? values[k] : most;
        }
        first = (double)p->bytes < first ? (double)p->bytes : first;
        last = (double)p->bytes > last ? (double)p->bytes : last;
    }
    *x = (scale){log10(first), log10(last), LEFT, LEFT + PLOT_WIDTH};
    if (x->high <= x->low) {
        x->low -= 0.5;
        x->high += 0.5;
    }
    *y = (scale){floor(log10(least)), ceil(log10(most)), TOP + PLOT_HEIGHT, TOP};
    if (y->high <= y->low)
        y->high = y->low + 1;
}

static void draw_axes(tri_text *out, const scale *x, const scale *y)
{
    for (double d = y->low; d <= y->high + 0.01; d++) {
        double at = place(y, pow(10, d));
        tri_text_add(out,
                     "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                     "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                     LEFT, at, LEFT + PLOT_WIDTH, at, LEFT - 8, at + 4, pow(10, d));
    }
    static const char *const units[] = {"", " KiB", " MiB", " GiB"};
    int step = x->high - x->low > 5 ? 4 : 2; /* powers of two between labels */
    for (int power = 0; power < 40; power++) {
        double at = log10(2) * power;
        if (at < x->low - 1e-9 || at > x->high + 1e-9 || power % step != 0)
            continue;
        tri_text_add(out,
                     "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#eee\"/>\n"
                     "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d%s</text>\n",
                     place(x, pow(2, power)), TOP, place(x, pow(2, power)), TOP + PLOT_HEIGHT,
                     place(x, pow(2, power)), TOP + PLOT_HEIGHT + 18, 1 << power % 10,
                     units[power / 10]);
    }
    tri_text_add(out,
                 "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
                 "stroke=\"#888\"/>\n"
                 "<text x=\"16\" y=\"%d\" transform=\"rotate(-90 16 %d)\" "
                 "text-anchor=\"middle\">bus bandwidth, GB/s</text>\n",
                 LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT, TOP + PLOT_HEIGHT / 2, TOP + PLOT_HEIGHT / 2);
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

static void draw_line(tri_text *out, const tri_comm_plot *plot, tri_coll coll,
                      const char *algorithm, bool predicted, const scale *x, const scale *y,
                      const char *colour)
{
    bool first = true;
    for (size_t i = 0; i < plot->num; i++) {
        const tri_comm_point *p = &plot->points[i];
        double seconds = predicted ? p->predicted : p->seconds;
        if (p->coll != coll || strcmp(p->algorithm, algorithm) != 0 || seconds <= 0)
            continue;
        tri_text_add(out, "%s%.1f %.1f", first ? "<path d=\"M" : "L", place(x, (double)p->bytes),
                     place(y, bandwidth(p, seconds)));
        first = false;
    }
    if (!first)
        tri_text_add(out, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s/>\n", colour,
                     predicted ? "1.2" : "1.8", predicted ? " stroke-dasharray=\"5 4\"" : "");
}

static void draw_algorithm(tri_text *out, const tri_comm_plot *plot, tri_coll coll,
                           const char *algorithm, int which, const scale *x, const scale *y)
{
    const char *colour = colours[which % NUM_COLOURS];
    double at = TOP + 14 + 20.0 * which, left = LEFT + PLOT_WIDTH + 16;
    draw_line(out, plot, coll, algorithm, true, x, y, colour);
    draw_line(out, plot, coll, algorithm, false, x, y, colour);
    for (size_t i = 0; i < plot->num; i++) {
        const tri_comm_point *p = &plot->points[i];
        if (p->coll == coll && strcmp(p->algorithm, algorithm) == 0)
            draw_mark(out, place(x, (double)p->bytes), place(y, bandwidth(p, p->seconds)), which,
                      colour);
    }
    tri_text_add(out,
                 "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
                 "stroke-width=\"1.8\"/>\n",
                 left, at - 4, left + 26, at - 4, colour);
    draw_mark(out, left + 13, at - 4, which, colour);
    tri_text_add(out, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", left + 34, at, algorithm);
}

static void draw_panel(tri_text *out, const tri_comm_plot *plot, tri_coll coll, int panel)
{
    scale x, y;
    int which = 0;
    bool predicts = false;
    fit(plot, coll, &x, &y);
    tri_text_add(out, "<g transform=\"translate(0 %d)\">\n", panel * PANEL);
    tri_text_add(out,
                 "<text x=\"%d\" y=\"28\" font-size=\"15\" font-weight=\"bold\">%s, %d ranks over "
                 "%s</text>\n",
                 LEFT, tri_coll_name(coll), plot->points[0].num_ranks, plot->transport);
    draw_axes(out, &x, &y);
    for (size_t i = 0; i < plot->num; i++) {
        const tri_comm_point *p = &plot->points[i];
        bool seen = p->coll != coll;
        for (size_t j = 0; j < i; j++)
            seen |= plot->points[j].coll == coll &&
                    strcmp(plot->points[j].algorithm, p->algorithm) == 0;
        if (!seen)
            draw_algorithm(out, plot, coll, p->algorithm, which++, &x, &y);
        predicts |= p->predicted > 0;
    }
    if (predicts)
        tri_text_add(out, "<text x=\"%d\" y=\"%.1f\" fill=\"#555\">dashed: the formula</text>\n",
                     LEFT + PLOT_WIDTH + 16, TOP + 14 + 20.0 * which + 8);
    tri_text_add(out, "</g>\n");
}

tr_status tri_comm_plot_write(const tri_comm_plot *plot, const char *path, tr_error *err)
{
    tri_coll panels[TRI_NUM_COLLS];
    int num_panels = 0;
    for (size_t i = 0; i < plot->num; i++) {
        bool seen = plot->points[i].bytes == 0; /* a barrier has no bandwidth */
        for (int k = 0; k < num_panels; k++)
            seen |= panels[k] == plot->points[i].coll;
        if (!seen)
            panels[num_panels++] = plot->points[i].coll;
    }
    if (num_panels == 0)
        return tri_fail(err, TR_ERROR_INPUT, "%s: there is nothing to draw", path);
    tri_text out;
    tri_text_init(&out);
    tri_text_add(&out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                 LEFT + PLOT_WIDTH + LEGEND, num_panels * PANEL + 8);
    for (int k = 0; k < num_panels; k++)
        draw_panel(&out, plot, panels[k], k);
    tri_text_add(&out, "</svg>\n");
    tr_status status = !out.failed
                           ? tri_file_replace(path, out.chars, out.length, err)
                           : tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture %s", path);
    tri_text_fini(&out);
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
