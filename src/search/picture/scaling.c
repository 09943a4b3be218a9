/* Tokens a second over the number of devices, the batch being the same: how far more devices help.
 */
#include <math.h>
#include <stdio.h>

#include "search/picture/search_picture_parts.h"

enum { LEFT = 84, TOP = 62, WIDTH = 960, HEIGHT = 380, RIGHT = 30, LINE = 18 };

static const tri_svg_field field = {LEFT, TOP, WIDTH, HEIGHT};

typedef struct scaling {
    const tri_search_picture *p;
    const tri_scaling_point *points;
    size_t num;
    const tri_scaling_point *asked; /* what others are compared with */
    tri_ruler x, y;
} scaling;

static double rate_of(const scaling *s, const tri_scaling_point *point)
{
    return tri_search_tokens(s->p) / point->seconds;
}

static double ideal_of(const scaling *s, uint32_t devices)
{
    return rate_of(s, s->asked) * devices / s->asked->devices;
}

/* Of measured profiles it may be anything. */
static double error_of(const scaling *s)
{
    return fmin(s->p->machine->error, 0.9);
}

static double x_of(const scaling *s, const tri_scaling_point *point)
{
    return tri_svg_x(&field, &s->x, point->devices);
}

/* Marks are the numbers of devices themselves. */
static void fit_axes(scaling *s)
{
    const double room = 1.25, right = 2; /* where the last number stands */
    double error = error_of(s), low = INFINITY, high = 0;
    const tri_scaling_point *last = &s->points[s->num - 1];
    for (size_t i = 0; i < s->num; i++)
        if (s->points[i].seconds > 0) {
            low = fmin(low, rate_of(s, &s->points[i]) / (1 + error));
            high = fmax(high, rate_of(s, &s->points[i]) / (1 - error));
            low = fmin(low, ideal_of(s, s->points[i].devices));
            high = fmax(high, ideal_of(s, s->points[i].devices));
        }
    tri_ruler_fit_log(&s->x, s->points[0].devices / room, last->devices * right, 8);
    s->x.num_ticks = 0;
    for (size_t i = 0; i < s->num; i++)
        s->x.ticks[s->x.num_ticks++] = s->points[i].devices;
    tri_ruler_fit_log(&s->y, low / room, high * room, 8);
}

/* One edge of the band: as much faster or slower as times are usually off. */
static void add_edge(const scaling *s, double factor, bool back, tri_text *text)
{
    bool first = !back;
    for (size_t n = 0; n < s->num; n++) {
        const tri_scaling_point *point = &s->points[back ? s->num - 1 - n : n];
        if (point->seconds <= 0)
            continue;
        tri_text_add(text, "%s%.1f %.1f", first ? "M" : "L", x_of(s, point),
                     tri_svg_y(&field, &s->y, rate_of(s, point) * factor));
        first = false;
    }
}

static void draw_lines(const scaling *s, tri_text *text)
{
    const tri_scaling_point *last = &s->points[s->num - 1], *first = last;
    double error = error_of(s);
    for (size_t i = s->num; i-- > 0;)
        first = s->points[i].seconds > 0 ? &s->points[i] : first;
    tri_text_add(text, "<path class=\"band\" fill=\"#3b76c4\" fill-opacity=\"0.22\" d=\"");
    add_edge(s, 1 / (1 - error), false, text);
    add_edge(s, 1 / (1 + error), true, text);
    tri_text_add(text,
                 "Z\"/>\n<line class=\"ideal\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
                 "stroke=\"#7c8594\" stroke-width=\"1.6\" stroke-dasharray=\"7 4\"/>\n",
                 x_of(s, first), tri_svg_y(&field, &s->y, ideal_of(s, first->devices)),
                 x_of(s, last), tri_svg_y(&field, &s->y, ideal_of(s, last->devices)));
    tri_text_add(text, "<path fill=\"none\" stroke=\"#3b76c4\" stroke-width=\"2\" d=\"");
    add_edge(s, 1, false, text);
    tri_text_add(text, "\"/>\n");
}

