#include "sim/whole_run/goodput_curves.h"

#include <math.h>
#include <stddef.h>

#include "base/draw/svg.h"

enum { LEFT = 84, TOP = 66, WIDTH = 640, HEIGHT = 260, PANEL = HEIGHT + 120, RIGHT = 36 };

const char tri_goodput_mark[] = "<!-- trireme whole run -->";

/* ---- points ---- */

int tri_goodput_over_intervals(const tri_goodput_case *c, tri_goodput points[TRI_GOODPUT_POINTS])
{
    tri_goodput best;
    tri_goodput_case other = tri_goodput_resized(c, c->num_devices);
    int num = 0;
    if (tri_goodput_of(&other, &best, NULL) != TR_OK)
        return 0;
    double least = c->step_s * best.slowest, most = best.ideal_s * best.slowest;
    for (int i = 0; i < TRI_GOODPUT_POINTS; i++) {
        other.interval_s = best.interval_s * pow(30, 2.0 * i / (TRI_GOODPUT_POINTS - 1) - 1);
        if (other.interval_s >= least * (1 - 1e-9) && other.interval_s <= most * (1 + 1e-9) &&
            tri_goodput_of(&other, &points[num], NULL) == TR_OK)
            num++;
    }
    return num;
}

static int add_size(const tri_goodput_case *c, double size, tri_goodput *points, int num)
{
    tri_goodput_case other = tri_goodput_resized(c, size);
    return num < TRI_GOODPUT_POINTS && tri_goodput_of(&other, &points[num], NULL) == TR_OK ? num + 1
                                                                                           : num;
}

int tri_goodput_over_sizes(const tri_goodput_case *c, tri_goodput points[TRI_GOODPUT_POINTS])
{
    static const double factor[] = {1, 2, 5};
    double most = fmax(TRI_GOODPUT_MOST_DEVICES, c->num_devices), last = 0;
    int num = 0;
    for (int i = 0; last < most; i++) {
        double size = fmin(factor[i % 3] * pow(10, i / 3), most);
        if (last < c->num_devices && c->num_devices < size)
            num = add_size(c, c->num_devices, points, num);
        num = add_size(c, size, points, num);
        last = size;
    }
    return num;
}

/* ---- the picture ---- */

typedef struct goodput_panel {
    const char *title, *x_title;
    bool sizes; /* over devices; otherwise over the interval */
    tri_goodput points[TRI_GOODPUT_POINTS];
    int num;
    struct {
        const char *label;
        tri_goodput at;
    } marks[2];
    int num_marks;
    tri_ruler x, y;
} goodput_panel;

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};
static const char *const colours[] = {"#0072b2", "#d55e00"};
static const char *const names[] = {"goodput", "effective time (waiting for the slowest counts)"};

static double x_of(const goodput_panel *p, const tri_goodput *g)
{
    return p->sizes ? g->num_devices : g->interval_s / 60;
}

static double place_x(const goodput_panel *p, const tri_goodput *g)
{
    return tri_svg_x(&field, &p->x, x_of(p, g));
}

static double place_y(const goodput_panel *p, const tri_goodput *g, int which)
{
    return tri_svg_y(&field, &p->y, 100 * (which ? g->effective : g->goodput));
}

static void draw_curve(const goodput_panel *p, int which, tri_text *text)
{
    for (int i = 0; i < p->num; i++)
        tri_text_add(text, "%s%.1f %.1f", i == 0 ? "<path d=\"M" : "L", place_x(p, &p->points[i]),
                     place_y(p, &p->points[i], which));
    tri_text_add(text, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"%s/>\n", colours[which],
                 which ? " stroke-dasharray=\"5 4\"" : "");
}