static void draw_points(const scaling *s, tri_text *text)
{
    for (size_t i = 0; i < s->num; i++) {
        const tri_scaling_point *point = &s->points[i];
        bool asked = point == s->asked;
        char count[16];
        if (point->seconds <= 0) {
            tri_search_line(text, x_of(s, point), TOP + HEIGHT - 10, 11, "middle", "none fits");
            continue;
        }
        double y = tri_svg_y(&field, &s->y, rate_of(s, point));
        tri_text_add(text, "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\">",
                     x_of(s, point), y, asked ? "6" : "4.5", asked ? "#c63d3d" : "#3b76c4");
        tri_svg_hover(text, "%u devices: %.9g s, %.0f bytes: %s", point->devices, point->seconds,
                      point->bytes, point->layout);
        tri_text_add(text, "</circle>\n");
        bool falls = i + 1 < s->num && s->points[i + 1].seconds > point->seconds;
        tri_search_line(text, x_of(s, point) + 8, falls ? y - 12 : y + 20, 12, "start",
                        "%s, %.0f %%", tri_text_count(rate_of(s, point), count),
                        100 * rate_of(s, point) / ideal_of(s, point->devices));
    }
}

static void draw_table(const scaling *s, tri_text *text)
{
    static const double column[] = {70, 150, 240, 310, 330};
    double y = TOP + HEIGHT + 96;
    static const char *const heads[] = {"devices", "step", "tokens/s", "of ideal", "the fastest"};
    for (int i = 0; i < 5; i++)
        tri_search_line(text, LEFT - 30 + column[i], y, 11, i < 4 ? "end" : "start", "%s",
                        heads[i]);
    for (size_t i = 0; i < s->num; i++) {
        const tri_scaling_point *point = &s->points[i];
        char seconds[24], count[16];
        y += LINE;
        tri_search_line(text, LEFT - 30 + column[0], y, 11, "end", "%u", point->devices);
        tri_search_line(text, LEFT - 30 + column[4], y, 11, "start", "%s", point->layout);
        if (point->seconds <= 0)
            continue;
        tri_search_line(text, LEFT - 30 + column[1], y, 11, "end", "%s",
                        tri_search_seconds(point->seconds, seconds));
        tri_search_line(text, LEFT - 30 + column[2], y, 11, "end", "%s",
                        tri_text_count(rate_of(s, point), count));
        tri_search_line(text, LEFT - 30 + column[3], y, 11, "end", "%.0f %%",
                        100 * rate_of(s, point) / ideal_of(s, point->devices));
    }
}

void tri_scaling_draw(const tri_search_picture *p, const tri_scaling_point *points, size_t num,
                      tri_text *text)
{
    scaling s = {.p = p, .points = points, .num = num};
    char name[96];
    for (size_t i = 0; i < num; i++)
        if (points[i].devices == p->machine->devices)
            s.asked = &points[i];
    fit_axes(&s);
    tri_search_picture_begin(p, text, LEFT + WIDTH + RIGHT, TOP + HEIGHT + 116 + (double)num * LINE,
                             "the same batch on more devices and fewer", false);
    tri_svg_axes(text, &field, &s.x, "devices", &s.y, "tokens/s");
    draw_lines(&s, text);
    draw_points(&s, text);
    snprintf(name, sizeof name,
             "the fastest of few layouts of each size; times are usually off by %.0f %%",
             100 * p->machine->error);
    double x = tri_svg_key(text, LEFT, TOP + HEIGHT + 54, "#3b76c4", name);
    x = tri_svg_key(text, x, TOP + HEIGHT + 54, "#c63d3d", "devices that were asked for");
    snprintf(name, sizeof name, "dashed: in proportion to %u device%s", s.asked->devices,
             s.asked->devices == 1 ? "" : "s");
    tri_search_line(text, x, TOP + HEIGHT + 65, 12, "start", "%s", name);
    draw_table(&s, text);
    tri_svg_end(text);
}