static void draw_dot(const goodput_panel *p, const tri_goodput *g, const char *label,
                     tri_text *text)
{
    double x = place_x(p, g), y = place_y(p, g, 0);
    tri_text_add(text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\">", x, y,
                 label ? "5" : "2.2", colours[0]);
    tri_svg_hover(
        text, "%.0f devices, a save after %.4g min of steps: goodput %.2f %%, %.2f days of %.2f",
        g->num_devices, g->interval_s / 60, 100 * g->goodput, g->wall_s / 86400,
        g->ideal_s / 86400);
    tri_text_add(text, "</circle>\n");
    if (label)
        tri_text_add(text, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n",
                     x, y + (y > TOP + HEIGHT - 24 ? -12 : 20),
                     x > LEFT + 0.75 * WIDTH ? "end" : "middle", label);
}

static void fit_axes(goodput_panel *p)
{
    double from = INFINITY, to = 0, least = 0.99;
    for (int i = 0; i < p->num + p->num_marks; i++) {
        const tri_goodput *g = i < p->num ? &p->points[i] : &p->marks[i - p->num].at;
        from = fmin(from, x_of(p, g));
        to = fmax(to, x_of(p, g));
        least = fmin(least, g->goodput);
    }
    tri_ruler_fit_log(&p->x, from, to, 8);
    tri_ruler_fit(&p->y, 100 * least, 100, 6, true);
}

static void draw_panel(goodput_panel *p, int number, tri_text *text)
{
    double at = LEFT;
    fit_axes(p);
    tri_text_add(text, "<g transform=\"translate(0 %d)\">\n", number * PANEL);
    tri_svg_heading(text, LEFT, p->title);
    for (int which = 0; which < 2; which++)
        at = tri_svg_key(text, at, TOP - 26, colours[which], names[which]);
    tri_svg_axes(text, &field, &p->x, p->x_title, &p->y, "% of the time");
    for (int which = 1; which >= 0; which--)
        draw_curve(p, which, text);
    for (int i = 0; i < p->num; i++)
        draw_dot(p, &p->points[i], NULL, text);
    for (int i = 0; i < p->num_marks; i++)
        draw_dot(p, &p->marks[i].at, p->marks[i].label, text);
    tri_text_add(text, "</g>\n");
}

tr_status tri_goodput_draw(const tri_goodput_case *c, tri_text *text, tr_error *err)
{
    char title[2][120], best[64], given[64];
    goodput_panel intervals = {.title = title[0], .x_title = "minutes of steps between saves"};
    goodput_panel sizes = {.title = title[1], .x_title = "devices", .sizes = true};
    tri_goodput_case free_case = tri_goodput_resized(c, c->num_devices);
    tri_goodput *mark = &intervals.marks[0].at, *own = &intervals.marks[1].at;
    TRI_TRY(tri_goodput_of(&free_case, mark, err));
    TRI_TRY(tri_goodput_of(c, own, err));
    snprintf(title[0], sizeof title[0], "How often to save: %.0f devices, a failure every %.3g h",
             c->num_devices, mark->mtbf_s / 3600);
    snprintf(title[1], sizeof title[1],
             "How far to grow: the same work on more devices, up to %.0f",
             fmax(TRI_GOODPUT_MOST_DEVICES, c->num_devices));
    snprintf(best, sizeof best, "best: %.3g min", mark->interval_s / 60);
    snprintf(given, sizeof given, "given: %.3g min", own->interval_s / 60);
    intervals.marks[0].label = best;
    intervals.marks[1].label = given;
    intervals.num_marks = c->interval_s > 0 ? 2 : 1;
    sizes.marks[0].at = *mark;
    sizes.marks[0].label = "here";
    sizes.num_marks = 1;
    intervals.num = tri_goodput_over_intervals(c, intervals.points);
    sizes.num = tri_goodput_over_sizes(c, sizes.points);
    tri_svg_begin(text, tri_goodput_mark, LEFT + WIDTH + RIGHT, 2 * PANEL);
    draw_panel(&intervals, 0, text);
    draw_panel(&sizes, 1, text);
    tri_svg_end(text);
    return text->failed ? tri_fail(err, TR_ERROR_RUNTIME, "no memory for the picture") : TR_OK;
}
